"""The advice on a server's counts: none for a scan, a listing or a load, which do not read single partitions."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import pytest

from tablestone.advice.advising import advise
from tablestone.advice.rule import Advice
from tablestone.insight.report import HOUR, SizeSample, TableSize
from tablestone.model.entity import Entity
from tablestone.model.keys import EntityKey
from tablestone.model.operations import EntityWritten, InsertOrReplaceEntity
from tablestone.telemetry.request_record import RequestRecord
from tablestone.tools.insight import workload_of
from unit.insight.test_insight_counts import get, page, query, record_of
from unit.insight.test_insight_history import NOON, TABLE, Server


class Observed(NamedTuple):
    """Requests, each with its number, the entities and partitions of the table, and the rules that apply."""

    requests: tuple[tuple[RequestRecord, int], ...]
    entities: int
    partitions: int
    rules: tuple[str, ...]
    indexes: dict[str, bool] | None = None


def upsert(partition: str) -> RequestRecord:
    entity = Entity(EntityKey(partition, "r"), {})
    return record_of(InsertOrReplaceEntity("Readings", entity), EntityWritten(5), status=204)


MINUTES = [f"2026-11-23T02:0{number}" for number in range(4)]
OBSERVED = {
    "a listing of a partition, twice in a second": Observed(
        (
            (get("p"), 100),
            (record_of(query("PartitionKey eq 'p'"), page("partition", 3_000, "p" * 3_000)), 2),
        ),
        60_000,
        20,
        (),
    ),
    "a partition that is scanned": Observed(
        (
            (get("all"), 9),
            (
                record_of(
                    query("PartitionKey eq 'all' and k eq 1"), page("partition", 101_000, "p")
                ),
                11,
            ),
        ),
        99_000,
        1,
        ("intra-partition-index",),
    ),
    "keys of the minute, and scans with pages inside one of them": Observed(
        (
            *((upsert(minute), 300) for minute in MINUTES),
            (
                record_of(
                    query("v ge 0", token=MINUTES[2]),
                    page("table", 100_000, "c" * 20_000, token=MINUTES[2]),
                ),
                9,
            ),
        ),
        6_000,
        4,
        (),
    ),
    "a RowKey without its PartitionKey": Observed(
        ((get("p"), 9), (record_of(query("RowKey eq 'r'"), page("table", 1, "p")), 35)),
        6_000,
        50,
        ("row-key-alone",),
    ),
    "a partition that takes more than the target for a minute": Observed(
        ((record_of(query("PartitionKey eq 'p'"), page("partition", 3_000, "p" * 3_000)), 41),),
        60_000,
        20,
        ("hot-partition",),
    ),
}


def advice_on(observed: Observed) -> list[Advice]:
    server = Server(workers=1)
    for record, times in observed.requests:
        for _ in range(times):
            server.workers[0].counts.count(record)
    server.second()
    sizes = (SizeSample(NOON, observed.entities, 9_000),)
    size = TableSize(NOON, observed.partitions, observed.entities, 9_000, sizes, ())
    size = replace(size, indexes=observed.indexes)
    return advise(workload_of(server.report(sizes={TABLE: size}), HOUR))


@pytest.mark.parametrize("observed", OBSERVED.values(), ids=OBSERVED)
def test_the_advice(observed: Observed) -> None:
    assert rules_of(advice_on(observed)) == observed.rules


SCANS = tuple((record_of(query(f"City eq '{n}'"), page("table", 300, "p")), 1) for n in range(12))
"""Of different cities."""


def test_one_city_makes_no_partition() -> None:
    scan = record_of(query("City eq 'x'"), page("table", 300, "p"))
    requests = ((upsert("u"), 1), (get("p"), 1), (scan, 12))
    (advice,) = advice_on(Observed(requests, 300, 300, ()))
    assert (advice.rule, advice.partition_key) == ("flag", "")
    assert "12 queries named 1 value of City" in advice.change


def test_the_requests_of_a_copy_are_those_of_the_period() -> None:
    """A point read keeps the present keys; the load was 300 requests."""
    requests = (*((upsert(f"u{n}"), 1) for n in range(300)), (get("p"), 1), *SCANS)
    (advice,) = advice_on(Observed(requests, 300, 300, ()))
    assert "Because 1 point read uses the present keys" in advice.change
    assert "In 1 minute, that would have been 300 more requests." in advice.cost


@pytest.mark.parametrize(
    ("indexes", "rules"),
    [
        (None, ("inter-partition-index",)),
        ({}, ("inter-partition-index", "index")),
        ({"City": False}, ("inter-partition-index",)),
    ],
    ids=["kept by no engine", "none", "one that was not used"],
)
def test_an_index_is_advised_where_one_is_possible(
    indexes: dict[str, bool] | None, rules: tuple[str, ...]
) -> None:
    requests = ((upsert("u"), 1), (get("p"), 1), *SCANS)
    assert rules_of(advice_on(Observed(requests, 300, 300, (), indexes))) == rules


def test_a_query_that_an_index_serves_needs_nothing() -> None:
    served = record_of(query("City eq 'x'"), page("index", 1, "p"))
    requests = ((upsert("u"), 1), (get("p"), 1), (served, 12))
    assert advice_on(Observed(requests, 300, 300, (), {"City": False})) == []


def rules_of(advice: Iterable[Advice]) -> tuple[str, ...]:
    return tuple(each.rule for each in advice)
