"""The metrics of a server: their names, and their values from the reports of its workers.

Names, units and labels follow the conventions of Prometheus. No label is a key, a property or a client's text.
"""

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tablestone.telemetry.request_counts import (
    DURATION_BOUNDS,
    SEPARATOR,
    SERIES_NUMBERS,
    TRANSACTION_BOUNDS,
)
from tablestone.telemetry.worker_reports import added

PREFIX: Final = "tablestone_"
_AFTER_NUMBERS: Final = len(SERIES_NUMBERS)


class MetricKind(enum.Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    """That of a counter ends with `_total`."""
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    """Of a histogram, without infinity."""


@dataclass(slots=True)
class Samples:
    """A metric and its values by labels. The value of a histogram is its sum and the count for each bound."""

    metric: Metric
    values: dict[tuple[str, ...], Any] = field(default_factory=dict)

    def add(self, labels: tuple[str, ...], value: Any) -> None:
        self.values[labels] = added(self.values[labels], value) if labels in self.values else value


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"{PREFIX}{name}_total", MetricKind.COUNTER, text, labels)


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(PREFIX + name, MetricKind.GAUGE, text, labels)


BUILD_INFO: Final = _gauge("build_info", "Always 1.", "version", "python", "engine")
STORAGE_READY: Final = _gauge("storage_ready", "1 if storage answers and takes writes, else 0.")
WORKERS: Final = _gauge("workers", "Worker processes that the server was started with.")
WORKERS_READY: Final = _gauge("workers_ready", "Worker processes that have reported lately.")
START_TIME: Final = _gauge("start_time_seconds", "Start of the server, since 1970.")
REQUESTS: Final = _counter(
    "requests", "Requests that were answered.", "operation", "status", "error"
)
DURATIONS: Final = Metric(
    f"{PREFIX}request_duration_seconds",
    MetricKind.HISTOGRAM,
    "Time from the head of a request to its answer, without sending it.",
    ("operation",),
    DURATION_BOUNDS,
)
OPERATION_COUNTERS: Final = {
    "bytes_in": _counter("request_bytes", "Bytes of the bodies of requests.", "operation"),
    "bytes_out": _counter("response_bytes", "Bytes of the bodies of answers.", "operation"),
    "returned": _counter("entities_returned", "Entities in answers.", "operation"),
    "read": _counter("entities_read", "Entities that requests read from storage.", "operation"),
    "written": _counter("entities_written", "Entities that requests wrote.", "operation"),
}
"""Metrics with a label for the operation, by the name of their number in a series."""
PLAN_COUNTERS: Final = {
    "requests": _counter("queries", "Reads of entities, by the kind of their plan.", "plan"),
    "read": _counter("query_entities_read", "Entities that reads of a plan examined.", "plan"),
    "returned": _counter(
        "query_entities_returned", "Entities that reads of a plan returned.", "plan"
    ),
}
TRANSACTIONS: Final = Metric(
    f"{PREFIX}transaction_operations",
    MetricKind.HISTOGRAM,
    "Operations of entity group transactions.",
    (),
    TRANSACTION_BOUNDS,
)
REFUSED: Final = _counter(
    "authentication_failures", "Callers that failed to authenticate.", "error", "reason"
)
REFUSED_BY_LIMIT: Final = _counter(
    "requests_refused", "Requests that were answered ServerBusy because of a limit.", "limit"
)
TABLE_COUNTERS: Final = {
    name: _counter(f"table_{metric}", text, "account", "table")
    for name, metric, text in (
        ("requests", "requests", "Requests for a table."),
        ("read", "entities_read", "Entities read of a table."),
        ("returned", "entities_returned", "Entities of a table in answers."),
        ("written", "entities_written", "Entities written to a table."),
        ("bytes_in", "request_bytes", "Bytes of bodies for a table."),
        ("bytes_out", "response_bytes", "Bytes of answers about a table."),
        ("seconds", "request_seconds", "Time of the requests for a table."),
    )
}
"""Only with `--metrics-tables`."""
TABLE_FAILURES: Final = _counter(
    "table_request_failures", "Requests for a table that failed.", "account", "table"
)
TOTALS: Final = {
    "cache_hits": _counter(
        "row_cache_hits", "Look-ups of tables, accounts and policies in memory."
    ),
    "cache_misses": _counter("row_cache_misses", "Such look-ups that read storage."),
    "swept_rows": _counter("swept_rows", "Rows of deleted tables that the sweeper removed."),
    "expired": _counter("expired_entities", "Expired entities that were removed."),
    "accepted": _counter("connections_accepted", "Connections that were accepted."),
}
"""Metrics of the whole server, by the name of their total in a report."""
GAUGES: Final = {
    "connections": _gauge("connections", "Open connections of clients."),
    "sweeping": _gauge("sweeping", "1 while deleted tables have rows left, else 0."),
    "expiry_suspended": _gauge(
        "expiry_suspended",
        "1 while no expired entity is removed, because the clock has jumped, else 0.",
    ),
}
"""Metrics of the whole server, by the name of their value in a report. The values of workers are added."""
CHANGES_LAG: Final = _gauge(
    "changes_lag_seconds",
    "Age of the oldest change that a reader of the feed had not seen when it asked, in the last minute.",
)
ARCHIVE_GAUGES: Final = {
    "lag_seconds": _gauge("archive_lag_seconds", "Time since every commit was archived."),
    "behind_bytes": _gauge("archive_behind_bytes", "Bytes of changes that are not archived."),
}
"""Only with `--archive`."""
ARCHIVE_ERRORS: Final = _counter("archive_errors", "Attempts to write the archive that failed.")
WORKER_CPU: Final = _counter("worker_cpu_seconds", "Processor time of a worker.", "worker")
WORKER_GAUGES: Final = {
    "resident_bytes": _gauge("worker_resident_memory_bytes", "Memory of a worker.", "worker"),
    "lag_seconds": _gauge(
        "worker_event_loop_lag_seconds", "Delay of a worker's last report.", "worker"
    ),
}
WORKER_AGE: Final = _gauge("worker_report_age_seconds", "Age of a worker's last report.", "worker")


def samples_of_requests(totals: Mapping[str, Any]) -> Iterator[Samples]:
    """The metrics of requests, from the totals of all workers (`RequestCounts.totals`)."""
    requests, durations = Samples(REQUESTS), Samples(DURATIONS)
    by_operation = {name: Samples(metric) for name, metric in OPERATION_COUNTERS.items()}
    by_plan = {name: Samples(metric) for name, metric in PLAN_COUNTERS.items()}
    for series, numbers in totals.get("requests", {}).items():
        operation, status, code, plan = series.split(SEPARATOR)
        named = dict(zip(SERIES_NUMBERS, numbers, strict=False))
        requests.add((operation, status, code), named["requests"])
        durations.add((operation,), [named["seconds"], *numbers[_AFTER_NUMBERS:]])
        for name, samples in by_operation.items():
            samples.add((operation,), named[name])
        if plan:
            for name, samples in by_plan.items():
                samples.add((plan,), named[name])
    yield from (requests, durations, *by_operation.values(), *by_plan.values())
    if "transactions" in totals:
        yield Samples(TRANSACTIONS, {(): totals["transactions"]})
    yield Samples(REFUSED, _labelled(totals.get("refused", {})))


def samples_of_tables(totals: Mapping[str, Any]) -> Iterator[Samples]:
    """The metrics of tables, empty unless the workers name tables."""
    tables = _labelled(totals.get("tables", {}))
    for name, metric in TABLE_COUNTERS.items():
        at = SERIES_NUMBERS.index(name)
        yield Samples(metric, {labels: numbers[at] for labels, numbers in tables.items()})
    yield Samples(TABLE_FAILURES, _labelled(totals.get("table_failures", {})))


def samples_of_server(
    totals: Mapping[str, Any], now: Sequence[Mapping[str, Any]], ages: Sequence[float]
) -> Iterator[Samples]:
    """The metrics of the whole server. `now` has the values of each worker at its last report, `ages` the age of it."""
    for name, metric in TOTALS.items():
        yield Samples(metric, {(): totals.get(name, 0)})
    refused = totals.get("refused_by_limit", {})
    yield Samples(REFUSED_BY_LIMIT, {(limit,): number for limit, number in refused.items()})
    for name, metric in GAUGES.items():
        yield Samples(metric, {(): sum(values.get(name, 0) for values in now)})
    lag = max((values.get("changes_lag_seconds", 0) for values in now), default=0)
    yield Samples(CHANGES_LAG, {(): lag})
    for values, age in zip(now, ages, strict=True):
        if archive := values.get("archive"):
            # A worker that is stuck archives nothing.
            grown = {**archive, "lag_seconds": archive["lag_seconds"] + age}
            for name, metric in ARCHIVE_GAUGES.items():
                yield Samples(metric, {(): grown[name]})
    if "archive_errors" in totals:
        yield Samples(ARCHIVE_ERRORS, {(): totals["archive_errors"]})


def samples_of_workers(
    contents: Mapping[int, Mapping[str, Any]], ages: Mapping[int, float]
) -> Iterator[Samples]:
    """The metrics of each worker, from the contents and the ages of their reports."""

    def each(metric: Metric, part: str, name: str) -> Samples:
        found: dict[tuple[str, ...], Any] = {
            (str(worker),): content[part][name]
            for worker, content in contents.items()
            if name in content.get(part, {})
        }
        return Samples(metric, found)

    yield each(WORKER_CPU, "totals", "cpu_seconds")
    for name, metric in WORKER_GAUGES.items():
        yield each(metric, "now", name)
    yield Samples(WORKER_AGE, {(str(worker),): age for worker, age in ages.items()})


def samples_of_engine(
    metrics: Iterable[Metric], totals: Mapping[str, Any], now: Sequence[Mapping[str, Any]]
) -> Iterator[Samples]:
    """The metrics of the engine. Its gauges describe the storage, which all workers share, so they are not added."""
    for metric in metrics:
        name = metric.name.removeprefix(PREFIX)
        if metric.kind is MetricKind.GAUGE:
            values = [
                content["engine"][name] for content in now if name in content.get("engine", ())
            ]
            found = max(values, default=None)
        else:
            found = totals.get("engine", {}).get(name.removesuffix("_total"))
        if found is not None:
            yield Samples(metric, {(): found})


def _labelled(by_name: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    return {tuple(name.split(SEPARATOR, 1)): value for name, value in by_name.items()}
