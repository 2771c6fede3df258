"""Programs of the property suite on a server that is archived: what is restored is the model at that commit.

The steps and the model are those of `stress/property`; steps for roles, for the archiver and for its clock come with
them. After each step the state that the model has, and the definitions that it does not know, are noted beside the
number of the newest record. A restore to any such number must have that state: tables, entities with their ETags,
policies, expiry, index definitions, accounts with their keys, and roles.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from storage.replica import NOT_FOR_A_REPLICA, is_entity_of, is_note_of_deletion, stored_rows
from stress.property.owners import STEPS
from stress.property.program import Program
from tablestone.accounts.stored_accounts import StoredAccounts
from tablestone.archive.archiver import Archiver
from tablestone.archive.going_back import find_goal, restore
from tablestone.configuration import ArchiveSettings
from tablestone.engines.kind import Opening
from tablestone.engines.sqlite.engine import SqliteEngine
from tablestone.engines.sqlite.restored_directory import RestoredDirectory
from tablestone.model.entity_json import etag_of, read_raw
from tablestone.tables.catalog import every_table, scan_in_steps
from tablestone.tables.metadata import DocumentKind, Documents
from tablestone.tables.storage_keys import table_range
from unit.archive.archived_server import URL, scratch, take_turn
from unit.archive.stores import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from random import Random

    from storage.replica import Rows
    from stress.property.model import Table
    from tablestone.engines.contract import Engine
    from tablestone.tables.catalog import TableRecord

HOUR: Final = 3_600
RESTORES: Final = 3
"""Restores of a program, beside that of its end."""
KEPT_STATES: Final = 60


class TableState(NamedTuple):
    entities: dict[tuple[str, str], str]
    """ETags."""
    policies: dict[str, str | None]
    """Permissions, by id."""
    expiry: tuple[int | None, str] | None


class State(NamedTuple):
    tables: dict[tuple[str, str], TableState]
    """By account and name."""
    keys: dict[str, list[str]]
    """Of stored accounts."""
    roles: dict[str, Any]
    definitions: dict[tuple[str, str], Any]
    """The indexes and the expiry policies, suspended ones too, which the model does not know."""


class ServedRun:
    """One program. `random` makes all choices."""

    def __init__(self, random: Random, steps: frozenset[str] | None = None) -> None:
        self.random = random
        self.program = Program("sqlite", random)
        self.engine = self.program.door.engine
        assert isinstance(self.engine, SqliteEngine)
        self.store = MemoryStore()
        self.roles: dict[str, Any] = {}
        self.seconds = 0.0
        self.source = self.engine.archive_source()
        self.source.keep()
        self.archiver = Archiver(
            *(self.store, self.source, ArchiveSettings(URL, 0, None), self.program.door.ticks),
            *(lambda: self.seconds, self.engine._directory.path / "scratch"),
        )
        self.states: dict[int, tuple[State, Rows]] = {}
        self.restored = 0
        self.done: Counter[str] = Counter()
        self._steps = sorted(steps or STEPS)

    def problems(self, steps: int) -> Iterator[str]:
        """Take so many steps, and restore some of the records; yields what is wrong, as texts."""
        restores = {self.random.randrange(steps) for _ in range(RESTORES)}
        try:
            self._archive()
            for number in range(steps):
                name = self.random.choice([*self._steps, "roles", "archive", "archive", "an hour"])
                self.done[name] += 1
                if name == "roles":
                    self._change_roles()
                elif name == "archive":
                    self._archive()
                elif name == "an hour":
                    self.seconds += HOUR + 1
                    self.store.now += HOUR + 1
                else:
                    STEPS[name](self.program, self.random)
                self.store.now += 1
                self._note()
                if number in restores:
                    yield from self._restore(self.random.choice([*self.states]))
            for number in [*self.states][-2:]:
                yield from self._restore(number)
            self._run(_cancelled(self.archiver))
            self.source.close()
            self.program.close()
        except BaseException:
            self.program.door.release()
            raise

    def __str__(self) -> str:
        return f"{self.done.total():,} steps, restored {self.restored:,} times"

    def _run(self, awaited: Any) -> Any:
        return self.program.door._loop.run(awaited)

    def _archive(self) -> None:
        self._run(take_turn(self.archiver))

    def _change_roles(self) -> None:
        account = self.random.choice([*self.program.owners])
        given = {"assignments": [self.random.randrange(9) for _ in range(3)]}
        members = None if account in self.roles and self.random.randrange(2) else given
        documents = Documents(self.engine)
        self._run(documents.change(DocumentKind.ROLES, account, lambda _old: members))
        self.roles[account] = members

    def _note(self) -> None:
        tables = {
            (owner.name, table.name): _of_model(table)
            for owner in self.program.owners.values()
            for table in owner.model.tables.values()
        }
        keys = {
            owner.name: [str(key) for key in owner.keys]
            for owner in self.program.owners.values()
            if owner is not self.program.main
        }
        roles = {
            name: members
            for name, members in self.roles.items()
            if members is not None and name in self.program.owners
        }
        self.roles = dict(roles)
        definitions = self._run(_definitions(self.engine))
        rows = self._run(stored_rows(self.engine))
        self.states[self.source.ends().last] = State(tables, keys, roles, definitions), rows
        if len(self.states) > KEPT_STATES:
            del self.states[self.random.choice([*self.states])]

    def _restore(self, number: int) -> Iterator[str]:
        """Restore a record, in a loop of its own, and compare."""
        while self.archiver.term is None or not self.archiver.base_copies.is_restorable:
            self._archive()
        self._archive()
        state, rows = self.states[number]
        with scratch() as directory:
            found, found_rows = self._run(self._restored(directory, number))
            if found is None:  # before the first base copy ended
                return
        self.restored += 1
        pairs: Iterable[tuple[str, dict[Any, Any], dict[Any, Any]]]
        pairs = zip(State._fields, state, found, strict=True)
        for name, wanted, got in pairs:
            for each in wanted.keys() | got.keys():
                if wanted.get(each) != got.get(each):
                    yield f"record {number}, {name}, {each}: {got.get(each)} and not {wanted.get(each)}"
        dead = {key.row[1:] for key in found_rows if is_note_of_deletion(key)}
        for key in rows.keys() | found_rows.keys():
            is_swept = key not in rows and (is_note_of_deletion(key) or is_entity_of(key, dead))
            if key.partition in NOT_FOR_A_REPLICA or is_swept:
                continue
            if rows.get(key) != found_rows.get(key):
                yield f"record {number}, the row {key}"

    async def _restored(self, directory: Path, number: int) -> tuple[State | None, Rows]:
        goal = await find_goal(self.store, [], None, None, None, self.store.now)
        if not any(first <= number <= last for first, last in goal.history.ranges):
            return None, {}
        goal = await find_goal(self.store, [], None, number, None, self.store.now)
        with RestoredDirectory(directory / "restored") as target:
            await restore(self.store, [], goal, target, URL, lambda _done, _whole: None)
            target.finish()
        engine = SqliteEngine(target.path, self.program.door.ticks, Opening.READ_ONLY)
        try:
            return await _of_engine(engine), await stored_rows(engine)
        finally:
            await engine.close()


async def _cancelled(archiver: Archiver) -> None:
    tasks = list(archiver._beside.values())
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _of_model(table: Table) -> TableState:
    entities = {key: stored.etag for key, stored in table.rows.items()}
    expiry = None if table.expiry is None else (table.expiry.after, table.expiry.property)
    return TableState(entities, dict(table.policies), expiry)


async def _of_engine(engine: Engine) -> State:
    tables = {
        (account, record.name): await _of_record(engine, record)
        async for account, record in every_table(engine)
    }
    stored = await StoredAccounts(engine, lambda: 0).all()
    keys = {each.name: list(each.keys) for each in stored if not each.is_being_deleted}
    documents = Documents(engine)
    roles = {}
    for name in await documents.names(DocumentKind.ROLES):
        if members := await documents.get(DocumentKind.ROLES, name, dict):
            roles[name] = members
    return State(tables, keys, roles, await _definitions(engine))


async def _of_record(engine: Engine, record: TableRecord) -> TableState:
    entities = {}
    async for rows in scan_in_steps(engine, table_range(record.table_id)):
        for row in rows:
            raw = read_raw(row.value)
            entities[raw["PartitionKey"], raw["RowKey"]] = etag_of(row.value)
    policies = {
        each.id: None if each.policy is None else each.policy.permission
        for each in record.identifiers
    }
    acting = record.acting_expiry
    expiry = None if acting is None else (acting.after, acting.property_name or "")
    return TableState(entities, policies, expiry)


async def _definitions(engine: Engine) -> dict[tuple[str, str], Any]:
    return {
        (account, record.name): (record.indexes, record.expiry)
        async for account, record in every_table(engine)
    }
