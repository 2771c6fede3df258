"""Makes the heat map of a table: what was read and written, by ranges of PartitionKeys and by time.

Only what is known to be of a range is counted in it. A page of a scan that passed several ranges is told apart, since
nothing says how many entities it read in each. Knows the buckets of a table; does not know how a map is drawn.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tablestone.model.keys import decode_key, encode_key
from tablestone.telemetry.insight_bucket import READ, WRITTEN, Span, TableBucket
from tablestone.telemetry.insight_report import HeatMap, KeyRange
from tablestone.telemetry.key_ranges import CountedRange, grouped

HEAT_RANGES_MAX: Final = 64
"""Key ranges of a heat map."""

_Bounds = Sequence[tuple[bytes, bytes]]
"""The first and the last key of each range, ascending and disjoint."""


def heat_map_of(
    tables: Sequence[TableBucket | None],
    starts: tuple[int, ...],
    seconds: int,
    shown: Callable[[str], str],
) -> HeatMap:
    """The map of a table from its buckets by time. `shown` gives a key as the report shows it."""
    columns = [_places(table) for table in tables]
    weights: dict[bytes, int] = {}
    for column in columns:
        for place in column:
            for end in (place.first, place.last):
                weights[end] = weights.get(end, 0) + place.read + place.written
    if not weights and any(table is not None for table in tables):
        weights[b""] = 1
    bounds = grouped(sorted(weights.items()), HEAT_RANGES_MAX)
    read, written, scanned = [], [], []
    for table, column in zip(tables, columns, strict=True):
        row = _by_range(bounds, column, (place.read for place in column))
        written.append(tuple(_by_range(bounds, column, (place.written for place in column))))
        scanned.append(_add_scans(bounds, row, () if table is None else table.spans))
        read.append(tuple(row))
    ranges = tuple(KeyRange(*(shown(decode_key(end)) for end in each)) for each in bounds)
    return HeatMap(seconds, starts, ranges, tuple(read), tuple(written), tuple(scanned))


def _places(table: TableBucket | None) -> list[CountedRange]:
    """Where the entities of a table were read and written by requests of one partition."""
    if table is None:
        return []
    points = [(encode_key(name), each.numbers) for name, each in table.partitions.items()]
    # A page of a scan that lies inside one partition is known to be of that.
    pages = [
        CountedRange(span.first, span.first, 0, 0)
        for span in table.spans
        if span.first and span.first == span.last
    ]
    return [
        *(CountedRange(key, key, numbers[READ], numbers[WRITTEN]) for key, numbers in points),
        *table.ranges,
        *pages,
    ]


def _by_range(bounds: _Bounds, places: Sequence[CountedRange], counts: Iterable[int]) -> list[int]:
    """The counts of the places in the ranges; partitions that had no room count evenly between their keys."""
    sums = [0] * len(bounds)
    firsts = [first for first, _ in bounds]
    lasts = [last for _, last in bounds]
    for place, count in zip(places, counts, strict=True):
        begin = min(bisect_left(lasts, place.first), len(bounds) - 1)
        width = max(1, bisect_right(firsts, place.last) - begin)
        share, rest = divmod(count, width)
        for index in range(width):
            sums[begin + index] += share + (index < rest)
    return sums


def _add_scans(bounds: _Bounds, sums: list[int], spans: Iterable[Span]) -> int:
    """Add the scans that stayed inside one range; returns the entities that all others read."""
    elsewhere = 0
    lasts = [last for _, last in bounds]
    for span in spans:
        index = bisect_left(lasts, span.first)
        is_inside = index < len(bounds) and bounds[index][0] <= span.first
        if is_inside and span.last is not None and span.last <= bounds[index][1]:
            sums[index] += span.read
        else:
            elsewhere += span.read
    return elsewhere
