"""Queries over the tables of one account: a filter becomes key ranges of the catalog, and a page is read from them.

`TableName` is to a table what PartitionKey is to an entity, so one planner serves both. Names are compared without
regard to case, as in every use of a table (wire 3.1). Does not know HTTP.
"""

from __future__ import annotations

from functools import partial

from tablestone import limits
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.filter_tree import Comparison, map_comparisons
from tablestone.model.keys import PARTITION_KEY
from tablestone.model.operations import QueryTables, TablesPage
from tablestone.query.evaluate import compile_filter
from tablestone.query.plan import Plan, plan_query
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Owner
from tablestone.tables.catalog import Catalog, TableRecord
from tablestone.turns import Seconds


async def query_tables(
    catalog: Catalog, owner: Owner, query: QueryTables, seconds: Seconds
) -> TablesPage:
    """One page of the query, by name; it has a continuation only if a table follows in its ranges (wire 6.7)."""
    plan = plan_tables(query)
    ranges = storage_keys.table_ranges(owner.name, plan.ranges)
    if query.next_table_name is not None:
        ranges = storage_keys.ranges_from(
            ranges, storage_keys.table_place(owner.name, query.next_table_name)
        )
    if plan.residual is None:
        predicate, tables_max = None, query.top
    else:
        predicate, tables_max = compile_filter(plan.residual), limits.PAGE_ENTITIES_MAX
    found: list[str] = []
    deadline = seconds() + limits.PAGE_SECONDS_MAX
    while ranges and query.top:
        records, following = await catalog.page_within(owner, ranges, tables_max)
        for record in records:
            if len(found) == query.top:
                return _page(found, record)
            if predicate is None or predicate(partial(_property, record.name.lower())):
                found.append(record.name)
        if following is None or len(found) == query.top or seconds() > deadline:
            return _page(found, following)
        ranges = storage_keys.ranges_from(
            ranges, storage_keys.table_place(owner.name, following.name)
        )
    return _page(found, None)


def plan_tables(query: QueryTables) -> Plan:
    """The plan of a filter of tables, whose keys are names in lower case."""
    node = query.filter
    return plan_query(None if node is None else map_comparisons(node, _of_key))


def _of_key(comparison: Comparison) -> Comparison:
    """The comparison as one of PartitionKey. A filter of tables names only TableName, which is a string (wire 3.1)."""
    folded = EdmValue(EdmType.STRING, str(comparison.literal.value).lower())
    return Comparison(PARTITION_KEY, comparison.operator, folded)


def _property(folded: str, name: str) -> EdmValue | None:
    return EdmValue(EdmType.STRING, folded) if name == PARTITION_KEY else None


def _page(found: list[str], following: TableRecord | None) -> TablesPage:
    if following is None:
        return TablesPage(found, None)
    return TablesPage(found, (following.name, following.ticks))
