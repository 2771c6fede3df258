"""Counts for insight: each row is a request and the numbers that it adds; everything is bounded."""

from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest

from tablestone.insight.counts import (
    SHAPES_MAX,
    SPANS_MAX,
    TABLES_MAX,
    VALUES_MAX,
    InsightCounts,
    WindowCounts,
    merged,
    read_window,
    shown_key,
)
from tablestone.insight.report import Activity
from tablestone.model.entity import Entity
from tablestone.model.errors import StorageError
from tablestone.model.keys import ContinuationToken, EntityKey
from tablestone.model.operations import (
    CreateTable,
    Deleted,
    DeleteEntity,
    EntitiesPage,
    EntityGroupTransaction,
    EntityWritten,
    GetEntity,
    InsertEntity,
    Operation,
    Projection,
    QueryEntities,
    Result,
    TableFound,
    TransactionCommitted,
)
from tablestone.query.filter_parser import parse_filter
from tablestone.telemetry.request_counts import RequestCounts
from tablestone.telemetry.request_record import RefusedTable, RequestRecord


def record_of(
    operation: Operation | None,
    result: Result | None = None,
    failure: str = "",
    *,
    status: int = 200,
    seconds: float = 0.002,
) -> RequestRecord:
    record = RequestRecord(100.0)
    record.ended, record.status = 100.0 + seconds, status
    record.account, record.operation, record.result = "weather", operation, result
    record.failure = StorageError(failure) if failure else None
    record.bytes_in, record.bytes_out = 10, 500
    return record


def get(partition: str = "p", table: str = "Readings") -> RequestRecord:
    """A point read that finds its entity."""
    return record_of(GetEntity(table, EntityKey(partition, "r"), None))


def counted(*records: RequestRecord) -> WindowCounts:
    """The window of a worker, read from its report."""
    windows = InsightCounts(0.0)
    counts = RequestCounts(insight=windows)
    for record in records:
        counts.count(record)
    content = orjson.loads(orjson.dumps(windows.content(0.0)))
    return read_window(content["present"])


def stored(partition: str) -> bytes:
    return orjson.dumps({"odata.etag": "", "PartitionKey": partition, "RowKey": "r"})


def query(
    text: str | None, token: str | None = None, select: tuple[str, ...] = ()
) -> QueryEntities:
    node = None if text is None else parse_filter(text)
    projection = Projection(select, "") if select else None
    start = None if token is None else ContinuationToken(token, "")
    return QueryEntities("Readings", node, 1000, projection, start)


def page(plan: str, read: int, partitions: str = "", token: str | None = None) -> EntitiesPage:
    start = None if token is None else ContinuationToken(token, "")
    return EntitiesPage(tuple(map(stored, partitions)), start, plan, read)


KEY = EntityKey("p", "r")
INSERT = InsertEntity("Readings", Entity(KEY, {}))
TRANSACTION = EntityGroupTransaction("Readings", "p", (INSERT, INSERT, INSERT))
BYTES = {"bytes_in": 10, "bytes_out": 500}


@dataclass(frozen=True)
class Row:
    """A request, and what it adds to its table, its partitions, the kinds of plans, and the key ranges of scans."""

    record: RequestRecord
    table: Activity
    partitions: tuple[str, ...] = ("p",)
    plans: tuple[str, ...] = ()
    spans: tuple[Any, ...] = ()


ROWS = {
    "a point read": Row(
        get(), Activity(reads=1, entities_read=1, entities_returned=1, **BYTES), plans=("point",)
    ),
    "a point read that finds nothing": Row(
        record_of(GetEntity("Readings", KEY, None), None, "ResourceNotFound", status=404),
        Activity(reads=1, **BYTES),
        plans=("point",),
    ),
    "a point read that is refused": Row(
        record_of(GetEntity("Readings", KEY, None), None, "ConditionNotMet", status=412),
        Activity(conflicts=1, **BYTES),
        plans=("point",),
    ),
    "an insert": Row(record_of(INSERT, EntityWritten(5), status=204), Activity(writes=1, **BYTES)),
    "a delete": Row(
        record_of(DeleteEntity("Readings", KEY, -1), Deleted(), status=204),
        Activity(writes=1, **BYTES),
    ),
    "a transaction": Row(
        record_of(TRANSACTION, TransactionCommitted([EntityWritten(5)] * 3), status=202),
        Activity(writes=3, **BYTES),
    ),
    "a transaction that fails, inside an answer that does not": Row(
        record_of(TRANSACTION, None, "EntityAlreadyExists", status=202),
        Activity(conflicts=1, **BYTES),
    ),
    "an insert of an entity that is there": Row(
        record_of(INSERT, None, "EntityAlreadyExists", status=409), Activity(conflicts=1, **BYTES)
    ),
    "a query of a partition": Row(
        record_of(query("PartitionKey eq 'p' and a gt 1"), page("partition", 40, "pp")),
        Activity(reads=1, entities_read=40, entities_returned=2, **BYTES),
        plans=("partition",),
    ),
    "a scan of a table": Row(
        record_of(query("a gt 1"), page("table", 40, "pq")),
        Activity(reads=1, entities_read=40, entities_returned=2, **BYTES),
        partitions=(),
        plans=("table",),
        spans=(("", None, 40),),
    ),
    "a later page of a scan": Row(
        record_of(query(None, token="d"), page("table", 40, "ef", token="g")),
        Activity(reads=1, entities_read=40, entities_returned=2, **BYTES),
        partitions=(),
        plans=("table",),
        spans=(("d", "g", 40),),
    ),
    "a range of partitions": Row(
        record_of(query("PartitionKey ge 'a'"), page("partition range", 40, "cde")),
        Activity(reads=1, entities_read=40, entities_returned=3, **BYTES),
        partitions=(),
        plans=("partition range",),
        spans=(("c", "e", 40),),
    ),
    "a range of partitions, with entities of one": Row(
        record_of(query("PartitionKey ge 'a'"), page("partition range", 40, "pp")),
        Activity(reads=1, entities_read=40, entities_returned=2, **BYTES),
        partitions=(),
        plans=("partition range",),
        spans=(("p", "p", 40),),
    ),
    "a page of a scan inside one partition": Row(
        record_of(query("a gt 1", token="p"), page("table", 40, "pp", token="p")),
        Activity(reads=1, entities_read=40, entities_returned=2, **BYTES),
        partitions=(),
        plans=("table",),
        spans=(("p", "p", 40),),
    ),
    "a page of a scan from the last key back": Row(
        record_of(
            replace(query(None, token="g"), reverse=True), page("table", 40, "fe", token="d")
        ),
        Activity(reads=1, entities_read=40, entities_returned=2, **BYTES),
        partitions=(),
        plans=("table",),
        spans=(("d", "g", 40),),
    ),
    "the first page of a range from the last key back": Row(
        record_of(
            replace(query("PartitionKey ge 'a'"), reverse=True), page("partition range", 40, "edc")
        ),
        Activity(reads=1, entities_read=40, entities_returned=3, **BYTES),
        partitions=(),
        plans=("partition range",),
        spans=(("c", "e", 40),),
    ),
    "a partition that is named by its bounds": Row(
        record_of(
            query("PartitionKey ge 'p' and PartitionKey le 'p'"), page("partition", 40, "pp")
        ),
        Activity(reads=1, entities_read=40, entities_returned=2, **BYTES),
        plans=("partition",),
    ),
    "a query that fails": Row(
        record_of(query("PartitionKey eq 'p'"), None, "ServerBusy", status=503),
        Activity(failed=1, **BYTES),
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_request(row: Row) -> None:
    """It comes after one that shows that the table exists."""
    found = counted(record_of(INSERT, EntityWritten(5)), row.record)
    (table,) = found.tables.values()
    (inserted,) = counted(record_of(INSERT, EntityWritten(5))).tables.values()
    before = inserted.whole().numbers()
    added = Activity(
        *(one - other for one, other in zip(table.whole().numbers(), before, strict=True))
    )
    assert added == row.table
    expected = {"p"} if row.partitions else set()
    changed = {
        key
        for key, partition in table.partitions.items()
        if partition.numbers() != (before if key == "p" else [])
    }
    assert changed == expected
    assert table.plans == dict.fromkeys(row.plans, 1)
    assert tuple((*span, read) for span, read in table.spans.items()) == row.spans


def test_a_table_is_named_once_it_was_found() -> None:
    """The case of its name does not matter. A client cannot fill the memory with names that it makes up."""
    made_up = [
        record_of(GetEntity("MadeUp", KEY, None), None, "TableNotFound", status=404),
        record_of(GetEntity("MadeUp", KEY, None), None, "AuthorizationPermissionMismatch"),
        record_of(CreateTable("MadeUp"), TableFound("MadeUp", created=True), status=201),
        record_of(None, None, "AuthenticationFailed", status=403),
    ]
    found = counted(*made_up, get(table="Readings"), get(table="READINGS"))
    assert {key: table.name for key, table in found.tables.items()} == {
        ("weather", "readings"): "Readings"
    }
    assert Activity(*found.tables["weather", "readings"].whole().numbers()).reads == 2
    assert Activity(*found.other.rest.numbers()).refused == 2


def refused(code: str, table: str, *, is_found: bool = False) -> RequestRecord:
    """A request whose operation was not understood, or whose caller is unknown."""
    record = record_of(None, None, code)
    record.refused = RefusedTable(table, is_found)
    return record


def test_a_request_that_is_refused_counts_for_the_table_of_its_address() -> None:
    """Even if it is the only one of its minute. A table that no request has found may be made up."""
    windows = InsightCounts(59.0)
    counts = RequestCounts(insight=windows)
    counts.count(get())
    windows.content(60.0)
    for code in ("InvalidInput", "RequestBodyTooLarge", "AuthenticationFailed"):
        counts.count(refused(code, "READINGS"))
        counts.count(refused(code, "MadeUp"))
    counts.count(refused("InvalidInput", "Found", is_found=True))
    present = read_window(orjson.loads(orjson.dumps(windows.content(61.0)))["present"])
    tables = {key[1]: Activity(*table.whole().numbers()) for key, table in present.tables.items()}
    assert tables == {
        "readings": Activity(refused=3, bytes_in=30, bytes_out=1500),
        "found": Activity(refused=1, bytes_in=10, bytes_out=500),
    }
    assert Activity(*present.other.rest.numbers()).refused == 3


def test_a_table_that_is_gone_is_no_longer_known() -> None:
    windows = InsightCounts(0.0)
    counts = RequestCounts(insight=windows)
    counts.count(get())
    counts.count(record_of(GetEntity("Readings", KEY, None), None, "TableNotFound"))
    windows.content(60.0)
    counts.count(refused("InvalidInput", "Readings"))
    present = read_window(orjson.loads(orjson.dumps(windows.content(61.0)))["present"])
    assert not present.tables


def test_queries_by_their_shape() -> None:
    found = counted(
        record_of(query("a gt 1"), page("table", 40, "pq", token="r"), seconds=0.004),
        record_of(query("a gt 1", token="r"), page("table", 60, "s"), seconds=0.004),
        record_of(query("a gt 7"), page("table", 100), seconds=0.5),
        record_of(query("a gt 7", select=("a",)), page("table", 100)),
        record_of(query(None), page("table", 1, "p")),
        record_of(query("a gt 7"), None, "ServerBusy", status=503),
    )
    (table,) = found.tables.values()
    shapes = {
        name: (each.queries, each.pages, each.read, each.returned)
        for name, each in table.shapes.items()
    }
    assert shapes == {
        ("a gt ?", False, "table", False): (2, 3, 200, 3),
        ("a gt ?", True, "table", False): (1, 1, 100, 0),
        ("", False, "table", False): (1, 1, 1, 1),
    }
    counts = table.shapes["a gt ?", False, "table", False]
    assert counts.seconds == pytest.approx(0.508)
    assert sum(counts.durations) == 3


def test_queries_whose_values_have_other_types_are_one_shape() -> None:
    """`a gt 1` and `a gt 1.5` have the same text; none of their counts is lost."""
    texts = ("a gt 1", "a gt 1.5", "a gt 1L")
    found = counted(*(record_of(query(text), page("table", 100)) for text in texts))
    ((name, shape),) = found.tables["weather", "readings"].shapes.items()
    assert (name, shape.queries, shape.read) == (("a gt ?", False, "table", False), 3, 300)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a eq 'x'", 1),
        ("a eq '{0}'", VALUES_MAX),
        ("a eq {1} and b eq 1", 3),
        ("a eq {1} and b eq {0} and c gt 1", VALUES_MAX),
        ("a eq {1} and c gt {0}", 3),
        ("PartitionKey eq '{0}' and a eq {1}", 3),
        ("a gt {0}", 0),
        ("a eq {1} or b eq 1", 0),
    ],
)
def test_the_different_values_of_fixed_properties_are_counted(text: str, values: int) -> None:
    """Over windows and workers too, up to a bound."""
    texts = [text.format(number, number % 3) for number in range(30)]
    found = counted(*(record_of(query(each), page("table", 100)) for each in texts))
    ((_, shape),) = found.tables["weather", "readings"].shapes.items()
    assert len(shape.values) == values
    shape.add(shape)
    assert len(shape.values) == values


def test_requests_of_tools_are_counted_apart() -> None:
    """They are in no partition, plan, range or kind of write, so that nobody's looking makes a table hot."""
    refused = record_of(INSERT, None, "EntityAlreadyExists", status=409)
    lost = record_of(DeleteEntity("Readings", KEY, 1), None, "UpdateConditionNotSatisfied")
    scan = record_of(query("a gt 1"), page("table", 100, "ab"))
    records = [get(), record_of(TRANSACTION, TransactionCommitted(())), refused, lost, scan]
    for each in records:
        each.from_tools = True
    found = counted(*records)
    table = found.tables["weather", "readings"]
    assert not any(table.whole().numbers())
    assert not any((table.partitions, table.plans, table.writes, table.spans, table.ranges))
    assert (table.write_requests, table.lost_updates, table.properties_max) == (0, 0, 0)
    assert table.tool_requests == len(records)
    tools = Activity(*table.tools.numbers())
    assert (tools.reads, tools.writes, tools.entities_read) == (2, 3, 101)
    assert (tools.entities_returned, tools.conflicts) == (3, 2)
    assert merged([found, found]).tables["weather", "readings"].tool_requests == 2 * len(records)


def test_queries_of_tools_that_look_at_a_table_are_apart() -> None:
    look = record_of(query("a gt 1"), page("table", 100))
    look.from_tools = True
    found = counted(look, record_of(query("a gt 1"), page("table", 100)))
    shapes = found.tables["weather", "readings"].shapes
    assert {name: each.queries for name, each in shapes.items()} == {
        ("a gt ?", False, "table", True): 1,
        ("a gt ?", False, "table", False): 1,
    }


def test_everything_has_a_bound() -> None:
    many = 3 * TABLES_MAX
    tables = counted(*(get(table=f"T{number}") for number in range(many)))
    assert len(tables.tables) == TABLES_MAX
    assert Activity(*tables.other.rest.numbers()).reads == many - TABLES_MAX
    queries = counted(
        *(record_of(query(f"a{number} gt 1"), page("table", 1)) for number in range(2 * SHAPES_MAX))
    )
    (table,) = queries.tables.values()
    assert len(table.shapes) == SHAPES_MAX + 1
    assert table.shapes["...", False, "table", False].pages == SHAPES_MAX
    scans = counted(
        *(
            record_of(query(None, token=f"k{number:03}"), page("table", 1, token=f"k{number:03}z"))
            for number in range(100)
        )
    )
    (table,) = scans.tables.values()
    assert len(table.spans) <= SPANS_MAX
    assert sum(table.spans.values()) == 100
    assert min(first for first, _ in table.spans) == "k000"


def test_a_window_is_a_minute() -> None:
    windows = InsightCounts(59.0)
    counts = RequestCounts(insight=windows)
    counts.count(get("a"))
    assert windows.content(59.9)["ended"] is None
    content = orjson.loads(orjson.dumps(windows.content(60.1)))
    assert (content["ended"]["minute"], content["present"]["minute"]) == (0, 1)
    assert read_window(content["ended"]).tables
    assert not read_window(content["present"]).tables
    counts.count(get("b"))
    later = orjson.loads(orjson.dumps(windows.content(61.0)))
    assert later["ended"] == content["ended"]
    assert list(read_window(later["present"]).tables["weather", "readings"].partitions) == ["b"]


LONG = "k" * 400


@pytest.mark.parametrize(
    ("key", "shown"),
    [("", ""), ("Straße 日本 😀", "Straße 日本 😀"), ("k" * 128, "k" * 128), ("\ud800", "?")],
)
def test_a_shown_key(key: str, shown: str) -> None:
    assert shown_key(key) == shown


def test_long_keys_stay_different() -> None:
    one, other = shown_key(LONG + "a"), shown_key(LONG + "b")
    assert one != other
    assert one.startswith("k" * 128 + "#")
    assert len(one) < 150
