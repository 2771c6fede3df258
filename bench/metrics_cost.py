"""The cost of metrics and insight: the CPU of a point read without and with them, and of counting one request.

Started as `python -m bench.metrics_cost [--rounds 1000]`. The ways take turns in one application, without sockets, so
that a busy machine slows all alike; "off again" shows how much of a difference is chance. Counting is compared with
Prometheus' own client in its multi-process mode: docs/decisions/0013-metrics.md says why the workers count without it.
docs/decisions/0018-insight.md says what insight counts.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import uvloop

from bench.in_process import BATCH, JSON, READ, address, request, transaction
from bench.options import how_many
from bench.steps import Load, ask, connections, cpu_of
from tablestone.cli.main import HOW_IT_RUNS
from tablestone.configuration import DEVELOPMENT_ACCOUNT, Configuration, WorkerSlot
from tablestone.insight.counts import InsightCounts
from tablestone.model.keys import EntityKey
from tablestone.model.operations import GetEntity
from tablestone.server.application import Application
from tablestone.telemetry.request_counts import DURATION_BOUNDS, RequestCounts
from tablestone.telemetry.request_record import RequestRecord
from tablestone.telemetry.worker_reports import WorkerReporter, WorkerReports

if TYPE_CHECKING:
    from collections.abc import Callable

REQUESTS = 100


class ClientLibraryCounts:
    """The same metrics of requests, counted by prometheus_client in files that its processes share."""

    def __init__(self, directory: Path) -> None:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(directory)
        from prometheus_client import Counter, Histogram  # noqa: PLC0415 - reads the variable above

        by = ["operation"]
        self._requests = Counter("requests", "…", ["operation", "status", "error"])
        self._seconds = Histogram("seconds", "…", by, buckets=DURATION_BOUNDS)
        self._by_operation = [
            Counter(name, "…", by) for name in ("returned", "read", "bytes_in", "bytes_out")
        ]
        self._queries = Counter("queries", "…", ["plan"])

    def count(self, record: RequestRecord) -> None:
        operation = record.operation_name or "unknown"
        self._requests.labels(operation, str(record.status), record.error_code).inc()
        self._seconds.labels(operation).observe(record.ended - record.started)
        entities = record.entities
        values = (entities, entities, record.bytes_in, record.bytes_out)
        for counter, value in zip(self._by_operation, values, strict=True):
            counter.labels(operation).inc(value)
        if record.plan:
            self._queries.labels(record.plan).inc()


async def prepared(directory: Path, slot: WorkerSlot) -> Application:
    """An application with a table of `READ` entities."""
    configuration = Configuration(
        "", 0, directory, f"sqlite:{directory}", (DEVELOPMENT_ACCOUNT,), "error"
    )
    application = Application(configuration, slot)
    await application.startup()
    (connection,) = connections(application, 1)
    await ask(connection, request("POST", "Tables", JSON, '{"TableName":"bench"}'))
    for first in range(0, READ, BATCH):
        await ask(connection, transaction(first))
    return application


def point_reads() -> Load:
    numbers = iter(range(10**9))
    return Load("point read", lambda: request("GET", address(next(numbers) % READ)), REQUESTS, 1)


def a_point_read(partition: str = "p") -> RequestRecord:
    """The record of a point read whose answer is ready."""
    record = RequestRecord(100.0)
    record.account, record.ended, record.status, record.bytes_out = "bench", 100.0005, 200, 1000
    record.operation = GetEntity("bench", EntityKey(partition, "1"), None)
    return record


def counting_us(count: Callable[[RequestRecord], None], rounds: int, partitions: int = 1) -> float:
    """Microseconds to count one request, with so many partitions in turn; the best of the rounds."""
    records = [a_point_read(f"partition{number}") for number in range(partitions)]
    gc.collect()
    gc.freeze()  # a server has none of these records for the collector to visit, and freezes its own
    each_time = max(1, REQUESTS // partitions)

    def once() -> float:
        started = time.process_time_ns()
        for _ in range(each_time):
            for record in records:
                count(record)
        return (time.process_time_ns() - started) / 1e3 / (each_time * partitions)

    return min(once() for _ in range(rounds))


async def measure(directory: Path, rounds: int) -> None:
    reports = WorkerReports(1)
    slot = WorkerSlot(reports=reports, insight=WorkerReports(1))
    application = await prepared(directory / "data", slot)
    counts, windows = application._counts, application._windows  # noqa: SLF001 - as below
    assert counts is not None
    assert windows is not None
    connection = connections(application, 1)
    load = point_reads()
    ways = ("off", "off again", "metrics", "metrics and insight")
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds):
        first = number % len(ways)  # so that none is always first
        for way in (*ways[first:], *ways[:first]):
            # There is no other way to measure all of them in one process.
            application._is_watched = way.startswith("metrics")  # noqa: SLF001
            counts._insight = windows if way == "metrics and insight" else None  # noqa: SLF001
            taken[way].append((await cpu_of(load, connection))[0])
    print(
        f"Tablestone {HOW_IT_RUNS}; µs of CPU for a point read without sockets, {rounds} rounds:\n"
    )
    print("| counted | a tenth are below | median | more than off, median of the rounds |")
    print("|---|---|---|---|")
    for way, each in taken.items():
        tenth, *_ = statistics.quantiles(each, n=10)
        more = statistics.median(one - off for off, one in zip(taken["off"], each, strict=True))
        share = more / statistics.median(taken["off"])
        shown = "" if way == "off" else f"{more:.2f}, {share:.1%}"
        print(f"| {way} | {tenth:.2f} | {statistics.median(each):.2f} | {shown} |")
    shared = directory / "shared"
    shared.mkdir()
    print("\n| step | µs |")
    print("|---|---|")
    print(f"| counting one request | {counting_us(RequestCounts().count, 100):.2f} |")
    library = counting_us(ClientLibraryCounts(shared).count, 100)
    print(f"| the same with prometheus_client | {library:.2f} |")
    for partitions in (1, 1_000, 4_000, 100_000):
        count = RequestCounts(insight=InsightCounts(0.0)).count
        us = counting_us(count, 100 if partitions == 1 else 5, partitions)
        print(f"| counting one with insight, {partitions:,} partitions in turn | {us:.2f} |")
    print(f"| the report of a worker, once a second | {reporting_us(application, reports):.0f} |")
    for partitions in (10, 250, 4_000):
        print(f"| that of insight, {partitions:,} partitions | {insight_us(partitions):.0f} |")


def reporting_us(application: Application, reports: WorkerReports) -> float:
    """Microseconds of one report, the median of 100."""
    measures = application._measures  # noqa: SLF001 - the same
    assert measures is not None
    reporter = WorkerReporter(reports, 0, measures)

    def once() -> float:
        started = time.process_time_ns()
        reporter.report()
        return (time.process_time_ns() - started) / 1e3

    return statistics.median(once() for _ in range(100))


def insight_us(partitions: int) -> float:
    """Microseconds of one worker's insight report, the median of 20."""
    windows = InsightCounts(0.0)
    counts = RequestCounts(insight=windows)
    for number in range(partitions):
        counts.count(a_point_read(f"partition{number}"))

    def once() -> float:
        started = time.process_time_ns()
        orjson.dumps(windows.content(0.0))
        return (time.process_time_ns() - started) / 1e3

    return statistics.median(once() for _ in range(20))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.metrics_cost",
        description="What metrics and insight cost a point read, by who counts.",
    )
    parser.add_argument("--rounds", type=how_many, default=1000, help="default: %(default)s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        uvloop.run(measure(Path(directory), options.rounds))


if __name__ == "__main__":
    main()
