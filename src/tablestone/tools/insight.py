"""Asks a server's admin address for its insight report, and turns the report into a workload for advice.

The admin address needs no key. The report has neither RowKeys nor the part of an answer that a client uses, so the
rules that need these are silent.
"""

import http.client
from contextlib import closing, suppress
from dataclasses import replace
from typing import Final
from urllib.parse import urlencode

from tablestone.advice.filter_shape import NoShape, read_shape
from tablestone.advice.workload import PartitionUse, QueryUse, TableUse, Workload, WriteUse, form_of
from tablestone.insight.report import (
    PERIOD_SECONDS,
    PERIOD_WORDS,
    Activity,
    InsightReport,
    PartitionActivity,
    QueryShape,
    TableInsight,
)
from tablestone.model.edm import EdmType
from tablestone.query.plan import PlanKind
from tablestone.tools.admin_address import admin_address
from tablestone.tools.errors import TransferFailed
from tablestone.tools.progress import shown_count

ANSWER_SECONDS_MAX: Final = 30
PAGE: Final = "/insight"


def ask_for_insight(
    admin: str, table: str | None = None, account: str | None = None
) -> tuple[InsightReport, bytes]:
    """The report of the server at `[HOST:]PORT` or a URL, and its JSON; `TransferFailed` says why there is none."""
    host, port = admin_address(admin)
    asked = {"table": table, "account": account}
    query = urlencode({name: value for name, value in asked.items() if value is not None})
    shown = f"The admin address {host}:{port}"
    try:
        with closing(http.client.HTTPConnection(host, port, timeout=ANSWER_SECONDS_MAX)) as asking:
            asking.request("GET", f"{PAGE}?{query}" if query else PAGE)
            answer = asking.getresponse()
            text = answer.read()
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise TransferFailed(
            f"{shown} does not answer ({why}): is the server running with --admin {admin}?"
        ) from None
    if answer.status == http.client.NOT_FOUND and text.startswith(b"Insight is off"):
        raise TransferFailed(text.decode("utf-8").strip())
    if answer.status == http.client.OK:
        with suppress(ValueError):
            return InsightReport.from_json(text), text
    raise TransferFailed(
        f"{shown} answers, but not with insight: give the port of --admin of the server, not that of the tables."
    )


def workload_of(report: InsightReport, period: str, *, of_one_table: bool = False) -> Workload:
    """All tables of the report and their use in a period of `insight.report.PERIODS`.

    A report on one table leaves out the rate of the account, which counts other tables too.
    """
    tables = tuple(_table(report, each, period) for each in report.tables)
    accounts = () if of_one_table else report.accounts
    return Workload(tables, max((each.rates[period].peak for each in accounts), default=None))


def shapes_of(report: InsightReport, period: str) -> list[QueryShape]:
    """The query shapes in the report's order. Joins those with and without `$select`, with the larger quantiles."""
    found: dict[tuple[object, ...], QueryShape] = {}
    for shape in report.queries.get(period, ()):
        key = shape.account, shape.table, shape.filter, shape.plan, shape.from_tools
        other = found.get(key)
        if other is not None:
            shape = replace(  # noqa: PLW2901 - the two joined
                other,
                names_select=other.names_select and shape.names_select,
                queries=other.queries + shape.queries,
                pages=other.pages + shape.pages,
                entities_read=other.entities_read + shape.entities_read,
                entities_returned=other.entities_returned + shape.entities_returned,
                seconds=other.seconds + shape.seconds,
                p50_ms=max(other.p50_ms, shape.p50_ms),
                p99_ms=max(other.p99_ms, shape.p99_ms),
                values=max(other.values, shape.values),
                passed_over=other.passed_over + shape.passed_over,
            )
        found[key] = shape
    return list(found.values())


def _points(report: InsightReport, table: TableInsight, period: str) -> int:
    """The point reads of a table, without queries that fix both keys: they count as queries."""
    pages = sum(
        shape.pages
        for shape in report.queries.get(period, ())
        if (shape.account, shape.table) == (table.account, table.table)
        and shape.plan == PlanKind.POINT.value
        and not shape.from_tools
    )
    return max(0, table.plans.get(period, {}).get(PlanKind.POINT.value, 0) - pages)


def share_of(report: InsightReport, partition: PartitionActivity, period: str) -> float:
    """The partition's share of its table's entities, from 0 to 1. Leaves out scans: they are of no partition."""
    names = (partition.account, partition.table)
    tables = [each for each in report.tables if (each.account, each.table) == names]
    whole = sum(each.activity[period].entities for each in tables)
    scanned = read_across(report, period, names)
    listed = sum(each.activity.entities for each in _beside(report, partition, period))
    return partition.activity.entities / max(whole - scanned, listed, 1)


def read_across(report: InsightReport, period: str, names: tuple[str, str] | None = None) -> int:
    """The entities that programs' queries read across partitions, in all tables or in that of an account and a name."""
    return sum(
        each.entities_read
        for each in report.queries[period]
        if names in (None, (each.account, each.table))
        and each.plan in _ACROSS
        and not each.from_tools
    )


def takes_large_share(report: InsightReport, partition: PartitionActivity, period: str) -> bool:
    """Whether a partition takes much more of its table than the others do, even below the service's target."""
    partitions = len(_beside(report, partition, period))
    return partition.activity.entities >= LARGE_SHARE_ENTITIES_MIN and share_of(
        report, partition, period
    ) >= max(LARGE_SHARE, 2 / partitions)


def _beside(
    report: InsightReport, table: TableInsight | PartitionActivity, period: str
) -> list[PartitionActivity]:
    """The listed partitions of a table, or of a partition's table."""
    names = (table.account, table.table)
    return [each for each in report.partitions[period] if (each.account, each.table) == names]


def _table(report: InsightReport, table: TableInsight, period: str) -> TableUse:
    size = table.size
    whole = max(1, table.activity[period].entities)
    partitions = _beside(report, table, period)
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
                each.activity.entities / whole,
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
        queries=tuple(
            use
            for shape in shapes_of(report, period)
            if (shape.account, shape.table) == (table.account, table.table) and not shape.from_tools
            if (use := query_use(shape)) is not None
        ),
        writes=_writes(table, period),
        indexes=size.indexes if size else None,
        period=period_of(report, period),
        storage=report.storage and f" --account {table.account}{report.storage}",
    )


def period_of(report: InsightReport, period: str) -> str:
    """The period in words; if the server started later, the time since then."""
    seconds = report.at - report.started
    if seconds >= PERIOD_SECONDS.get(period, 0):
        return PERIOD_WORDS.get(period, "")
    return shown_count(max(1, round(seconds / 60)), "minute")


def _needed_part(activity: Activity) -> float:
    """The share of a partition's use that is no scan: other advice is about scans."""
    if activity.entities_read < SCAN_RATIO * max(1, activity.entities_returned):
        return 1.0
    return activity.entities_used / activity.entities


def _writes(table: TableInsight, period: str) -> WriteUse:
    """The writes by kind. An older server does not say: all count as updates, the least remarkable kind."""
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


def query_use(shape: QueryShape) -> QueryUse | None:
    """One shape with its numbers; None if its filter is cut off and cannot be parsed."""
    # A newer server may have types that are unknown here.
    types = {term.property: _TYPES[term.type] for term in shape.terms if term.type in _TYPES}
    try:
        tree = read_shape(shape.filter, types)
    except NoShape:
        return None
    return QueryUse(
        tree,
        max(1, shape.queries),
        shape.azure_reads,
        shape.entities_returned,
        _KINDS.get(shape.plan),
        values=shape.values or None,
    )


SCAN_RATIO: Final = 10
"""A query, or the use of a partition, counts as a scan if it reads this many entities for each that it returns."""
LARGE_SHARE: Final = 0.25
"""The least share of its table's entities that is remarked upon; it must also be twice an even share."""
LARGE_SHARE_ENTITIES_MIN: Final = 1000
"""Fewer entities in a period say nothing about keys."""
_ACROSS: Final = (PlanKind.TABLE.value, PlanKind.PARTITION_RANGE.value, PlanKind.RANGES.value)
"""The plans that read several partitions."""
_KINDS: Final = {kind.value: kind for kind in PlanKind}
_TYPES: Final = {kind.value: kind for kind in EdmType}
