"""Reads: one page of a query over the entities of a table, and the conditions of a point read.

A query reads the key ranges of its plan piece by piece, leaves out entities that the residual filter does not match,
and stops at the page's count, size or time with a token that names the next key. Other requests run between its turns,
so a point read waits for at most one turn of a slow scan.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from tablestone import limits
from tablestone.clock import Clock
from tablestone.cooperative_scheduling import Seconds, Turn, Turns
from tablestone.engines.contract import Engine, Hint, Key, KeyRange, Rows, Snapshot, SnapshotPassed
from tablestone.model.entity_json import RawEntity, key_of, read_raw, typed_property, version_of
from tablestone.model.errors import StorageError
from tablestone.model.filter_tree import Constant, FilterNode
from tablestone.model.keys import ContinuationToken, EntityKey
from tablestone.model.operations import (
    IF_MATCH_ANY,
    PARTIAL_HEADER,
    CountForm,
    EntitiesPage,
    QueryEntities,
    ReadConditions,
)
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
    if query.reverse and not engine.capabilities.reads_backwards:
        raise StorageError("NotImplemented", _FORWARDS_ONLY, early=False)
    rest = storage_keys.ranges_back_from if query.reverse else storage_keys.ranges_from
    if query.token is not None:
        ranges = rest(ranges, storage_keys.entity_place(table_id, EntityKey(*query.token)))
    if not ranges or query.top == 0:
        return EntitiesPage((), None, plan.kind.value)
    policy = table.acting_expiry
    if plan.residual is None and policy is None and query.counts is None:
        if query.reverse:
            rows = await _read_backwards(engine, ranges, query.top)
        else:
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
                indexed = await rows_by_index(
                    *(snapshot, table, residual, ranges, query.top, turn), reverse=query.reverse
                )
            scan = FilteredScan(
                *(engine, snapshot, table_id, residual, has_ended, seconds, turn, indexed),
                counts_live=query.counts_examined,
                counts_only=query.counts is not None,
                reverse=query.reverse,
            )
            page = await scan.page(ranges, query.top)
            kind = PlanKind.INDEX if scan.is_by_index else plan.kind
            examined = scan.rows_read - scan.ended
            by = indexed.properties if indexed is not None and scan.is_by_index else ()
            page = replace(page, plan=kind.value, indexed=by)
            return replace(page, rows_read=scan.rows_read, examined=examined, count=scan.count)
    finally:
        await snapshot.close()


async def _read_backwards(engine: Engine, ranges: list[KeyRange], top: int) -> Rows:
    snapshot = await engine.snapshot()
    try:
        return await snapshot.read(
            ranges, rows_max=top, bytes_max=limits.PAGE_BYTES_MAX, reverse=True
        )
    finally:
        await snapshot.close()


async def count_entities(
    engine: Engine,
    table: TableRecord,
    query: QueryEntities,
    clock: Clock,
    seconds: Seconds,
    turns: Turns,
) -> EntitiesPage:
    """How many entities the query finds; raises `OperationTimedOut` if that takes too long, unless a part is enough."""
    deadline = seconds() + limits.PAGE_SECONDS_MAX
    count = rows_read = examined = 0
    while True:
        page = await query_entities(engine, table, query, clock, seconds, turns)
        count, rows_read = count + page.count, rows_read + page.rows_read
        examined += page.examined
        # On some engines a page ends early, when its snapshot has passed.
        if page.token is None or seconds() > deadline:
            break
        query = replace(query, token=page.token)
    if page.token is not None and query.counts is CountForm.WHOLE:
        raise StorageError("OperationTimedOut", _TOO_MANY, early=False)
    return replace(page, count=count, rows_read=rows_read, examined=examined)


_FORWARDS_ONLY: Final = (
    "The engine of this server reads entities in ascending order only: $orderby is not implemented."
)
_TOO_MANY: Final = (
    "The entities could not be counted within the specified time. A request with the header "
    f"{PARTIAL_HEADER}: true gets the number so far, and a continuation token."
)


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
        counts_only: bool = False,
        reverse: bool = False,
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
        is_remote = engine.capabilities.shares_over_network
        self._rows_per_read_max = limits.SCAN_ROWS_PER_REMOTE_READ if is_remote else 0
        self._reverse = reverse
        self._rest = storage_keys.ranges_back_from if reverse else storage_keys.ranges_from
        self._counts_only = counts_only
        is_all = residual == Constant(value=True) and has_ended is None
        self._counts_rows = counts_only and is_all
        self.count = 0
        """The entities that were found."""
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
            if self._counts_rows:
                self.count += len(rows.values)
            for number, stored in enumerate(() if self._counts_rows else rows.values, 1):
                # The next page comes to what is after its last row: of what a hint left out, count the part before;
                # about, unless somebody asks.
                self.rows_read = before + number + rows.left_out * number // gaps
                raw = read_raw(stored)
                if self._counts_ended and self._has_ended is not None:
                    self.ended += self._has_ended(raw)
                if self._predicate(partial(typed_property, raw)) and (
                    self._has_ended is None or not self._has_ended(raw)
                ):
                    self.count += 1
                    if not self._counts_only:
                        found.append(stored)
                        size += len(stored)
                    if len(found) == top or size >= limits.PAGE_BYTES_MAX:
                        await self._count(self._up_to(ranges, raw), rows, before)
                        return EntitiesPage(found, await self._token_after(ranges, raw))
                # Checked for every row: the cost of a row depends on the filter, and others must not wait for many.
                now = self._seconds()
                if now > self._turn.ends and not await self._goes_on(now):
                    await self._count(self._up_to(ranges, raw), rows, before)
                    return EntitiesPage(found, await self._token_after(ranges, raw))
            self.rows_read = before + len(rows.values) + rows.left_out
            if rows.next_key is None:
                return EntitiesPage(found, None)
            if self._counts_live and sum(map(len, rows.values)) >= limits.PAGE_BYTES_MAX:
                # Ended by its bytes, the read has counted too many.
                await self._count(self._before(ranges, rows.next_key), rows, before)
            # The engine may have left out all rows of a piece, and others need no look.
            if not rows.values or self._counts_rows:
                now = self._seconds()
                if now > self._turn.ends and not await self._goes_on(now):
                    return EntitiesPage(found, _token(rows.next_key))
            ranges = self._rest(ranges, rows.next_key)

    async def _read(self, ranges: list[KeyRange]) -> Rows:
        rows_max = self._rows_per_read
        if self._indexed is not None:
            left = self._indexed.scanned_first - self.rows_read
            if left <= 0:
                self.is_by_index = True
                return await self._indexed.read(ranges)
            rows_max = min(rows_max, left)
        return await self._snapshot.read(
            ranges,
            rows_max=rows_max,
            bytes_max=limits.PAGE_BYTES_MAX,
            hint=self._hint,
            reverse=self._reverse,
        )

    async def _goes_on(self, now: float) -> bool:
        """Let other requests run after a turn; False if the time of the page is over, too."""
        if now > self._deadline:
            return False
        await self._turn.give_way()
        return True

    async def _count(self, parts: list[KeyRange], rows: Rows, before: int) -> None:
        """Count the rows of parts of a read, if somebody asks: a hint does not say where it left rows out."""
        if not (self._counts_live and rows.left_out):
            return
        most = len(rows.values) + rows.left_out
        # Limited by rows alone: those that a hint leaves out are small, and the others are here already.
        again = await self._read_again(parts, rows_max=most, bytes_max=most << 21)
        self.rows_read = before + len(again.values)

    async def _token_after(
        self, ranges: list[KeyRange], raw: RawEntity
    ) -> ContinuationToken | None:
        """The next entity of the ranges, matching or not, expired or not (wire 6.7)."""
        place = storage_keys.entity_place(self._table_id, key_of(raw))
        if self._reverse:
            rest = storage_keys.ranges_before(ranges, place)
        else:
            rest = storage_keys.ranges_from(ranges, Key(place.partition, place.row + b"\0"))
        if not rest:
            return None
        rows = await self._read_again(rest, rows_max=1, bytes_max=1)
        return ContinuationToken(*key_of(read_raw(rows.values[0]))) if rows.values else None

    def _up_to(self, ranges: list[KeyRange], raw: RawEntity) -> list[KeyRange]:
        """The parts of ranges that have been read when this entity has."""
        place = storage_keys.entity_place(self._table_id, key_of(raw))
        if self._reverse:
            return storage_keys.ranges_from(ranges, place)
        return storage_keys.ranges_back_from(ranges, place)

    def _before(self, ranges: list[KeyRange], next_key: Key) -> list[KeyRange]:
        """The parts of ranges that have been read when this key is the next."""
        if self._reverse:
            return storage_keys.ranges_from(ranges, Key(next_key.partition, next_key.row + b"\0"))
        return storage_keys.ranges_before(ranges, next_key)

    async def _read_again(self, ranges: list[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        try:
            return await self._snapshot.read(
                ranges, rows_max=rows_max, bytes_max=bytes_max, reverse=self._reverse
            )
        except SnapshotPassed:  # of an engine that reads forwards only
            return await self._engine.read(ranges, rows_max=rows_max, bytes_max=bytes_max)
