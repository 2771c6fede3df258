"""Ranges of PartitionKeys with counts, in limited number: neighbours are joined where the counts are small.

So a histogram of keys has narrow ranges where most is read and written, whatever the keys are. Sums stay exact; of a
range, only the first and the last key are known. Keys are in the form of `encode_key`, so that they sort as the service
sorts. Knows no requests and no time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class CountedRange(NamedTuple):
    """Keys from `first` to `last`, inclusive, and the entities read and written in them."""

    first: bytes
    last: bytes
    read: int
    written: int


def joined(ranges: Iterable[CountedRange], ranges_max: int) -> list[CountedRange]:
    """The ranges, ascending and disjoint, and at most `ranges_max` (2 or more) of them.

    Ranges that overlap become one, since the place of their counts is not known. A range with a large share is not
    joined with its neighbours.
    """
    ordered = sorted(ranges)
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
                last = max(before.last, each.last)
                found[-1] = CountedRange(
                    before.first, last, before.read + each.read, before.written + each.written
                )
                size += weight
                continue
        found.append(each)
        size = weight
    return found


def grouped(keys: Sequence[tuple[bytes, int]], groups_max: int) -> list[tuple[bytes, bytes]]:
    """The first and the last key of each of at most `groups_max` groups of keys, of about the same weight.

    `keys` are ascending and distinct, each with its weight. A key with a large share is alone.
    """
    ranges = [CountedRange(key, key, weight, 0) for key, weight in keys]
    return [(each.first, each.last) for each in joined(ranges, groups_max)]
