"""Makes the report of insight of the buckets of the last hour and the last day.

Knows buckets, and what a report says; does not know where the buckets or the sizes of tables come from.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import Final

from tablestone.insight.counts import PAGE_BOUNDS, CountedRange, grouped
from tablestone.insight.history import (
    READ,
    WRITTEN,
    Bucket,
    PartitionBucket,
    ShapeBucket,
    ShapeName,
    Span,
    TableBucket,
    TableKey,
    entities_of,
    merged,
    operations_of,
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
from tablestone.insight.window import HASH_MARK, hash_of
from tablestone.limits import ACCOUNT_RATE_TARGET, PARTITION_RATE_TARGET
from tablestone.model.keys import ROW_KEY, decode_key, encode_key

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
