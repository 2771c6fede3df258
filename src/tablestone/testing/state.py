"""The whole state of a storage: it is emptied, filled, shown, and put back as it was.

Works on the engine and the tables without a request, so that none of this is recorded or gets a fault. Runs on the loop
of the storage.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from tablestone import limits
from tablestone.engines.contract import ANY, DELETE, Change, Engine, Key, WriteSet
from tablestone.engines.memory import MemoryContents, MemoryEngine
from tablestone.model.errors import StorageError
from tablestone.model.keys import EntityKey, require_key_length
from tablestone.model.operations import InsertOrReplaceEntity
from tablestone.model.table_names import require_new_table_name
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Named
from tablestone.tables.metadata import PropertiesOfAccounts
from tablestone.tables.service import TableService
from tablestone.tables.sweeping import Sweeper
from tablestone.testing.clock import StorageClock
from tablestone.testing.realism import FollowedEngine, Secondary
from tablestone.testing.seeds import ANNOTATION, SeedRefused, SeedRow
from tablestone.wire.json_reader import decode_entity

VERSION: Final = 1
_MARK: Final = "tablestone snapshot"
_ROWS: Final = "rows"


class SnapshotUnreadable(ValueError):
    """Bytes that are no snapshot of this version; the text is one sentence."""


def bytes_of(contents: MemoryContents) -> bytes:
    """The rows as lines."""
    lines = [orjson.dumps({_MARK: VERSION, _ROWS: len(contents.ordered)})]
    for key in contents.ordered:
        version, value = contents.rows[key]
        lines.append(orjson.dumps([_text(key.partition), _text(key.row), version, _text(value)]))
    return b"\n".join([*lines, b""])


def contents_of(data: bytes) -> MemoryContents:
    """The rows of a snapshot. Raises `SnapshotUnreadable`."""
    first, *lines = data.split(b"\n")
    lines = lines[:-1] if lines and not lines[-1] else lines
    head = _parsed(first)
    if not isinstance(head, dict) or _MARK not in head:
        raise SnapshotUnreadable("This is no snapshot of the test kit.")
    if head[_MARK] != VERSION:
        raise SnapshotUnreadable(
            f"This snapshot has version {head[_MARK]}, and this Tablestone reads version {VERSION}."
        )
    if head.get(_ROWS) != len(lines):
        raise SnapshotUnreadable(
            f"This snapshot is cut off: it has {len(lines)} of {head.get(_ROWS)} rows."
        )
    rows: dict[Key, tuple[int, bytes]] = {}
    for number, line in enumerate(lines, start=2):
        try:
            partition, row, version, value = _parsed(line)
            rows[Key(_bytes(partition), _bytes(row))] = (int(version), _bytes(value))
        except (TypeError, ValueError, binascii.Error):
            raise SnapshotUnreadable(f"Line {number} of this snapshot is no row.") from None
    return MemoryContents(sorted(rows), rows)


def _parsed(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


_SYSTEM_MEMBERS: Final = ("odata.etag", "Timestamp", "Timestamp" + ANNOTATION)

Dump = dict[str, list[dict[str, Any]]]
"""Entities by table, in the order of their keys, as the service writes them."""


class StateRefused(Exception):
    """An operation on the state of a storage that is not possible; the text is one sentence."""


class Snapshot(NamedTuple):
    """Everything that a storage held at one moment: accounts, tables, policies, entities with their ETags."""

    contents: MemoryContents

    def save(self, path: str | Path) -> None:
        """Write it to a file. It holds the keys of the accounts that `create_account` made."""
        Path(path).write_bytes(bytes_of(self.contents))

    @classmethod
    def load(cls, path: str | Path) -> Snapshot:
        """Read it from a file. Raises `StateRefused` for a file of another version, or one that is no snapshot."""
        try:
            return cls(contents_of(Path(path).read_bytes()))
        except SnapshotUnreadable as unreadable:
            raise StateRefused(f"{path}: {unreadable}") from None
        except OSError as error:
            raise StateRefused(f"{path}: {error.strerror}.") from None


class State:
    """The state of the storage on one engine. `tables` carries out operations that are not recorded."""

    def __init__(self, engine: Engine, clock: StorageClock, secondary: Secondary) -> None:
        self._primary = engine
        self._secondary = secondary
        self.engine = FollowedEngine(engine, secondary, at_once=True)
        """Its commits are not recorded, and reach the secondary at once."""
        self.tables = TableService(
            self.engine, clock.ticks, clock.elapsed_seconds, storage_keys.fresh_table_id
        )
        self._sweeper = Sweeper(self.engine, clock.ticks, storage_keys.fresh_table_id)

    def snapshot(self) -> Snapshot:
        """A copy of the present state."""
        return Snapshot(self._memory().contents())

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to the state of the snapshot, with the same ETags. Requests under way may see either state."""
        if not isinstance(snapshot, Snapshot):
            raise StateRefused(
                f"restore() takes a Snapshot, not {str(snapshot)[:80]!r}: Snapshot.load(path) reads one from a file."
            )
        self._memory().replace(snapshot.contents)
        self._secondary.replace(snapshot.contents)

    def _memory(self) -> MemoryEngine:
        if not isinstance(self._primary, MemoryEngine):
            raise StateRefused("A snapshot needs the memory engine; reset() and seed() do not.")
        return self._primary

    async def empty_account(self, account: str) -> None:
        """Delete all tables of the account and its service properties; the account stays."""
        catalog = self.tables.catalog
        await catalog.delete_all(Named(account))
        while await self._sweeper.sweep(account):
            pass
        properties: PropertiesOfAccounts = self.tables.properties
        await properties.reset(account, await catalog.incarnations.current(account))

    async def delete_table(self, account: str, table: str) -> None:
        """Delete a table if it is there; its name is free at once."""
        with suppress(StorageError):
            await self.tables.catalog.delete(Named(account), table)

    async def empty_table(self, account: str, table: str) -> None:
        """Delete all entities of a table; its policies stay."""
        try:
            record = await self.tables.catalog.require(Named(account), table)
        except StorageError:
            raise StateRefused(f"The account {account} has no table {table}.") from None
        every = storage_keys.table_range(record.table_id)
        while rows := await self.engine.scan(every, rows_max=limits.PAGE_ENTITIES_MAX):
            for partition, group in groupby(rows, key=lambda row: row.partition):
                changes = [Change(row.row, ANY, DELETE) for row in group]
                await self.engine.commit(WriteSet(partition, changes))

    async def seed(self, account: str, rows: Iterable[SeedRow], tables: Sequence[str]) -> int:
        """Store entities, and create the tables that are missing. All entities are checked before one is stored."""
        writes = []
        places: dict[tuple[str, EntityKey], str] = {}
        for table in tables:
            try:
                require_new_table_name(table)
            except StorageError as error:
                raise SeedRefused(f"{table[:80]!r}: {error.code}: {error.text}") from None
        for row in rows:
            try:
                entity = decode_entity(row.body, None)
                require_key_length(entity.key)
            except StorageError as error:
                raise SeedRefused(f"{row.place}: {error.code}: {error.text}") from None
            first = places.setdefault((row.table.lower(), entity.key), row.place)
            if first is not row.place:
                partition_key, row_key = entity.key
                raise SeedRefused(
                    f"{row.place}: {first} has this key too, PartitionKey {partition_key!r} and RowKey {row_key!r}."
                )
            writes.append(InsertOrReplaceEntity(row.table, entity))
        owner = Named(account)
        for table in tables:
            if await self.tables.catalog.find(owner, table) is None:
                await self.tables.catalog.create(owner, table)
        for write in writes:
            await self.tables.execute(owner, write)
        return len(writes)

    async def dump(self, account: str) -> Dump:
        """The entities of all tables of the account, without ETags and Timestamps, so that two runs can be compared."""
        found: Dump = {}
        records, following = await self.tables.catalog.page(
            Named(account), "", limits.PAGE_ENTITIES_MAX
        )
        while True:
            for record in records:
                found[record.name] = await self._entities(record.table_id)
            if following is None:
                return found
            records, following = await self.tables.catalog.page(
                Named(account), following.name, limits.PAGE_ENTITIES_MAX
            )

    async def _entities(self, table_id: bytes) -> list[dict[str, Any]]:
        entities: list[dict[str, Any]] = []
        rest = [storage_keys.table_range(table_id)]
        while rest:
            rows = await self.engine.read(
                rest, rows_max=limits.PAGE_ENTITIES_MAX, bytes_max=limits.PAGE_BYTES_MAX
            )
            for value in rows.values:
                entity = orjson.loads(value)
                for member in _SYSTEM_MEMBERS:
                    entity.pop(member, None)
                entities.append(entity)
            rest = [] if rows.next_key is None else storage_keys.ranges_from(rest, rows.next_key)
        return entities
