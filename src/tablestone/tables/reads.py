"""Queries over the entities of one table: the loop that turns a plan into one page.

Reads the plan's key ranges piece by piece, leaves out what the residual filter does not match, and stops at the page's
count, size or time with a token that names the next key. Between turns other requests get theirs, so slow scans
never make a point read wait for more than one. Does not know HTTP or how a page is written down.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial

from tablestone import limits
from tablestone.engines.contract import Engine, Key, KeyRange, Snapshot
from tablestone.entity import ContinuationToken, EntityKey, KeyBounds
from tablestone.entity_json import RawEntity, key_of, read_raw, typed_property, version_of
from tablestone.errors import StorageError
from tablestone.operations import IF_MATCH_ANY, EntitiesPage, GetEntity, QueryEntities
from tablestone.query.evaluate import compile_filter
from tablestone.query.filter_tree import FilterNode
from tablestone.query.plan import plan_query
from tablestone.tables import keys
from tablestone.tables.hints import hint_of
from tablestone.turns import Seconds, Turn, Turns


async def query_entities(
    engine: Engine, table_id: bytes, query: QueryEntities, seconds: Seconds, turns: Turns
) -> EntitiesPage:
    """One page of the query, in key order (wire 6.6, 6.7)."""
    plan = plan_query(query.filter)
    ranges = keys.key_ranges(table_id, plan.ranges)
    if query.bounds is not None:
        ranges = _within_bounds(table_id, ranges, query.bounds, query.token)
    if query.token is not None:
        ranges = keys.ranges_from(ranges, keys.entity_place(table_id, EntityKey(*query.token)))
    if not ranges or query.top == 0:
        return EntitiesPage((), None)
    if plan.residual is None:
        rows = await engine.read(ranges, rows_max=query.top, bytes_max=limits.PAGE_BYTES_MAX)
        return EntitiesPage(rows.values, _token(rows.next_key))
    # One page shows one moment, however many pieces it is read in: never half of a transaction (wire 7.1).
    with closing(engine.snapshot()) as moment:
        async with turns.turn() as turn:
            scan = FilteredScan(moment, table_id, plan.residual, seconds, turn)
            return await scan.page(ranges, query.top)


def _within_bounds(
    table_id: bytes, ranges: list[KeyRange], bounds: KeyBounds, token: ContinuationToken | None
) -> list[KeyRange]:
    """What a caller who is limited may read; to go on from a partition that is not theirs yields nothing (auth 3.6)."""
    if token is not None and not bounds.hold_partition(token.next_partition_key):
        return []
    return keys.ranges_within(table_id, ranges, bounds)


def require_conditions(get: GetEntity, stored: bytes) -> None:
    """The conditions of a point read: 412 if it should match and does not, 304 if it should not and does (wire 4)."""
    version = version_of(stored)
    if get.if_match is not None and get.if_match not in (IF_MATCH_ANY, version):
        raise StorageError("UpdateConditionNotSatisfied")
    if get.if_none_match is not None and get.if_none_match in (IF_MATCH_ANY, version):
        raise StorageError("ConditionNotMet", status=304)


def _token(key: Key | None) -> ContinuationToken | None:
    return None if key is None else ContinuationToken(*keys.entity_key(key))


class FilteredScan:
    """A scan of key ranges of one table that keeps only the entities a filter matches."""

    def __init__(
        self,
        moment: Snapshot,
        table_id: bytes,
        residual: FilterNode,
        seconds: Seconds,
        turn: Turn,
    ) -> None:
        self._moment = moment
        self._table_id = table_id
        self._predicate = compile_filter(residual)
        self._hint = hint_of(residual)
        self._rows_per_read = (
            limits.SCAN_ROWS_PER_READ if self._hint is None else limits.SCAN_ROWS_PER_HINTED_READ
        )
        self._seconds = seconds
        self._turn = turn
        self._deadline = 0.0

    async def page(self, ranges: list[KeyRange], top: int) -> EntitiesPage:
        """Up to `top` matching entities; fewer, or none, with a token, when time or size ran out."""
        self._deadline = self._seconds() + limits.PAGE_SECONDS_MAX
        found: list[bytes] = []
        size = 0
        while True:
            rows = await self._moment.read(
                ranges,
                rows_max=self._rows_per_read,
                bytes_max=limits.PAGE_BYTES_MAX,
                hint=self._hint,
            )
            for stored in rows.values:
                raw = read_raw(stored)
                if self._predicate(partial(typed_property, raw)):
                    found.append(stored)
                    size += len(stored)
                    if len(found) == top or size >= limits.PAGE_BYTES_MAX:
                        return EntitiesPage(found, await self._token_after(ranges, raw))
                # Looked at for every row: what one costs depends on the filter, and nobody else may wait for many.
                if not await self._has_time():
                    return EntitiesPage(found, await self._token_after(ranges, raw))
            if rows.next_key is None:
                return EntitiesPage(found, None)
            # The engine may have left out all rows of a piece.
            if not rows.values and not await self._has_time():
                return EntitiesPage(found, _token(rows.next_key))
            ranges = keys.ranges_from(ranges, rows.next_key)

    async def _has_time(self) -> bool:
        """After a turn the others have theirs; False when the page has had its time."""
        now = self._seconds()
        if now > self._turn.ends:
            if now > self._deadline:
                return False
            await self._turn.give_way()
        return True

    async def _token_after(
        self, ranges: list[KeyRange], raw: RawEntity
    ) -> ContinuationToken | None:
        """The next entity of the ranges, matching or not (wire 6.7)."""
        partition, row = keys.entity_place(self._table_id, key_of(raw))
        rest = keys.ranges_from(ranges, Key(partition, row + b"\0"))
        rows = await self._moment.read(rest, rows_max=1, bytes_max=1)
        return ContinuationToken(*key_of(read_raw(rows.values[0]))) if rows.values else None
