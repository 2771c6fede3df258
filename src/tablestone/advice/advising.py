"""Applies all rules to a workload, a table or a query; the severest advice comes first."""

from dataclasses import replace
from typing import Final

from tablestone.advice.filter_shape import shape_of
from tablestone.advice.query_rules import QUERY_RULES, query_findings
from tablestone.advice.rule import TARGETS, Advice, Rule, Severity, advice_of
from tablestone.advice.table_rules import TABLE_RULES, table_findings
from tablestone.advice.workload import QueryUse, TableUse, Workload
from tablestone.limits import ACCOUNT_RATE_TARGET
from tablestone.query.plan import PlanKind

RULES: Final[tuple[Rule, ...]] = (*TABLE_RULES, *QUERY_RULES)
SHARED: Final = frozenset(
    ("compound-key", "inter-partition-index", "index-entities", "intra-partition-index")
)
"""Rules that propose keys which may serve several queries."""
ACCOUNT_RATE: Final = Rule(
    "account-rate",
    "An account at its target",
    (TARGETS,),
    "The account takes 20,000 requests/s; a page of a query is one, whatever it reads.",
    "The account took {rate} requests in its busiest second; Azure's target for an account is {target}/s.",
    "Spread the tables over several accounts, or one table by a part of its PartitionKey.",
    "Writes cost the same.",
    severity=Severity.SEVERE,
)


def advise(workload: Workload) -> list[Advice]:
    """Advice on all tables of a workload; empty if nothing is wrong."""
    found = [each for table in workload.tables for each in advise_on_table(table)]
    if workload.rate is not None and workload.rate >= ACCOUNT_RATE_TARGET:
        facts = {"rate": workload.rate, "target": ACCOUNT_RATE_TARGET}
        found.append(advice_of((ACCOUNT_RATE, facts), ""))
    return sorted(found, key=lambda each: each.severity.rank)


def advise_on_table(table: TableUse) -> list[Advice]:
    """Advice on one table and its queries, the severest first."""
    findings = [*table_findings(table), *query_findings(table)]
    findings.sort(key=lambda each: RULES.index(each[0]))
    found = _once([advice_of(each, table.name) for each in findings])
    return sorted(found, key=lambda each: each.severity.rank)


def _once(found: list[Advice]) -> list[Advice]:
    """The advice, with each proposal of keys only once: its text names the other queries that the keys serve."""
    kept: dict[tuple[str, ...], Advice] = {}
    for number, each in enumerate(found):
        is_shared = each.rule in SHARED and each.partition_key
        key = (each.rule, each.partition_key, each.row_key) if is_shared else (str(number),)
        first = kept.setdefault(key, each)
        if each.severity.rank < first.severity.rank:
            kept[key] = replace(first, severity=each.severity)
    return list(kept.values())


def advise_on_query(query: QueryUse, table: TableUse) -> list[Advice]:
    """Advice on one query. The table's other queries and its point reads count as uses of the present keys."""
    shape = shape_of(query.filter)
    others = tuple(
        each
        for each in table.queries
        if shape_of(each.filter) != shape or each.kind is PlanKind.INDEX
    )
    use = replace(table, queries=(query, *others))
    findings = sorted(query_findings(use), key=lambda each: RULES.index(each[0]))
    found = (advice_of(each, table.name) for each in findings)
    return [each for each in found if each.filter == shape]
