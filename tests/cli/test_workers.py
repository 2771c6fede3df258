"""`tablestone serve --workers N` from outside: one server, however many processes it is, and whichever of them dies."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import sqlite3
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from crash.writers import Connection
from server_process import COMMAND, ServerProcess, clean_environment

StartServer = Callable[..., ServerProcess]
CONNECTIONS = 12
SECONDS_MAX = 10.0
AT_ONCE_SECONDS = 2.0
QUIET = {"Prefer": "return-no-content"}
REQUEST_LINE = re.compile(r"\[(\d+)\] INFO tablestone\.server\.app: GET /probe(\d+) -> \d+ ")


def workers_of(server: ServerProcess) -> set[int]:
    first = server.process.pid
    return set(map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split()))


def is_running(process: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until(holds: Callable[[], bool], seconds: float = SECONDS_MAX) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@contextmanager
def connections(server: ServerProcess, number: int = CONNECTIONS) -> Iterator[list[Connection]]:
    """Kept-alive connections that have been used, and so are all served by now."""
    with ExitStack() as stack:
        opened = [stack.enter_context(Connection(server)) for _ in range(number)]
        for each in opened:
            each.send("GET", "/Tables", expected=200)
        yield opened


class Probes:
    """Which process answers a connection, as the log tells it."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._sent = 0

    def processes(self, probed: list[http.client.HTTPConnection]) -> list[int]:
        first = self._sent
        for each in probed:
            each.request("GET", f"/probe{self._sent}")
            each.getresponse().read()
            self._sent += 1
        wanted = set(range(first, self._sent))
        found: dict[int, int] = {}

        def are_logged() -> bool:
            for process, probe in REQUEST_LINE.findall(self._server.stderr):
                found[int(probe)] = int(process)
            return wanted <= found.keys()

        wait_until(are_logged)
        return [found[number] for number in sorted(wanted)]


def probing(server: ServerProcess) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(server.endpoint).netloc, timeout=20)


# Connections.


@pytest.mark.parametrize("workers", [2, 3])
def test_connections_spread_evenly_and_again_when_some_have_ended(
    private_server: StartServer, tmp_path: Path, workers: int
) -> None:
    server = private_server(tmp_path, f"--workers={workers}", "--log-level=info")
    probes = Probes(server)
    opened = [probing(server) for _ in range(CONNECTIONS)]
    processes = probes.processes(opened)
    assert Counter(processes) == dict.fromkeys(workers_of(server), CONNECTIONS // workers)
    left = []
    for process, each in zip(processes, opened, strict=True):
        if process == processes[0]:
            each.close()
        else:
            left.append(each)
    time.sleep(0.2)  # until the server has seen that they are closed
    opened = left + [probing(server) for _ in range(CONNECTIONS - len(left))]
    processes = probes.processes(opened)
    assert Counter(processes) == dict.fromkeys(workers_of(server), CONNECTIONS // workers)
    for each in opened:
        each.close()


def test_connections_that_never_speak_properly_are_not_counted_for_ever(
    private_server: StartServer, tmp_path: Path
) -> None:
    """No TLS, no word at all, a reset: each ends once, and what comes then is spread evenly."""
    server = private_server(tmp_path, "--workers=2", "--log-level=info", "--tls=self-signed")
    address = ("127.0.0.1", int(str(urlsplit(server.endpoint).port)))
    for number in range(30):
        with socket.create_connection(address, timeout=SECONDS_MAX) as wrong:
            if number % 3 == 0:
                wrong.sendall(b"GET / HTTP/1.1\r\n\r\n")
                while wrong.recv(1000):
                    pass
            if number % 3 == 1:
                wrong.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    time.sleep(0.5)  # until the server has seen that they are gone
    probes = Probes(server)
    context = ssl.create_default_context(cafile=tmp_path / "tls" / "certificate.pem")
    opened = [
        http.client.HTTPSConnection("127.0.0.1", address[1], timeout=20, context=context)
        for _ in range(CONNECTIONS)
    ]
    processes = probes.processes(list(opened))
    assert Counter(processes) == dict.fromkeys(workers_of(server), CONNECTIONS // 2)
    for each in opened:
        each.close()
    assert server.stop() == 0
    assert "Traceback" not in server.stderr


def test_connections_that_come_at_once_are_all_served(
    private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(tmp_path, "--workers=2")
    statuses: list[int] = []

    def ask() -> None:
        each = probing(server)
        each.request("GET", urlsplit(server.endpoint).path)
        statuses.append(each.getresponse().status)
        each.close()

    asking = [threading.Thread(target=ask) for _ in range(300)]
    for each in asking:
        each.start()
    for each in asking:
        each.join(SECONDS_MAX)
    assert len(statuses) == 300


# One server, whoever answers.


@pytest.mark.parametrize("workers", [2, 3])
def test_a_table_is_there_or_gone_for_every_process_at_once(
    private_server: StartServer, tmp_path: Path, workers: int
) -> None:
    server = private_server(tmp_path, f"--workers={workers}")
    path = "/fleeting(PartitionKey='p',RowKey='r')"
    with connections(server) as opened:
        for turn in range(40):
            made, filled, deleted = (opened[(turn + add) % CONNECTIONS] for add in range(3))
            body = json.dumps({"TableName": "fleeting"}).encode()
            made.send("POST", "/Tables", body, expected=204, headers=QUIET)
            entity = json.dumps({"PartitionKey": "p", "RowKey": "r", "turn": turn}).encode()
            filled.send("POST", "/fleeting", entity, expected=204, headers=QUIET)
            for each in opened:
                assert json.loads(each.send("GET", path, expected=200)[1])["turn"] == turn
            deleted.send("DELETE", "/Tables('fleeting')", expected=204)
            for each in opened:
                each.send("GET", path, expected=404)


def test_updates_of_one_entity_through_every_process_lose_nothing(
    private_server: StartServer, tmp_path: Path
) -> None:
    """Counters incremented under the ETag that was read; a client's own property merged; inserts under one key."""
    increments = 15
    server = private_server(tmp_path, "--workers=3")
    path = "/ttt(PartitionKey='p',RowKey='counter')"
    etags: list[str] = []
    inserted: list[int] = []
    failures: list[BaseException] = []

    def work(number: int, each: Connection) -> None:
        try:
            done = 0
            while done < increments:
                response, body = each.send("GET", path, expected=200)
                value = json.dumps({"n": json.loads(body)["n"] + 1}).encode()
                condition = {"If-Match": str(response.getheader("ETag"))}
                etag = attempt(each, "PATCH", path, value, condition, refused=412)
                if etag:
                    etags.append(etag)
                    done += 1
                merged = json.dumps({f"p{number}": done}).encode()
                each.send("PATCH", path, merged, expected=204, headers={"If-Match": "*"})
                entity = json.dumps({"PartitionKey": "q", "RowKey": str(done)}).encode()
                if attempt(each, "POST", "/ttt", entity, QUIET, refused=409):
                    inserted.append(done)
        except BaseException as failure:
            failures.append(failure)
            raise

    with connections(server, 6) as opened:
        opened[0].send("POST", "/Tables", b'{"TableName":"ttt"}', expected=204, headers=QUIET)
        first = json.dumps({"PartitionKey": "p", "RowKey": "counter", "n": 0}).encode()
        opened[0].send("POST", "/ttt", first, expected=204, headers=QUIET)
        working = [
            threading.Thread(target=work, args=(number, each)) for number, each in enumerate(opened)
        ]
        for thread in working:
            thread.start()
        for thread in working:
            thread.join()
        assert failures == []
        _, body = opened[0].send("GET", path, expected=200)
    entity = json.loads(body)
    assert entity["n"] == len(opened) * increments
    assert [entity[f"p{number}"] for number in range(len(opened))] == [increments] * len(opened)
    assert len(set(etags)) == len(etags)
    assert len(set(inserted)) == len(inserted)
    assert set(range(1, increments + 1)) <= set(inserted)
    assert server.stop() == 0
    assert server.stderr == ""


def attempt(
    each: Connection, method: str, path: str, body: bytes, headers: dict[str, str], *, refused: int
) -> str | None:
    """The ETag of a write; None if it was refused with this status, as somebody else was first."""
    try:
        response, _ = each.send(method, path, body, expected=204, headers=headers)
    except AssertionError as answer:
        if f": {refused} " not in str(answer):
            raise
        return None
    return response.getheader("ETag")


def test_what_a_deleted_table_held_is_swept(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(tmp_path, "--workers=2")
    with connections(server, 2) as (one, other):
        one.send("POST", "/Tables", b'{"TableName":"ttt"}', expected=204, headers=QUIET)
        for number in range(20):
            entity = {"PartitionKey": "p", "RowKey": str(number)}
            other.send("POST", "/ttt", json.dumps(entity).encode(), expected=204, headers=QUIET)
        other.send("DELETE", "/Tables('ttt')", expected=204)
        with closing(sqlite3.connect(tmp_path / "tablestone.db")) as database:

            def rows() -> int:
                return int(database.execute("SELECT count(*) FROM stored_rows").fetchone()[0])

            wait_until(lambda: rows() == 1)  # the note that the table was deleted
    assert server.stop() == 0
    assert_check_is_clean(tmp_path)


def test_check_works_beside_it(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(tmp_path, "--workers=2")
    with connections(server, 2) as (one, _other):
        one.send("POST", "/Tables", b'{"TableName":"ttt"}', expected=204, headers=QUIET)
        assert_check_is_clean(tmp_path)
        one.send("GET", "/Tables('ttt')", expected=200)


def assert_check_is_clean(data: Path) -> None:
    checked = subprocess.run(
        [COMMAND, "check", "--data", str(data)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


# Ends.


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_of_its_processes_stops_it_cleanly(
    private_server: StartServer, tmp_path: Path, number: signal.Signals
) -> None:
    """As Ctrl-C in a terminal does it, and some supervisors of services."""
    server = private_server(tmp_path, "--workers=2")
    workers = workers_of(server)
    with connections(server, 4):
        for process in (*workers, server.process.pid):
            os.kill(process, number)
        assert server.process.wait(SECONDS_MAX) == 0
    assert not any(map(is_running, workers))
    if number == signal.SIGINT:
        assert server.stop() == 0
        assert server.stderr == ""


def test_a_worker_that_is_killed_is_replaced_and_the_others_go_on(
    private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(tmp_path, "--workers=2", "--log-level=info")
    probes = Probes(server)
    opened = [probing(server) for _ in range(2)]
    killed, left = probes.processes(opened)
    os.kill(killed, signal.SIGKILL)
    assert probes.processes(opened[1:] * 20) == [left] * 20
    wait_until(lambda: len(workers_of(server)) == 2 and killed not in workers_of(server))
    (replacement,) = workers_of(server) - {left}

    def is_used() -> bool:
        opened.append(probing(server))
        return probes.processes(opened[-1:]) == [replacement]

    wait_until(is_used)
    for each in opened:
        each.close()
    assert server.stop() == 0
    assert f"Worker process {killed} was ended by signal 9 and is replaced." in server.stderr
    assert "Traceback" not in server.stderr


@pytest.mark.parametrize("worker_too", [False, True])
def test_when_the_supervisor_is_killed_everything_ends_and_can_start_again(
    private_server: StartServer, tmp_path: Path, *, worker_too: bool
) -> None:
    server = private_server(tmp_path, "--workers=3")
    workers = workers_of(server)
    assert len(workers) == 3
    with connections(server, 6) as opened:
        opened[0].send("POST", "/Tables", b'{"TableName":"kept"}', expected=204, headers=QUIET)
        if worker_too:
            os.kill(min(workers), signal.SIGKILL)
        server.kill()
        wait_until(lambda: not any(map(is_running, workers)), AT_ONCE_SECONDS)
    port = urlsplit(server.endpoint).port
    again = private_server(tmp_path, "--workers=3", f"--port={port}")
    with connections(again, 1) as (one,):
        one.send("GET", "/Tables('kept')", expected=200)


SUPERVISED = """
import logging, os, sys, time
from tablestone.server.run import listen
from tablestone.server.supervisor import Supervisor
from tablestone.server.worker import StartRefused

def run(number, end):
    {work}

logging.basicConfig(format="%(message)s")
try:
    with listen("127.0.0.1", 0) as listener:
        Supervisor(listener, 2, run).run(lambda: print("ready", flush=True))
except StartRefused as refused:
    sys.exit(f"refused: {{refused}}")
"""
CANNOT_START = {
    "one sentence": (
        "raise StartRefused('The disk is on fire.') if number else time.sleep(60)",
        r"refused: The disk is on fire\.\n",
    ),
    "a bug": (
        "raise ValueError('bug') if number else time.sleep(60)",
        r"Worker process (\d+) failed\.\nTraceback (?s:.*)ValueError: bug\n"
        r"refused: Worker process \1 ended with status 1 before it was ready\.\n",
    ),
    "killed": (
        "os.kill(os.getpid(), 9) if number else time.sleep(60)",
        r"refused: Worker process \d+ was ended by signal 9 before it was ready\.\n",
    ),
}


@pytest.mark.parametrize(("work", "said"), CANNOT_START.values(), ids=CANNOT_START)
def test_a_worker_that_cannot_start_ends_the_start(work: str, said: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SUPERVISED.format(work=work)],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        env=clean_environment(),
    )
    assert ended.stdout == ""
    assert re.fullmatch(said, ended.stderr), ended.stderr


def test_workers_that_do_not_live_are_replaced_once_a_second() -> None:
    running = subprocess.Popen(
        [sys.executable, "-c", SUPERVISED.format(work="end.tell_ready(); time.sleep(0.05)")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    time.sleep(2.5)
    running.terminate()
    _, said = running.communicate(timeout=SECONDS_MAX)
    assert running.returncode == 0
    ends = said.count("ended with status 0 and is replaced")
    assert 2 * 2 <= ends <= 2 * 3, said
