"""`kill -9` while writers write: what was acknowledged is there, and no transaction is half there.

A killed process keeps what the operating system holds, so this shows that an answer leaves after
its commit and that a commit is whole; that it is flushed to the disk, the engine's own tests show.
TABLESTONE_CRASH_ROUNDS and TABLESTONE_CRASH_SEED set the number of kills and the seed.
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import pytest

from crash.journal import Journal
from crash.writers import TABLE, Connection, Writer, read_partitions
from server_process import COMMAND, start_server

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from crash.journal import Stored
    from server_process import ServerProcess

ROUNDS = int(os.environ.get("TABLESTONE_CRASH_ROUNDS", "4"))
SEED = int(os.environ.get("TABLESTONE_CRASH_SEED", str(random.SystemRandom().getrandbits(32))))
WRITERS = 6
OPERATIONS_BEFORE_KILL_MAX = 250
PATIENCE_SECONDS = 30

pytestmark = pytest.mark.crash


def test_acknowledged_writes_survive_a_kill(tmp_path: Path) -> None:
    print(f"TABLESTONE_CRASH_SEED={SEED} TABLESTONE_CRASH_ROUNDS={ROUNDS}")
    journals = [Journal(partition_key=f"writer-{number}") for number in range(WRITERS)]
    server = start_server(tmp_path)
    try:
        create_table(server)
        for round_number in range(ROUNDS):
            write_until_killed(server, journals, random.Random(f"{SEED}/{round_number}"))
            server = start_server(tmp_path)
            found = read_partitions(server)
            assert complaints_of(journals, found) == [], f"seed {SEED}, round {round_number}"
            for journal in journals:
                journal.settle(found.get(journal.partition_key, {}))
        server.stop()
    finally:
        server.kill()
    assert_check_is_clean(tmp_path)
    answered = sum(journal.operations_acknowledged for journal in journals)
    print(f"{answered} operations acknowledged over {ROUNDS} kills")


def test_check_is_clean_straight_after_a_kill(tmp_path: Path) -> None:
    """Without a server in between that might have repaired something."""
    journals = [Journal(partition_key=f"writer-{number}") for number in range(WRITERS)]
    server = start_server(tmp_path)
    try:
        create_table(server)
        write_until_killed(server, journals, random.Random(f"{SEED}/check"))
    finally:
        server.kill()
    assert_check_is_clean(tmp_path)


def create_table(server: ServerProcess) -> None:
    body = f'{{"TableName":"{TABLE}"}}'.encode()
    with Connection(server) as connection:
        connection.send("POST", "/Tables", body, expected=201)


def write_until_killed(
    server: ServerProcess, journals: list[Journal], randomness: random.Random
) -> None:
    """Let every writer write, and kill the server somewhere among their operations."""
    acknowledged = threading.Semaphore(0)
    writers = [
        Writer(server, journal, random.Random(randomness.random()), acknowledged)
        for journal in journals
    ]
    for writer in writers:
        writer.start()
    for _ in range(randomness.randint(1, OPERATIONS_BEFORE_KILL_MAX)):
        if not acknowledged.acquire(timeout=PATIENCE_SECONDS):
            break  # What a writer did not expect is told below.
    time.sleep(randomness.uniform(0, 0.005))  # Not only just after an answer.
    server.kill()
    for writer in writers:
        writer.join(PATIENCE_SECONDS)
        assert not writer.is_alive(), f"{writer.name} still waits for a server that was killed"
        if writer.unexpected is not None:
            raise writer.unexpected


def complaints_of(journals: list[Journal], found: Mapping[str, Mapping[str, Stored]]) -> list[str]:
    return [
        complaint
        for journal in journals
        for complaint in journal.complaints(found.get(journal.partition_key, {}))
    ]


def assert_check_is_clean(data_directory: Path) -> None:
    checked = subprocess.run(
        [COMMAND, "check", "--data", str(data_directory)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
