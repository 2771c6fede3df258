"""Compares two tables by merging them in the order of keys, with counts and a hash for each range of keys.

Timestamps and ETags are not compared: every endpoint assigns its own. Memory does not grow with the tables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tablestone.model.keys import EntityKey, encode_key
from tablestone.tools import odata
from tablestone.tools.client import RawEntity
from tablestone.tools.progress import Progress, Reached
from tablestone.tools.writing import same_properties

RANGE_ENTITIES: Final = 50_000
"""After so many entities, the next partition begins a new range."""


class Difference(NamedTuple):
    """One key: `only in first`, `only in second`, or `differs`, with the names of the differing properties."""

    kind: str
    key: EntityKey
    names: tuple[str, ...] = ()


ONLY_IN_FIRST: Final = "only in first"
ONLY_IN_SECOND: Final = "only in second"
DIFFERS: Final = "differs"


@dataclass
class KeyRange:
    """The partitions from `first` to `last`: entities and hash of each side."""

    first: str
    last: str
    counts: list[int] = field(default_factory=lambda: [0, 0])
    hashes: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return self.counts[0] == self.counts[1] and self.hashes[0] == self.hashes[1]


@dataclass
class Comparison:
    """The result of a comparison. `differences` holds only the first ones; `differing` counts all."""

    ranges: list[KeyRange] = field(default_factory=list)
    differing: int = 0

    @property
    def counts(self) -> tuple[int, int]:
        first, second = (
            zip(*(each.counts for each in self.ranges), strict=True) if self.ranges else ((), ())
        )
        return sum(first), sum(second)

    @property
    def is_equal(self) -> bool:
        return self.differing == 0


class Comparer:
    """Compares two streams; `differences` yields what differs, and `result` is complete after the last."""

    def __init__(self, progress: Progress) -> None:
        self.result = Comparison()
        self._progress = progress
        self._hashes = [hashlib.sha256(), hashlib.sha256()]
        self._seen = 0

    def differences(
        self, first: Iterable[RawEntity], second: Iterable[RawEntity]
    ) -> Iterator[Difference]:
        """Every key whose entities are not the same, in order."""
        left, right = iter(first), iter(second)
        one, other = next(left, None), next(right, None)
        while one is not None or other is not None:
            order = _order(one, other)
            if order <= 0 and one is not None:
                self._saw(0, one)
            if order >= 0 and other is not None:
                self._saw(1, other)
            if order < 0:
                assert one is not None
                yield self._found(Difference(ONLY_IN_FIRST, odata.key_of(one)))
            elif order > 0:
                assert other is not None
                yield self._found(Difference(ONLY_IN_SECOND, odata.key_of(other)))
            else:
                assert one is not None
                assert other is not None
                if not same_properties(one, other):
                    yield self._found(
                        Difference(DIFFERS, odata.key_of(one), differing_names(one, other))
                    )
            if order <= 0:
                one = next(left, None)
            if order >= 0:
                other = next(right, None)
        self._close_range()

    def _found(self, difference: Difference) -> Difference:
        self.result.differing += 1
        return difference

    def _saw(self, side: int, raw: RawEntity) -> None:
        partition = str(raw["PartitionKey"])
        ranges = self.result.ranges
        if not ranges or (
            sum(ranges[-1].counts) >= 2 * RANGE_ENTITIES and partition != ranges[-1].last
        ):
            self._close_range()
            ranges.append(KeyRange(partition, partition))
        ranges[-1].last = partition
        ranges[-1].counts[side] += 1
        self._hashes[side].update(odata.canonical(odata.read_entity(raw)) + b"\n")
        self._seen += 1
        if self._seen % 500 == 0:
            self._progress.update(Reached(self._seen // 2, 0, self.result.differing))

    def _close_range(self) -> None:
        ranges = self.result.ranges
        if ranges and not ranges[-1].hashes:
            ranges[-1].hashes = [each.hexdigest() for each in self._hashes]
        self._hashes = [hashlib.sha256(), hashlib.sha256()]


def differing_names(one: RawEntity, other: RawEntity) -> tuple[str, ...]:
    """The properties that differ in presence, type or value."""
    first, second = (odata.read_entity(raw).properties for raw in (one, other))
    return tuple(
        sorted(
            name
            for name in first.keys() | second.keys()
            if name not in first
            or name not in second
            or odata.member_text(name, first[name]) != odata.member_text(name, second[name])
        )
    )


def _order(one: RawEntity | None, other: RawEntity | None) -> int:
    """-1 if the first comes before the second, 1 if after, 0 for the same key."""
    if one is None or other is None:
        return -1 if other is None else 1
    first, second = odata.key_of(one), odata.key_of(other)
    if first == second:
        return 0
    encoded = [tuple(map(encode_key, key)) for key in (first, second)]
    return -1 if encoded[0] < encoded[1] else 1
