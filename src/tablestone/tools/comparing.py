"""Compares two tables by merging them in the order of keys, with counts and a hash for each range of keys.

Timestamps and ETags are not compared: every endpoint assigns its own. Memory does not grow with the tables.
"""

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final

from tablestone.clock import system_clock
from tablestone.model.expiry import ExpiryPolicy
from tablestone.model.keys import EntityKey, encode_key
from tablestone.tools import odata
from tablestone.tools.client import RawEntity
from tablestone.tools.own_forms import Unseen
from tablestone.tools.progress import Progress, Reached

RANGE_ENTITIES: Final = 50_000
"""After so many entities, the next partition begins a new range."""


@dataclass
class Difference:
    """One key: `only in first`, `only in second`, or `differs`, with the names of the differing properties."""

    kind: str
    key: EntityKey
    names: tuple[str, ...] = ()


ONLY_IN_FIRST: Final = "only in first"
ONLY_IN_SECOND: Final = "only in second"
DIFFERS: Final = "differs"


@dataclass
class ComparedPartitions:
    """The partitions from `first` to `last`, with the count and the hash of each side's entities."""

    first: str
    last: str
    counts: list[int] = field(default_factory=lambda: [0, 0])
    hashes: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return self.counts[0] == self.counts[1] and self.hashes[0] == self.hashes[1]


@dataclass
class TableComparison:
    """The result of a comparison. `differing` counts the differences; `differences` has the first of them.

    `expiry` says for each side when its entities expire, if they do. `left_out` counts the entities that one side hides
    as expired and the other still shows: they are no differences. `unseen` is what the sides do not show.
    """

    ranges: list[ComparedPartitions] = field(default_factory=list)
    differing: int = 0
    left_out: int = 0
    expiry: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    unseen: list[Unseen] = field(default_factory=list)

    @property
    def counts(self) -> tuple[int, int]:
        first = sum(each.counts[0] for each in self.ranges)
        return first, sum(each.counts[1] for each in self.ranges)

    @property
    def is_equal(self) -> bool:
        return self.differing == 0


class Comparer:
    """Compares two streams; `differences` yields what differs, and `result` is complete after the last.

    An entity on one side only is no difference if it has expired by one of the `policies`. A policy by Timestamp does
    not tell: every endpoint assigns its own.
    """

    def __init__(self, progress: Progress, policies: Sequence[ExpiryPolicy | None] = ()) -> None:
        self._policies = [each for each in policies if each and each.property_name]
        self.result = TableComparison(expiry=[each.in_words if each else "" for each in policies])
        self._progress = progress
        self._hashes = [hashlib.sha256(), hashlib.sha256()]
        self._seen = 0

    def differences(
        self, first: Iterable[RawEntity], second: Iterable[RawEntity]
    ) -> Iterator[Difference]:
        """The keys whose entities differ, in order."""
        merged = heapq.merge(_keyed(0, first), _keyed(1, second), key=itemgetter(0))
        for _, same_key in groupby(merged, key=itemgetter(0)):
            raws = {side: raw for _, side, raw in same_key}
            if len(raws) == 1 and any(
                policy.has_ended(raw, system_clock())
                for policy in self._policies
                for raw in raws.values()
            ):
                self.result.left_out += 1
                continue
            texts = {self._count(side, raw) for side, raw in raws.items()}
            if len(raws) == 2 and len(texts) == 1:
                continue
            self.result.differing += 1
            if len(raws) == 2:
                yield Difference(DIFFERS, odata.key_of(raws[0]), differing_names(*raws.values()))
            else:
                ((side, raw),) = raws.items()
                yield Difference(ONLY_IN_SECOND if side else ONLY_IN_FIRST, odata.key_of(raw))
        self._close_range()

    def _count(self, side: int, raw: RawEntity) -> bytes:
        """Count an entity. Returns its canonical text, which is the same for equal entities."""
        partition = str(raw["PartitionKey"])
        ranges = self.result.ranges
        if not ranges or (
            sum(ranges[-1].counts) >= 2 * RANGE_ENTITIES and partition != ranges[-1].last
        ):
            self._close_range()
            ranges.append(ComparedPartitions(partition, partition))
        ranges[-1].last = partition
        ranges[-1].counts[side] += 1
        text = odata.canonical(odata.read_entity(raw))
        self._hashes[side].update(text + b"\n")
        self._seen += 1
        if self._seen % 500 == 0:
            self._progress.update(Reached(self._seen // 2, 0, self.result.differing))
        return text

    def _close_range(self) -> None:
        ranges = self.result.ranges
        if ranges and not ranges[-1].hashes:
            ranges[-1].hashes = [each.hexdigest() for each in self._hashes]
        self._hashes = [hashlib.sha256(), hashlib.sha256()]


def differing_names(one: RawEntity, other: RawEntity) -> tuple[str, ...]:
    """The properties that differ in presence, type or value."""
    first, second = (
        {odata.member_text(*each): each[0] for each in odata.read_entity(raw).properties.items()}
        for raw in (one, other)
    )
    differing = first.keys() ^ second.keys()
    return tuple(sorted({(first | second)[text] for text in differing}))


def _keyed(
    side: int, entities: Iterable[RawEntity]
) -> Iterator[tuple[tuple[bytes, ...], int, RawEntity]]:
    """The entities, each after its key as bytes that sort as the service sorts keys."""
    for raw in entities:
        yield tuple(map(encode_key, odata.key_of(raw))), side, raw
