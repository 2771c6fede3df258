"""The counts of one server in the last hour and day, and the report of insight made from them.

A minute stays open while workers may still report it; then it is merged into its quarter of an hour. Rates per second
come from the difference between two successive reports of a worker.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import accumulate
from math import inf
from typing import Any, Final, NamedTuple

from tablestone.insight.counts import (
    HASH_MARK,
    MINUTE_SECONDS,
    PAGE_BOUNDS,
    CountedRange,
    Counts,
    ShapeCounts,
    TableCounts,
    TableKey,
    WindowCounts,
    hash_of,
    joined,
    merged,
    read_window,
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
    HeatRange,
    InsightReport,
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

OPEN_SECONDS: Final = 30
"""Seconds that a minute stays open after its end, because a worker may report late. Later counts are lost."""
PARTITIONS_SHOWN: Final = 50
QUERIES_SHOWN: Final = 50
HEAT_RANGES_MAX: Final = 64

_Place = tuple[TableKey, str | None]
"""A table and a PartitionKey, which is None for the whole table. An account is a table with an empty name."""
_Counted = Counter[_Place]
"""Entities read or written; for an account, operations."""
_Rates = dict[_Place, float]
"""The same per second."""


@dataclass(slots=True)
class _Seen:
    """The newest report of a worker, with the rates since its previous one."""

    process: int
    at: float
    minute: int
    counted: _Counted
    missed: int
    rates: _Rates = field(default_factory=dict)


class InsightHistory:
    """The history of one server. `now` is in seconds since 1970."""

    def __init__(self, reports: WorkerReports, now: float) -> None:
        self.started = now
        self.workers = reports.workers
        self._reports = reports
        self._seen: dict[int, _Seen] = {}
        self._open: dict[int, dict[tuple[int, int], WindowCounts]] = {}
        """By minute, then by worker and process: the process that replaces a worker counts from 0."""
        self._peaks: dict[int, _Rates] = {}
        """The highest rates of each minute."""
        self._minutes: dict[int, WindowCounts] = {}
        self._quarters: dict[int, WindowCounts] = {}

    def look(self, now: float) -> None:
        """Read the newest reports. Call it about once a second."""
        rates: _Rates = {}
        for worker in range(self.workers):
            report = self._reports.newest(worker)
            if report is not None:
                for place, rate in self._take(worker, report).items():
                    rates[place] = rates.get(place, 0.0) + rate
        if rates:
            peaks = self._peaks.setdefault(int(now) // MINUTE_SECONDS, {})
            for place, rate in rates.items():
                peaks[place] = max(rate, peaks.get(place, 0.0))
        for minute in sorted(self._open):
            if (minute + 1) * MINUTE_SECONDS + OPEN_SECONDS <= now:
                self._close(minute)
        for windows, seconds in ((self._minutes, HOUR_SECONDS), (self._quarters, DAY_SECONDS)):
            oldest = now - seconds - DAY_BUCKET_SECONDS
            for start in [start for start in windows if start <= oldest]:
                del windows[start]

    def minutes(self) -> dict[int, WindowCounts]:
        """The minutes of the last hour that had requests, by their starts."""
        return self._minutes | {
            minute * MINUTE_SECONDS: self._merged(minute) for minute in self._open
        }

    def quarters(self) -> dict[int, WindowCounts]:
        """The same for the quarters of an hour of the last day."""
        found = dict(self._quarters)
        for minute in self._open:
            _add_to_quarter(found, minute, self._merged(minute))
        return found

    def _take(self, worker: int, report: WorkerReport) -> _Rates:
        """Store the windows of a report that is new. Returns the rates of the worker."""
        before = self._seen.get(worker)
        is_same_process = before is not None and before.process == report.process
        if before is not None and is_same_process and before.at == report.at:
            return before.rates
        ended = report.content["ended"]
        window = self._put(worker, report.process, report.content["present"])
        counted = _counted_in(window)
        seen = _Seen(report.process, report.at, window.minute, counted, window.missed)
        self._seen[worker] = seen
        if before is None or not is_same_process:
            if ended is not None:
                self._put(worker, report.process, ended)
            return seen.rates
        if ended is not None and ended["minute"] == before.minute != window.minute:
            counted = counted + _counted_in(self._put(worker, report.process, ended))
        for place, number in counted.items():
            # A partition not listed before may have had up to `missed` entities then: no rate may be too high.
            more = number - before.counted.get(place, before.missed)
            if more > 0:
                seen.rates[place] = more / (report.at - before.at)
        return seen.rates

    def _put(self, worker: int, process: int, content: Mapping[str, Any]) -> WindowCounts:
        """Keep this as the worker's window of its minute, unless the minute is closed or the window is empty."""
        window = read_window(content)
        is_open = window.minute * MINUTE_SECONDS not in self._minutes
        if is_open and (window.tables or any(window.other.rest.numbers())):
            self._open.setdefault(window.minute, {})[worker, process] = window
        return window

    def _close(self, minute: int) -> None:
        window = self._merged(minute)
        del self._open[minute]
        self._peaks = {each: peaks for each, peaks in self._peaks.items() if each > minute}
        self._minutes[minute * MINUTE_SECONDS] = window
        _add_to_quarter(self._quarters, minute, window)

    def _merged(self, minute: int) -> WindowCounts:
        """The windows of all workers, with the peaks of the minute."""
        whole = merged(self._open[minute].values())
        peaks = self._peaks.get(minute, {})
        for key, table in whole.tables.items():
            account = key[0], ""
            whole.account_peaks[key[0]] = peaks.get((account, None), 0.0)
            table.peak = peaks.get((key, None), 0.0)
            table.busiest = table.whole().entities()
            for name, counts in table.partitions.items():
                counts.peak = peaks.get((key, name), 0.0)
                counts.busiest, counts.busiest_writes = counts.entities(), counts.writes
        return whole


def _add_to_quarter(quarters: dict[int, WindowCounts], minute: int, window: WindowCounts) -> None:
    seconds = minute * MINUTE_SECONDS
    start = seconds - seconds % DAY_BUCKET_SECONDS
    present = quarters.get(start)
    quarters[start] = window if present is None else merged((present, window))


def _counted_in(window: WindowCounts) -> _Counted:
    found: _Counted = Counter()
    for key, table in window.tables.items():
        whole = table.whole()
        found[key, None] = whole.entities()
        account = (key[0], ""), None
        found[account] += whole.operations()
        for name, counts in table.partitions.items():
            found[key, name] = counts.entities()
    return found


class _Timeline(NamedTuple):
    """Consecutive windows of `seconds` each; None where nothing was counted."""

    seconds: int
    starts: tuple[int, ...]
    windows: list[WindowCounts | None]

    @classmethod
    def of(
        cls, windows: Mapping[int, WindowCounts], now: float, length: int, seconds: int
    ) -> _Timeline:
        """The windows of the last `length` seconds, including the present one."""
        present = int(now) - int(now) % seconds
        starts = tuple(range(present - length + seconds, present + 1, seconds))
        return cls(seconds, starts, [windows.get(start) for start in starts])

    def last(self, seconds: int) -> _Timeline:
        number = seconds // self.seconds
        return _Timeline(self.seconds, self.starts[-number:], self.windows[-number:])

    def of_table(self, key: TableKey) -> list[TableCounts]:
        nothing = TableCounts("", "")
        return [window.tables.get(key, nothing) if window else nothing for window in self.windows]


@dataclass
class Summary:
    """Makes a report of the tables in the history, in `sizes`, and in `expiry` (a name, and when entities expire).

    `only`, a table's name in lower case, and `account` leave out all others. Without `shows_keys`, a hash replaces each
    PartitionKey.
    """

    now: float
    history: InsightHistory
    sizes: Mapping[TableKey, TableSize]
    expiry: Mapping[TableKey, tuple[str, str]]
    _: KW_ONLY
    only: str | None = None
    account: str | None = None
    shows_keys: bool = True

    def __post_init__(self) -> None:
        now, history = self.now, self.history
        self._hour = _Timeline.of(history.minutes(), now, HOUR_SECONDS, HOUR_BUCKET_SECONDS)
        self._day = _Timeline.of(history.quarters(), now, DAY_SECONDS, DAY_BUCKET_SECONDS)
        timelines = {NOW: self._hour.last(NOW_SECONDS), HOUR: self._hour, DAY: self._day}
        self._whole = {
            period: merged(filter(None, each.windows)) for period, each in timelines.items()
        }
        self._covered = {
            period: max(1.0, now - max(history.started, each.starts[0]))
            for period, each in timelines.items()
        }

    def report(self, sizes_note: str, storage: str | None = None) -> InsightReport:
        accounts = sorted({account for account, _ in self._whole[DAY].tables})
        partitions = {period: self._partitions(period) for period in PERIODS}
        return InsightReport(
            at=self.now,
            started=self.history.started,
            workers=self.history.workers,
            targets=TARGETS,
            accounts=tuple(map(self._account_insight, accounts)),
            tables=tuple(map(self._table, self._table_keys())),
            partitions={period: each for period, (each, _) in partitions.items()},
            unlisted={period: each for period, (_, each) in partitions.items()},
            queries={period: self._queries(period) for period in PERIODS},
            other_tables=Activity(*self._whole[HOUR].other.rest.numbers()),
            sizes_note=sizes_note,
            storage=storage,
        )

    def _wanted(self, key: TableKey) -> bool:
        account, table = key
        return self.only in (None, table) and self.account in (None, account)

    def _wanted_tables(self, period: str) -> Iterator[tuple[TableKey, TableCounts]]:
        return (item for item in self._whole[period].tables.items() if self._wanted(item[0]))

    def _table_keys(self) -> list[TableKey]:
        """The tables: those most used in the last hour first, then in the last day, then the largest."""
        hour, day = (
            {key: table.whole().entities() for key, table in self._wanted_tables(period)}
            for period in (HOUR, DAY)
        )

        def order(key: TableKey) -> tuple[int, int, int, TableKey]:
            size = self.sizes.get(key)
            bytes_stored = 0 if size is None else size.bytes
            return -hour.get(key, 0), -day.get(key, 0), -bytes_stored, key

        return sorted({*hour, *day, *filter(self._wanted, (*self.sizes, *self.expiry))}, key=order)

    def _account_insight(self, account: str) -> AccountInsight:
        rates = {}
        for period, window in self._whole.items():
            tables = (table for key, table in window.tables.items() if key[0] == account)
            operations = sum(table.whole().operations() for table in tables)
            peak = window.account_peaks.get(account, 0.0)
            rates[period] = self._rate(period, operations, peak, ACCOUNT_RATE_TARGET)
        return AccountInsight(account, rates)

    def _rate(self, period: str, count: int, peak: float, target: float) -> Rate:
        mean = count / self._covered[period]
        most = max(mean, peak)
        return Rate(round(mean, 2), round(most, 1), most > target)

    def _table(self, key: TableKey) -> TableInsight:
        account = key[0]
        name = self._name(key)
        found = {period: self._whole[period].tables.get(key) for period in PERIODS}
        tables = {period: table or TableCounts(account, name) for period, table in found.items()}
        whole = {period: table.whole() for period, table in tables.items()}
        return TableInsight(
            account=account,
            table=name,
            activity={period: Activity(*each.numbers()) for period, each in whole.items()},
            plans={period: dict(sorted(table.plans.items())) for period, table in tables.items()},
            rates={
                # Azure has no target for a table.
                period: replace(
                    self._rate(period, each.entities(), tables[period].peak, inf),
                    busiest_minute=round(tables[period].busiest / MINUTE_SECONDS, 2),
                )
                for period, each in whole.items()
            },
            hour=_series(self._hour, key),
            day=_series(self._day, key),
            size=self.sizes.get(key),
            heat=None
            if self.only is None
            else HeatMaps(*(_heat_map(each, key, self._shown) for each in (self._hour, self._day))),
            writes={period: dict(sorted(table.writes.items())) for period, table in tables.items()},
            lost_updates={period: table.lost_updates for period, table in tables.items()},
            properties_max={period: table.properties_max for period, table in tables.items()},
            entity_bytes_max={period: table.entity_bytes_max for period, table in tables.items()},
            write_requests={period: table.write_requests for period, table in tables.items()},
            expiry=self.expiry.get(key, ("", ""))[1],
            by_tools={period: Activity(*table.tools.numbers()) for period, table in tables.items()},
            tool_requests={period: table.tool_requests for period, table in tables.items()},
        )

    def _name(self, key: TableKey) -> str:
        """The table's name as it was created if its size or expiry is known; else as a request spelled it."""
        size, counted = self.sizes.get(key), self._whole[DAY].tables.get(key)
        name = key[1] if counted is None else counted.name
        return (size and size.name) or self.expiry.get(key, (name, ""))[0]

    def _partitions(self, period: str) -> tuple[tuple[PartitionActivity, ...], int]:
        """The hottest partitions, and the most entities of a partition that is not among them."""
        found = [
            (key, name, counts)
            for key, table in self._wanted_tables(period)
            for name, counts in table.partitions.items()
        ]
        found.sort(key=lambda each: (-each[2].entities(), each[0], each[1]))
        shown, others = found[:PARTITIONS_SHOWN], found[PARTITIONS_SHOWN:]
        missed = max([self._whole[period].missed, *(counts.upper() for *_, counts in others)])
        return tuple(self._partition(period, *each) for each in shown), missed

    def _partition(
        self, period: str, key: TableKey, name: str, counts: Counts
    ) -> PartitionActivity:
        timeline = self._day if period == DAY else self._hour
        busiest = counts.busiest / MINUTE_SECONDS
        rate = replace(
            self._rate(period, counts.entities(), counts.peak, inf),
            # By minute, because a single large query makes the peak of a second.
            is_throttled=busiest > PARTITION_RATE_TARGET,
            busiest_minute=round(busiest, 2),
            busiest_minute_writes=round(counts.busiest_writes / MINUTE_SECONDS, 2),
        )
        nothing = Counts(0)
        tables = timeline.of_table(key)
        return PartitionActivity(
            account=key[0],
            table=self._name(key),
            partition_key=self._shown(name),
            is_key_whole=self.shows_keys and HASH_MARK not in name,
            activity=Activity(*counts.numbers()),
            missed=counts.missed,
            rate=rate,
            over_time=tuple(each.partitions.get(name, nothing).entities() for each in tables),
        )

    def _shown(self, name: str) -> str:
        return name if self.shows_keys else hash_of(name)

    def _queries(self, period: str) -> tuple[QueryShape, ...]:
        found = [
            _query(table, self._name(key), shape, self.sizes.get(key))
            for key, table in self._wanted_tables(period)
            for shape in table.shapes.values()
        ]
        found.sort(
            key=lambda each: (
                each.from_tools,
                each.entities_returned - each.azure_reads,
                -each.pages,
                each.account,
                each.table,
                each.filter,
            )
        )
        return tuple(found[:QUERIES_SHOWN])


def _series(timeline: _Timeline, key: TableKey) -> Series:
    counts = [table.whole() for table in timeline.of_table(key)]
    activities = [Activity(*each.numbers()) for each in counts]
    return Series(
        seconds=timeline.seconds,
        starts=timeline.starts,
        reads=tuple(each.reads for each in activities),
        writes=tuple(each.writes for each in activities),
        entities=tuple(each.entities() for each in counts),
        bytes=tuple(each.bytes_in + each.bytes_out for each in activities),
        conflicts=tuple(each.conflicts for each in activities),
        refused=tuple(each.refused for each in activities),
    )


def _query(table: TableCounts, name: str, shape: ShapeCounts, size: TableSize | None) -> QueryShape:
    text, names_select, plan, from_tools = shape.name
    passed_over = 0
    names_rows = shape.joined != "or" and any(
        name == ROW_KEY and operator != "ne" for name, operator, _ in shape.terms
    )
    if plan == "table" and names_rows and size is not None:
        # The engine passes over the other entities by seeks, and does not count them.
        passed_over = max(0, shape.ended * size.entities - shape.read)
    return QueryShape(
        account=table.account,
        table=name,
        filter=text,
        terms=tuple(FilterTerm(*term) for term in shape.terms),
        joined=shape.joined,
        names_select=names_select,
        plan=plan,
        queries=shape.queries,
        pages=shape.pages,
        entities_read=shape.read,
        entities_returned=shape.returned,
        seconds=round(shape.seconds, 6),
        p50_ms=quantile_ms(shape.durations, 0.5),
        p99_ms=quantile_ms(shape.durations, 0.99),
        from_tools=from_tools,
        values=len(shape.values),
        passed_over=passed_over,
    )


def quantile_ms(durations: Sequence[int], share: float) -> float:
    """The bound of the histogram, at most the last, below which this share lies, in milliseconds; 0 if it is empty."""
    total = sum(durations)
    if not total:
        return 0.0
    bucket = bisect_left(list(accumulate(durations)), share * total)
    return round(1000 * PAGE_BOUNDS[min(bucket, len(PAGE_BOUNDS) - 1)], 3)


def _heat_map(timeline: _Timeline, key: TableKey, shown: Callable[[str], str]) -> HeatMap:
    """The heat map of a table. `shown` turns a key into what the report shows of it."""
    tables = timeline.of_table(key)
    columns = [_ranges_of(table) for table in tables]
    weights: dict[bytes, int] = {}
    for column in columns:
        for each in column:
            for end in (each.first, each.last):
                weights[end] = weights.get(end, 0) + each.read + each.written
    ends = (CountedRange(end, end, weight, 0) for end, weight in weights.items())
    ranges = joined(ends, HEAT_RANGES_MAX)
    firsts, lasts = [each.first for each in ranges], [each.last for each in ranges]

    def by_range(column: Iterable[tuple[CountedRange, int]]) -> list[int]:
        """The counts by range. A count whose range covers several is spread evenly over them."""
        sums = [0] * len(ranges)
        for each, count in column:
            begin = min(bisect_left(lasts, each.first), len(ranges) - 1)
            width = max(1, bisect_right(firsts, each.last) - begin)
            share, rest = divmod(count, width)
            for index in range(width):
                sums[begin + index] += share + (index < rest)
        return sums

    read, written, scanned = [], [], []
    for table, column in zip(tables, columns, strict=True):
        written.append(tuple(by_range((each, each.written) for each in column)))
        sums = by_range((each, each.read) for each in column)
        elsewhere = 0
        for (first, last), count in table.spans.items():
            index = bisect_left(lasts, encode_key(first))
            is_inside = index < len(ranges) and firsts[index] <= encode_key(first)
            if is_inside and last is not None and encode_key(last) <= lasts[index]:
                sums[index] += count
            else:
                elsewhere += count
        read.append(tuple(sums))
        scanned.append(elsewhere)
    shown_ranges = tuple(
        HeatRange(*(shown(decode_key(end)) for end in (each.first, each.last))) for each in ranges
    )
    return HeatMap(
        timeline.seconds, timeline.starts, shown_ranges, tuple(read), tuple(written), tuple(scanned)
    )


def _ranges_of(table: TableCounts) -> list[CountedRange]:
    """Where requests for single partitions read and wrote entities of a table."""
    found = list(table.ranges)
    for name, counts in table.partitions.items():
        if counts.entities():  # a read that finds nothing has no place
            key = encode_key(name)
            found.append(CountedRange(key, key, counts.read(), counts.writes))
    for first, last in table.spans:
        if first and first == last:  # pages of scans that lie inside one partition
            key = encode_key(first)
            found.append(CountedRange(key, key, 0, 0))
    return found
