"""Commands beside the server, killed like it: `tablestone account`, `backup`, `restore`, `check`.

A command without an answer was killed.
"""

import asyncio
import base64
import json
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, cast

from server_process import COMMAND, ServerProcess, clean_environment, start_server
from stress.crash.journal import BEING_DELETED, Journal, NamedJournal, State, Stored
from stress.crash.stored_place import StoredPlace
from stress.crash.table_writers import read_policies, read_tables
from stress.crash.writers import (
    QUIET,
    TABLE,
    Connection,
    Life,
    UntilKilled,
    as_development_account,
    read_partitions,
)
from tablestone.accounts.stored_accounts import StoredAccount, StoredAccounts
from tablestone.clock import system_clock
from tablestone.engines.registry import open_engine

ACCOUNTS = ("fleetingone", "fleetingtwo")
TABLES, POLICIES = "table", "policies of"
COMMAND_SECONDS_MAX = 180
BETWEEN_COMMANDS_SECONDS = (0.0, 0.3)
BETWEEN_COMMANDS_BESIDE = (0.0, 0.6)

AccountState = tuple[str, str, frozenset[str]]
"""The two keys of an account, and its tables."""


class CommandKilled(OSError):
    """The command was killed, so it has no answer."""


def run_command(life: Life, arguments: Sequence[str | Path], given: str = "") -> str:
    """The output of a command that may be killed at any time; `AssertionError` if it fails in another way."""
    command = subprocess.Popen(
        [COMMAND, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    life.commands.add(command)
    try:
        printed, errors = command.communicate(given, timeout=COMMAND_SECONDS_MAX)
    finally:
        life.commands.discard(command)
    if command.returncode == -signal.SIGKILL:
        raise CommandKilled
    assert command.returncode == 0, f"{arguments}: {command.returncode}, {printed}{errors}"
    return printed


class AccountWriter(UntilKilled):
    """Creates accounts, rotates their keys, creates a table in each, and deletes them."""

    def __init__(
        self, life: Life, data: StoredPlace, journal: NamedJournal, randomness: Random
    ) -> None:
        super().__init__(life, randomness)
        self.journal = journal
        self.data = data

    def read(self) -> dict[str, State]:
        return read_accounts(self.life.server, self.data)

    def goes_on(self) -> bool:
        """A command may also have been killed at the end of the server, when nothing can be read."""
        return not self.life.is_ending.is_set() and super().goes_on()

    def send_next(self) -> None:
        if self.life.is_ending.wait(self.random.uniform(*BETWEEN_COMMANDS_SECONDS)):
            raise ConnectionAbortedError  # Nothing is running, and nothing will start.
        name = self.random.choice(ACCOUNTS)
        state = self.journal.acknowledged.get(name)
        fresh = base64.b64encode(self.random.randbytes(32)).decode()
        if state is None:
            other = base64.b64encode(self.random.randbytes(32)).decode()
            self.journal.begin(name, (fresh, other, frozenset()))
            self.account("create", name, "--key-file", "-", given=f"{fresh}\n{other}\n")
        elif state == BEING_DELETED or self.random.random() < 0.3:
            self.journal.begin(name, None, BEING_DELETED)
            self.account("delete", name, "--force")
        else:
            first, second, tables = cast("AccountState", state)
            if len(tables) < 2 and self.random.random() < 0.5:
                table = f"Own{len(tables)}"
                self.journal.begin(name, (first, second, tables | {table}))
                with Connection(self.life.server, name, first) as connection:
                    body = json.dumps({"TableName": table}).encode()
                    connection.send("POST", "/Tables", body, expected=204, headers=QUIET)
            elif self.random.random() < 0.5:
                self.journal.begin(name, (fresh, second, tables))
                self.account("rotate-key", name, "1", "--key-file", "-", given=fresh)
            else:
                self.journal.begin(name, (first, fresh, tables))
                self.account("rotate-key", name, "2", "--key-file", "-", given=fresh)
        self.journal.acknowledge()

    def account(self, *arguments: str, given: str = "") -> None:
        run_command(self.life, ["account", *arguments, *self.data.options], given)


def read_accounts(server: ServerProcess, data: StoredPlace) -> dict[str, State]:
    """The stored accounts, with the tables that each of their keys lists; `AssertionError` if a key is refused."""
    found: dict[str, State] = {}
    for stored in asyncio.run(_stored_accounts(data)):
        if stored.is_being_deleted:
            found[stored.name] = BEING_DELETED
            continue
        first, second = stored.keys
        seen = []
        for key in stored.keys:
            with Connection(server, stored.name, key) as connection:
                seen.append(
                    frozenset(str(table["TableName"]) for table in connection.pages("/Tables"))
                )
        assert seen[0] == seen[1]
        found[stored.name] = (first, second, seen[0])
    return found


def refused_accounts(server: ServerProcess, names: Sequence[str]) -> Iterator[str]:
    """Complaints about accounts that do not exist and still get an answer."""
    for name in names:
        with Connection(server, name, base64.b64encode(b"any").decode()) as connection:
            connection.http.request("GET", f"/{name}/Tables")
            if connection.http.getresponse().status != 404:
                yield f"the account {name} was deleted, and the server knows it"


async def _stored_accounts(data: StoredPlace) -> list[StoredAccount]:
    engine = open_engine(f"sqlite:{data.path}", system_clock, read_only=True, key=data.key)
    try:
        return await StoredAccounts(engine, system_clock).all()
    finally:
        await engine.close()


class Contents(NamedTuple):
    """The entities, tables and policies that a server shows."""

    partitions: dict[str, dict[str, Stored]]
    named: dict[str, dict[str, State]]

    def of(self, journal: Journal | NamedJournal) -> Any:
        """The part that this journal is about."""
        if isinstance(journal, Journal):
            return self.partitions.get(journal.partition_key, {})
        return self.named[journal.kind]


def contents(connection: Connection) -> Contents:
    return Contents(
        read_partitions(connection),
        {TABLES: read_tables(connection), POLICIES: read_policies(connection)},
    )


class Beside(threading.Thread):
    """Runs commands beside the server until it is gone."""

    def __init__(self, life: Life, data: StoredPlace, randomness: Random) -> None:
        super().__init__(daemon=True)
        self.life = life
        self.data = data
        self.random = randomness
        self.unexpected: Exception | None = None

    def run(self) -> None:
        try:
            while not self.life.is_ending.wait(self.random.uniform(*BETWEEN_COMMANDS_BESIDE)):
                self.run_next()
        except Exception as error:  # noqa: BLE001  the test reports it, not the thread
            self.unexpected = error

    def run_next(self) -> None:
        raise NotImplementedError


REFUSED_CHANGES = ("already has an index", "has no index", "is being dropped", "Another process")
"""What is said of an index that is there, is not, or that a killed command worked on."""


class IndexChanger(Beside):
    """Makes, checks and drops indexes of what the writers write. `tablestone check` compares their entries later."""

    def run_next(self) -> None:
        name = self.random.choice(("number", "padding", "merged1", "RowKey"))
        act = self.random.choice(("create", "create", "check", "drop"))
        try:
            run_command(self.life, ["index", act, TABLE, name, *self.data.options])
        except CommandKilled:
            pass
        except AssertionError as failed:
            if not any(words in str(failed) for words in REFUSED_CHANGES):
                raise


class BackupTaker(Beside):
    """Makes backups, and restores one that was made while others wrote."""

    def __init__(
        self,
        life: Life,
        data: StoredPlace,
        place: Path,
        journals: Sequence[Journal | NamedJournal],
        randomness: Random,
    ) -> None:
        super().__init__(life, data, randomness)
        self.place = place
        self.journals = journals
        self.restored = 0
        self.complaints: list[str] = []

    def run_next(self) -> None:
        """Make a backup. If it is killed there is none, or a complete one if the kill came in its last moment."""
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir(parents=True)
        backup = self.place / "backup.db"
        for journal in self.journals:
            journal.watch()
        try:
            run_command(self.life, ["backup", "--quiet", *self.data.options, backup])
        except CommandKilled:
            pass
        finally:
            watched = [journal.end_watch() for journal in self.journals]
        if backup.exists() and not self.restored:
            self.restored += 1
            self.complaints += self.complaints_of(backup, watched)

    def complaints_of(self, backup: Path, watched: Sequence[Any]) -> Iterator[str]:
        """Where the backup contradicts the journals, which were watched while it was made."""
        data = self.data._replace(path=self.place / "restored")
        for arguments in (["restore", "--quiet", *data.options, backup], ["check", *data.options]):
            ended = subprocess.run(
                [COMMAND, *map(str, arguments)],
                capture_output=True,
                text=True,
                timeout=COMMAND_SECONDS_MAX,
                check=False,
                env=clean_environment(),
            )
            if ended.returncode != 0:
                yield f"the backup: {ended.stdout}{ended.stderr}"
                return
        server = as_development_account(
            start_server(data.path, *data.key_options, ready_seconds=COMMAND_SECONDS_MAX)
        )
        try:
            with Connection(server) as connection:
                found = contents(connection)
            for journal, states in zip(self.journals, watched, strict=True):
                yield from journal.complaints_of_backup(found.of(journal), states)
        finally:
            server.kill()
