"""Counts of requests, as metrics show them: each row is a request and the samples that it adds to."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from own_metrics import OWN_METRICS
from tablestone.model.entity import Entity
from tablestone.model.errors import StorageError
from tablestone.model.keys import EntityKey
from tablestone.model.operations import (
    CreateTable,
    EntitiesPage,
    EntityGroupTransaction,
    EntityWritten,
    GetEntity,
    InsertEntity,
    Operation,
    QueryEntities,
    Result,
    TableFound,
    TransactionCommitted,
)
from tablestone.telemetry import metrics, request_counts
from tablestone.telemetry.metrics import Metric, MetricKind, Samples
from tablestone.telemetry.request_counts import DURATION_BOUNDS, RequestCounts
from tablestone.telemetry.request_record import RequestRecord

POINT = GetEntity("Readings", EntityKey("p", "r"), None)
QUERY = QueryEntities("Readings", None, 1000, None, None)
INSERT = InsertEntity("Readings", Entity(EntityKey("p", "r"), {}))
Read = dict[str, dict[tuple[str, ...], Any]]


def record_of(
    operation: Operation | None,
    result: Result | None = None,
    failure: StorageError | None = None,
    *,
    status: int = 200,
    seconds: float = 0.002,
    account: str = "weather",
) -> RequestRecord:
    record = RequestRecord(100.0)
    record.ended = 100.0 + seconds
    record.account = account
    record.operation, record.result, record.failure = operation, result, failure
    record.status, record.bytes_in, record.bytes_out = status, 10, 500
    return record


def shown(samples: Iterable[Samples]) -> Read:
    """The values that are not zero, by the short names of metrics."""

    def is_something(value: Any) -> bool:
        return any(value) if isinstance(value, list) else bool(value)

    return {
        each.metric.name.removeprefix(metrics.PREFIX).removesuffix("_total"): values
        for each in samples
        if (values := {key: value for key, value in each.values.items() if is_something(value)})
    }


def counted(*records: RequestRecord, names_tables: bool = False) -> Read:
    counts = RequestCounts(names_tables=names_tables)
    for record in records:
        counts.count(record)
    totals = counts.totals()
    return shown([*metrics.samples_of_requests(totals), *metrics.samples_of_tables(totals)])


@dataclass(frozen=True)
class Row:
    """A request, and what is expected besides its duration and its bytes."""

    record: RequestRecord
    expected: Read = field(default_factory=dict)


TRANSACTION = EntityGroupTransaction("Readings", "p", (INSERT, INSERT, INSERT))
ROWS = {
    "a point read": Row(
        record_of(POINT),
        {
            "requests": {("GetEntity", "200", ""): 1},
            "queries": {("point",): 1},
            "query_entities_read": {("point",): 1},
            "query_entities_returned": {("point",): 1},
            "entities_read": {("GetEntity",): 1},
            "entities_returned": {("GetEntity",): 1},
        },
    ),
    "a point read that finds nothing": Row(
        record_of(POINT, None, StorageError("ResourceNotFound"), status=404),
        {"requests": {("GetEntity", "404", "ResourceNotFound"): 1}, "queries": {("point",): 1}},
    ),
    "a scan": Row(
        record_of(QUERY, EntitiesPage((b"{}", b"{}"), None, "table", 900)),
        {
            "requests": {("QueryEntities", "200", ""): 1},
            "queries": {("table",): 1},
            "query_entities_read": {("table",): 900},
            "query_entities_returned": {("table",): 2},
            "entities_read": {("QueryEntities",): 900},
            "entities_returned": {("QueryEntities",): 2},
        },
    ),
    "a count, which reads as many as it finds": Row(
        record_of(QUERY, EntitiesPage((), None, "table", 900, count=900)),
        {
            "requests": {("QueryEntities", "200", ""): 1},
            "queries": {("table",): 1},
            "query_entities_read": {("table",): 900},
            "query_entities_returned": {("table",): 900},
            "entities_read": {("QueryEntities",): 900},
            "entities_returned": {("QueryEntities",): 900},
        },
    ),
    "a write": Row(
        record_of(INSERT, EntityWritten(5), status=204),
        {"requests": {("InsertEntity", "204", ""): 1}, "entities_written": {("InsertEntity",): 1}},
    ),
    "a transaction": Row(
        record_of(TRANSACTION, TransactionCommitted([EntityWritten(5)] * 3), status=202),
        {
            "requests": {("EntityGroupTransaction", "202", ""): 1},
            "entities_written": {("EntityGroupTransaction",): 3},
            "transaction_operations": {(): [3, 0, 0, 1, 0, 0, 0, 0, 0]},
        },
    ),
    "a table": Row(
        record_of(CreateTable("Readings"), TableFound("Readings", created=True), status=201),
        {"requests": {("CreateTable", "201", ""): 1}},
    ),
    "a caller that is refused": Row(
        record_of(
            None, None, StorageError("AuthenticationFailed", reason="no key fits"), status=403
        ),
        {
            "requests": {("unknown", "403", "AuthenticationFailed"): 1},
            "authentication_failures": {("AuthenticationFailed", "no key fits"): 1},
        },
    ),
    "a caller that a rule refuses": Row(
        record_of(
            *(None, None, StorageError("AuthorizationFailure", reason="elsewhere", by_rule=True)),
            status=403,
        ),
        {
            "requests": {("unknown", "403", "AuthorizationFailure"): 1},
            "authentication_failures": {("AuthorizationFailure", "elsewhere"): 1},
        },
    ),
    "a caller without permission": Row(
        record_of(POINT, None, StorageError("AuthorizationPermissionMismatch"), status=403),
        {
            "requests": {("GetEntity", "403", "AuthorizationPermissionMismatch"): 1},
            "queries": {("point",): 1},
        },
    ),
}
DURATIONS = [0.0] * (len(DURATION_BOUNDS) + 1)
DURATIONS[DURATION_BOUNDS.index(0.0025)] = 1


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_request(row: Row) -> None:
    read = counted(row.record)
    operation = row.record.operation_name or "unknown"
    assert read.pop("request_bytes") == {(operation,): 10}
    assert read.pop("response_bytes") == {(operation,): 500}
    ((labels, (seconds, *numbers)),) = read.pop("request_duration_seconds").items()
    assert labels == (operation,)
    assert seconds == pytest.approx(0.002)
    assert numbers == DURATIONS
    assert read == row.expected


def test_requests_of_one_operation_share_a_histogram() -> None:
    slow = record_of(POINT, None, StorageError("ServerBusy"), status=503, seconds=99)
    read = counted(*(record_of(POINT) for _ in range(3)), slow)
    assert read["requests"] == {("GetEntity", "200", ""): 3, ("GetEntity", "503", "ServerBusy"): 1}
    (seconds, *numbers) = read["request_duration_seconds"]["GetEntity",]
    assert seconds == pytest.approx(99.006)
    assert (numbers[DURATION_BOUNDS.index(0.0025)], numbers[-1]) == (3, 1)


def test_quick_point_reads_are_counted_once_in_each_report() -> None:
    """They are counted apart, and a report moves them into their series."""
    quick = request_counts.QUICK_SECONDS
    counts = RequestCounts()
    for reports in (1, 2):
        for seconds in (0.4 * quick, 0.6 * quick, 1.6 * quick):
            counts.count(record_of(POINT, seconds=seconds))
        for _ in range(2):
            read = shown(metrics.samples_of_requests(counts.totals()))
            assert read["requests"] == {("GetEntity", "200", ""): 3 * reports}
            assert read["entities_returned"] == {("GetEntity",): 3 * reports}
            assert read["query_entities_read"] == {("point",): 3 * reports}
            assert read["request_bytes"] == {("GetEntity",): 30 * reports}
            assert read["response_bytes"] == {("GetEntity",): 1500 * reports}
            (seconds, *numbers) = read["request_duration_seconds"]["GetEntity",]
            assert seconds == pytest.approx(2.6 * quick * reports)
            assert numbers[:2] == [2 * reports, reports]


def test_tables_are_named_only_if_asked_for_and_found() -> None:
    records = [
        record_of(POINT),
        record_of(GetEntity("READINGS", POINT.key, None)),
        record_of(POINT, None, StorageError("ResourceNotFound"), status=404),
        record_of(
            GetEntity("MadeUp", POINT.key, None), None, StorageError("TableNotFound"), status=404
        ),
    ]
    assert not any(name.startswith("table_") for name in counted(*records))
    read = counted(*records, names_tables=True)
    other = (request_counts.OTHER, request_counts.OTHER)
    assert read["table_requests"] == {("weather", "readings"): 3, other: 1}
    assert read["table_request_failures"] == {("weather", "readings"): 1, other: 1}
    assert read["table_entities_returned"] == {("weather", "readings"): 2}


def test_series_have_a_bound() -> None:
    """A client that makes up tables or reasons can fill neither the memory nor the monitoring's."""
    many = request_counts.TABLES_MAX + 10
    tables = [record_of(GetEntity(f"T{number}", POINT.key, None)) for number in range(many)]
    read = counted(*tables, names_tables=True)["table_requests"]
    assert len(read) == request_counts.TABLES_MAX + 1
    assert sum(read.values()) == many
    refused = [
        record_of(None, None, StorageError("AuthenticationFailed", reason=f"reason {number}"))
        for number in range(request_counts.REASONS_MAX + 10)
    ]
    found = counted(*refused)["authentication_failures"]
    assert len(found) == request_counts.REASONS_MAX + 1
    assert found[request_counts.OTHER, request_counts.OTHER] == 10


@pytest.mark.parametrize("metric", OWN_METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_conventions(metric: Metric) -> None:
    """https://prometheus.io/docs/practices/naming/: base units, and counters end with _total."""
    assert metric.name.startswith(metrics.PREFIX)
    assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
    assert not any(unit in metric.name for unit in ("milli", "kilo", "mega", "micro"))
    assert not {"partition_key", "row_key", "key", "client"} & set(metric.labels)
    assert bool(metric.bounds) == (metric.kind is MetricKind.HISTOGRAM)
    assert metric.help.endswith(".")
