"""Reads by an index: the rows of key ranges that have entries at the index keys of a filter, in key order.

Entries and rows are read from one snapshot, so no row is missed. Entries are counted first, up to a limit. If there are
more than a few, as many rows are scanned before entries are read; but not more than the page can hold, if the entries
are in key order. Often that fills the page or ends the key ranges, and at worst it doubles the work.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from tablestone import limits
from tablestone.cooperative_scheduling import Turn
from tablestone.engines.contract import Entry, Key, KeyRange, Rows, Snapshot
from tablestone.model.filter_tree import FilterNode
from tablestone.query.index_plan import AccessPath, access_paths_of, is_in_key_order
from tablestone.tables import storage_keys
from tablestone.tables.catalog import TableRecord
from tablestone.tables.indexes import Index, IndexState, has_state_entry, index_keys_head

FEW_ENTRIES: Final = 1_000
"""If a filter has no more entries than this, they are all read at once."""
SORTED_ENTRIES_MAX: Final = 10_000
"""Entries that are sorted by key for one page. A range of values that has more is scanned."""
ENTRIES_PER_READ: Final = 1_000
STREAMS_MAX: Final = 64
"""Index keys times key ranges whose entries are merged in key order."""
ROWS_PER_READ_MIN: Final = 50
"""Rows of a read at least. If an `eq` has no more entries than this, no row is scanned first."""

_Entries = tuple[Entry, Entry]
"""Entries from the first up to the second; all of one index key if that is the next possible one."""


class IndexedRows:
    """Reads rows by their entries, after a scan of `scanned_first` rows.

    It uses the entries' `keys` if known. Else it reads entries `in_order` piece by piece, and sorts others by key.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        top: int,
        turn: Turn,
        entries: Sequence[_Entries],
        scanned_first: int,
        properties: Collection[str],
        *,
        in_order: bool = False,
        keys: Sequence[Key] | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._turn = turn
        self._rows_per_read = min(limits.SCAN_ROWS_PER_READ, max(top, ROWS_PER_READ_MIN))
        self._entries = entries
        self._in_order = in_order
        self._keys = keys
        """In ascending order."""
        self.reverse = False
        self.scanned_first = scanned_first
        self.properties = tuple(properties)
        """Those whose indexes have the entries."""

    async def read(self, ranges: Sequence[KeyRange]) -> Rows:
        """Some rows in the ranges. The first range begins with the next key of the page."""
        wanted = self._rows_per_read
        if self._keys is None and not self._in_order:
            self._keys = await _all_keys(self._snapshot, self._entries, ranges, self._turn)
        if self._keys is None:
            keys: Sequence[Key]
            keys = await _first_keys(
                *(self._snapshot, self._entries, ranges, wanted + 1, self._turn),
                reverse=self.reverse,
            )
        elif self.reverse:
            end = bisect_left(self._keys, ranges[-1].end) if ranges else 0
            keys = self._keys[max(0, end - wanted - 1) : end][::-1]
        else:
            first = bisect_left(self._keys, ranges[0].start) if ranges else len(self._keys)
            keys = self._keys[first : first + wanted + 1]
        if not keys:
            return Rows([], None)
        points = [KeyRange.of_row(*key) for key in keys[:wanted]]
        if self.reverse:
            points.reverse()
        values, next_key, _ = await self._snapshot.read(
            points, rows_max=wanted, bytes_max=limits.PAGE_BYTES_MAX, reverse=self.reverse
        )
        return Rows(values, next_key or (keys[wanted] if len(keys) > wanted else None))


async def rows_by_index(
    snapshot: Snapshot,
    table: TableRecord,
    residual: FilterNode,
    ranges: list[KeyRange],
    top: int,
    turn: Turn,
    *,
    reverse: bool = False,
) -> IndexedRows | None:
    """The rows that the filter may match, by the index with the fewest entries; None if those are too many."""
    partition = ranges[0].start.partition
    is_one = all(key_range.end <= Key(partition + b"\0", b"") for key_range in ranges)
    usable = {
        index.property: index
        for index in table.indexes
        if index.state is IndexState.READY and (is_one or not index.within_partition)
    }
    paths = [
        path
        for path in access_paths_of(residual, usable)
        if all([await has_state_entry(snapshot, table.table_id, usable[name]) for name in path])
    ]
    best: IndexedRows | None = None
    fewest = FEW_ENTRIES + 1
    scattered: list[tuple[AccessPath, list[_Entries]]] = []
    for path in paths:
        entries = _entries_of(table, usable, path, partition)
        if is_in_key_order(path) and len(entries) * len(ranges) <= STREAMS_MAX:
            keys = await _first_keys(snapshot, entries, ranges, fewest, turn, reverse=reverse)
            if len(keys) < fewest:
                fewest = len(keys)
                first = min(fewest, top) if fewest > ROWS_PER_READ_MIN else 0
                keys.sort()
                best = IndexedRows(snapshot, top, turn, entries, first, path, keys=keys)
            elif best is None:
                first = min(fewest, top)
                best = IndexedRows(snapshot, top, turn, entries, first, path, in_order=True)
        else:
            scattered.append((path, entries))
    most = fewest - 1 if best else SORTED_ENTRIES_MAX
    for path, entries in scattered:
        count = await _count(snapshot, entries, most)
        if count <= most:
            best, most = IndexedRows(snapshot, top, turn, entries, count, path), count - 1
    if best is not None:
        best.reverse = reverse
    return best


def _entries_of(
    table: TableRecord, usable: Mapping[str, Index], path: AccessPath, partition: bytes
) -> list[_Entries]:
    key = storage_keys.encoded_partition_key(partition)
    return [
        (Entry(head + start, b"", b""), Entry(head + end, b"", b""))
        for name, index_keys in path.items()
        for head in (index_keys_head(table.table_id, usable[name], key),)
        for start, end in index_keys
    ]


async def _first_keys(
    snapshot: Snapshot,
    entries: Sequence[_Entries],
    ranges: Sequence[KeyRange],
    keys_max: int,
    turn: Turn,
    *,
    reverse: bool,
) -> list[Key]:
    """The first keys in the ranges that have one of the entries; each pair of entries is of one index key."""
    keys: list[Key] = []
    for start, end in reversed(ranges) if reverse else ranges:
        found: set[Key] = set()
        for (entry, *_), _ in entries:
            some = await snapshot.entries(
                Entry(entry, *start),
                Entry(entry, *end),
                entries_max=keys_max - len(keys),
                reverse=reverse,
            )
            found.update([Key(partition, row) for _, partition, row in some])
            if turn.is_over:
                await turn.give_way()
        keys += sorted(found, reverse=reverse)
        if len(keys) >= keys_max:
            return keys[:keys_max]
    return keys


async def _count(snapshot: Snapshot, entries: Sequence[_Entries], entries_max: int) -> int:
    """The number of entries, or one more than the limit."""
    total = 0
    for start, end in entries:
        total += await snapshot.count_entries(start, end, entries_max=entries_max + 1 - total)
        if total > entries_max:
            break
    return total


async def _all_keys(
    snapshot: Snapshot, entries: Sequence[_Entries], ranges: Sequence[KeyRange], turn: Turn
) -> list[Key]:
    """All keys in the ranges that have one of the entries, in order."""
    found: set[Key] = set()
    for rest, end in entries:
        while some := await snapshot.entries(rest, end, entries_max=ENTRIES_PER_READ):
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
