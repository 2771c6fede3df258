"""The admin address: its pages with any number of workers, its answers while no worker can answer, its refusals."""

import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

import tablestone
from cli.admin_pages import admin_of, json_page, page
from cli.test_refusals import run_command
from cli.worker_processes import (
    LOGGED,
    Probes,
    connections,
    is_running,
    probing,
    wait_until,
    workers_of,
)
from server_process import ServerProcess

StartServer = Callable[..., ServerProcess]
READINESS = "tablestone.server.admin.readiness"
SOON = {f"{READINESS}.READY_SECONDS_MAX": 4.0, f"{READINESS}.LIVE_SECONDS_MAX": 6.0}
"""Time limits after which a worker counts as stuck, for tests that stop one."""
QUICK_STORAGE = {f"{READINESS}.PROBE_SECONDS_MAX": 1.0, f"{READINESS}.PROBE_PAUSE_SECONDS": 0.0}
AT_LENGTH = 60.0
"""How long a condition may take on a busy machine."""


def status_of(server: ServerProcess, path: str) -> int:
    return page(server, path)[0]


def reasons(server: ServerProcess) -> list[str]:
    """Why the server is not ready; empty if it is ready."""
    status, members = json_page(server, "/health/ready")
    assert (status == 503) == ("reasons" in members)
    found: list[str] = members.get("reasons", [])
    return found


def processes_of_workers(server: ServerProcess) -> set[int]:
    """The processes that answer clients, without the one that serves the admin address."""
    with ExitStack() as stack:
        probed = [stack.enter_context(closing(probing(server))) for _ in range(6)]
        return set(Probes(server).processes(probed))


@contextmanager
def stopped(processes: set[int]) -> Iterator[None]:
    """Stop processes with SIGSTOP, as if they were busy forever."""
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


@pytest.mark.parametrize(
    ("engine", "workers"), [("sqlite", 1), ("sqlite", 3), ("memory", 1)], ids=str
)
def test_the_pages(private_server: StartServer, tmp_path: Path, engine: str, workers: int) -> None:
    options = [f"--engine={engine}"] if engine == "memory" else []
    server = private_server(tmp_path, "--admin=0", f"--workers={workers}", *options)
    assert admin_of(server).startswith("127.0.0.1:")
    assert json_page(server, "/health/live") == (200, {"status": "live"})
    wait_until(lambda: reasons(server) == [])
    assert json_page(server, "/health/ready") == (
        200,
        {"status": "ready", "workers": {"ready": workers, "configured": workers}},
    )
    status, version = json_page(server, "/version")
    assert status == 200
    assert version["version"] == tablestone.__version__
    assert (version["engine"], version["workers"]) == (engine, workers)
    with connections(server, 3) as (one, *_):
        one.send("POST", "/Tables", b'{"TableName":"kept"}', expected=201)
    assert server.stop() == 0
    assert server.stderr == ""


def test_other_paths_and_methods(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(tmp_path, "--admin=0", "--workers=1")
    status, text = page(server, "/")
    assert status == 200
    assert "/health/ready" in text
    status, text = page(server, "/devstoreaccount1/Tables")
    assert status == 404
    assert "/health/ready" in text
    assert page(server, "/version", "POST") == (405, "This page can only be read.\n")
    assert page(server, "/version", "HEAD") == (200, "")
    with connections(server, 1) as (one,):  # on the data port, every path belongs to an account
        one.http.request("GET", "/health/live")
        answer = one.http.getresponse()
        assert (answer.status, b"live" in answer.read()) == (404, False)
        assert "x-ms-request-id" in answer.headers


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_the_pages_while_every_worker_is_stuck(
    private_server: StartServer, tmp_path: Path, workers: int
) -> None:
    server = private_server(tmp_path, "--admin=0", LOGGED, f"--workers={workers}", constants=SOON)
    wait_until(lambda: reasons(server) == [])
    serving = processes_of_workers(server)
    assert len(serving) == workers
    with stopped(serving):
        assert status_of(server, "/version") == 200
        wait_until(lambda: status_of(server, "/health/ready") == 503, AT_LENGTH)
        (reason,) = reasons(server)
        assert reason.startswith("No worker process has answered for ")
        wait_until(lambda: status_of(server, "/health/live") == 503, AT_LENGTH)
    wait_until(lambda: reasons(server) == [], AT_LENGTH)
    assert status_of(server, "/health/live") == 200


@pytest.mark.slow
def test_storage_that_is_gone_and_comes_back(private_server: StartServer, tmp_path: Path) -> None:
    data, away = tmp_path / "data", tmp_path / "away"
    server = private_server(data, "--admin=0", constants=QUICK_STORAGE)
    wait_until(lambda: reasons(server) == [])
    data.rename(away)
    wait_until(lambda: reasons(server) == [f"The data directory {data} is gone."], AT_LENGTH)
    assert status_of(server, "/health/live") == 200
    away.rename(data)
    wait_until(lambda: reasons(server) == [], AT_LENGTH)


@pytest.mark.slow
def test_a_full_disk(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(tmp_path, "--admin=0", "--workers=1", constants=QUICK_STORAGE)
    wait_until(lambda: reasons(server) == [])
    for process in workers_of(server):
        resource.prlimit(process, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    wait_until(lambda: reasons(server) != [], AT_LENGTH)
    (reason,) = reasons(server)
    assert reason.startswith("Storage cannot write now: ")
    for process in workers_of(server):
        resource.prlimit(process, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    wait_until(lambda: reasons(server) == [], AT_LENGTH)
    assert server.stop() == 0
    assert run_command("check", "--data", str(tmp_path))[0] == 0


@pytest.mark.slow
def test_a_commit_that_never_ends(private_server: StartServer, tmp_path: Path) -> None:
    """Another process holds the lock that every commit needs."""
    import fcntl  # noqa: PLC0415 - only this test locks a file

    server = private_server(tmp_path, "--admin=0", "--workers=1", constants=QUICK_STORAGE)
    wait_until(lambda: reasons(server) == [])
    with (tmp_path / "commit.lock").open("rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert reasons(server) == ["Storage has not answered within 1 s."]
    wait_until(lambda: reasons(server) == [], AT_LENGTH)
    assert server.stop() == 0


@pytest.mark.slow
def test_a_process_that_dies_is_replaced(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(tmp_path, "--admin=0", "--workers=2")
    before = workers_of(server)
    assert len(before) == 3
    for process in before:
        os.kill(process, signal.SIGKILL)
    wait_until(lambda: len(workers_of(server) - before) == 3, AT_LENGTH)

    def answers() -> bool:
        try:
            return status_of(server, "/health/ready") == 200
        except OSError:
            return False

    wait_until(answers, AT_LENGTH)
    with connections(server, 2):
        pass
    assert server.stop() == 0


def test_the_admin_process_ends_with_the_supervisor(
    private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(tmp_path, "--admin=0", "--workers=1")
    others = workers_of(server)
    assert len(others) == 2
    server.kill()
    wait_until(lambda: not any(map(is_running, others)))


def test_rows_in_memory_end_with_their_worker(private_server: StartServer, tmp_path: Path) -> None:
    """A replacement would start empty, and answer as if there had never been any data."""
    server = private_server(tmp_path, "--admin=0", "--engine=memory", LOGGED)
    (process,) = processes_of_workers(server)
    os.kill(process, signal.SIGKILL)
    assert server.process.wait(20) == 2
    assert server.stop() == 2  # and all that it said is read
    assert server.stderr.endswith(
        f"tablestone: Worker process {process} was ended by signal 9, and its rows are lost.\n"
    )


@pytest.mark.slow
def test_other_machines_may_read_it(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(tmp_path, "--admin=0.0.0.0:0", "--workers=1")
    wait_until(lambda: len(server.stderr_lines) == 1)
    assert server.stderr.endswith(
        f"Other machines can reach the admin address http://{admin_of(server)}, which asks for no key: anyone that "
        "connects can read health and metrics.\n"
    )


def test_a_taken_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run_command("serve", "--port=0", f"--admin={port}", f"--data={tmp_path / 'd'}") == (
            2,
            "",
            f"tablestone: Cannot listen on 127.0.0.1:{port}: address already in use. --admin 0 takes a free port.\n",
        )
    assert not (tmp_path / "d").exists()
