"""Apply all rules to a workload; the severest advice comes first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tablestone.advice.filter_shape import shape_of
from tablestone.advice.query_rules import QUERY_RULES
from tablestone.advice.rule import TARGETS, Advice, Facts, Rule, Severity, applied, rule
from tablestone.advice.table_rules import TABLE_RULES
from tablestone.advice.thresholds import Thresholds
from tablestone.advice.workload import QueryUse, TableUse, Workload
from tablestone.limits import ACCOUNT_RATE_TARGET

RULES: Final[tuple[Rule, ...]] = (*TABLE_RULES, *QUERY_RULES)
"""All rules on tables and queries, each with an id of its own."""

SHARED: Final = frozenset(
    ("compound-key", "inter-partition-index", "index-entities", "intra-partition-index")
)
"""Rules whose keys serve several queries."""


@rule(
    "account-rate",
    "An account at its target",
    Severity.SEVERE,
    (TARGETS,),
    "The account took {rate} requests in its busiest second; Azure's target for an account is {target}/s.",
    "Divide the tables, or one table by a part of its PartitionKey, over several accounts.",
    "Writes cost the same.",
)
def account_rate(workload: Workload, _thresholds: Thresholds) -> Iterator[Facts]:
    """The account takes 20,000 requests/s; a page of a query is one, whatever it reads."""
    if workload.rate is not None and workload.rate >= ACCOUNT_RATE_TARGET:
        yield {"rate": workload.rate, "target": ACCOUNT_RATE_TARGET}


DEFAULT: Final = Thresholds()


def advise(workload: Workload, thresholds: Thresholds = DEFAULT) -> list[Advice]:
    """Advice on all tables of a workload; empty if nothing is wrong."""
    found = [each for table in workload.tables for each in advise_on_table(table, thresholds)]
    found += applied(account_rate, workload, thresholds)
    return sorted(found, key=lambda each: each.severity.rank)


def advise_on_table(table: TableUse, thresholds: Thresholds = DEFAULT) -> list[Advice]:
    """Advice on one table and its queries, the severest first."""
    found = [each for rule in RULES for each in applied(rule, table, thresholds)]
    return sorted(_once(found), key=lambda each: each.severity.rank)


def _once(found: list[Advice]) -> list[Advice]:
    """The advice with each proposal of keys once: it names the other queries that these keys serve."""
    kept: dict[tuple[str, ...], Advice] = {}
    for number, each in enumerate(found):
        is_shared = each.rule in SHARED and each.partition_key
        key = (each.rule, each.partition_key, each.row_key) if is_shared else (str(number),)
        first = kept.setdefault(key, each)
        if each.severity.rank < first.severity.rank:
            kept[key] = replace(first, severity=each.severity)
    return list(kept.values())


def advise_on_query(
    query: QueryUse, table: TableUse, thresholds: Thresholds = DEFAULT
) -> list[Advice]:
    """Advice on one query. The other queries of the table, and its point reads, are known uses of its keys."""
    shape = shape_of(query.filter)
    others = tuple(each for each in table.queries if shape_of(each.filter) != shape)
    use = replace(table, queries=(query, *others))
    found = [each for rule in QUERY_RULES for each in applied(rule, use, thresholds)]
    return [each for each in found if each.filter == shape]
