"""`tablestone serve --workers N` from outside: one server with any number of processes, whichever of them dies."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cli.worker_processes import (
    AT_ONCE_SECONDS,
    CONNECTIONS,
    LOGGED,
    QUIET,
    SECONDS_MAX,
    Probes,
    connections,
    is_running,
    probing,
    wait_until,
    workers_of,
)
from server_process import COMMAND, ServerProcess, clean_environment
from signing import signed_headers
from stress.crash.writers import Connection

StartServer = Callable[..., ServerProcess]


@pytest.mark.slow
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


@pytest.mark.slow
def test_updates_of_one_entity_through_every_process_lose_nothing(
    private_server: StartServer, tmp_path: Path
) -> None:
    """Counters incremented under the ETag that was read; each client merges its own property; inserts under one key."""
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
    """The ETag of a write; None if it got this status, because another client was first."""
    try:
        response, _ = each.send(method, path, body, expected=204, headers=headers)
    except AssertionError as answer:
        if f": {refused} " not in str(answer):
            raise
        return None
    return response.getheader("ETag")


@pytest.mark.slow
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

            wait_until(lambda: rows() == 1)  # the row that records the deleted table
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_of_its_processes_stops_it_cleanly(
    private_server: StartServer, tmp_path: Path, number: signal.Signals
) -> None:
    """The signal reaches every process, as with Ctrl-C in a terminal and with some service managers."""
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
    server = private_server(tmp_path, "--workers=2", LOGGED)
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
    assert f"Worker process {killed} was ended by signal 9 and is replaced.\n" in server.stderr
    assert "Traceback" not in server.stderr


@pytest.mark.slow
def test_a_worker_that_starts_when_the_data_is_gone_creates_nothing(
    private_server: StartServer, tmp_path: Path
) -> None:
    """It would answer as an empty server, beside others that still have the data."""
    data, moved = tmp_path / "data", tmp_path / "moved"
    server = private_server(data, "--workers=2")
    sentence = f"The data directory {data} no longer holds the database that this server opened."
    with connections(server, 2) as (one, _other):
        one.send("POST", "/Tables", b'{"TableName":"kept"}', expected=204, headers=QUIET)
        before = workers_of(server)
        data.rename(moved)
        os.kill(min(before), signal.SIGKILL)
        wait_until(lambda: f" and is replaced. {sentence}\n" in server.stderr)
        assert not data.exists()
        moved.rename(data)
        wait_until(lambda: len(workers_of(server) - before) == 1)
    with connections(server) as opened:
        for each in opened:
            each.send("GET", "/Tables('kept')", expected=200)


def test_a_worker_that_stops_finishes_its_requests_and_is_given_no_more(
    private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(tmp_path, "--workers=2")
    entities = [b'{"PartitionKey":"p","RowKey":"%d"}' % number for number in range(2)]
    with connections(server, 2) as opened:
        opened[0].send("POST", "/Tables", b'{"TableName":"ttt"}', expected=204, headers=QUIET)
        for each, entity in zip(opened, entities, strict=True):  # one in each process
            begin_insert(each, entity)
        stopped = min(workers_of(server))
        os.kill(stopped, signal.SIGTERM)
        time.sleep(0.5)
        started = time.monotonic()
        with connections(server, 8):
            assert time.monotonic() - started < AT_ONCE_SECONDS
        for each, entity in zip(opened, entities, strict=True):
            each.http.send(entity[-1:])
            assert each.http.getresponse().status == 201
    wait_until(lambda: len(workers_of(server)) == 2 and stopped not in workers_of(server))
    assert server.stop() == 0
    assert f"Worker process {stopped} ended with status 0 and is replaced." in server.stderr


def begin_insert(each: Connection, entity: bytes) -> None:
    """Send the request except for its last byte."""
    target = f"{each.base}/ttt"
    headers = signed_headers(
        each.account, each.key, method="POST", target=target, content_type="application/json"
    )
    each.http.putrequest("POST", target)
    for name, value in headers:
        each.http.putheader(name, value)
    each.http.putheader("Content-Length", str(len(entity)))
    each.http.endheaders(entity[:-1])


@pytest.mark.slow
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
from tablestone.server.start import listen
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


TOLD_WHEN_FORKED = """
import os, signal
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))
"""


def test_a_worker_that_is_stopped_before_it_has_started_stops() -> None:
    """It still has the supervisor's handlers then, which would swallow the signal."""
    ended = subprocess.run(
        [sys.executable, "-c", TOLD_WHEN_FORKED + SUPERVISED.format(work="time.sleep(60)")],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        env=clean_environment(),
    )
    assert re.fullmatch(
        r"refused: Worker process \d+ was ended by signal 15 before it was ready\.\n", ended.stderr
    ), ended.stderr


@pytest.mark.slow
def test_workers_that_die_at_once_are_replaced_once_a_second() -> None:
    running = subprocess.Popen(
        [sys.executable, "-c", SUPERVISED.format(work="end.tell_ready(); time.sleep(0.05)")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    began = time.monotonic()
    time.sleep(2.5)
    running.terminate()
    _, said = running.communicate(timeout=SECONDS_MAX)
    seconds = time.monotonic() - began
    assert running.returncode == 0
    ends = said.count("ended with status 0 and is replaced")
    assert 2 <= ends <= 2 * (int(seconds) + 1), said
