"""The counts of a length of time, of any number of workers: read from their windows, and merged.

A bucket has limited room for tables, partitions and query shapes. The counts of the others stay in the sums, and
`unlisted` says how many entities a partition can have had that is not listed. Knows windows and buckets, and no report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any, Final

from tablestone.model.keys import encode_key
from tablestone.telemetry.insight_counts import PAGE_BOUNDS, RANGES_MAX, SPANS_MAX, TABLES_MAX
from tablestone.telemetry.key_ranges import CountedRange, joined

PARTITIONS_MAX: Final = 512
"""Partitions of a merged bucket, of all tables."""
SHAPES_MAX: Final = 256
"""Query shapes of a merged bucket, of all tables."""
NUMBERS: Final = 9
"""The numbers of `insight_report.Activity`, in its order."""
READS, WRITTEN, READ, RETURNED = 0, 1, 2, 3
"""The places of the reads, and of the entities written, read and returned, in them. Errors are the last three."""

TableKey = tuple[str, str]
"""An account, and a table's name in lower case."""
ShapeName = tuple[str, bool, str, bool]
"""The text of a shape, whether there is a `$select`, the kind of plan, and whether a tool only looks at the table."""


def entities_of(numbers: Sequence[int]) -> int:
    """Entities read or written."""
    return numbers[READ] + numbers[WRITTEN]


def operations_of(numbers: Sequence[int]) -> int:
    """Operations, as the target of an account counts them: each page of a query, and each write of a transaction."""
    return numbers[READS] + numbers[WRITTEN] + sum(numbers[NUMBERS - 3 :])


@dataclass(slots=True)
class PartitionBucket:
    """The counts of a partition, and those that it may have missed.

    `peak` is the most entities in any second, `busiest` and `busiest_writes` are those of its busiest minutes.
    """

    numbers: list[int] = field(default_factory=lambda: [0] * NUMBERS)
    missed: int = 0
    peak: float = 0.0
    busiest: int = 0
    busiest_writes: int = 0

    @property
    def upper(self) -> int:
        """Not less than the entities of the partition."""
        return entities_of(self.numbers) + self.missed


@dataclass(slots=True)
class ShapeBucket:
    """The counts of the queries of one shape."""

    terms: list[list[str]]
    joined: str
    queries: int = 0
    pages: int = 0
    read: int = 0
    returned: int = 0
    seconds: float = 0.0
    durations: list[int] = field(default_factory=lambda: [0] * (len(PAGE_BOUNDS) + 1))
    ended: int = 0

    def add(self, other: ShapeBucket) -> None:
        self.queries += other.queries
        self.pages += other.pages
        self.read += other.read
        self.returned += other.returned
        self.seconds += other.seconds
        self.durations = list(map(add, self.durations, other.durations))
        self.ended += other.ended


@dataclass(frozen=True, slots=True)
class Span:
    """Entities that scans read between two keys; without a `last`, up to the end of the table."""

    first: bytes
    last: bytes | None
    read: int


@dataclass(slots=True)
class TableBucket:
    """The counts of one table. `name` has the case in which a client wrote it."""

    name: str
    numbers: list[int] = field(default_factory=lambda: [0] * NUMBERS)
    plans: dict[str, int] = field(default_factory=dict)
    partitions: dict[str, PartitionBucket] = field(default_factory=dict)
    ranges: list[CountedRange] = field(default_factory=list)
    """Where the partitions are that are not listed."""
    spans: list[Span] = field(default_factory=list)
    shapes: dict[ShapeName, ShapeBucket] = field(default_factory=dict)
    peak: float = 0.0
    writes: dict[str, int] = field(default_factory=dict)
    """Writes by their kind."""
    write_requests: int = 0
    lost_updates: int = 0
    properties_max: int = 0
    entity_bytes_max: int = 0


@dataclass(slots=True)
class Bucket:
    """The counts of all tables. `other` are those of tables that had no room, or may not be there."""

    tables: dict[TableKey, TableBucket] = field(default_factory=dict)
    unlisted: int = 0
    other: list[int] = field(default_factory=lambda: [0] * NUMBERS)
    account_peaks: dict[str, float] = field(default_factory=dict)


def bucket_of(window: Mapping[str, Any]) -> Bucket:
    """The window of a worker, as `insight_window` wrote it."""
    bucket = Bucket(unlisted=window["unlisted"], other=window["other"])
    for content in window["tables"]:
        table = TableBucket(content["table"], content["numbers"], content["plans"])
        table.writes = content["writes"]
        table.write_requests = content["write_requests"]
        table.lost_updates = content["lost_updates"]
        table.properties_max = content["properties_max"]
        table.entity_bytes_max = content["entity_bytes_max"]
        for key, *numbers, missed in content["partitions"]:
            table.partitions[key] = PartitionBucket(numbers, missed)
        table.ranges = [
            CountedRange(encode_key(first), encode_key(last), read, written)
            for first, last, read, written in content["ranges"]
        ]
        table.spans = [
            Span(encode_key(first), None if last is None else encode_key(last), read)
            for first, last, read in content["spans"]
        ]
        for text, terms, joined_by, names_select, is_look, plan, *counts in content["shapes"]:
            # Shapes whose values have other types, or that differ where a long text is cut, have one text.
            name = text, names_select, plan, is_look
            table.shapes.setdefault(name, ShapeBucket(terms, joined_by)).add(
                ShapeBucket(terms, joined_by, *counts)
            )
        bucket.tables[content["account"], content["table"].lower()] = table
    return bucket


def merged(buckets: Iterable[Bucket]) -> Bucket:
    """All buckets together, with room for the busiest. The buckets stay as they are."""
    whole = Bucket()
    for bucket in buckets:
        whole.other = list(map(add, whole.other, bucket.other))
        for account, peak in bucket.account_peaks.items():
            whole.account_peaks[account] = max(peak, whole.account_peaks.get(account, 0.0))
        for key, table in bucket.tables.items():
            _add_table(
                whole.tables.setdefault(key, TableBucket(table.name)), table, bucket.unlisted
            )
        # A partition that the bucket does not list may have so many entities in it.
        whole.unlisted += bucket.unlisted
    for table in whole.tables.values():
        for partition in table.partitions.values():
            partition.missed += whole.unlisted
        table.ranges = joined(table.ranges, RANGES_MAX)
        table.spans = _joined_spans(table.spans)
    _limit(whole)
    return whole


def _add_table(into: TableBucket, table: TableBucket, unlisted: int) -> None:
    into.numbers = list(map(add, into.numbers, table.numbers))
    into.peak = max(into.peak, table.peak)
    into.write_requests += table.write_requests
    into.lost_updates += table.lost_updates
    into.properties_max = max(into.properties_max, table.properties_max)
    into.entity_bytes_max = max(into.entity_bytes_max, table.entity_bytes_max)
    for plan, count in table.plans.items():
        into.plans[plan] = into.plans.get(plan, 0) + count
    for kind, count in table.writes.items():
        into.writes[kind] = into.writes.get(kind, 0) + count
    for key, partition in table.partitions.items():
        present = into.partitions.setdefault(key, PartitionBucket())
        present.numbers = list(map(add, present.numbers, partition.numbers))
        present.peak = max(present.peak, partition.peak)
        present.busiest = max(present.busiest, partition.busiest)
        present.busiest_writes = max(present.busiest_writes, partition.busiest_writes)
        # Beyond what a partition misses that no bucket lists: `merged` adds that for all.
        present.missed += partition.missed - unlisted
    into.ranges += table.ranges
    into.spans += table.spans
    for name, shape in table.shapes.items():
        into.shapes.setdefault(name, ShapeBucket(shape.terms, shape.joined)).add(shape)


def _joined_spans(spans: list[Span]) -> list[Span]:
    """Spans of the same keys as one; the span around all if there are too many."""
    reads: dict[tuple[bytes, bytes | None], int] = {}
    for span in spans:
        reads[span.first, span.last] = reads.get((span.first, span.last), 0) + span.read
    if len(reads) <= SPANS_MAX:
        return [Span(first, last, read) for (first, last), read in reads.items()]
    lasts = [last for _, last in reads if last is not None]
    last = max(lasts) if len(lasts) == len(reads) else None
    return [Span(min(first for first, _ in reads), last, sum(reads.values()))]


def _limit(whole: Bucket) -> None:
    """Drop what has no room: the tables, partitions and shapes with the fewest entities."""
    if len(whole.tables) > TABLES_MAX:
        ordered = sorted(whole.tables.items(), key=lambda item: -entities_of(item[1].numbers))
        for key, table in ordered[TABLES_MAX:]:
            whole.other = list(map(add, whole.other, table.numbers))
            whole.unlisted = max(
                whole.unlisted, *(each.upper for each in table.partitions.values()), 0
            )
            del whole.tables[key]
    _limit_partitions(whole)
    shapes = [
        (shape.read, table, name)
        for table in whole.tables.values()
        for name, shape in table.shapes.items()
    ]
    if len(shapes) > SHAPES_MAX:
        shapes.sort(key=lambda each: -each[0])
        for _, table, name in shapes[SHAPES_MAX:]:
            del table.shapes[name]


def _limit_partitions(whole: Bucket) -> None:
    partitions = [
        (partition.upper, table, key)
        for table in whole.tables.values()
        for key, partition in table.partitions.items()
    ]
    if len(partitions) <= PARTITIONS_MAX:
        return
    partitions.sort(key=lambda each: -each[0])
    dropped: dict[int, tuple[TableBucket, list[CountedRange]]] = {}
    for upper, table, key in partitions[PARTITIONS_MAX:]:
        whole.unlisted = max(whole.unlisted, upper)
        numbers = table.partitions.pop(key).numbers
        encoded = encode_key(key)
        of_table = dropped.setdefault(id(table), (table, []))[1]
        of_table.append(CountedRange(encoded, encoded, numbers[READ], numbers[WRITTEN]))
    for table, ranges in dropped.values():
        table.ranges = joined([*table.ranges, *ranges], RANGES_MAX)
