"""From a workload to advice: all rules applied, the severest advice first.

Pure and deterministic: the same workload gives the same list. Knows the tables of rules; does not know where a workload
comes from, or how advice is shown.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tablestone.advice.filter_shape import shape_of
from tablestone.advice.query_rules import QUERY_RULES
from tablestone.advice.rule import TARGETS, Advice, Rule, Severity, applied
from tablestone.advice.table_rules import TABLE_RULES
from tablestone.advice.workload import QueryUse, TableUse, Thresholds, Workload
from tablestone.limits import ACCOUNT_RATE_TARGET

RULES: Final[tuple[Rule, ...]] = (*TABLE_RULES, *QUERY_RULES)
"""All rules on tables and queries. Their ids are different."""

SHARED: Final = frozenset(
    ("compound-key", "inter-partition-index", "index-entities", "intra-partition-index")
)
"""Rules whose keys serve several queries."""

ACCOUNT_RATE: Final = Rule(
    "account-rate",
    "An account at its target",
    "The account takes 20,000 requests/s; a page of a query is one, whatever it reads.",
    Severity.SEVERE,
    (TARGETS,),
    lambda _table, _thresholds: (),
    "The account took {rate} requests in its busiest second; Azure's target for an account is {target}/s.",
    "Divide the tables, or one table by a part of its PartitionKey, over several accounts.",
    "Writes cost the same.",
)
"""The one rule on a whole account."""

DEFAULT: Final = Thresholds()


def advise(workload: Workload, thresholds: Thresholds = DEFAULT) -> list[Advice]:
    """Advice on all tables of a workload; empty if nothing is wrong."""
    found = [each for table in workload.tables for each in advise_on_table(table, thresholds)]
    if workload.rate is not None and workload.rate >= ACCOUNT_RATE_TARGET:
        words = {"rate": f"{workload.rate:,.0f}", "target": f"{ACCOUNT_RATE_TARGET:,}"}
        rule = ACCOUNT_RATE
        sentence = rule.sentence.format_map(words)
        found.append(
            Advice(rule.id, rule.severity, "", sentence, rule.change, rule.cost, rule.sources)
        )
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
