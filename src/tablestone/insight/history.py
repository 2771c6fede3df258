"""The counts of the last hour and the last day, of all workers: read from their reports about once a second.

A minute stays open while workers may still count in it. Then it is merged into a bucket of its own and into its quarter
of an hour. The most entities in a second are found from one look to the next. Knows reports and buckets; does not know
what a report of insight looks like.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any, Final

from tablestone.insight.counts import (
    PAGE_BOUNDS,
    RANGES_MAX,
    SPANS_MAX,
    TABLES_MAX,
    CountedRange,
    joined,
)
from tablestone.insight.report import (
    DAY_BUCKET_SECONDS,
    DAY_SECONDS,
    HOUR_BUCKET_SECONDS,
    HOUR_SECONDS,
)
from tablestone.model.keys import encode_key
from tablestone.telemetry.worker_reports import WorkerReport, WorkerReports

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
    """The window of a worker, as `window` wrote it."""
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


OPEN_SECONDS: Final = 30
"""Seconds after its end for which a minute stays open: a worker may be late with its report. Later counts are lost."""

_Entities = dict[tuple[TableKey, str | None], int]
"""Entities read or written: of a table (None), and of its partitions. Operations of an account: an empty table name."""
_Rates = dict[tuple[TableKey, str | None], float]
"""The same in a second."""


@dataclass(slots=True)
class _Seen:
    """The state of a worker at its newest report that was looked at."""

    process: int
    at: float
    minute: int
    entities: _Entities
    unlisted: int
    rates: _Rates = field(default_factory=dict)


class InsightHistory:
    """The history of one server. `now` is in seconds since 1970."""

    def __init__(self, reports: WorkerReports, now: float) -> None:
        self.started = now
        self.workers = reports.workers
        self._reports = reports
        self._seen: dict[int, _Seen] = {}
        self._open: dict[int, dict[tuple[int, int], Bucket]] = {}
        """By minute, and by worker and process: a process that replaces another counts from 0 again."""
        self._peaks: dict[int, _Rates] = {}
        """By minute: the most entities in a second."""
        self._minutes: dict[int, Bucket] = {}
        self._quarters: dict[int, Bucket] = {}

    def look(self, now: float) -> None:
        """Read the newest reports. To be called about once a second."""
        rates: _Rates = {}
        for worker in range(self.workers):
            report = self._reports.newest(worker)
            if report is None:
                continue
            seen = self._take(worker, report)
            for place, rate in seen.rates.items():
                rates[place] = rates.get(place, 0.0) + rate
        if rates:
            self._note_peaks(int(now) // HOUR_BUCKET_SECONDS, rates)
        for minute in sorted(self._open):
            if (minute + 1) * HOUR_BUCKET_SECONDS + OPEN_SECONDS <= now:
                self._close(minute)
        for buckets, seconds in ((self._minutes, HOUR_SECONDS), (self._quarters, DAY_SECONDS)):
            for start in [
                start for start in buckets if start <= now - seconds - DAY_BUCKET_SECONDS
            ]:
                del buckets[start]

    def minutes(self) -> dict[int, Bucket]:
        """The buckets of the last hour by their starts, the present one included. Minutes without a request lack."""
        return self._minutes | {
            minute * HOUR_BUCKET_SECONDS: self._merged(minute) for minute in self._open
        }

    def quarters(self) -> dict[int, Bucket]:
        """The same of the last day."""
        found = dict(self._quarters)
        for minute in self._open:
            start = _quarter_of(minute)
            bucket = self._merged(minute)
            found[start] = merged((found[start], bucket)) if start in found else bucket
        return found

    def _take(self, worker: int, report: WorkerReport) -> _Seen:
        """Take in the windows of a report, unless it is the one of the last look."""
        before = self._seen.get(worker)
        if before is not None and before.process == report.process and before.at == report.at:
            return before
        present, ended = report.content["present"], report.content["ended"]
        minute: int = present["minute"]
        bucket = self._put(worker, report.process, present)
        seen = _Seen(report.process, report.at, minute, _entities_in(bucket), bucket.unlisted)
        if before is not None and before.process == report.process:
            entities = dict(seen.entities)
            counted = before.entities
            if before.minute != minute:
                rest: _Entities = {}
                if ended is not None and ended["minute"] == before.minute:
                    rest = _entities_in(self._put(worker, report.process, ended))
                for place, number in rest.items():
                    entities[place] = entities.get(place, 0) + number
            seconds = report.at - before.at
            # A partition that was not listed may have had so many entities: a rate is never too high.
            unlisted = before.unlisted
            seen.rates = {
                place: (number - counted.get(place, unlisted)) / seconds
                for place, number in entities.items()
                if number > counted.get(place, unlisted)
            }
        elif ended is not None:
            self._put(worker, report.process, ended)
        self._seen[worker] = seen
        return seen

    def _put(self, worker: int, process: int, window: dict[str, Any]) -> Bucket:
        """Make this the newest window of its minute, unless the minute is closed or the window is empty."""
        bucket = bucket_of(window)
        start = window["minute"] * HOUR_BUCKET_SECONDS
        if start not in self._minutes and (bucket.tables or any(bucket.other)):
            self._open.setdefault(window["minute"], {})[worker, process] = bucket
        return bucket

    def _note_peaks(self, minute: int, rates: _Rates) -> None:
        peaks = self._peaks.setdefault(minute, {})
        for place, rate in rates.items():
            if rate > peaks.get(place, 0.0):
                peaks[place] = rate

    def _close(self, minute: int) -> None:
        bucket = self._merged(minute)
        del self._open[minute]
        self._peaks = {each: peaks for each, peaks in self._peaks.items() if each > minute}
        self._minutes[minute * HOUR_BUCKET_SECONDS] = bucket
        start = _quarter_of(minute)
        present = self._quarters.get(start)
        self._quarters[start] = bucket if present is None else merged((present, bucket))

    def _merged(self, minute: int) -> Bucket:
        """The windows of all workers, with the peaks of the minute, which is the busiest one so far."""
        bucket = merged(self._open[minute].values())
        for each in bucket.tables.values():
            for partition_bucket in each.partitions.values():
                partition_bucket.busiest = entities_of(partition_bucket.numbers)
                partition_bucket.busiest_writes = partition_bucket.numbers[WRITTEN]
        for (key, partition), rate in self._peaks.get(minute, {}).items():
            if not key[1]:
                bucket.account_peaks[key[0]] = rate
                continue
            table = bucket.tables.get(key)
            if table is None:
                continue
            of: TableBucket | PartitionBucket | None = (
                table if partition is None else table.partitions.get(partition)
            )
            if of is not None:
                of.peak = rate
        return bucket


def _quarter_of(minute: int) -> int:
    """The start of the bucket of a day that a minute is in."""
    seconds = minute * HOUR_BUCKET_SECONDS
    return seconds - seconds % DAY_BUCKET_SECONDS


def _entities_in(bucket: Bucket) -> _Entities:
    found: _Entities = {}
    for key, table in bucket.tables.items():
        found[key, None] = entities_of(table.numbers)
        account = (key[0], ""), None
        found[account] = found.get(account, 0) + operations_of(table.numbers)
        for name, partition in table.partitions.items():
            found[key, name] = entities_of(partition.numbers)
    return found
