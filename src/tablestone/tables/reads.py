"""Reads: one page of a query over the entities of a table, and the conditions of a point read.

A query reads the key ranges of its plan piece by piece, leaves out entities that the residual filter does not match,
and stops at the page's count, size or time with a token that names the next key. Other requests run between its turns,
so a point read waits for at most one turn of a slow scan.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tablestone import limits
from tablestone.clock import Clock
from tablestone.cooperative_scheduling import Seconds, Turn, Turns
from tablestone.engines.capabilities import StoredIn
from tablestone.engines.contract import Engine, Hint, Key, KeyRange, Rows, Snapshot, SnapshotPassed
from tablestone.model.entity_json import RawEntity, key_of, read_raw, typed_property, version_of
from tablestone.model.errors import StorageError
from tablestone.model.filter_tree import Constant, FilterNode
from tablestone.model.keys import ContinuationToken, EntityKey
from tablestone.model.operations import IF_MATCH_ANY, EntitiesPage, QueryEntities, ReadConditions
from tablestone.query.evaluate import compile_filter
from tablestone.query.plan import PlanKind, plan_query
from tablestone.tables import storage_keys
from tablestone.tables.catalog import TableRecord
from tablestone.tables.filter_pushdown import hint_of
from tablestone.tables.index_reads import IndexedRows, rows_by_index


async def query_entities(
    engine: Engine,
    table: TableRecord,
    query: QueryEntities,
    clock: Clock,
    seconds: Seconds,
    turns: Turns,
) -> EntitiesPage:
    """One page of the query, in key order (wire 6.6, 6.7), without the entities that have expired."""
    table_id = table.table_id
    plan = plan_query(query.filter)
    ranges = storage_keys.key_ranges(table_id, plan.ranges)
    if query.bounds is not None:
        token, bounds = query.token, query.bounds
        # A token in a partition outside the bounds finds nothing (auth 3.6).
        if token is not None and not bounds.hold_partition(token.next_partition_key):
            ranges = []
        ranges = storage_keys.ranges_within(table_id, ranges, bounds)
    if query.token is not None:
        ranges = storage_keys.ranges_from(
            ranges, storage_keys.entity_place(table_id, EntityKey(*query.token))
        )
    if not ranges or query.top == 0:
        return EntitiesPage((), None, plan.kind.value)
    policy = table.acting_expiry
    if plan.residual is None and policy is None:
        rows = await engine.read(ranges, rows_max=query.top, bytes_max=limits.PAGE_BYTES_MAX)
        read = len(rows.values)
        return EntitiesPage(rows.values, _token(rows.next_key), plan.kind.value, read, read)
    # All reads of a page use one snapshot: it never shows half of a transaction (wire 7.1).
    snapshot = await engine.snapshot()
    has_ended = None if policy is None else partial(policy.has_ended, now=clock())
    try:
        async with turns.turn() as turn:
            indexed: IndexedRows | None = None
            residual = plan.residual or Constant(value=True)
            if table.indexes and engine.capabilities.keeps_entries:
                indexed = await rows_by_index(snapshot, table, residual, ranges, query.top, turn)
            scan = FilteredScan(
                *(engine, snapshot, table_id, residual, has_ended, seconds, turn, indexed),
                counts_live=query.counts_examined,
            )
            page = await scan.page(ranges, query.top)
            kind = PlanKind.INDEX if scan.is_by_index else plan.kind
            examined = scan.rows_read - scan.ended
            by = indexed.properties if indexed is not None and scan.is_by_index else ()
            page = replace(page, plan=kind.value, indexed=by)
            return replace(page, rows_read=scan.rows_read, examined=examined)
    finally:
        await snapshot.close()


def require_conditions(conditions: ReadConditions, stored: bytes) -> None:
    """Raise 404 if the filter does not match (wire 6.11), else 412 by `If-Match` or 304 by `If-None-Match` (wire 4)."""
    if conditions.filter is not None:
        matches = compile_filter(conditions.filter)
        if not matches(partial(typed_property, read_raw(stored))):
            raise StorageError("ResourceNotFound")
    version = version_of(stored)
    if conditions.if_match is not None and conditions.if_match not in (IF_MATCH_ANY, version):
        raise StorageError("UpdateConditionNotSatisfied")
    if conditions.if_none_match is not None and conditions.if_none_match in (IF_MATCH_ANY, version):
        raise StorageError("ConditionNotMet", status=304, early=False)


def _token(key: Key | None) -> ContinuationToken | None:
    return None if key is None else ContinuationToken(*storage_keys.entity_key(key))


class FilteredScan:
    """Scans key ranges for the entities that match a filter and not `has_ended`; after the first rows, by `indexed`."""

    def __init__(
        self,
        engine: Engine,
        snapshot: Snapshot,
        table_id: bytes,
        residual: FilterNode,
        has_ended: Callable[[RawEntity], bool] | None,
        seconds: Seconds,
        turn: Turn,
        indexed: IndexedRows | None = None,
        *,
        counts_live: bool = False,
    ) -> None:
        self._engine = engine
        self._snapshot = snapshot
        self._indexed = indexed
        self._table_id = table_id
        self._predicate = compile_filter(residual)
        self._has_ended = has_ended
        self._hint: Hint | None = None
        self._rows_per_read = limits.SCAN_ROWS_PER_READ
        self._counts_live = counts_live
        # What a hint leaves out may have expired: to count the others, look at each.
        self._counts_ended = counts_live and has_ended is not None
        can_hint = engine.capabilities.hints and not self._counts_ended
        if can_hint and (hint := hint_of(residual)) is not None:
            self._hint, self._rows_per_read = hint, limits.SCAN_ROWS_PER_HINTED_READ
        is_remote = engine.capabilities.stored_in is StoredIn.SERVERS
        self._rows_per_read_max = limits.SCAN_ROWS_PER_REMOTE_READ if is_remote else 0
        self._seconds = seconds
        self._turn = turn
        self._deadline = 0.0
        self.is_by_index = False
        self.rows_read = 0
        """Rows for which the filter was evaluated, and rows that the engine left out by a hint."""
        self.ended = 0
        """Of these, those that have expired, if they are counted."""

    async def page(self, ranges: list[KeyRange], top: int) -> EntitiesPage:
        """Up to `top` matching entities; fewer or none, with a token, if the limit of time or size was reached."""
        self._deadline = self._seconds() + limits.PAGE_SECONDS_MAX
        found: list[bytes] = []
        size = 0
        while True:
            try:
                rows = await self._read(ranges)
            except SnapshotPassed:  # never at the first read, so the ranges begin with the next key
                return EntitiesPage(found, _token(ranges[0].start))
            if self._rows_per_read < self._rows_per_read_max:
                self._rows_per_read = min(2 * self._rows_per_read, self._rows_per_read_max)
            before, gaps = self.rows_read, len(rows.values) + 1
            for number, stored in enumerate(rows.values, 1):
                # The next page comes to what is after its last row: of what a hint left out, count the part before;
                # about, unless somebody asks.
                self.rows_read = before + number + rows.left_out * number // gaps
                raw = read_raw(stored)
                if self._counts_ended and self._has_ended is not None:
                    self.ended += self._has_ended(raw)
                if self._predicate(partial(typed_property, raw)) and (
                    self._has_ended is None or not self._has_ended(raw)
                ):
                    found.append(stored)
                    size += len(stored)
                    if len(found) == top or size >= limits.PAGE_BYTES_MAX:
                        await self._count_up_to(self._after(raw), ranges, rows, before)
                        return EntitiesPage(found, await self._token_after(ranges, raw))
                # Checked for every row: the cost of a row depends on the filter, and others must not wait for many.
                now = self._seconds()
                if now > self._turn.ends and not await self._goes_on(now):
                    await self._count_up_to(self._after(raw), ranges, rows, before)
                    return EntitiesPage(found, await self._token_after(ranges, raw))
            self.rows_read = before + len(rows.values) + rows.left_out
            if rows.next_key is None:
                return EntitiesPage(found, None)
            if self._counts_live and sum(map(len, rows.values)) >= limits.PAGE_BYTES_MAX:
                # Ended by its bytes, the read has counted too many.
                await self._count_up_to(rows.next_key, ranges, rows, before)
            # The engine may have left out all rows of a piece.
            if not rows.values:
                now = self._seconds()
                if now > self._turn.ends and not await self._goes_on(now):
                    return EntitiesPage(found, _token(rows.next_key))
            ranges = storage_keys.ranges_from(ranges, rows.next_key)

    async def _read(self, ranges: list[KeyRange]) -> Rows:
        rows_max = self._rows_per_read
        if self._indexed is not None:
            left = self._indexed.scanned_first - self.rows_read
            if left <= 0:
                self.is_by_index = True
                return await self._indexed.read(ranges)
            rows_max = min(rows_max, left)
        return await self._snapshot.read(
            ranges, rows_max=rows_max, bytes_max=limits.PAGE_BYTES_MAX, hint=self._hint
        )

    async def _goes_on(self, now: float) -> bool:
        """Let other requests run after a turn; False if the time of the page is over, too."""
        if now > self._deadline:
            return False
        await self._turn.give_way()
        return True

    def _after(self, raw: RawEntity) -> Key:
        """The first key after an entity."""
        place = storage_keys.entity_place(self._table_id, key_of(raw))
        return place._replace(row=place.row + b"\0")

    async def _count_up_to(self, end: Key, ranges: list[KeyRange], rows: Rows, before: int) -> None:
        """Count the rows of a read before a key, if somebody asks: a hint does not say where it left rows out."""
        if not (self._counts_live and rows.left_out):
            return
        parts = [KeyRange(start, min(each, end)) for start, each in ranges if start < end]
        most = len(rows.values) + rows.left_out
        # Limited by rows alone: those that a hint leaves out are small, and the others are here already.
        again = await self._read_again(parts, rows_max=most, bytes_max=most << 21)
        self.rows_read = before + len(again.values)

    async def _token_after(
        self, ranges: list[KeyRange], raw: RawEntity
    ) -> ContinuationToken | None:
        """The next entity of the ranges, matching or not, expired or not (wire 6.7)."""
        rest = storage_keys.ranges_from(ranges, self._after(raw))
        if not rest:
            return None
        rows = await self._read_again(rest, rows_max=1, bytes_max=1)
        return ContinuationToken(*key_of(read_raw(rows.values[0]))) if rows.values else None

    async def _read_again(self, ranges: list[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        try:
            return await self._snapshot.read(ranges, rows_max=rows_max, bytes_max=bytes_max)
        except SnapshotPassed:
            return await self._engine.read(ranges, rows_max=rows_max, bytes_max=bytes_max)
