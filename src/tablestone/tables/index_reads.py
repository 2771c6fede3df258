"""Reads by an index: the rows of key ranges that have entries at the places of a filter, in key order.

Entries and rows are read at one moment, so no row is missed. Which index has the fewest entries, and whether a scan is
quicker, is found out by counting entries and rows, each up to a limit.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tablestone import limits
from tablestone.cooperative_scheduling import Turn
from tablestone.engines.contract import Engine, Entry, IndexedSnapshot, Key, KeyRange, Rows
from tablestone.engines.figures import CountsRows
from tablestone.model.filter_tree import FilterNode
from tablestone.query.index_plan import Way, is_in_key_order, ways_of
from tablestone.tables import storage_keys
from tablestone.tables.catalog import TableRecord
from tablestone.tables.indexes import Index, IndexState, is_built, places_head

FEW_ENTRIES: Final = 1_000
"""If a filter has no more entries than this, they are all read at once."""
SORTED_ENTRIES_MAX: Final = 10_000
"""Entries that are sorted by key for one page. A range of values that has more is scanned."""
ENTRIES_PER_READ: Final = 1_000
STREAMS_MAX: Final = 64
"""Places times key ranges whose entries are read beside each other in key order."""
SPARSE: Final = 8
"""More entries than a read of rows takes are worth it if at most one of so many rows has one."""
ROWS_PER_READ_MIN: Final = 50


_Entries = tuple[Entry, Entry]
"""Entries from the first up to the second; all of one place if that is the next possible one."""


class IndexedRows:
    """Reads rows by their entries: those with the keys, or if there are none, those that have one of the entries."""

    def __init__(
        self,
        moment: IndexedSnapshot,
        top: int,
        keys: Sequence[Key] | None,
        entries: Sequence[_Entries],
        turn: Turn,
    ) -> None:
        self._moment = moment
        self._turn = turn
        self._rows_per_read = min(limits.SCAN_ROWS_PER_READ, max(top, ROWS_PER_READ_MIN))
        self._keys = keys
        self._entries = entries

    async def read(self, ranges: Sequence[KeyRange]) -> Rows:
        """Some rows in the ranges, the first of which begins with the next key."""
        wanted = self._rows_per_read
        if self._keys is None:
            keys: Sequence[Key]
            keys = await _first_keys(self._moment, self._entries, ranges, wanted + 1, self._turn)
        else:
            first = bisect_left(self._keys, ranges[0].start) if ranges else len(self._keys)
            keys = self._keys[first : first + wanted + 1]
        if not keys:
            return Rows([], None)
        points = [KeyRange.of_row(*key) for key in keys[:wanted]]
        values, next_key, _ = await self._moment.read(
            points, rows_max=wanted, bytes_max=limits.PAGE_BYTES_MAX
        )
        return Rows(values, next_key or (keys[wanted] if len(keys) > wanted else None))


async def rows_by_index(
    engine: Engine,
    moment: IndexedSnapshot,
    table: TableRecord,
    residual: FilterNode,
    ranges: list[KeyRange],
    top: int,
    turn: Turn,
) -> IndexedRows | None:
    """The rows of the ranges that the filter may match, by the index with the fewest entries; None: scan instead."""
    partition = ranges[0].start.partition
    is_one = all(key_range.end <= Key(partition + b"\0", b"") for key_range in ranges)
    usable = {
        index.property: index
        for index in table.indexes
        if index.state is IndexState.READY and (is_one or not index.within_partition)
    }
    ways = [
        way
        for way in ways_of(residual, usable)
        if all([await is_built(moment, table.table_id, usable[name]) for name in way])
    ]
    in_order: list[list[_Entries]] = []
    scattered: list[list[_Entries]] = []
    for way in ways:
        entries = _entries_of(table, usable, way, partition)
        is_merged = is_in_key_order(way) and len(entries) * len(ranges) <= STREAMS_MAX
        (in_order if is_merged else scattered).append(entries)
    fewest = FEW_ENTRIES + 1
    best: list[Key] | None = None
    many: list[tuple[list[_Entries], list[Key]]] = []
    for entries in in_order:
        keys = await _first_keys(moment, entries, ranges, fewest, turn)
        if len(keys) < fewest:
            best, fewest = keys, len(keys)
        else:
            many.append((entries, keys))
    is_whole = ranges == [storage_keys.table_range(table.table_id)]
    counting = engine if isinstance(engine, CountsRows) and not is_whole else None
    for entries in scattered:
        found = await _all_keys(moment, counting, entries, ranges, fewest - 1, turn)
        if found is not None:
            best, fewest = found, len(found)
    if best is not None:
        is_worth_it = len(best) <= ROWS_PER_READ_MIN or _are_sparse(engine, best)
        return IndexedRows(moment, top, best, (), turn) if is_worth_it else None
    for entries, first in many:
        if _are_sparse(engine, first):
            return IndexedRows(moment, top, None, entries, turn)
    for entries in scattered:
        found = await _all_keys(moment, counting, entries, ranges, SORTED_ENTRIES_MAX, turn)
        if found is not None and _are_sparse(engine, found):
            return IndexedRows(moment, top, found, (), turn)
    return None


def _entries_of(
    table: TableRecord, usable: Mapping[str, Index], way: Way, partition: bytes
) -> list[_Entries]:
    key = storage_keys.encoded_partition_key(partition)
    return [
        (Entry(head + start, b"", b""), Entry(head + end, b"", b""))
        for name, places in way.items()
        for head in (places_head(table.table_id, usable[name], key),)
        for start, end in places
    ]


async def _first_keys(
    moment: IndexedSnapshot,
    entries: Sequence[_Entries],
    ranges: Iterable[KeyRange],
    keys_max: int,
    turn: Turn,
) -> list[Key]:
    """The first keys in the ranges that have one of the entries, each of which is of one place."""
    keys: list[Key] = []
    for start, end in ranges:
        found: set[Key] = set()
        for (entry, *_), _ in entries:
            some = await moment.entries(
                Entry(entry, *start), Entry(entry, *end), entries_max=keys_max - len(keys)
            )
            found.update([Key(partition, row) for _, partition, row in some])
            if turn.is_over:
                await turn.give_way()
        keys += sorted(found)
        if len(keys) >= keys_max:
            return keys[:keys_max]
    return keys


async def _all_keys(
    moment: IndexedSnapshot,
    counting: CountsRows | None,
    entries: Sequence[_Entries],
    ranges: Sequence[KeyRange],
    entries_max: int,
    turn: Turn,
) -> list[Key] | None:
    """All keys in the ranges that have one of the entries, in order.

    None if there are more entries than the limit, or more than rows in the ranges.
    """
    total = 0
    for start, end in entries:
        total += await moment.count_entries(start, end, entries_max=entries_max + 1 - total)
        if total > entries_max:
            return None
    if counting is not None and len(ranges) <= STREAMS_MAX:
        rows = 0
        for key_range in ranges:
            if rows < total:
                rows += _rows_in(counting, key_range, total - rows)
        if rows < total:
            return None
    found: set[Key] = set()
    for rest, end in entries:
        while some := await moment.entries(rest, end, entries_max=ENTRIES_PER_READ):
            found.update([Key(partition, row) for _, partition, row in some])
            rest = some[-1]._replace(row=some[-1].row + b"\0")  # noqa: PLW2901
            if turn.is_over:
                await turn.give_way()
    keys = sorted(found)
    return [
        key
        for start, end in ranges
        for key in keys[bisect_left(keys, start) : bisect_left(keys, end)]
    ]


def _rows_in(engine: CountsRows, key_range: KeyRange, rows_max: int) -> int:
    return sum(each.rows for each in engine.count_rows(key_range, rows_max).partitions)


def _are_sparse(engine: Engine, keys: Sequence[Key]) -> bool:
    """Whether few of the rows between these keys have one of the entries."""
    if not (keys and engine.capabilities.hints and isinstance(engine, CountsRows)):
        return True  # without hints, each row of a scan costs as much as one by an entry
    rows_max = SPARSE * len(keys)
    return _rows_in(engine, KeyRange(keys[0], keys[-1]), rows_max) >= rows_max
