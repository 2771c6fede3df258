"""Turns a server's insight report into a workload for advice.

The admin address asks for no key. The report says neither RowKeys nor which part of an answer a client uses, so the
rules that need these are silent.
"""

import http.client
from contextlib import closing
from dataclasses import replace
from typing import Final
from urllib.parse import urlencode, urlsplit

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
from tablestone.tools.errors import TransferFailed, TransferRefused
from tablestone.tools.progress import shown_count

ANSWER_SECONDS_MAX: Final = 30
"""Seconds to wait for the admin address."""
PAGE: Final = "/insight"


def ask_for_insight(
    admin: str, table: str | None = None, account: str | None = None
) -> tuple[InsightReport, bytes]:
    """The report of `[HOST:]PORT` or of a URL, and its JSON; `TransferFailed` says why there is none."""
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
    try:
        if answer.status != http.client.OK:
            raise ValueError(answer.status)  # noqa: TRY301 - one sentence for all that is no report
        return InsightReport.from_json(text), text
    except ValueError:
        raise TransferFailed(
            f"{shown} answers, but not with insight: give the port of --admin of the server, not that of the tables."
        ) from None


def admin_address(admin: str) -> tuple[str, int]:
    """The host and the port of `[HOST:]PORT`, or of a URL; `TransferRefused` for any other text."""
    text = admin if "://" in admin else f"//{admin if ':' in admin else f'127.0.0.1:{admin}'}"
    try:
        parts = urlsplit(text)
        if parts.hostname and parts.port and parts.scheme in ("", "http"):
            return parts.hostname, parts.port
    except ValueError:
        pass
    raise TransferRefused(
        f"--admin must be PORT or HOST:PORT, such as 10003 or 127.0.0.1:10003, not {admin!r}."
    )


def workload_of(report: InsightReport, period: str, *, of_one_table: bool = False) -> Workload:
    """All tables of the report and their use in a period, which is one of `insight.report.PERIODS`.

    If the report was asked for one table, the rate of the account is left out, because it is about other tables too.
    """
    tables = tuple(_table(report, each, period) for each in report.tables)
    if of_one_table:
        return Workload(tables)
    rates = [account.rates[period].peak for account in report.accounts]
    return Workload(tables, max(rates, default=None))


def shapes_of(report: InsightReport, period: str) -> list[QueryShape]:
    """The shapes of queries in the order of the report, those with and without `$select` as one.

    The quantiles of such a pair are the larger ones.
    """
    found: dict[tuple[object, ...], QueryShape] = {}
    for shape in report.queries.get(period, ()):
        key = shape.account, shape.table, shape.filter, shape.plan, shape.from_tools
        other = found.get(key)
        if other is not None:
            shape = replace(  # noqa: PLW2901 - both together
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
            )
        found[key] = shape
    return list(found.values())


def _points(report: InsightReport, table: TableInsight, period: str) -> int:
    """The point reads of a table; a query that fixes both keys is one of its queries, and is not counted here."""
    pages = sum(
        shape.pages
        for shape in report.queries.get(period, ())
        if (shape.account, shape.table) == (table.account, table.table)
        and shape.plan == PlanKind.POINT.value
    )
    return max(0, table.plans.get(period, {}).get(PlanKind.POINT.value, 0) - pages)


def share_of(report: InsightReport, partition: PartitionActivity, period: str) -> float:
    """The part of a partition in the entities of its table. What scans read belongs to no partition."""
    names = (partition.account, partition.table)
    tables = [each for each in report.tables if (each.account, each.table) == names]
    whole = sum(each.activity[period].entities for each in tables)
    scanned = sum(
        each.entities_read
        for each in report.queries[period]
        if (each.account, each.table) == names and each.plan in _ACROSS
    )
    listed = sum(each.activity.entities for each in _beside(report, partition, period))
    return partition.activity.entities / max(whole - scanned, listed, 1)


def takes_large_share(report: InsightReport, partition: PartitionActivity, period: str) -> bool:
    """Whether a partition takes much more of its table than the others do, below the service's target too."""
    partitions = len(_beside(report, partition, period))
    return partition.activity.entities >= LARGE_SHARE_ENTITIES_MIN and share_of(
        report, partition, period
    ) >= max(LARGE_SHARE, 2 / partitions)


def _beside(
    report: InsightReport, table: TableInsight | PartitionActivity, period: str
) -> list[PartitionActivity]:
    """The listed partitions of a table, or of the same table as a partition."""
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
    """The period in words; where the server has not counted for so long, the time for which it has."""
    seconds = report.at - report.started
    if seconds >= PERIOD_SECONDS.get(period, 0):
        return PERIOD_WORDS.get(period, "")
    return shown_count(max(1, round(seconds / 60)), "minute")


def _needed_part(activity: Activity) -> float:
    """The share of a partition's use without its scans, which other advice is about."""
    if activity.entities_read < SCAN_RATIO * max(1, activity.entities_returned):
        return 1.0
    return activity.entities_used / activity.entities


def _writes(table: TableInsight, period: str) -> WriteUse:
    """The writes by kind; of an older server, which does not say, all are updates, the least remarkable kind."""
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
        values=shape.values or None,
    )


def _types(shape: QueryShape) -> dict[str, EdmType]:
    """The types that we know; a newer server may have others."""
    return {term.property: _TYPES[term.type] for term in shape.terms if term.type in _TYPES}


SCAN_RATIO: Final = 10
"""From so many entities read for each returned, a query, or the use of a partition, counts as a scan."""
LARGE_SHARE: Final = 0.25
"""From this part of its table's entities a partition is remarked upon, if even shares would be half of it or less."""
LARGE_SHARE_ENTITIES_MIN: Final = 1000
"""Fewer entities in a period say nothing about keys."""
_ACROSS: Final = (PlanKind.TABLE.value, PlanKind.PARTITION_RANGE.value, PlanKind.RANGES.value)
"""The plans whose pages pass from partition to partition."""
_KINDS: Final = {kind.value: kind for kind in PlanKind}
_TYPES: Final = {kind.value: kind for kind in EdmType}
