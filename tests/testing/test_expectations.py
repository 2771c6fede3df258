"""Assertions about cost: which requests are too many, and the advice in the message."""

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.rest import HttpRequest
from azure.data.tables import TableClient, TableServiceClient

from tablestone.testing import ExpectationRefused, TableStorage, TooExpensive, expectations
from tablestone.testing.control import Control
from tablestone.testing.expectations import Budget, Expectation
from tablestone.testing.recorded_requests import LastRequests

ROWS: list[dict[str, Any]] = [
    {"PartitionKey": f"p{n % 2}", "RowKey": f"{n:03}", "total": n, "name": "Ada"} for n in range(40)
]


@pytest.fixture(autouse=True)
def _a_run_of_its_own() -> None:
    """A test run gives each advice once."""
    expectations._TOLD.clear()


@pytest.fixture
def storage() -> Iterator[TableStorage]:
    with TableStorage() as storage:
        storage.seed({"Orders": ROWS})
        yield storage


@pytest.fixture
def table(storage: TableStorage) -> Iterator[TableClient]:
    with TableServiceClient.from_connection_string(storage.connection_string) as service:
        yield service.get_table_client("Orders")


def query(text: str) -> Callable[[TableClient], object]:
    return lambda table: list(table.query_entities(text))


def each_alone(table: TableClient) -> None:
    for row in ROWS[:6]:
        table.upsert_entity(row)


def each_read(table: TableClient) -> None:
    for row in ROWS[:6:2]:
        table.get_entity(row["PartitionKey"], row["RowKey"])


def as_transaction(table: TableClient) -> None:
    table.submit_transaction([("upsert", row) for row in ROWS[::2]])


@pytest.mark.parametrize(
    ("budget", "work"),
    [
        ({"scans": 0, "requests": 1, "read_ratio": 1}, query("PartitionKey eq 'p0'")),
        ({"scans": 1}, query("total eq 3")),
        ({"requests": 1}, as_transaction),
        ({"rows_read": 20}, query("PartitionKey eq 'p0' and total eq 2")),
        ({"read_ratio": 10}, query("total gt 30")),
        ({"requests": 0, "account": "other"}, each_alone),
    ],
)
def test_what_is_within_the_budget_passes(
    storage: TableStorage,
    table: TableClient,
    budget: dict[str, Any],
    work: Callable[[TableClient], object],
) -> None:
    with storage.expect(**budget):
        work(table)


@pytest.mark.parametrize(
    ("budget", "work", "sentences"),
    [
        (
            {"scans": 0},
            query("name eq 'Ada' and total gt 30"),
            (
                "1 scan of a whole table, at most 0 expected:",
                "QueryEntities Orders [table: 40 read, 9 returned] -> 200",
                "Its filter is name eq 'Ada' and total gt 30.",
                "under PartitionKey `{name}` and RowKey `{total:010}_{PartitionKey}_{RowKey}`",
                "Each write becomes two requests to two partitions",
            ),
        ),
        (
            {"scans": 0},
            lambda table: list(table.list_entities()),
            ("It has no filter. The filter `PartitionKey eq ?` reads one partition only",),
        ),
        (
            {"requests": 2},
            each_alone,
            (
                "6 requests, at most 2 expected:",
                "3 writes to the partition 'p0' of Orders: 1 transaction would do.",
            ),
        ),
        ({"requests": 1}, each_read, ("3 point reads of the partition 'p0' of Orders: one query",)),
        (
            {"read_ratio": 10},
            query("PartitionKey eq 'p0' and total eq 2"),
            (
                "1 query read more than 10 times the entities returned",
                "each entity a second time into its partition, under RowKey `total_{total:010}_{RowKey}`",
            ),
        ),
        ({"rows_read": 30}, query("total eq 3"), ("40 entities read, at most 30 expected",)),
    ],
)
def test_what_costs_more_fails_with_advice(
    storage: TableStorage,
    table: TableClient,
    budget: dict[str, Any],
    work: Callable[[TableClient], object],
    sentences: tuple[str, ...],
) -> None:
    with pytest.raises(TooExpensive) as failed, storage.expect(**budget):
        work(table)
    for sentence in sentences:
        assert sentence in str(failed.value)


def made(requests: LastRequests, number: int, plan: str, account: str = "mine") -> None:
    for _ in range(number):
        record = requests.begin("GET", "/", {"host": "here"})
        record.account, record.operation, record.plan = account, "QueryEntities", plan
        record.rows_read, record.rows_returned = 2, 1


@pytest.mark.parametrize(
    ("budget", "sentences"),
    [
        ({"scans": 5, "requests": 5005, "rows_read": 10_010, "read_ratio": 2}, []),
        ({"scans": 4}, ["5 scans of a whole table, at most 4 expected"]),
        ({"requests": 5004}, ["5005 requests, at most 5004 expected"]),
        ({"rows_read": 10_009}, ["10010 entities read, at most 10009 expected"]),
    ],
)
def test_a_long_block_is_judged_as_a_whole(budget: dict[str, Any], sentences: list[str]) -> None:
    """Its scans come first, and are no longer among the last thousand requests."""
    requests = LastRequests()
    made(requests, 1500, "table")
    expected = pytest.raises(TooExpensive) if sentences else nullcontext()
    with (
        expected as failed,
        Expectation(requests, Budget(**budget, account="mine")),
        Expectation(requests, Budget(requests=10_000)) as outer,
    ):
        made(requests, 5, "table")
        made(requests, 2500, "point", "other")
        made(requests, 5000, "point")
    assert [each.number for each in outer.requests] == list(range(1501, 9006))
    assert len(requests.since(0)) == 1000
    for sentence in sentences:
        assert failed is not None
        assert sentence in str(failed.value)


def test_the_requests_that_a_block_is_judged_by_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expectations, "REQUESTS_JUDGED_MAX", 3000)
    requests = LastRequests()
    with (
        pytest.raises(TooExpensive, match=r"^more than 3000 requests: the others were not judged$"),
        Expectation(requests, Budget(scans=0)),
    ):
        made(requests, 3001, "point")
    with pytest.raises(
        ExpectationRefused, match="Only the first 3000 requests of a block are judged"
    ):
        Budget(requests=3001)


@pytest.mark.parametrize(("since", "is_whole"), [(1, True), (0, False)])
def test_over_http_only_the_last_thousand_requests_are_judged(since: int, is_whole: bool) -> None:  # noqa: FBT001
    requests = LastRequests()
    made(requests, 1001, "point")
    storage: Any = SimpleNamespace(requests=requests, faults=None, clock=None)
    told = asyncio.run(Control(storage, "").judge_cost(since=since, scans=0))["complaints"]
    assert told == (
        [] if is_whole else ["more than 1000 requests since then: only the last ones were judged"]
    )


def test_an_error_of_the_code_goes_first(storage: TableStorage, table: TableClient) -> None:
    def work() -> None:
        each_alone(table)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), storage.expect(requests=0):
        work()


def test_the_requests_of_the_block_are_there(storage: TableStorage, table: TableClient) -> None:
    table.get_entity("p0", "000")
    with storage.expect(requests=1) as block:
        table.get_entity("p0", "002")
    assert [request.partition for request in block.requests] == ["p0"]


def test_a_count_returns_what_it_counts() -> None:
    with (
        TableStorage(query_extensions=True) as storage,
        TableServiceClient.from_connection_string(storage.connection_string) as service,
    ):
        storage.seed({"Orders": ROWS})
        with storage.expect(read_ratio=1) as block:
            client = service.get_table_client("Orders")._client
            answer = client.send_request(HttpRequest("GET", "/Orders/$count"))
            assert answer.text() == "40"
    assert [(each.rows_read, each.rows_returned) for each in block.requests] == [(40, 40)]


@pytest.mark.parametrize("budget", [{}, {"requests": -1}, {"scans": "0"}, {"read_ratio": math.nan}])
def test_an_expectation_that_means_nothing_is_refused(
    storage: TableStorage, budget: dict[str, Any]
) -> None:
    with pytest.raises(ExpectationRefused):
        storage.expect(**budget)


def test_a_run_gives_each_advice_once(storage: TableStorage) -> None:
    said = []
    client = TableClient.from_connection_string(storage.connection_string, "Orders")
    for name in ("Alan", "Grace"):
        with pytest.raises(TooExpensive) as error, storage.expect(scans=0):
            list(client.query_entities(f"name eq '{name}'"))
        said.append(str(error.value))
    assert "Its filter is name eq 'Alan'. " in said[0]
    assert said[1].endswith("Its filter is name eq 'Grace'.")
