"""A server ends with the program that started it, also when that is killed: `TABLESTONE_PARENT_PIPE`."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.command_line import tablestone
from cli.worker_processes import AT_ONCE_SECONDS, is_running, wait_until
from server_process import COMMAND, READY_SECONDS_MAX, ServerProcess, clean_environment

StartServer = Callable[..., ServerProcess]

LAUNCHER = """
import os, signal, socket, subprocess, sys, threading

ours, theirs = {pair}

def start():
    global server
    server = subprocess.Popen([{command!r}, *sys.argv[1:]], pass_fds=[int(theirs)],
                              env=os.environ | {{"TABLESTONE_PARENT_PIPE": str(int(theirs))}})

thread = threading.Thread(target=start)
thread.start()
thread.join()
print(f"server {{server.pid}}", flush=True)
sys.exit(server.wait())
"""
"""Starts the server from a thread that ends, and waits."""
PIPE = "reversed(os.pipe())"
SOCKETS = "map(socket.socket.detach, socket.socketpair())"
INFORMED = {"TABLESTONE_LOG_LEVEL": "info"}


def launcher(pair: str) -> list[str]:
    return [sys.executable, "-c", LAUNCHER.format(pair=pair, command=COMMAND)]


def processes_of(first: int) -> set[int]:
    """A process and all that it has started."""
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    return {first}.union(*(processes_of(int(each)) for each in children))


def ends_with(launcher: subprocess.Popen[str], processes: set[int]) -> None:
    launcher.kill()
    try:
        wait_until(lambda: not any(map(is_running, processes)), AT_ONCE_SECONDS)
    finally:
        for each in filter(is_running, processes):
            os.kill(each, signal.SIGKILL)


@pytest.mark.parametrize(
    ("options", "processes", "pair"),
    [
        (("--engine=memory",), 1, PIPE),
        (("--engine=memory", "--control=0"), 1, SOCKETS),
        (("--workers=3",), 4, PIPE),
        (("--workers=1", "--admin=0"), 3, SOCKETS),
    ],
    ids=["memory", "control", "workers", "admin"],
)
def test_it_ends_with_a_launcher_that_is_killed(
    private_server: StartServer, tmp_path: Path, options: tuple[str, ...], processes: int, pair: str
) -> None:
    started = private_server(tmp_path, *options, command=launcher(pair), environment=INFORMED)
    (line,) = [each for each in started.stdout if each.startswith("server ")]
    server = processes_of(int(line.split()[1]))
    assert len(server) == processes
    assert all(map(is_running, server)), "only the thread that started it has ended"
    ends_with(started.process, server)
    started.kill()  # reads the rest of standard error
    assert "stopped: " in started.stderr
    assert "ended by signal" not in started.stderr


def test_the_server_of_the_demo_ends_too() -> None:
    line = [*launcher(PIPE), "demo", "--port=0", "--admin=0", "--no-browser"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=clean_environment()) as demo:
        assert demo.stdout is not None
        first, explorer = demo.stdout.readline(), demo.stdout.readline()
        started = processes_of(int(first.split()[1]))
        assert explorer.startswith("Explorer: ")
        assert len(started) == 4, "the demo, its server with a worker, and the admin address"
        ends_with(demo, started)


def test_a_launcher_that_has_ended_before() -> None:
    ours, theirs = os.pipe()
    os.close(theirs)
    with subprocess.Popen(
        [COMMAND, "serve", "--engine=memory", "--port=0"],
        pass_fds=[ours],
        env=clean_environment() | {"TABLESTONE_PARENT_PIPE": str(ours)},
        stdout=subprocess.PIPE,
    ) as process:
        os.close(ours)
        try:
            printed, _ = process.communicate(timeout=READY_SECONDS_MAX)
        finally:
            process.kill()
    assert (process.returncode, printed) == (-signal.SIGTERM, b"")


@pytest.mark.parametrize("number", ["x", "3.0", "-1", "1000000", "99999999999999999999", "0"])
def test_what_is_not_the_number_of_a_pipe(number: str) -> None:
    environment = clean_environment() | {"TABLESTONE_PARENT_PIPE": number}
    ended = subprocess.run(
        [COMMAND, "serve", "--engine=memory", "--port=0"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=READY_SECONDS_MAX,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "tablestone: TABLESTONE_PARENT_PIPE must be the number of a pipe that this process has inherited, "
        f"not '{number}'.\n"
    )


def test_an_empty_variable_counts_as_not_set() -> None:
    assert tablestone("account", "--help", environment={"TABLESTONE_PARENT_PIPE": ""}).status == 0
