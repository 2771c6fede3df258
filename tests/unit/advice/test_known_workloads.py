"""The advice on workloads whose right answer is known, and none on healthy ones."""

import re
from dataclasses import replace

import pytest

from tablestone.advice.advising import ACCOUNT_RATE, RULES, advise, advise_on_query, advise_on_table
from tablestone.advice.filter_shape import read_shape
from tablestone.advice.query_rules import FREQUENT_RUNS
from tablestone.advice.rule import Severity
from tablestone.advice.workload import PartitionUse, QueryUse, TableUse, Workload, WriteUse
from tablestone.limits import ACCOUNT_RATE_TARGET, PARTITION_RATE_TARGET
from tablestone.query.plan import PlanKind
from unit.advice.healthy_workloads import HEALTHY
from unit.advice.query_workloads import QUERIES
from unit.advice.table_workloads import TABLES
from unit.advice.workload_cases import Case, asked, table

WRONG = (*QUERIES, *TABLES)


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.name)
def test_the_advice_is_right(case: Case) -> None:
    found = advise_on_table(case.table)
    assert sorted(each.rule for each in found) == sorted(case.rules)
    text = " ".join(each.text for each in found)
    for word in case.words:
        assert word in text


@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: case.name)
def test_a_healthy_workload_has_no_advice(case: Case) -> None:
    assert [each.text for each in advise_on_table(case.table)] == []


def test_every_rule_speaks_in_a_case() -> None:
    spoken = {rule for case in WRONG for rule in case.rules}
    assert {rule.id for rule in RULES} == spoken


def test_a_rate_above_the_target_is_severe_and_comes_first() -> None:
    def of(rate: float) -> list[Severity]:
        used = table("T", partitions=9, hottest=(PartitionUse("p", 0.5, rate),), properties_max=250)
        return [each.severity for each in advise_on_table(used)]

    assert of(PARTITION_RATE_TARGET) == [Severity.SEVERE, Severity.NOTE]
    assert of(PARTITION_RATE_TARGET - 1) == [Severity.NOTE]


def test_a_query_that_was_sent_a_few_times_is_worth_a_note() -> None:
    def of(runs: int) -> list[Severity]:
        used = table("T", point_reads=1, queries=(asked("City eq ?", runs, 5_000, 1),))
        return [each.severity for each in advise_on_table(used)]

    assert of(FREQUENT_RUNS) == [Severity.WARNING]
    assert of(FREQUENT_RUNS - 1) == [Severity.NOTE]


def test_an_account_at_its_target() -> None:
    assert advise(Workload(rate=ACCOUNT_RATE_TARGET - 1)) == []
    (advice,) = advise(Workload(rate=ACCOUNT_RATE_TARGET))
    assert advice.rule == ACCOUNT_RATE.id
    assert (
        "20,000 requests in its busiest second; Azure's target for an account is 20,000/s"
        in advice.text
    )


def test_the_other_queries_of_a_table_are_uses_of_its_keys() -> None:
    query = asked("City eq ?")
    present = asked("PartitionKey eq ?")
    (alone,) = advise_on_query(query, table("T", point_reads=0))
    (beside,) = advise_on_query(query, table("T", point_reads=0, queries=(present, query)))
    (unknown,) = advise_on_query(query, table("T"))
    assert alone.rule == "compound-key"
    assert beside.rule == unknown.rule == "inter-partition-index"
    assert "Because 1 other query uses the present keys" in beside.change
    assert "these keys can replace them" in unknown.change
    assert advise_on_query(present, table("T", queries=(query,))) == []


def test_advice_on_a_query_names_its_shape_and_keys() -> None:
    (advice,) = advise_on_query(asked("City eq ? and Date ge ? and Name ne ?"), table("People"))
    assert advice.filter == "City eq ? and Date ge ? and Name ne ?"
    assert (advice.partition_key, advice.row_key) == ("{City}", "{Date}_{PartitionKey}_{RowKey}")
    assert advice.sources[0].url.endswith(
        "table-storage-design-patterns#inter-partition-secondary-index-pattern"
    )


def test_every_read_of_one_task_counts() -> None:
    few = replace(QUERIES[0].table, queries=(asked("dest eq ?", 1, 40, 9),))
    assert advise_on_table(few) == []
    assert len(advise_on_table(replace(few, is_one_task=True))) == 1


def test_one_is_not_counted_as_many() -> None:
    whole = QueryUse(None, 1, 1, 1)
    written = WriteUse(updates=1, requests=1)
    scan = QueryUse(read_shape("a eq ?"), 1, 1, 1)
    one = TableUse("T", queries=(whole, scan), writes=written, indexes={}, is_one_task=True)
    texts = [each.text for each in advise_on_table(replace(one, point_reads=0))]
    for said in ("1 entity a run", "1 time.", "1 more request.", "was 1 write."):
        assert any(said in text for text in texts), said
    assert not any(re.search(r"\b1 [a-z]+s\b", text) for text in texts)


def test_a_long_filter_and_a_long_key_are_shortened_in_the_sentence() -> None:
    long = asked(" and ".join(f"P{n} eq ?" for n in range(300)))
    (advice,) = advise_on_query(long, table("T"))
    assert len(advice.sentence) < 400
    assert len(advice.filter) > 3_000


def test_a_scan_from_before_its_index_needs_no_advice() -> None:
    scan = asked("City eq ?", 60, 90_000, 1)
    served = replace(scan, plan=PlanKind.INDEX)
    indexed = table("People", indexes={"City": False}, queries=(scan, served))
    dropped = replace(indexed, indexes={})
    assert advise_on_query(scan, indexed) == advise_on_query(served, indexed) == []
    assert {each.rule for each in advise_on_query(scan, dropped)} >= {"index"}
