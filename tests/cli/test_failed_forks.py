"""The system refuses new processes for a while: the other workers serve, and a later try succeeds."""

import errno
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.worker_processes import is_running, wait_until, workers_of
from server_process import NotReady, ServerProcess
from stress.crash.writers import Connection

StartServer = Callable[..., ServerProcess]

SECONDS_MAX = 30.0
PROGRAM = """
import os, socket, sys
from pathlib import Path
from tablestone.cli.main import main

real = {{"fork": os.fork, "socketpair": socket.socketpair}}["{call}"]

def failing(*given):
    if Path({denied!r}).exists():
        raise OSError({error}, os.strerror({error}))
    return real(*given)

setattr({{"fork": os, "socketpair": socket}}["{call}"], "{call}", failing)
sys.exit(main())
"""

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("call", "error"),
    [("fork", errno.EAGAIN), ("fork", errno.ENOMEM), ("socketpair", errno.EMFILE)],
    ids=["too many processes", "no memory", "too many files"],
)
def test_a_worker_that_cannot_be_replaced_ends_no_other(
    private_server: StartServer, tmp_path: Path, call: str, error: int
) -> None:
    denied = tmp_path / "denied"
    program = PROGRAM.format(call=call, denied=str(denied), error=error)
    server = private_server(
        tmp_path / "data", "--workers=3", command=[sys.executable, "-c", program]
    )
    before = workers_of(server)
    denied.touch()
    killed = min(before)
    os.kill(killed, signal.SIGKILL)
    told = f"A worker process cannot be started: {os.strerror(error)}."
    wait_until(lambda: told in server.stderr, SECONDS_MAX)
    assert workers_of(server) == before - {killed}
    for _ in range(5):
        with Connection(server) as each:
            each.send("GET", "/Tables", expected=200)
    denied.unlink()
    wait_until(lambda: len(workers_of(server)) == 3, SECONDS_MAX)
    with Connection(server) as each:
        each.send("GET", "/Tables", expected=200)
    assert not is_running(killed)
    assert server.stop() == 0
    assert "Traceback" not in server.stderr
    assert server.stderr.count(told) == 1


def test_a_server_without_its_processes_does_not_start(
    private_server: StartServer, tmp_path: Path
) -> None:
    denied = tmp_path / "denied"
    denied.touch()
    program = PROGRAM.format(call="fork", denied=str(denied), error=errno.EAGAIN)
    with pytest.raises(NotReady) as refused:
        private_server(tmp_path / "data", "--workers=3", command=[sys.executable, "-c", program])
    assert str(refused.value) == (
        "exit status 2: tablestone: A worker process cannot be started: "
        f"{os.strerror(errno.EAGAIN)}.\n"
    )
