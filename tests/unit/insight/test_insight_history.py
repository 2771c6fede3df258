"""The history of insight: windows of several workers and minutes, as a report shows them."""

from typing import Any

import pytest

from tablestone.insight.counts import PAGE_BOUNDS, InsightCounts
from tablestone.insight.history import OPEN_SECONDS, InsightHistory, Summary, quantile_ms
from tablestone.insight.report import (
    DAY,
    HOUR,
    NOW,
    InsightReport,
    PartitionActivity,
    SizeSample,
    TableSize,
)
from tablestone.limits import PARTITION_RATE_TARGET
from tablestone.model.operations import EntityWritten, TransactionCommitted
from tablestone.query.plan import PlanKind
from tablestone.telemetry.request_counts import RequestCounts
from tablestone.telemetry.worker_reports import WorkerReport, WorkerReports
from tablestone.tools import insight
from unit.insight.test_insight_counts import TRANSACTION, get, page, query, record_of

NOON = 1_800_000_000 - 1_800_000_000 % 86_400 + 43_200
"""The beginning of an hour, in seconds since 1970."""
TABLE = ("weather", "readings")


class Worker:
    """One process of a worker."""

    def __init__(self, reports: WorkerReports, number: int, process: int, now: float) -> None:
        self._reports, self._number, self._process = reports, number, process
        self._windows = InsightCounts(now)
        self.counts = RequestCounts(insight=self._windows)
        self.leave(now)

    def leave(self, now: float) -> None:
        content = self._windows.content(now)
        self._reports.leave(self._number, WorkerReport(self._process, now, content))


class Server:
    """Workers and the history of their reports, on a clock that a test turns."""

    def __init__(self, workers: int = 2, now: float = NOON) -> None:
        self.now = now
        self.reports = WorkerReports(workers)
        self.workers = [
            Worker(self.reports, number, 100 + number, now) for number in range(workers)
        ]
        self.history = InsightHistory(self.reports, now)
        self.history.look(now)

    def second(self) -> None:
        """Let a second pass."""
        self.now += 1
        for worker in self.workers:
            worker.leave(self.now)
        self.history.look(self.now)

    def pass_by(self, seconds: int) -> None:
        for _ in range(seconds):
            self.second()

    def report(self, **options: Any) -> InsightReport:
        history = self.history
        sizes, expiry = options.pop("sizes", {}), options.pop("expiry", {})
        made = Summary(self.now, history, sizes, expiry, **options).report("")
        assert InsightReport.from_json(made.to_json()) == made
        return made


def partitions_of(report: InsightReport, period: str) -> dict[str, PartitionActivity]:
    return {each.partition_key: each for each in report.partitions[period]}


def test_workers_are_added() -> None:
    server = Server()
    for worker in server.workers:
        for key in ("a", "a", "b"):
            worker.counts.count(get(key))
        worker.counts.count(record_of(TRANSACTION, TransactionCommitted([EntityWritten(5)] * 3)))
    server.second()
    report = server.report()
    found = partitions_of(report, NOW)
    reads = {key: each.activity.reads for key, each in found.items()}
    assert reads == {"a": 4, "b": 2, "p": 0}
    (table,) = report.tables
    assert (table.table, table.activity[NOW].entities_read, table.plans[NOW]) == (
        "Readings",
        6,
        {"point": 6},
    )
    assert table.writes == {NOW: {"insert": 6}, HOUR: {"insert": 6}, DAY: {"insert": 6}}
    assert report.workers == 2


@pytest.mark.parametrize("late", [0, 3])
def test_a_report_that_is_read_late_or_twice_counts_once(late: int) -> None:
    """Even where the minute ends between two reports."""
    server = Server(workers=1, now=NOON + 58.5)
    (worker,) = server.workers
    for second in range(5):
        worker.counts.count(get("a"))
        server.now += 1
        worker.leave(server.now)
        if second >= late:
            server.history.look(server.now)
            server.history.look(server.now)
    assert partitions_of(server.report(), HOUR)["a"].activity.reads == 5
    server.pass_by(60 + OPEN_SECONDS)
    assert partitions_of(server.report(), HOUR)["a"].activity.reads == 5


def test_periods() -> None:
    server = Server(workers=1)
    (worker,) = server.workers
    expected = {}
    for minutes in (0, 30, 80):
        while server.now < NOON + minutes * 60:
            server.now += 20
            server.second()
        worker.counts.count(get(f"at {minutes}"))
        server.second()
    report = server.report()
    for period in (NOW, HOUR, DAY):
        expected[period] = set(partitions_of(report, period))
    assert expected == {NOW: {"at 80"}, HOUR: {"at 30", "at 80"}, DAY: {"at 0", "at 30", "at 80"}}
    (table,) = report.tables
    assert sum(table.hour.reads) == sum(table.hour.entities) == 2
    assert sum(table.day.reads) == 3
    assert table.hour.reads[-1] == 1
    assert (len(table.hour.starts), table.hour.seconds) == (60, 60)
    assert (len(table.day.starts), table.day.seconds) == (96, 900)
    assert sum(partitions_of(report, DAY)["at 0"].over_time) == 1


def test_old_counts_are_forgotten() -> None:
    server = Server(workers=1)
    server.workers[0].counts.count(get("a"))
    server.second()
    while server.now < NOON + 25 * 3600 + 900:
        server.now += 50
        server.history.look(server.now)
    report = server.report()
    assert (report.tables, report.partitions[DAY]) == ((), ())
    assert not server.history.minutes()
    assert not server.history.quarters()


def test_the_counts_of_a_worker_that_was_replaced_stay() -> None:
    server = Server()
    server.workers[0].counts.count(get("a"))
    server.second()
    server.workers[0] = Worker(server.reports, 0, 999, server.now)
    server.workers[0].counts.count(get("a"))
    server.second()
    assert partitions_of(server.report(), NOW)["a"].activity.reads == 2


def test_a_minute_that_ends_before_a_process_is_looked_at() -> None:
    server = Server(workers=1, now=NOON + 58)
    server.workers[0] = worker = Worker(server.reports, 0, 999, server.now)
    worker.counts.count(get("a"))
    server.now += 1
    worker.leave(server.now)
    server.now += 2
    worker.leave(server.now)
    server.history.look(server.now)
    assert partitions_of(server.report(), NOW)["a"].activity.reads == 1


def test_a_worker_that_is_very_late_changes_no_closed_minute() -> None:
    server = Server()
    late, other = server.workers
    for key in ("a", "a", "a"):
        other.counts.count(get(key))
    late.counts.count(get("a"))
    server.second()
    late.counts.count(get("a"))
    server.workers = [other]
    server.pass_by(60 + OPEN_SECONDS)
    late.leave(server.now)
    server.pass_by(OPEN_SECONDS + 1)
    assert partitions_of(server.report(), NOW)["a"].activity.reads == 4


def test_the_peak_of_a_partition_that_was_not_listed_is_not_too_high() -> None:
    server = Server(workers=1)
    (worker,) = server.workers
    for _ in range(5):
        for number in range(400):
            worker.counts.count(get(f"k{number}"))
    server.pass_by(20)  # to keep the mean low
    (bucket,) = server.history.minutes().values()
    key = min({f"k{number}" for number in range(400)} - bucket.tables[TABLE].partitions.keys())
    worker.counts.count(get(key))
    server.second()
    found = partitions_of(server.report(), NOW)[key]
    assert (found.activity.reads, found.rate.peak <= 1) == (6, True)


def test_no_partition_outside_of_the_list_has_more_than_unlisted() -> None:
    """The list has 50 partitions; nothing is dropped before that."""
    server = Server(workers=1)
    for number in range(60):
        for _ in range(5 + number % 3):
            server.workers[0].counts.count(get(f"k{number}"))
    server.second()
    report = server.report()
    assert len(report.partitions[NOW]) == 50
    assert report.unlisted == {NOW: 5, HOUR: 5, DAY: 5}


def test_the_peak_over_the_end_of_a_minute() -> None:
    """The server looks once, after two reports: 20 requests in the minute that ended, and 10 after it."""
    server = Server(workers=1, now=NOON + 28)
    server.pass_by(30)
    (worker,) = server.workers
    for requests in (20, 10):
        for _ in range(requests):
            worker.counts.count(get("hot"))
        server.now += 2
        worker.leave(server.now)
    server.history.look(server.now)
    assert partitions_of(server.report(), NOW)["hot"].rate.peak == 7.5


def test_the_peak_is_that_of_one_second_over_all_workers() -> None:
    server = Server()
    server.pass_by(10)
    for worker in server.workers:
        for _ in range(30):
            worker.counts.count(get("hot"))
    server.second()
    server.pass_by(49)
    server.workers[0].counts.count(record_of(query(None), page("table", 50_000, "p" * 9)))
    server.second()
    (account,) = server.report().accounts
    rate = partitions_of(server.report(), NOW)["hot"].rate
    assert (rate.peak, rate.is_throttled) == (60.0, False)
    # A page of a scan is one operation of the account, though it read 50,000 entities.
    assert (account.account, account.rates[NOW].peak) == ("weather", 60.0)
    assert not account.rates[NOW].is_throttled
    (table,) = server.report().tables
    assert (table.rates[NOW].peak, table.rates[NOW].is_throttled) == (50_000.0, False)


@pytest.mark.parametrize(("more", "is_throttled"), [(0, False), (1, True)])
def test_the_target_of_a_partition(more: int, *, is_throttled: bool) -> None:
    """2,000 entities a second are served: https://learn.microsoft.com/azure/storage/tables/scalability-targets.

    A minute is judged, because one query of many entities makes the peak of a second.
    """
    server = Server(workers=1)
    count = server.workers[0].counts.count
    whole = query("PartitionKey eq 'hot' and a gt 1")
    count(record_of(whole, page("partition", 60 * PARTITION_RATE_TARGET - 60, "hot")))
    for _ in range(60 + more):
        count(get("hot"))
    server.second()
    rate = partitions_of(server.report(), NOW)["hot"].rate
    assert rate.is_throttled == is_throttled
    assert rate.peak == 60 * PARTITION_RATE_TARGET + more
    assert rate.busiest_minute == round(rate.peak / 60, 2)


def test_the_busiest_minute_of_a_partition_and_its_table() -> None:
    """In three minutes: 60 reads, then 120 writes, then 30 reads. The hour and the day show the busiest one."""
    server = Server(workers=2)
    insert = TransactionCommitted([EntityWritten(5)] * 3)
    for record, times in ((get("p"), 30), (record_of(TRANSACTION, insert), 20), (get("p"), 15)):
        for worker in server.workers:
            for _ in range(times):
                worker.counts.count(record)
        server.pass_by(61)
    for period in (HOUR, DAY):
        rate = partitions_of(server.report(), period)["p"].rate
        assert (rate.busiest_minute, rate.busiest_minute_writes) == (2.0, 2.0)
        (table,) = server.report().tables
        assert table.rates[period].busiest_minute == 2.0


def test_a_scan_by_row_key_counts_what_the_engine_passes_over() -> None:
    """The engine seeks, and reads one entity of 6,000; Azure reads all. Only whole runs count, and known sizes."""
    size = TableSize(NOON, 50, 6_000, 60_000, (SizeSample(NOON, 6_000, 60_000),), ())
    found = {}
    for text in ("RowKey eq 'r'", "RowKey ge 'r' and a eq 1", "RowKey ne 'r'", "a eq 1"):
        server = Server(workers=1)
        for token, following in ((None, "q"), ("q", None), (None, "q"), ("q", None), (None, "q")):
            read = page("table", 1, "p", token=following)
            server.workers[0].counts.count(record_of(query(text, token), read))
        server.second()
        for sizes in ({}, {TABLE: size}):
            (shape,) = server.report(sizes=sizes).queries[NOW]
            assert shape.entities_read == 5
            found[text, bool(sizes)] = shape.azure_reads
    assert found == {
        ("RowKey eq 'r'", False): 5,
        ("RowKey eq 'r'", True): 12_000,
        ("RowKey ge 'r' and a eq 1", False): 5,
        ("RowKey ge 'r' and a eq 1", True): 12_000,
        ("RowKey ne 'r'", False): 5,
        ("RowKey ne 'r'", True): 5,
        ("a eq 1", False): 5,
        ("a eq 1", True): 5,
    }


def test_what_is_passed_over_is_in_no_share() -> None:
    """A hundred partitions of an equal share stay so beside a query that seeks through a million entities."""
    size = TableSize(NOON, 50, 1_000_000, 10**8, (SizeSample(NOON, 1_000_000, 10**8),), ())
    server = Server(workers=1)
    for partition in range(100):
        for _ in range(20):
            server.workers[0].counts.count(get(f"p{partition}"))
    server.workers[0].counts.count(record_of(query("RowKey eq 'r'"), page("table", 5, "abcde")))
    server.second()
    report = server.report(sizes={TABLE: size})
    assert insight.read_across(report, NOW) == 5
    for each in report.partitions[NOW]:
        assert insight.share_of(report, each, NOW) == 0.01
    (table,) = insight.workload_of(report, NOW).tables
    (scan,) = (each for each in table.queries if each.plan is PlanKind.TABLE)
    assert scan.entities_read == 1_000_000  # the advice is about Azure


def test_a_table_of_which_only_the_policy_is_known() -> None:
    """As on Cassandra, which does not count."""
    key = (TABLE[0], "sessions")
    (table,) = Server(workers=1).report(expiry={key: ("Sessions", "1d after")}).tables
    assert (table.table, table.expiry, table.size) == ("Sessions", "1d after", None)


def test_queries_that_read_most_come_first() -> None:
    server = Server(workers=1)
    for text, read, returned in (
        ("a gt 1", 500, ""),
        ("b gt 1", 600, "p" * 400),
        ("c gt 1", 5, ""),
    ):
        server.workers[0].counts.count(record_of(query(text), page("table", read, returned)))
    server.second()
    found = server.report().queries[HOUR]
    assert [each.filter for each in found] == ["a gt ?", "b gt ?", "c gt ?"]
    assert (found[1].entities_read, found[1].entities_returned, found[1].plan) == (
        600,
        400,
        "table",
    )
    assert [(term.property, term.operator, term.type) for term in found[0].terms] == [
        ("a", "gt", "Edm.Int32")
    ]


def test_hashes_stand_for_keys() -> None:
    server = Server(workers=1)
    server.workers[0].counts.count(get("secret"))
    server.second()
    report = server.report(shows_keys=False, only="readings")
    assert b"secret" not in report.to_json()
    (partition,) = report.partitions[NOW]
    assert (partition.partition_key[0], len(partition.partition_key)) == ("#", 13)
    assert not partition.is_key_whole


def test_a_table_of_which_only_the_size_is_known() -> None:
    size = TableSize(NOON, 1, 2, 30, (SizeSample(NOON, 2, 30),), ())
    report = Server().report(sizes={TABLE: size})
    (table,) = report.tables
    assert (table.size, table.activity[DAY].reads) == (size, 0)


@pytest.mark.parametrize(
    ("seconds", "share", "expected"),
    [
        ([], 0.99, 0.0),
        ([0.0004], 0.5, 0.5),
        ([0.0004] * 99 + [0.2], 0.99, 0.5),
        ([0.0004] * 98 + [0.2] * 2, 0.99, 200.0),
        ([100.0], 0.5, 30_000.0),
    ],
)
def test_quantiles(seconds: list[float], share: float, expected: float) -> None:
    durations = [0] * (len(PAGE_BOUNDS) + 1)
    for each in seconds:
        durations[sum(bound < each for bound in PAGE_BOUNDS)] += 1
    assert quantile_ms(durations, share) == expected


def test_a_table_has_its_name_in_its_own_case() -> None:
    """As it was created, where the survey of sizes knows that; requests may spell it in another case."""
    server = Server(workers=1)
    (worker,) = server.workers
    worker.counts.count(get("a"))
    server.second()
    size = TableSize(NOON, 1, 2, 30, (SizeSample(NOON, 2, 30),), (), "READINGS")
    other = TableSize(NOON, 0, 0, 0, (SizeSample(NOON, 0, 0),), (), "NeverAsked")
    sizes = {TABLE: size, (TABLE[0], "neverasked"): other}
    report = server.report(sizes=sizes)
    assert [each.table for each in report.tables] == ["READINGS", "NeverAsked"]
    assert {each.table for each in report.partitions[HOUR]} == {"READINGS"}
