"""SIGKILL of clients of the patterns, ten at once: see `python -m tests.stress.pattern_kills`."""

from pathlib import Path

import pytest

from server_process import ServerProcess
from stress.pattern_kills.run import Run

pytestmark = [pytest.mark.crash, pytest.mark.slow]


def test_what_holds_does_hold(private_server: object, tmp_path: Path) -> None:
    server: ServerProcess = private_server(tmp_path / "data")  # type: ignore[operator]  # a fixture's function
    run = Run(server.connection_string, tmp_path, seed=5, clients=10)
    assert list(run.problems(20)) == []
    print(run)
    assert run.noted["counted"] > 50
    assert run.kills > 20
