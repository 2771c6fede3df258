"""The catalog: which tables an account has, their policies, creating and deleting them, sweeping what a deletion left.

Deleting a table removes its one catalog row and, in the same commit, notes that its entities are to be swept: it
answers at once whatever the table's size. The sweep removes the entities in small steps and, after
`SWEEP_AGAIN_SECONDS`, once more, for writes that were under way at the deletion; only then, and not before its name is
free again, does it forget the table.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import orjson

from tablestone import limits
from tablestone.clock import TICKS_PER_SECOND, Clock
from tablestone.engines.contract import (
    ABSENT,
    ANY,
    DELETE,
    Change,
    Committed,
    Conflict,
    Engine,
    EngineUnavailable,
    Key,
    Put,
    StoredRow,
    WriteSet,
)
from tablestone.errors import StorageError
from tablestone.operations import AccessPolicy, SignedIdentifier
from tablestone.tables import keys
from tablestone.tables.announced import AnnouncedRows
from tablestone.tables.tenure import Owner, Tenures, conditions


@dataclass(frozen=True, slots=True)
class TableRecord:
    """A table in the catalog: its name as created, its id, when it was created or deleted (ticks), its policies."""

    name: str
    table_id: bytes
    ticks: int
    version: int
    identifiers: tuple[SignedIdentifier, ...] = ()


def read_record(stored: bytes) -> TableRecord:
    """A catalog row's value, read."""
    raw = orjson.loads(stored)
    return TableRecord(
        raw["name"],
        bytes.fromhex(raw["id"]),
        raw["ticks"],
        raw["version"],
        tuple(map(_read_identifier, raw.get("identifiers", ()))),
    )


def _read_identifier(raw: dict[str, Any]) -> SignedIdentifier:
    policy = raw["policy"]
    return SignedIdentifier(raw["id"], None if policy is None else AccessPolicy(**policy))


def _record_renderer(name: str, table_id: bytes) -> Callable[[int], bytes]:
    """The value of a catalog row: its version is at once the time of the creation or the deletion."""

    def render(version: int) -> bytes:
        return orjson.dumps(
            {"name": name, "id": table_id.hex(), "ticks": version, "version": version}
        )

    return render


def _identifiers_renderer(
    record: TableRecord, identifiers: tuple[SignedIdentifier, ...]
) -> Callable[[int], bytes]:
    """The value of a table's row with other policies."""

    def render(version: int) -> bytes:
        return orjson.dumps(
            {
                "name": record.name,
                "id": record.table_id.hex(),
                "ticks": record.ticks,
                "version": version,
                "identifiers": identifiers,
            }
        )

    return render


@functools.lru_cache(maxsize=4096)
def _table_place(account: str, table: str) -> Key:
    return Key(keys.catalog_partition(account), keys.table_row(table))


class Catalog:
    """The tables of all accounts. `fresh_id` gives `keys.TABLE_ID_LENGTH` bytes nobody was given before.

    The name of a deleted table is free again after `deletion_seconds`; the service itself takes 40 and more (wire 3.4).
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        fresh_id: Callable[[], bytes],
        *,
        deletion_seconds: int = 0,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._fresh_id = fresh_id
        self._deletion_ticks = deletion_seconds * TICKS_PER_SECOND
        self._forget_ticks = max(limits.SWEEP_AGAIN_SECONDS, deletion_seconds) * TICKS_PER_SECOND
        self._rows = AnnouncedRows(engine)
        self.tenures = Tenures(engine)

    async def find(self, owner: Owner, table: str) -> TableRecord | None:
        """The owner's table of this name, in any case, if there is one."""
        if len(table) > limits.TABLE_NAME_LENGTH_MAX:
            return None  # asked of nobody, and its place not kept
        record = await self._rows.get(_table_place(owner.name, table), read_record)
        if owner.tenure is not None and (
            owner.known_at is None or owner.known_at != self._rows.read_at
        ):
            await self.tenures.require(owner)
        return record

    async def require(self, owner: Owner, table: str) -> TableRecord:
        """The table of this name, or `TableNotFound`."""
        record = await self.find(owner, table)
        if record is None:
            raise StorageError("TableNotFound", early=True)
        return record

    async def create(self, owner: Owner, table: str) -> None:
        """Create the table, or raise `TableAlreadyExists` or `TableBeingDeleted`."""
        row = keys.table_row(table)
        creation = Change(row, ABSENT, Put(_record_renderer(table, self._fresh_id())))
        for _ in range(limits.COMMIT_ATTEMPTS_MAX):
            taken = await self._free_again(owner, table) if self._deletion_ticks else ()
            changes = (*conditions(owner), creation, *taken)
            outcome = await self._commit(owner, changes)
            if isinstance(outcome, Committed):
                return
            if changes[outcome.index] is creation:
                raise StorageError("TableAlreadyExists")
            # Somebody has made and deleted a table of this name meanwhile: its time has begun.
        raise EngineUnavailable(f"Others keep making and deleting table {table}.")

    async def _free_again(self, owner: Owner, table: str) -> tuple[Change, ...]:
        """What has to hold, and to change, for a name to be used again; or `TableBeingDeleted`.

        An account that was made under the name of a deleted one has nothing of the times of its tables.
        """
        row = keys.taken_row(table)
        stored = await self._engine.get(Key(keys.catalog_partition(owner.name), row))
        if stored is None:
            return (Change(row, ABSENT, None),)
        taken = read_record(stored)
        if taken.ticks > max(self._clock() - self._deletion_ticks, owner.tenure or 0):
            there_is_one = (
                await self.find(owner, table) is not None
            )  # made while there was no such time
            raise StorageError("TableAlreadyExists" if there_is_one else "TableBeingDeleted")
        return (Change(row, taken.version, DELETE),)

    async def delete(self, owner: Owner, table: str) -> None:
        """Delete the table, or raise `ResourceNotFound` (wire 3.4)."""

        def deletion(record: TableRecord) -> tuple[Change, ...]:
            note = Put(_record_renderer(record.name, record.table_id))
            changes = (
                Change(keys.table_row(table), record.version, DELETE),
                Change(keys.deleted_row(record.table_id), ANY, note),
            )
            taken = Change(keys.taken_row(table), ANY, note)
            return (*changes, taken) if self._deletion_ticks else changes

        if not await self._change_table(owner, table, deletion):
            raise StorageError("ResourceNotFound")

    async def set_identifiers(
        self, owner: Owner, table: str, identifiers: tuple[SignedIdentifier, ...]
    ) -> None:
        """Replace the stored access policies of a table, or raise `TableNotFound`; the next request sees it."""

        def replacement(record: TableRecord) -> tuple[Change, ...]:
            render = _identifiers_renderer(record, identifiers)
            return (Change(keys.table_row(table), record.version, Put(render)),)

        if not await self._change_table(owner, table, replacement):
            raise StorageError("TableNotFound", early=True)

    async def _change_table(
        self, owner: Owner, table: str, changes: Callable[[TableRecord], tuple[Change, ...]]
    ) -> bool:
        """Commit the changes to a table's row, again if somebody else was first; False if there is no such table."""
        if len(table) > limits.TABLE_NAME_LENGTH_MAX:
            return False
        place = _table_place(owner.name, table)
        for _ in range(limits.COMMIT_ATTEMPTS_MAX):
            stored = await self._engine.get(place)
            if stored is None:
                return False
            change = changes(read_record(stored))
            outcome = await self._commit(owner, (*conditions(owner), *change))
            if isinstance(outcome, Committed):
                return True
        raise EngineUnavailable(f"Others keep changing table {table}.")

    async def _commit(self, owner: Owner, changes: tuple[Change, ...]) -> Committed | Conflict:
        """Commit changes that begin with the owner's conditions; `ResourceNotFound` if those do not hold."""
        write_set = WriteSet(keys.catalog_partition(owner.name), changes, announced=True)
        outcome = await self._engine.commit(write_set)
        if isinstance(outcome, Conflict) and changes[outcome.index].row == keys.TENURE_ROW:
            await self.tenures.require(owner)
        return outcome

    async def page(
        self, owner: Owner, first: str, tables_max: int
    ) -> tuple[list[TableRecord], TableRecord | None]:
        """Up to `tables_max` of the owner's tables in name order from `first` on, and the next one."""
        table_range = keys.table_rows_from(owner.name, first)
        rows = await self._engine.read(
            (table_range,), rows_max=tables_max + 1, bytes_max=limits.PAGE_BYTES_MAX
        )
        await self.tenures.require(owner)
        records = [read_record(value) for value in rows.values]
        return records[:tables_max], records[tables_max] if len(records) > tables_max else None

    async def accounts_to_sweep(self) -> AsyncIterator[str]:
        """The accounts, known or not, that have deleted tables left to sweep."""
        partition = b""
        while rows := await self._engine.scan(keys.catalogs_after(partition), rows_max=1):
            partition = rows[0].partition
            if keys.is_deleted_row(rows[0].row):
                yield keys.account_of(partition)

    async def sweep(self, account: str) -> bool:
        """Remove some of what deleted tables of the account left; False when there is nothing to do now."""
        read = await self._engine.read(
            (keys.deleted_rows(account),),
            rows_max=limits.PAGE_ENTITIES_MAX,
            bytes_max=limits.PAGE_BYTES_MAX,
        )
        for record in map(read_record, read.values):
            table_range = keys.table_range(record.table_id)
            rows = await self._engine.scan(table_range, rows_max=limits.SWEEP_ROWS_PER_STEP)
            if rows:
                await self._remove(rows)
                return True
            if self._clock() - record.ticks > self._forget_ticks:
                await self._forget(account, record)
        return False

    async def _forget(self, account: str, deleted: TableRecord) -> None:
        """Take away the last that is known of a deleted table; that its name was taken, if no later one had it."""
        partition = keys.catalog_partition(account)
        changes = [Change(keys.deleted_row(deleted.table_id), ANY, DELETE)]
        row = keys.taken_row(deleted.name)
        stored = await self._engine.get(Key(partition, row))
        if stored is not None and (taken := read_record(stored)).table_id == deleted.table_id:
            changes.append(Change(row, taken.version, DELETE))
        await self._engine.commit(WriteSet(partition, changes))

    async def _remove(self, rows: list[StoredRow]) -> None:
        for partition, group in groupby(rows, key=lambda row: row.partition):
            await self._engine.commit(
                WriteSet(partition, [Change(row.row, ANY, DELETE) for row in group])
            )
