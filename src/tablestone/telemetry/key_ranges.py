"""Ranges of PartitionKeys with counts, in limited number: neighbours are joined where the counts are small.

So a histogram of keys has narrow ranges where most is read and written, whatever the keys are. Sums stay exact; of a
range, only the first and the last key are known. Keys are in the form of `encode_key`, so that they sort as the service
sorts. Knows no requests and no time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence


class CountedRange:
    """Keys from `first` to `last`, inclusive, and the entities read and written in them."""

    def __init__(self, first: bytes, last: bytes, read: int, written: int) -> None:
        self.first = first
        self.last = last
        self.read = read
        self.written = written


def _first_of(counted: CountedRange) -> bytes:
    return counted.first


def joined(ranges: Iterable[CountedRange], ranges_max: int) -> list[CountedRange]:
    """The ranges, ascending and disjoint, and at most `ranges_max` (2 or more) of them, as new values.

    Ranges that overlap become one, since the place of their counts is not known. A range with a large share is not
    joined with its neighbours.
    """
    ordered = sorted(ranges, key=_first_of)
    total = 0
    for each in ordered:
        total += each.read + each.written + 1
    share = 2 * total // (ranges_max - 1) + 1 if len(ordered) > ranges_max else 0
    found: list[CountedRange] = []
    size = 0
    for each in ordered:
        weight = each.read + each.written + 1
        if found:
            before = found[-1]
            if each.first <= before.last or size + weight <= share:
                before.last = max(before.last, each.last)
                before.read += each.read
                before.written += each.written
                size += weight
                continue
        found.append(CountedRange(each.first, each.last, each.read, each.written))
        size = weight
    return found


def with_points(
    ranges: list[CountedRange], points: Iterable[CountedRange], ranges_max: int
) -> list[CountedRange]:
    """The ranges, ascending and disjoint, with the counts of single keys. The ranges are changed."""
    firsts = [each.first for each in ranges]
    outside: list[CountedRange] = []
    for point in points:
        place = bisect_right(firsts, point.first) - 1
        if place >= 0 and point.first <= ranges[place].last:
            within = ranges[place]
            within.read += point.read
            within.written += point.written
        else:
            outside.append(point)
    return joined([*ranges, *outside], ranges_max) if outside else ranges


def grouped(keys: Sequence[tuple[bytes, int]], groups_max: int) -> list[tuple[bytes, bytes]]:
    """The first and the last key of each of at most `groups_max` groups of keys, of about the same weight.

    `keys` are ascending and distinct, each with its weight. A key with a large share is alone.
    """
    ranges = [CountedRange(key, key, weight, 0) for key, weight in keys]
    return [(each.first, each.last) for each in joined(ranges, groups_max)]
