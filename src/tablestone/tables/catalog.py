"""The catalog: the tables of an account with their policies; creating, deleting and listing them.

The deletion of a table removes its one catalog row and, in the same commit, notes that its entities are to be swept
(`sweeping`). So it returns at once for a table of any size. `TableName` is to a table what PartitionKey is to an
entity, so one planner serves queries for both.
"""

import functools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from tablestone import limits
from tablestone.clock import TICKS_PER_SECOND, Clock
from tablestone.cooperative_scheduling import Seconds
from tablestone.engines.change_record import Note
from tablestone.engines.contract import (
    ABSENT,
    ANY,
    DELETE,
    Change,
    Committed,
    Conflict,
    Engine,
    Key,
    KeyRange,
    Put,
    ReliedRows,
    StoredRow,
)
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.errors import StorageError
from tablestone.model.expiry import ExpiryPolicy
from tablestone.model.filter_tree import Comparison, map_comparisons
from tablestone.model.keys import PARTITION_KEY
from tablestone.model.operations import AccessPolicy, QueryTables, SignedIdentifier, TablesPage
from tablestone.query.evaluate import compile_filter
from tablestone.query.plan import plan_query
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Incarnations, Owner, conditions
from tablestone.tables.cache_invalidation import InvalidatingChange, one_more_conflict, outlast
from tablestone.tables.cached_rows import CachedRows
from tablestone.tables.change_notes import About, CommitKind, note_of
from tablestone.tables.indexes import EntriesOf, Index, entries_function, read_indexes, states_of

SWEEPING_SECONDS: Final = 8
"""Where a commit cannot rely on a policy (`WriteSet.relies_on`), expired entities are deleted for so long at most
after a look at it. The second half is for the last call, whose outcome is certain then."""


@dataclass(frozen=True, slots=True)
class TableRecord:
    """A table in the catalog: its name as created, its id, its policies; `ticks` is its creation or deletion."""

    name: str
    table_id: bytes
    ticks: int
    version: int
    identifiers: tuple[SignedIdentifier, ...] = ()
    claim: tuple[str, int] | None = None
    """For a deleted table on a cluster: the server that sweeps it, and until when (ticks) others do not."""
    members: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The members beside name, id, ticks and version, also those that this release does not know."""
    indexes: tuple[Index, ...] = ()
    entries_of: EntriesOf | None = field(default=None, compare=False)
    """The entries of a stored entity; None without indexes."""
    expiry: ExpiryPolicy | None = None
    acting_expiry: ExpiryPolicy | None = None
    """The same, unless it is suspended."""


_OWN_MEMBERS: Final = ("name", "id", "ticks", "version")


def read_record(stored: bytes) -> TableRecord:
    raw = orjson.loads(stored)
    name, table_id, ticks, version = [raw.pop(member) for member in _OWN_MEMBERS]
    table_id = bytes.fromhex(table_id)
    indexes = read_indexes(raw)
    expiry = ExpiryPolicy.from_members(raw["expiry"]) if "expiry" in raw else None
    return TableRecord(
        name,
        table_id,
        ticks,
        version,
        tuple(map(_read_identifier, raw.get("identifiers", ()))),
        tuple(raw["claim"]) if "claim" in raw else None,
        raw,
        indexes,
        entries_function(table_id, indexes),
        expiry,
        None if expiry is None or expiry.suspended else expiry,
    )


def _read_identifier(raw: dict[str, Any]) -> SignedIdentifier:
    policy = raw["policy"]
    return SignedIdentifier(raw["id"], None if policy is None else AccessPolicy(**policy))


def record_renderer(
    name: str, table_id: bytes, ticks: int | None = None, **more: Any
) -> Callable[[int], bytes]:
    """The value of a catalog row. Without `ticks`, its version is also the time of the creation or deletion."""

    def render(version: int) -> bytes:
        return orjson.dumps(
            {
                "name": name,
                "id": table_id.hex(),
                "ticks": version if ticks is None else ticks,
                "version": version,
                **more,
            }
        )

    return render


def relied_rows(
    engine: Engine, owner: Owner, table: TableRecord, generation: int | None
) -> ReliedRows | None:
    """What a write to the table's entities relies on: its row and, if the account can be deleted, that of its
    incarnation. `generation` is the engine's before they were read. None if the engine's commits check no rows.
    """
    if not engine.capabilities.checks_relied_rows:
        return None
    if engine.leases is not None:
        generation = None  # it is over by the time of the commit, and says nothing of other servers
    rows = [(_table_place(owner.name, table.name), table.version)]
    if owner.incarnation is not None:
        place = Key(storage_keys.catalog_partition(owner.name), storage_keys.INCARNATION_ROW)
        rows.append((place, owner.incarnation))
    return ReliedRows(rows, generation)


def note_about(kind: CommitKind, owner: Owner, table: TableRecord) -> Note:
    return note_of(About(kind, owner.name, owner.incarnation, table.name, table.table_id))


_table_place = functools.lru_cache(maxsize=4096)(storage_keys.table_place)


class Catalog:
    """The tables of all accounts. `fresh_id` returns `storage_keys.TABLE_ID_LENGTH` bytes that were never used before.

    The name of a deleted table is free again after `deletion_seconds`; the service itself takes 40 or more (wire 3.4).
    """

    def __init__(
        self, engine: Engine, clock: Clock, fresh_id: Callable[[], bytes], deletion_seconds: int = 0
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.fresh_id = fresh_id
        self._deletion_ticks = deletion_seconds * TICKS_PER_SECOND
        self.rows = CachedRows(engine, absence_by_lease=False)
        self._is_shared = engine.capabilities.shares_over_network
        self.incarnations = Incarnations(engine)

    async def find(self, owner: Owner, table: str) -> TableRecord | None:
        """The owner's table of this name, in upper or lower case, if there is one."""
        if len(table) > limits.TABLE_NAME_LENGTH_MAX:
            return None  # no table has such a name, and its place is not cached
        record = await self.rows.get(_table_place(owner.name, table), read_record)
        if owner.incarnation is not None and (
            owner.known_at is None or owner.known_at != self.rows.read_at
        ):
            await self.incarnations.require(owner)
        return record

    async def require(self, owner: Owner, table: str) -> TableRecord:
        record = await self.find(owner, table)
        if record is None:
            raise StorageError("TableNotFound")
        return record

    async def create(self, owner: Owner, table: str) -> None:
        row = storage_keys.table_row(table)
        table_id = self.fresh_id()
        creation = Change(row, ABSENT, Put(record_renderer(table, table_id)))
        note = note_of(
            About(CommitKind.TABLE_CREATED, owner.name, owner.incarnation, table, table_id)
        )
        conflicts = 0
        async with self._change(owner) as change:
            while True:
                taken = await self._free_again(owner, table) if self._deletion_ticks else ()
                changes = (*conditions(owner), creation, *taken)
                # No wait for leases: under a lease, no process caches the absence of a table.
                outcome = await self._commit(owner, change, changes, note)
                if isinstance(outcome, Committed):
                    return
                if changes[outcome.index] is creation:
                    raise StorageError("TableAlreadyExists")
                # Another client has created and deleted a table of this name since: the name is reserved again.
                conflicts = one_more_conflict(conflicts, f"table {table}")

    async def _free_again(self, owner: Owner, table: str) -> tuple[Change, ...]:
        """The changes that free a deleted table's name, or `TableBeingDeleted`; those of earlier accounts are free."""
        row = storage_keys.taken_row(table)
        stored = await self.engine.get(Key(storage_keys.catalog_partition(owner.name), row))
        if stored is None:
            return (Change(row, ABSENT, None),)
        taken = read_record(stored)
        if taken.ticks > max(self.clock() - self._deletion_ticks, owner.incarnation or 0):
            # It may exist: it was created under a server that reserves no names.
            exists = await self.find(owner, table) is not None
            raise StorageError("TableAlreadyExists" if exists else "TableBeingDeleted")
        return (Change(row, taken.version, DELETE),)

    async def is_being_deleted(self, owner: Owner, table: str) -> bool:
        """Whether rows of a deleted table of this name are still to be swept."""
        notes = await self.engine.scan(
            storage_keys.deleted_rows(owner.name), rows_max=limits.PAGE_ENTITIES_MAX
        )
        return any(read_record(note.value).name.lower() == table.lower() for note in notes)

    async def delete(self, owner: Owner, table: str) -> None:
        """Delete the table, or raise `ResourceNotFound` (wire 3.4)."""
        async with self._change(owner) as change:
            if not await self._change_table(owner, table, self._deletion, change):
                raise StorageError("ResourceNotFound")

    async def delete_all(self, owner: Owner) -> int:
        """Delete all tables of the owner, also those that are created while this runs. Returns their number."""
        deleted = 0
        async with self._change(owner) as change:
            while True:
                records, _ = await self.page(owner, "", limits.PAGE_ENTITIES_MAX)
                if not records:
                    return deleted
                for record in records:
                    # False means that another client has deleted it since.
                    await self._change_table(
                        owner, record.name, self._deletion, change, is_last=False
                    )
                deleted += len(records)

    def _deletion(self, record: TableRecord, conflicts: int) -> tuple[Change, ...]:
        note = Put(record_renderer(record.name, record.table_id))
        # Storage that is shared may have to read past deleted notes: they use the same few rows again while those last.
        slots = storage_keys.deleted_slots(record.table_id) if self._is_shared else ()
        noted = Change(storage_keys.deleted_row(record.table_id), ANY, note)
        if conflicts < len(slots):
            noted = Change(slots[conflicts], ABSENT, note)
        changes = (Change(storage_keys.table_row(record.name), record.version, DELETE), noted)
        taken = Change(storage_keys.taken_row(record.name), ANY, note)
        return (*changes, taken) if self._deletion_ticks else changes

    async def set_identifiers(
        self, owner: Owner, table: str, identifiers: tuple[SignedIdentifier, ...]
    ) -> None:
        """Replace the stored access policies of a table, or raise `TableNotFound`; the next request sees them."""
        await self.change_members(owner, table, lambda _record: {"identifiers": identifiers})

    async def change_expiry(
        self,
        owner: Owner,
        table: str,
        edit: Callable[[ExpiryPolicy | None], ExpiryPolicy | None],
        table_id: bytes | None = None,
        version: int | None = None,
    ) -> None:
        """Replace the expiry policy of a table by the result of `edit`; None is no policy.

        `TableNotFound` if another table than `table_id` has the name, `CountSpent` if its row has another `version`.
        Afterwards nothing is swept under the old policy.
        """
        before: ExpiryPolicy | None = None

        def decide(old: TableRecord) -> Mapping[str, Any]:
            nonlocal before
            if table_id not in (None, old.table_id):
                raise StorageError("TableNotFound")
            if version not in (None, old.version):
                raise StorageError("CountSpent")
            before = old.expiry
            policy = edit(before)
            return {"expiry": None if policy is None else policy.members()}

        await self.change_members(owner, table, decide)
        # Wait also if the old policy was suspended: it may have been so for a moment only.
        if before is not None and not self.engine.capabilities.checks_relied_rows:
            await outlast(SWEEPING_SECONDS)

    async def change_members(
        self, owner: Owner, table: str, decide: Callable[[TableRecord], Mapping[str, Any]]
    ) -> None:
        """Replace the members of a table's row that `decide` returns, None removing one; or raise `TableNotFound`.

        `decide` may be called again after a conflict, and may raise. The next request of every process sees the change.
        """

        def replacement(old: TableRecord, _conflicts: int) -> tuple[Change, ...]:
            members = {k: v for k, v in {**old.members, **decide(old)}.items() if v is not None}
            render = record_renderer(old.name, old.table_id, old.ticks, **members)
            return (Change(storage_keys.table_row(table), old.version, Put(render)),)

        async with self._change(owner) as change:
            kind = CommitKind.SETTINGS
            if not await self._change_table(owner, table, replacement, change, kind):
                raise StorageError("TableNotFound")

    def _change(self, owner: Owner) -> InvalidatingChange:
        return InvalidatingChange(self.engine, storage_keys.catalog_partition(owner.name))

    async def _change_table(
        self,
        owner: Owner,
        table: str,
        changes: Callable[[TableRecord, int], tuple[Change, ...]],
        change: InvalidatingChange,
        kind: CommitKind = CommitKind.TABLE_DELETED,
        *,
        is_last: bool = True,
    ) -> bool:
        """Commit `changes(row, conflicts so far)` of a table, again after a conflict; False if there is no table."""
        if len(table) > limits.TABLE_NAME_LENGTH_MAX:
            return False
        place = _table_place(owner.name, table)
        conflicts = 0
        while True:
            stored = await self.engine.get(place)
            if stored is None:
                return False
            record = read_record(stored)
            decided = (*conditions(owner), *changes(record, conflicts))
            note = note_about(kind, owner, record)
            if await change.waits():
                continue
            outcome = await self._commit(owner, change, decided, note, is_last=is_last)
            if isinstance(outcome, Committed):
                return True
            conflicts = one_more_conflict(conflicts, f"table {table}")

    async def _commit(
        self,
        owner: Owner,
        change: InvalidatingChange,
        changes: tuple[Change, ...],
        note: Note,
        *,
        is_last: bool = True,
    ) -> Committed | Conflict:
        """Commit changes that begin with the owner's conditions; `ResourceNotFound` if those do not hold."""
        outcome = await change.commit(changes, last=is_last, note=note, entries_of=states_of)
        if (
            isinstance(outcome, Conflict)
            and changes[outcome.index].row == storage_keys.INCARNATION_ROW
        ):
            await self.incarnations.require(owner)
        return outcome

    async def page(
        self, owner: Owner, first: str, tables_max: int
    ) -> tuple[list[TableRecord], TableRecord | None]:
        """Up to `tables_max` of the owner's tables in name order from `first` on, and the next one."""
        ranges = (storage_keys.table_rows_from(owner.name, first),)
        return await self.page_within(owner, ranges, tables_max)

    async def page_within(
        self, owner: Owner, ranges: Sequence[KeyRange], tables_max: int
    ) -> tuple[list[TableRecord], TableRecord | None]:
        """Up to `tables_max` of the owner's tables in ranges of the catalog, by name, and the next one in them."""
        rest = list(ranges)
        records: list[TableRecord] = []
        while rest and len(records) <= tables_max:
            rows = await self.engine.read(
                rest, rows_max=tables_max + 1 - len(records), bytes_max=limits.PAGE_BYTES_MAX
            )
            records += map(read_record, rows.values)
            next_key = rows.next_key
            rest = [] if next_key is None else storage_keys.ranges_from(rest, next_key)
        await self.incarnations.require(owner)
        return records[:tables_max], records[tables_max] if len(records) > tables_max else None


async def scan_in_steps(
    engine: Engine, rest: KeyRange, rows_max: int = limits.PAGE_ENTITIES_MAX
) -> AsyncIterator[list[StoredRow]]:
    """All rows of a range, in lists that the engine reads one after the other."""
    while rows := await engine.scan(rest, rows_max=rows_max):
        yield rows
        rest = storage_keys.after(rest, rows[-1])


async def every_table(engine: Engine) -> AsyncIterator[tuple[str, TableRecord]]:
    """The tables of all accounts, known or not, each with its account."""
    async for rows in scan_in_steps(engine, storage_keys.catalogs_after(b"")):
        for row in rows:
            if storage_keys.is_table_row(row.row):
                yield storage_keys.account_of(row.partition), read_record(row.value)


async def query_tables(
    catalog: Catalog, owner: Owner, query: QueryTables, seconds: Seconds
) -> TablesPage:
    """One page of the query, by name, with a continuation token only if a table follows in its ranges (wire 6.7)."""
    node = query.filter
    plan = plan_query(None if node is None else map_comparisons(node, _of_key))
    ranges = storage_keys.table_ranges(owner.name, plan.ranges)
    if query.next_table_name is not None:
        ranges = storage_keys.ranges_from(
            ranges, storage_keys.table_place(owner.name, query.next_table_name)
        )
    if plan.residual is None:
        predicate, tables_max = None, query.top
    else:
        predicate, tables_max = compile_filter(plan.residual), limits.PAGE_ENTITIES_MAX
    found: list[str] = []
    deadline = seconds() + limits.PAGE_SECONDS_MAX
    while ranges and query.top:
        records, after = await catalog.page_within(owner, ranges, tables_max)
        for record in records:
            if len(found) == query.top:
                return TablesPage(found, (record.name, record.ticks))
            key = {PARTITION_KEY: EdmValue(EdmType.STRING, record.name.lower())}
            if predicate is None or predicate(key.get):
                found.append(record.name)
        if after is None:
            break
        if len(found) == query.top or seconds() > deadline:
            return TablesPage(found, (after.name, after.ticks))
        ranges = storage_keys.ranges_from(ranges, storage_keys.table_place(owner.name, after.name))
    return TablesPage(found, None)


def _of_key(comparison: Comparison) -> Comparison:
    """The comparison as one of PartitionKey. A filter of tables names only TableName, which is a string (wire 3.1)."""
    folded = EdmValue(EdmType.STRING, str(comparison.literal.value).lower())
    return Comparison(PARTITION_KEY, comparison.operator, folded)
