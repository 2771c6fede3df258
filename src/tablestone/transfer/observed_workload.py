"""The report of insight as a workload for advice, and its queries for a simulation of keys.

The report does not tell RowKeys, nor which part of an answer a client uses, so the rules that need these are silent.
Knows both descriptions of a workload; does not know where a report comes from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tablestone.advice.filter_shape import NoShape, read_shape
from tablestone.advice.key_forms import form_of
from tablestone.advice.workload import PartitionUse, QueryUse, TableUse, Workload, WriteUse
from tablestone.model.edm import EdmType
from tablestone.query.plan import PlanKind
from tablestone.telemetry.insight_report import (
    DAY,
    HOUR,
    NOW,
    Activity,
    InsightReport,
    QueryShape,
    TableInsight,
)
from tablestone.transfer.simulated_queries import GivenQuery


def workload_of(report: InsightReport, period: str, *, of_one_table: bool = False) -> Workload:
    """All tables of the report and their use in a period, which is one of `insight_report.PERIODS`.

    If the report was asked for one table, the rate of the account is left out, because it is about other tables too.
    """
    tables = tuple(_table(report, each, period) for each in report.tables)
    if of_one_table:
        return Workload(tables)
    rates = [account.rates[period].peak for account in report.accounts]
    return Workload(tables, max(rates, default=None))


def queries_of(report: InsightReport, table: str, period: str) -> list[GivenQuery]:
    """The point reads of a table, and the shapes of its queries that have a filter, with the number of their runs."""
    found: dict[str, GivenQuery] = {}
    points = sum(_points(report, each, period) for each in report.tables if _is(each, table))
    if points:
        found[POINT_READ] = GivenQuery(POINT_READ, runs=points, is_point_read=True)
    for shape in shapes_of(report, period):
        if (
            _is(shape, table)
            and shape.filter
            and not shape.is_look
            and query_use(shape) is not None
        ):
            before = found.get(shape.filter)
            runs = shape.queries + (before.runs or 0 if before is not None else 0)
            found[shape.filter] = GivenQuery(shape.filter, _types(shape), runs)
    return list(found.values())


def shapes_of(report: InsightReport, period: str) -> list[QueryShape]:
    """The shapes of queries in the order of the report, those with and without `$select` as one.

    The quantiles of such a pair are the larger ones.
    """
    found: dict[tuple[object, ...], QueryShape] = {}
    for shape in report.queries.get(period, ()):
        key = shape.account, shape.table, shape.filter, shape.plan, shape.is_look
        other = found.get(key)
        found[key] = (
            shape
            if other is None
            else replace(
                other,
                names_select=other.names_select and shape.names_select,
                queries=other.queries + shape.queries,
                pages=other.pages + shape.pages,
                entities_read=other.entities_read + shape.entities_read,
                entities_returned=other.entities_returned + shape.entities_returned,
                seconds=other.seconds + shape.seconds,
                p50_ms=max(other.p50_ms, shape.p50_ms),
                p99_ms=max(other.p99_ms, shape.p99_ms),
            )
        )
    return list(found.values())


def _is(of: TableInsight | QueryShape, table: str) -> bool:
    return of.table.lower() == table.lower()


def _points(report: InsightReport, table: TableInsight, period: str) -> int:
    """The point reads of a table; a query that fixes both keys is one of its queries, and is not counted here."""
    pages = sum(
        shape.pages
        for shape in report.queries.get(period, ())
        if (shape.account, shape.table) == (table.account, table.table)
        and shape.plan == PlanKind.POINT.value
    )
    return max(0, table.plans.get(period, {}).get(PlanKind.POINT.value, 0) - pages)


def rate_of(report: InsightReport, table: str, period: str) -> float | None:
    """The most entities of a table that a second needed; None if the table is not in the report.

    The entities that scans examined and left out are no need that other keys would have, so the peak is taken without
    their part of the period.
    """
    rates = []
    for each in report.tables:
        if _is(each, table):
            activity = each.activity.get(period, Activity())
            used = activity.entities_read + activity.writes
            needed = min(used, activity.entities_returned + activity.writes)
            rates.append(each.rates[period].peak * (needed / used if used else 1.0))
    return max(rates, default=None)


def _table(report: InsightReport, table: TableInsight, period: str) -> TableUse:
    activity, size = table.activity[period], table.size
    whole = activity.entities_read + activity.writes
    partitions = [
        each
        for each in report.partitions[period]
        if (each.account, each.table) == (table.account, table.table)
    ]
    seen = [each.partition_key for each in partitions if each.is_key_whole]
    if size is not None:
        seen += [each.partition_key for each in size.largest if each.is_key_whole]
    return TableUse(
        table.table,
        entities=size.entities if size else None,
        partitions=size.partitions if size else None,
        hottest=tuple(
            PartitionUse(
                each.partition_key,
                (each.activity.entities_read + each.activity.writes) / max(1, whole),
                each.rate.busiest_minute * _needed_part(each.activity),
                write_rate=each.rate.busiest_minute_writes,
                peak=each.rate.peak,
            )
            for each in partitions
        ),
        partition_form=form_of(seen),
        entity_bytes_mean=size.bytes / size.entities if size and size.entities else None,
        properties_max=table.properties_max.get(period) or None,
        entity_bytes_max=table.entity_bytes_max.get(period) or None,
        point_reads=_points(report, table, period),
        queries=tuple(_queries(report, table, period)),
        writes=_writes(table, period),
        period=_IN_WORDS.get(period, ""),
    )


def _needed_part(activity: Activity) -> float:
    """The part of the use of a partition that is left without its scans, which other advice is about."""
    if activity.entities_read < SCAN_RATIO * max(1, activity.entities_returned):
        return 1.0
    used = activity.entities_read + activity.writes
    return (activity.entities_returned + activity.writes) / used


def _writes(table: TableInsight, period: str) -> WriteUse:
    """The writes by kind; an older server does not tell the kinds, and updates are the least remarkable one."""
    kinds = table.writes.get(period)
    if kinds is None:
        return WriteUse(updates=table.activity[period].writes)
    return WriteUse(
        kinds.get("insert", 0),
        kinds.get("update", 0),
        kinds.get("delete", 0),
        table.lost_updates.get(period, 0),
        kinds.get("upsert", 0),
        table.write_requests.get(period),
    )


def _queries(report: InsightReport, table: TableInsight, period: str) -> Iterator[QueryUse]:
    for shape in shapes_of(report, period):
        if shape.is_look or (shape.account, shape.table) != (table.account, table.table):
            continue
        use = query_use(shape)
        if use is not None:
            yield use


def query_use(shape: QueryShape) -> QueryUse | None:
    """One shape with its numbers; None if its text is not whole, so that it cannot be read."""
    try:
        tree = read_shape(shape.filter, _types(shape))
    except NoShape:
        return None
    return QueryUse(
        tree,
        max(1, shape.queries),
        shape.entities_read,
        shape.entities_returned,
        _KINDS.get(shape.plan),
    )


def _types(shape: QueryShape) -> dict[str, EdmType]:
    """The types that are known here: a newer server may have others."""
    return {term.property: _TYPES[term.type] for term in shape.terms if term.type in _TYPES}


SCAN_RATIO: Final = 10
"""Entities read for each returned from which most of the reads are those of scans."""
_IN_WORDS: Final = {NOW: "the last 5 minutes", HOUR: "the last hour", DAY: "the last day"}
POINT_READ: Final = "PartitionKey eq ? and RowKey eq ?"
"""A point read as the shape of a filter."""
_KINDS: Final = {kind.value: kind for kind in PlanKind}
_TYPES: Final = {kind.value: kind for kind in EdmType}
