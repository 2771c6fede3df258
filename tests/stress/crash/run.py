"""A run of kills: writers write to a server, processes are killed, and everything stored is checked.

Each time a server has ended, `tablestone check` examines the data before the next one starts; then the journals compare
what the server shows. The seed makes all choices, but not the moments at which processes run.
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final, cast

from sas_signing import query_of, signed
from server_process import COMMAND, ServerProcess, start_server
from stress.crash.commands import (
    ACCOUNTS,
    POLICIES,
    TABLES,
    AccountWriter,
    BackupTaker,
    Beside,
    IndexChanger,
    contents,
    read_accounts,
    refused_accounts,
)
from stress.crash.journal import Journal, NamedJournal
from stress.crash.kills import AT_THE_END, AT_THE_START, ON_THE_WAY, kill_during_start
from stress.crash.record import KEEP, problems_of_record
from stress.crash.stored_place import StoredPlace, encrypted_place
from stress.crash.table_writers import TABLES_WITH_POLICIES, PolicyWriter, TableWriter
from stress.crash.writers import (
    JSON,
    TABLE,
    Connection,
    EntityWriter,
    Life,
    UntilKilled,
    as_development_account,
)

ENTITY_WRITERS: Final = 6
WORKERS: Final = (1, 2, 3, 3, 4)
KILLS_ON_THE_WAY_MAX: Final = 30
OPERATIONS_BEFORE_KILL_MAX: Final = 80
START_SECONDS_MAX: Final = 120
PATIENCE_SECONDS: Final = 180
SAS_VERSION: Final = "2019-02-02"


class Run:
    """A run in a data directory, with backups below `directory`.

    `command` and `environment` start another server than the real one.
    """

    def __init__(
        self,
        directory: Path,
        seed: str,
        command: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
        *,
        is_encrypted: bool = False,
        keeps_changes: bool = False,
    ) -> None:
        self.data = encrypted_place(directory) if is_encrypted else StoredPlace(directory / "data")
        self.seed = seed
        self._options = [*self.data.key_options, *([KEEP] if keeps_changes else [])]
        self._keeps_changes = keeps_changes
        self._backups = directory / "backups"
        self._command = command
        self._environment = dict(environment or {})
        self._entities = [Journal(f"writer-{number}") for number in range(ENTITY_WRITERS)]
        self._tables, self._policies = NamedJournal(TABLES), NamedJournal(POLICIES)
        self._accounts = NamedJournal("account")
        self._in_backups: list[Journal | NamedJournal] = [
            *self._entities,
            self._tables,
            self._policies,
        ]
        self.kills: Counter[str] = Counter()
        self.lives = 0
        self.unanswered = 0
        self.backups_restored = 0

    @property
    def operations_acknowledged(self) -> int:
        return self._accounts.operations_acknowledged + sum(
            journal.operations_acknowledged for journal in self._in_backups
        )

    def __str__(self) -> str:
        kills = ", ".join(f"{name} {times}" for name, times in sorted(self.kills.items()))
        return (
            f"{self.kills.total()} kills ({kills}) in {self.lives} lives of the server,"
            f" {self.operations_acknowledged} operations acknowledged, {self.unanswered} without"
            f" an answer, {self.backups_restored} backups restored"
        )

    def problems(
        self, kills: int, tell: Callable[[Run], None] = lambda _run: None
    ) -> Generator[str]:
        """Kill that many times; yields each problem when it is found.

        `tell` is called after each life of the server.
        """
        server = self._start(1)
        try:
            create_tables(server)
            while True:
                randomness = Random(f"{self.seed}/{self.lives}")
                workers = randomness.choice(WORKERS)
                yield from self._live(server, randomness, kills - self.kills.total())
                yield from check(self.data)
                if self._keeps_changes:
                    yield from problems_of_record(self.data, self._entities)
                if randomness.random() < 0.3 and self.kills.total() < kills:
                    kill_during_start(
                        self.data, [*self._options, f"--workers={workers}"], randomness
                    )
                    self.kills[AT_THE_START] += 1
                server = self._start(workers)
                yield from self._judge(server)
                tell(self)
                if self.kills.total() >= kills:
                    break
            server.stop()
            yield from check(self.data)
        finally:
            server.kill()

    def _start(self, workers: int) -> ServerProcess:
        return as_development_account(
            start_server(
                self.data.path,
                f"--workers={workers}",
                *self._options,
                command=self._command,
                environment=self._environment,
                ready_seconds=START_SECONDS_MAX,
            )
        )

    def _live(self, server: ServerProcess, randomness: Random, kills_left: int) -> Iterator[str]:
        """Let the writers write while processes are killed, up to `kills_left` times; the last kill ends the server."""
        life = Life(server)
        threads: list[UntilKilled | Beside] = [*self._writers(life, randomness)]
        backups = BackupTaker(
            life, self.data, self._backups, self._in_backups, Random(randomness.random())
        )
        threads += [backups, IndexChanger(life, self.data, Random(randomness.random()))]
        self.lives += 1
        try:
            for thread in threads:
                thread.start()
            for _ in range(min(randomness.randint(0, KILLS_ON_THE_WAY_MAX), kills_left - 1)):
                self._wait(life, randomness)
                name = randomness.choice([*ON_THE_WAY, "a worker", "a worker", "a worker"])
                self.kills[name] += ON_THE_WAY[name](life, randomness)
            self._wait(life, randomness)
            life.is_ending.set()
            name = randomness.choice([*AT_THE_END])
            self.kills[name] += AT_THE_END[name](life, randomness)
        finally:
            life.is_ending.set()
            server.kill()
            for thread in threads:
                thread.join(PATIENCE_SECONDS)
        for thread in threads:
            assert not thread.is_alive(), "a writer still waits for a server that was killed"
            if thread.unexpected is not None:
                yield f"{type(thread).__name__}: {thread.unexpected!r}"
        self.unanswered += life.unanswered
        self.backups_restored += backups.restored
        yield from life.complaints
        yield from backups.complaints

    def _writers(self, life: Life, randomness: Random) -> list[UntilKilled]:
        def own() -> Random:
            return Random(randomness.random())

        return [
            *(EntityWriter(life, journal, own()) for journal in self._entities),
            TableWriter(life, self._tables, own()),
            PolicyWriter(life, self._policies, own()),
            AccountWriter(life, self.data, self._accounts, own()),
        ]

    def _wait(self, life: Life, randomness: Random) -> None:
        """Wait for some operations and then a moment, so that kills do not only come just after an answer."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        for _ in range(randomness.randint(1, OPERATIONS_BEFORE_KILL_MAX)):
            while not life.acknowledged.acquire(timeout=1):
                assert life.server.process.poll() is None, f"the server ended: {life.server.stderr}"
                if time.monotonic() > deadline:
                    return  # Unexpected answers are reported at the end of this life.
        time.sleep(randomness.uniform(0, 0.005))

    def _judge(self, server: ServerProcess) -> Iterator[str]:
        """Where the server's data contradicts the journals, which then continue from the data."""
        with Connection(server) as connection:
            found = contents(connection)
        for journal in self._in_backups:
            yield from journal.complaints(found.of(journal))
            journal.settle(found.of(journal))
        known = {journal.partition_key for journal in self._entities}
        yield from (f"nobody wrote partition {name}" for name in found.partitions.keys() - known)
        accounts = read_accounts(server, self.data)
        yield from self._accounts.complaints(accounts)
        self._accounts.settle(accounts)
        yield from refused_accounts(server, [each for each in ACCOUNTS if each not in accounts])
        yield from self._judge_policies(server)

    def _judge_policies(self, server: ServerProcess) -> Iterator[str]:
        """A signature that names a policy may do what the policy permits."""
        with Connection(server) as connection:
            for table, policies in sorted(self._policies.acknowledged.items()):
                for name, permission in sorted(cast("frozenset[tuple[str, str]]", policies)):
                    parameters = {"sv": SAS_VERSION, "tn": table, "si": name}
                    query = query_of(signed(connection.account, connection.key, parameters))
                    target = f"{connection.base}/{table}()?{query}"
                    connection.http.request("GET", target, headers=JSON)
                    response = connection.http.getresponse()
                    response.read()
                    if response.status != (200 if "r" in permission else 403):
                        yield f"policy {name} of {table} is {permission}: {response.status}"


def create_tables(server: ServerProcess) -> None:
    with Connection(server) as connection:
        for table in (TABLE, *TABLES_WITH_POLICIES):
            body = f'{{"TableName":"{table}"}}'.encode()
            connection.send("POST", "/Tables", body, expected=201)


def check(data: StoredPlace) -> list[str]:
    """What `tablestone check` says about the directory; nothing if it is healthy."""
    checked = subprocess.run(
        [COMMAND, "check", *data.options],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return [] if checked.returncode == 0 else [checked.stdout + checked.stderr]
