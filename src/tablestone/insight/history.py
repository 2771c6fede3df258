"""The last hour and day of one server, from the reports of its workers, and the report of insight that is made of them.

A minute stays open while workers may still count in it. Then it is merged into its quarter of an hour. The most
entities in a second are found from one look at the reports to the next.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from operator import add
from typing import Any, Final

from tablestone.insight.counts import (
    HASH_MARK,
    PAGE_BOUNDS,
    RANGES_MAX,
    SPANS_MAX,
    TABLES_MAX,
    CountedRange,
    grouped,
    hash_of,
    joined,
)
from tablestone.insight.report import (
    DAY,
    DAY_BUCKET_SECONDS,
    DAY_SECONDS,
    HOUR,
    HOUR_BUCKET_SECONDS,
    HOUR_SECONDS,
    NOW,
    NOW_SECONDS,
    PERIODS,
    TARGETS,
    AccountInsight,
    Activity,
    FilterTerm,
    HeatMap,
    HeatMaps,
    InsightReport,
    KeyRange,
    PartitionActivity,
    QueryShape,
    Rate,
    Series,
    TableInsight,
    TableSize,
)
from tablestone.limits import ACCOUNT_RATE_TARGET, PARTITION_RATE_TARGET
from tablestone.model.keys import ROW_KEY, decode_key, encode_key
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


PARTITIONS_SHOWN: Final = 50
"""The hottest partitions of a period."""
QUERIES_SHOWN: Final = 50
"""The query shapes of a period."""

Buckets = Mapping[int, Bucket]
"""Buckets by their starts."""


@dataclass(frozen=True, slots=True)
class Times:
    """The time buckets of an hour or a day: their starts, and the length of each in seconds."""

    starts: tuple[int, ...]
    seconds: int

    @classmethod
    def before(cls, now: float, length: int, seconds: int) -> Times:
        """The buckets of the last `length` seconds, the present one included."""
        present = int(now) - int(now) % seconds
        return cls(tuple(range(present - length + seconds, present + 1, seconds)), seconds)

    def of(self, buckets: Buckets) -> list[Bucket | None]:
        """The bucket at each start."""
        return [buckets.get(start) for start in self.starts]


class Summary:
    """A report in the making. `only` is the name of the one table that is asked for, in lower case.

    Without `shows_keys`, a hash stands for each partition key.
    """

    def __init__(
        self,
        now: float,
        started: float,
        minutes: Buckets,
        quarters: Buckets,
        sizes: Mapping[TableKey, TableSize],
        *,
        only: str | None = None,
        account: str | None = None,
        shows_keys: bool = True,
    ) -> None:
        self._now = now
        self._started = started
        self._sizes = sizes
        self._only = only
        self._account = account
        self._shows_keys = shows_keys
        self._hour = Times.before(now, HOUR_SECONDS, HOUR_BUCKET_SECONDS)
        self._day = Times.before(now, DAY_SECONDS, DAY_BUCKET_SECONDS)
        minutes_of_now = NOW_SECONDS // HOUR_BUCKET_SECONDS
        self._now_times = Times(self._hour.starts[-minutes_of_now:], HOUR_BUCKET_SECONDS)
        of_hour, of_day = self._hour.of(minutes), self._day.of(quarters)
        self._over_time = {NOW: of_hour, HOUR: of_hour, DAY: of_day}
        self._whole = {
            NOW: merged(filter(None, self._now_times.of(minutes))),
            HOUR: merged(filter(None, of_hour)),
            DAY: merged(filter(None, of_day)),
        }
        starts = {NOW: self._now_times, HOUR: self._hour, DAY: self._day}
        self._covered = {
            period: max(1.0, now - max(started, times.starts[0]))
            for period, times in starts.items()
        }

    def report(self, workers: int, sizes_note: str) -> InsightReport:
        """The whole report."""
        accounts = {account for account, _ in self._whole[DAY].tables}
        partitions = {period: self._partitions(period) for period in PERIODS}
        return InsightReport(
            at=self._now,
            started=self._started,
            workers=workers,
            targets=TARGETS,
            accounts=tuple(map(self._account_insight, sorted(accounts))),
            tables=tuple(map(self._table, self._table_keys())),
            partitions={period: each for period, (each, _) in partitions.items()},
            unlisted={period: each for period, (_, each) in partitions.items()},
            queries={period: self._queries(period) for period in PERIODS},
            other_tables=Activity(*self._whole[HOUR].other),
            sizes_note=sizes_note,
        )

    def _wanted(self, key: TableKey) -> bool:
        account, table = key
        return self._only in (None, table) and self._account in (None, account)

    def _table_keys(self) -> list[TableKey]:
        """The tables, those with the most entities in the last hour first, then the largest ones."""
        hour, day = self._whole[HOUR].tables, self._whole[DAY].tables

        def order(key: TableKey) -> tuple[int, int, int, TableKey]:
            size = self._sizes.get(key)
            return (
                -entities_of(hour[key].numbers) if key in hour else 0,
                -entities_of(day[key].numbers) if key in day else 0,
                -size.bytes if size is not None else 0,
                key,
            )

        return sorted(filter(self._wanted, {*day, *hour, *self._sizes}), key=order)

    def _account_insight(self, account: str) -> AccountInsight:
        rates = {}
        for period in PERIODS:
            whole = self._whole[period]
            operations = sum(
                operations_of(table.numbers)
                for (of, _), table in whole.tables.items()
                if of == account
            )
            peak = whole.account_peaks.get(account, 0.0)
            rates[period] = self._rate(period, operations, peak, ACCOUNT_RATE_TARGET)
        return AccountInsight(account, rates)

    def _rate(self, period: str, count: int, peak: float, target: float) -> Rate:
        mean = count / self._covered[period]
        most = max(mean, peak)
        return Rate(round(mean, 2), round(most, 1), most > target)

    def _table(self, key: TableKey) -> TableInsight:
        found = {period: self._whole[period].tables.get(key) for period in PERIODS}
        names = [table.name for table in found.values() if table is not None]
        present = {period: table or TableBucket("") for period, table in found.items()}
        size = self._sizes.get(key)
        return TableInsight(
            account=key[0],
            table=names[0] if names else key[1],
            activity={period: Activity(*table.numbers) for period, table in present.items()},
            plans={period: dict(sorted(table.plans.items())) for period, table in present.items()},
            rates={
                # No target is for a table: it is served by as many servers as it has partitions.
                period: self._rate(period, entities_of(table.numbers), table.peak, inf)
                for period, table in present.items()
            },
            hour=self._series(key, self._hour, self._over_time[HOUR]),
            day=self._series(key, self._day, self._over_time[DAY]),
            size=size,
            heat=None if self._only is None else self._heat_maps(key),
            writes={
                period: dict(sorted(table.writes.items())) for period, table in present.items()
            },
            lost_updates={period: table.lost_updates for period, table in present.items()},
            properties_max={period: table.properties_max for period, table in present.items()},
            entity_bytes_max={period: table.entity_bytes_max for period, table in present.items()},
            write_requests={period: table.write_requests for period, table in present.items()},
        )

    def _series(self, key: TableKey, times: Times, buckets: list[Bucket | None]) -> Series:
        nothing = TableBucket("")
        rows = [
            nothing.numbers if bucket is None else bucket.tables.get(key, nothing).numbers
            for bucket in buckets
        ]
        activities = [Activity(*row) for row in rows]
        return Series(
            seconds=times.seconds,
            starts=times.starts,
            reads=tuple(each.reads for each in activities),
            writes=tuple(each.writes for each in activities),
            entities=tuple(map(entities_of, rows)),
            bytes=tuple(each.bytes_in + each.bytes_out for each in activities),
            conflicts=tuple(each.conflicts for each in activities),
            refused=tuple(each.refused for each in activities),
        )

    def _partitions(self, period: str) -> tuple[tuple[PartitionActivity, ...], int]:
        """The list, and the most entities of a partition that is not in it."""
        found = [
            (partition, key, name)
            for key, table in self._whole[period].tables.items()
            if self._wanted(key)
            for name, partition in table.partitions.items()
        ]
        found.sort(key=lambda each: (-entities_of(each[0].numbers), each[1], each[2]))
        shown, others = found[:PARTITIONS_SHOWN], found[PARTITIONS_SHOWN:]
        unlisted = max(
            [self._whole[period].unlisted, *(partition.upper for partition, _, _ in others)]
        )
        return tuple(self._partition(period, *each) for each in shown), unlisted

    def _partition(
        self, period: str, partition: PartitionBucket, key: TableKey, name: str
    ) -> PartitionActivity:
        entities = entities_of(partition.numbers)
        return PartitionActivity(
            account=key[0],
            table=self._whole[period].tables[key].name,
            partition_key=self._shown(name),
            is_key_whole=self._shows_keys and HASH_MARK not in name,
            activity=Activity(*partition.numbers),
            missed=partition.missed,
            rate=_with_minutes(self._rate(period, entities, partition.peak, inf), partition),
            over_time=tuple(
                _entities_of_partition(bucket, key, name) for bucket in self._over_time[period]
            ),
        )

    def _shown(self, name: str) -> str:
        return name if self._shows_keys else hash_of(name)

    def _queries(self, period: str) -> tuple[QueryShape, ...]:
        found = [
            _query(table.name, key, name, shape, self._sizes.get(key))
            for key, table in self._whole[period].tables.items()
            if self._wanted(key)
            for name, shape in table.shapes.items()
        ]
        found.sort(
            key=lambda each: (
                each.entities_returned - each.entities_read,
                -each.pages,
                each.account,
                each.table,
                each.filter,
            )
        )
        return tuple(found[:QUERIES_SHOWN])

    def _heat_maps(self, key: TableKey) -> HeatMaps:
        hour, day = self._over_time[HOUR], self._over_time[DAY]
        return HeatMaps(self._heat(key, self._hour, hour), self._heat(key, self._day, day))

    def _heat(self, key: TableKey, times: Times, buckets: list[Bucket | None]) -> HeatMap:
        tables = [None if bucket is None else bucket.tables.get(key) for bucket in buckets]
        return heat_map_of(tables, times.starts, times.seconds, self._shown)


def _entities_of_partition(bucket: Bucket | None, key: TableKey, name: str) -> int:
    if bucket is None or key not in bucket.tables:
        return 0
    partition = bucket.tables[key].partitions.get(name)
    return 0 if partition is None else entities_of(partition.numbers)


def _with_minutes(rate: Rate, partition: PartitionBucket) -> Rate:
    """The rate of a partition, judged by a minute: a single large query makes the peak of a second."""
    busiest = partition.busiest / HOUR_BUCKET_SECONDS
    writes = partition.busiest_writes / HOUR_BUCKET_SECONDS
    return Rate(
        rate.mean, rate.peak, busiest > PARTITION_RATE_TARGET, round(busiest, 2), round(writes, 2)
    )


def _read_of(plan: str, shape: ShapeBucket, size: TableSize | None) -> int:
    """Entities read, with those that the engine passes over between the RowKeys that a table scan names."""
    names_rows = shape.joined != "or" and any(
        name == ROW_KEY and operator != "ne" for name, operator, _ in shape.terms
    )
    if plan != "table" or not names_rows or size is None:
        return shape.read
    return max(shape.read, shape.ended * size.entities)


def _query(
    table: str, key: TableKey, name: ShapeName, shape: ShapeBucket, size: TableSize | None
) -> QueryShape:
    text, names_select, plan, is_look = name
    return QueryShape(
        account=key[0],
        table=table,
        filter=text,
        terms=tuple(FilterTerm(*term) for term in shape.terms),
        joined=shape.joined,
        names_select=names_select,
        plan=plan,
        queries=shape.queries,
        pages=shape.pages,
        entities_read=_read_of(plan, shape, size),
        entities_returned=shape.returned,
        seconds=round(shape.seconds, 6),
        p50_ms=quantile_ms(shape.durations, 0.5),
        p99_ms=quantile_ms(shape.durations, 0.99),
        is_look=is_look,
    )


def quantile_ms(durations: Sequence[int], share: float) -> float:
    """The bound of the histogram below which this share of the durations is, in milliseconds; 0 without any.

    Beyond the last bound, the last bound.
    """
    total = sum(durations)
    if not total:
        return 0.0
    reached = list(accumulate(durations))
    bucket = next(index for index, count in enumerate(reached) if count >= share * total)
    return round(1000 * PAGE_BOUNDS[min(bucket, len(PAGE_BOUNDS) - 1)], 3)
