"""`kill -9` while clients write: all acknowledged data is there, and no transaction is half there.

A killed process keeps what the operating system holds, so this shows that an answer leaves after
its commit and that a commit is whole; that it is flushed to the disk, the engine's own tests show.
CRASH_ROUNDS and TABLESTONE_CRASH_SEED set the number of kills and the seed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from crash.journal import Journal, TableJournal
from crash.writers import (
    TABLE,
    Connection,
    EntityWriter,
    TableWriter,
    UntilKilled,
    read_partitions,
    read_tables,
)
from server_process import COMMAND, ServerProcess, start_server

Kill = Callable[[ServerProcess], None]

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "3"))
SEED = int(os.environ.get("TABLESTONE_CRASH_SEED", str(random.SystemRandom().getrandbits(32))))
ENTITY_WRITERS = 6
OPERATIONS_BEFORE_KILL_MAX = 150
PATIENCE_SECONDS = 30

pytestmark = pytest.mark.crash


@dataclass
class Journals:
    entities: list[Journal] = field(
        default_factory=lambda: [Journal(f"writer-{number}") for number in range(ENTITY_WRITERS)]
    )
    tables: TableJournal = field(default_factory=TableJournal)

    def complaints(self, server: ServerProcess) -> list[str]:
        """The contradictions of the server's data; after that, the journals continue from it."""
        partitions, tables = read_partitions(server), read_tables(server)
        complaints = list(self.tables.complaints(tables))
        self.tables.settle(tables)
        for journal in self.entities:
            found = partitions.pop(journal.partition_key, {})
            complaints += journal.complaints(found)
            journal.settle(found)
        return complaints + [f"nobody wrote partition {name}" for name in partitions]

    @property
    def operations_acknowledged(self) -> int:
        of_entities = sum(journal.operations_acknowledged for journal in self.entities)
        return of_entities + self.tables.operations_acknowledged


def kill_first(server: ServerProcess) -> None:
    """The one process, or the supervisor: its workers end by themselves."""
    server.kill()


def kill_all(server: ServerProcess) -> None:
    for process in workers_of(server):
        os.kill(process, signal.SIGKILL)
    server.kill()


def kill_a_worker(server: ServerProcess) -> None:
    os.kill(min(workers_of(server)), signal.SIGKILL)


def workers_of(server: ServerProcess) -> list[int]:
    first = server.process.pid
    return [*map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())]


KILLS: dict[str, tuple[int, Kill | None, Kill]] = {
    "one process": (1, None, kill_first),
    "the supervisor": (3, None, kill_first),
    "all processes": (3, None, kill_all),
    "a worker, then the supervisor": (3, kill_a_worker, kill_first),
}
"""The number of workers, and the processes that are killed during the run and at its end."""


@pytest.mark.parametrize(("workers", "on_the_way", "kill"), KILLS.values(), ids=KILLS)
def test_acknowledged_writes_survive_a_kill(
    tmp_path: Path, workers: int, on_the_way: Kill | None, kill: Kill
) -> None:
    print(f"TABLESTONE_CRASH_SEED={SEED} CRASH_ROUNDS={ROUNDS}")
    journals = Journals()
    server = start_server(tmp_path, f"--workers={workers}")
    try:
        create_table(server)
        for round_number in range(ROUNDS):
            randomness = random.Random(f"{SEED}/{round_number}")
            write_until_killed(server, journals, randomness, on_the_way=on_the_way, kill=kill)
            server = start_server(tmp_path, f"--workers={workers}")
            assert journals.complaints(server) == [], f"seed {SEED}, round {round_number}"
        server.stop()
    finally:
        server.kill()
    assert_check_is_clean(tmp_path)
    print(f"{journals.operations_acknowledged} operations acknowledged, {ROUNDS} kills")


def test_check_is_clean_straight_after_a_kill(tmp_path: Path) -> None:
    """Without a server in between that might have repaired something."""
    server = start_server(tmp_path)
    try:
        create_table(server)
        write_until_killed(server, Journals(), random.Random(f"{SEED}/check"))
    finally:
        server.kill()
    assert_check_is_clean(tmp_path)


@pytest.mark.slow
def test_the_harness_sees_what_was_lost(tmp_path: Path) -> None:
    """The canary: the log with the last commits is removed between kill and restart."""
    journals = Journals()
    server = start_server(tmp_path)
    try:
        create_table(server)
        server.stop()  # Copy all writes so far from the log into the database.
        server = start_server(tmp_path)
        # So few that SQLite does not move them to the database by itself.
        write_until_killed(server, journals, random.Random(f"{SEED}/canary"), operations=15)
        logs = list(tmp_path.glob("*-wal"))
        assert logs
        for log in logs:
            log.unlink()
        server = start_server(tmp_path)
        assert journals.complaints(server) != []
    finally:
        server.kill()


def create_table(server: ServerProcess) -> None:
    body = f'{{"TableName":"{TABLE}"}}'.encode()
    with Connection(server) as connection:
        connection.send("POST", "/Tables", body, expected=201)


def write_until_killed(
    server: ServerProcess,
    journals: Journals,
    randomness: random.Random,
    operations: int | None = None,
    *,
    on_the_way: Kill | None = None,
    kill: Kill = kill_first,
) -> None:
    """Let every writer write, and kill the server somewhere among their operations.

    Writers that a kill during the run did not stop continue, and that many more operations are waited for.
    """
    acknowledged = threading.Semaphore(0)
    writers: list[UntilKilled] = [
        EntityWriter(server, journal, random.Random(randomness.random()), acknowledged)
        for journal in journals.entities
    ]
    of_tables = random.Random(randomness.random())
    writers.append(TableWriter(server, journals.tables, of_tables, acknowledged))
    for writer in writers:
        writer.start()
    for step in (on_the_way, kill):
        if step is None:
            continue
        for _ in range(operations or randomness.randint(1, OPERATIONS_BEFORE_KILL_MAX)):
            if not acknowledged.acquire(timeout=PATIENCE_SECONDS):
                break  # Unexpected answers are reported below.
        time.sleep(randomness.uniform(0, 0.005))  # Not only just after an answer.
        step(server)
    for writer in writers:
        writer.join(PATIENCE_SECONDS)
        assert not writer.is_alive(), "a writer still waits for a server that was killed"
        if writer.unexpected is not None:
            raise writer.unexpected


def assert_check_is_clean(data_directory: Path) -> None:
    checked = subprocess.run(
        [COMMAND, "check", "--data", str(data_directory)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
