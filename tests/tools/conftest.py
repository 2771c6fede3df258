"""The data tools against the session's server; each test has its own table name."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from server_process import ServerProcess
from tools.data_tools import DataTools

_numbers = count(1)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses between the attempts of a request."""
    monkeypatch.setattr("tablestone.tools.retrying.FIRST_PAUSE_SECONDS", 0.001)


@pytest.fixture
def tools(
    tablestone_server: ServerProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> DataTools:
    return DataTools(tablestone_server.connection_string, tmp_path, capsys, monkeypatch)


@pytest.fixture
def table(tools: DataTools) -> Iterator[str]:
    """The name of a table that no other test uses. It does not exist yet, and is deleted afterwards."""
    name = f"tools{next(_numbers)}"
    connection_string = tools.connection_string
    yield name
    tools.connection_string = connection_string
    tools.run("tables", "--delete", name, "--yes", status=None)
