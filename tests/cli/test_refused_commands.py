"""Command lines that fail with one sentence and exit status 2, and create nothing: the rows of refused.toml.

They run in this process; test_refusals.py starts the command itself.
"""

import io
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tablestone.cli.main import main

ROWS = tomllib.loads((Path(__file__).parent / "refused.toml").read_text("utf-8"))


@pytest.fixture(autouse=True)
def process_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what `main` changes in its whole process."""
    for name in ("_leave_no_core_dump", "hide_secrets", "prepare_streams"):
        monkeypatch.setattr(f"tablestone.cli.main.{name}", lambda *_: None)


def refused(
    row: list[str],
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    line, sentence, *given = row
    if "--engine" not in line and not line.startswith("azurite"):
        monkeypatch.setenv("TABLESTONE_DATA", str(data))
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(given)))
    assert main(shlex.split(line)) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (
        "",
        f"tablestone: {sentence}\n".replace("DATA", str(data)),
    )


def ids(row: Any) -> str:
    return str(row[0])


@pytest.mark.parametrize("row", ROWS["nothing_stored"], ids=ids)
def test_refused(
    row: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    refused(row, tmp_path / "data", monkeypatch, capsys)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("row", ROWS["another_account_stored"], ids=ids)
def test_refused_beside_another_account(
    row: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["account", "create", "other", "--data", str(tmp_path)]) == 0
    capsys.readouterr()
    refused(row, tmp_path, monkeypatch, capsys)
