"""Fault rules: which requests they match, how often they act, and which rules are refused."""

import math
from collections.abc import Callable, Iterator
from statistics import mean, median
from typing import Any

import pytest

from tablestone.testing import FaultRefused, TableStorage, fixed, long_tail, normal
from tablestone.testing.fault_rules import (
    CONDITIONAL_WRITES,
    OPERATIONS,
    WITHOUT_TABLE,
    Rule,
    chance,
)
from tablestone.testing.recorded_requests import RecordedRequest


@pytest.fixture
def storage() -> Iterator[TableStorage]:
    with TableStorage() as storage:
        yield storage


def test_latencies_have_the_shape_that_they_say() -> None:
    draws = [chance(1, 1, number) for number in range(4000)]
    assert {fixed(0.2)(draw) for draw in draws} == {0.2}
    around = [normal(1.0, 0.1)(draw) for draw in draws]
    assert 0.99 < mean(around) < 1.01
    assert 0.6 < sum(0.9 < seconds < 1.1 for seconds in around) / len(around) < 0.75
    tail = [long_tail(0.01, 1.0)(draw) for draw in draws]
    assert 0.009 < median(tail) < 0.011
    assert 0.02 < sum(seconds > 0.1 for seconds in tail) / len(tail) < 0.09
    assert max(tail) <= 1.0


def acted(rule: Rule, seed: int, requests: int = 4000) -> list[int]:
    return [n for n in range(1, requests + 1) if rule.acts_on(n, chance(seed, 1, n))]


def test_a_probability_holds_by_count_and_a_seed_repeats_it() -> None:
    rule = Rule(error="ServerBusy", probability=0.1)
    assert 340 < len(acted(rule, 1)) < 460
    assert acted(rule, 1) == acted(rule, 1) != acted(rule, 2)
    assert acted(Rule(error="ServerBusy"), 1, 3) == [1, 2, 3]
    assert acted(Rule(error="ServerBusy", nth=3), 1) == [3]
    assert acted(Rule(error="ServerBusy", nth=3, count=2), 1) == [3, 4]
    assert acted(Rule(error="ServerBusy", count=2), 1) == [1, 2]


@pytest.mark.parametrize(
    ("part", "is_meant"),
    [
        ({}, True),
        ({"account": "mine"}, True),
        ({"account": "other"}, False),
        ({"table": "ORDERS"}, True),
        ({"table": "Prices"}, False),
        ({"operation": "QueryEntities"}, True),
        ({"operation": "GetEntity"}, False),
        ({"plan": "table"}, True),
        ({"plan": "point"}, False),
        ({"header": {"User-Agent": "sdk"}}, True),
        ({"header": {"User-Agent": "other"}}, False),
        ({"header": {"x-new": ""}}, True),
    ],
)
def test_a_rule_is_about_the_requests_that_it_names(part: dict[str, Any], is_meant: bool) -> None:  # noqa: FBT001
    record = RecordedRequest(1, "GET", "/mine/Orders()")
    record.account, record.table, record.operation = "mine", "Orders", "QueryEntities"
    record.plan, record.headers = "table", {"user-agent": "azsdk-python"}
    assert Rule(error="ServerBusy", **part).concerns(record) is is_meant


def test_operations_are_those_of_the_service() -> None:
    assert {
        "InsertEntity",
        "QueryEntities",
        "EntityGroupTransaction",
        "GetServiceStats",
    } <= OPERATIONS
    assert len(OPERATIONS) == 27
    assert {
        "QueryTables",
        "GetServiceProperties",
        "SetServiceProperties",
        "GetServiceStats",
        "GetUserDelegationKey",
        "ReadAccountChanges",
    } == WITHOUT_TABLE
    assert {
        "UpdateEntity",
        "MergeEntity",
        "DeleteEntity",
        "EntityGroupTransaction",
    } == CONDITIONAL_WRITES


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ({}, "A rule needs something to do"),
        ({"operation": "Update", "status": 503}, "operation is one of CountTableExpiry, "),
        ({"error": "Busy"}, "error is one of "),
        ({"reset": "now"}, "reset is one of after, before, within, not 'now'"),
        ({"error": "ServerBusy", "status": 500}, "status and error contradict each other"),
        ({"status": 200}, "has no error with status 200; it has errors with 400, 401, 403, "),
        ({"status": 429}, "has no error with status 429"),
        ({"status": 502}, "has no error with status 502"),
        ({"status": 504}, "has no error with status 504"),
        ({"status": 503, "table": "a-b"}, "No table has the name 'a-b'"),
        ({"status": 503, "account": "A b"}, "No account has the name 'A b'"),
        ({"status": 503, "operation": "QueryTables", "table": "Orders"}, "is not about one table"),
        (
            {"status": 503, "operation": "InsertEntity", "plan": "table"},
            "only QueryEntities has a plan, and the operation is InsertEntity",
        ),
        (
            {"operation": "InsertEntity", "page_max": 5},
            "only QueryEntities has pages of entities, and the operation is InsertEntity",
        ),
        ({"page_max": 5000}, "never has more than 1000 entities, and page_max is 5000"),
        (
            {"conflict": True, "operation": "QueryEntities"},
            "QueryEntities never has a condition on an ETag that conflict could break",
        ),
        (
            {"conflict": True, "operation": "InsertEntity"},
            "InsertEntity never has a condition on an ETag",
        ),
        ({"conflict": True, "plan": "table"}, "never has a condition on an ETag"),
        ({"status": 503, "share": "account"}, "share belongs to a rate"),
        ({"error": "ServerBusy", "reset": "after"}, "A rule does one thing: error and reset are 2"),
        ({"reset": "after", "retry_after": 1}, "belong to an error"),
        ({"status": 503, "nth": 0}, "nth and count are at least 1"),
        ({"status": 503, "probability": 2}, "more than 0 and at most 1"),
        ({"page_max": 0}, "an empty page every time would never end"),
        ({"truncate": -1}, "are not negative"),
        ({"status": 503, "tables": "Orders"}, "A rule has no part 'tables'; there are account, "),
        ({"status": "503"}, "status is a whole number, not '503'"),
        ({"status": 503, "nth": 1.5}, "nth is a whole number, not 1.5"),
        ({"status": 503, "probability": None}, "probability is a number, not None"),
        ({"status": 503, "header": "x"}, "header is an object of texts, not 'x'"),
        ({"conflict": "yes"}, "conflict is true or false, not 'yes'"),
        ({"latency": math.nan}, "latency is a number of seconds, fixed"),
        ({"latency": "long"}, "latency is a number of seconds, fixed"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(
    storage: TableStorage, what: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(FaultRefused, match=sentence):
        storage.faults.add(**what)
    assert storage.faults.rules == []


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: fixed(-1), "seconds of fixed is a number of seconds that is not negative, not -1"),
        (lambda: normal(1, math.inf), "deviation of normal is .* not inf"),
        (lambda: long_tail("x", 1), "median of long_tail is .* not 'x'"),  # type: ignore[arg-type]
    ],
)
def test_a_latency_that_means_nothing_is_refused(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(FaultRefused, match=sentence):
        make()


@pytest.mark.parametrize("seconds", [-1, math.nan, "60"])
def test_a_secondary_is_behind_by_seconds(storage: TableStorage, seconds: Any) -> None:
    with pytest.raises(FaultRefused, match="a number of seconds that is not negative"):
        storage.secondary.follow(seconds)
