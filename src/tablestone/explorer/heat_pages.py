"""The heat page: the heat map of a table, and beside it the hot partitions and the queries that scan.

Knows the report of insight and the advice; `transfer.observed_workload` makes a workload of the one for the other, and
`heat_map` knows how a cell looks.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from tablestone.advice.advising import advise, advise_on_query
from tablestone.advice.rule import Advice
from tablestone.advice.workload import TableUse
from tablestone.explorer.heat_map import picture_of, scale
from tablestone.explorer.page_templates import account_of, page
from tablestone.explorer.tables import sizes_of
from tablestone.insight.report import DAY, HOUR, NOW, InsightReport, QueryShape
from tablestone.tools.insight import ask_for_insight, query_use, shapes_of, workload_of
from tablestone.tools.progress import shown_bytes
from tablestone.tools.refusals import TransferFailed
from tablestone.tools.writing import quoted

PERIOD_NAMES: Final = {NOW: "the last five minutes", HOUR: "the last hour", DAY: "the last day"}
KINDS: Final = {"all": "reads and writes", "reads": "reads", "writes": "writes"}
LISTED_MAX: Final = 20
SCANNED_MIN: Final = 2
"""Entities read for each that is returned, from which a query is in the list of those that scan."""


class ScanningQuery(NamedTuple):
    """A shape of queries that read more than they return, with the advice on it."""

    shape: QueryShape
    ratio: float
    advice: list[Advice]


def heat(request: Request) -> Response:
    """The page of one table, or of the whole account without a heat map."""
    settings = account_of(request).settings
    if settings.admin_url is None:
        return page(request, "no_heat.html")
    try:
        return _heat_of(request, settings.admin_url, settings.connection.account)
    except TransferFailed as failed:
        # Told here: elsewhere a failure is one of the endpoint, and its URL is put before.
        return page(request, "problem.html", sentence=str(failed), status=502)


def _heat_of(request: Request, admin_url: str, account: str) -> Response:
    parameters = request.query_params
    period = _one_of(parameters.get("period"), PERIOD_NAMES, HOUR)
    kind = _one_of(parameters.get("show"), KINDS, "all")
    whole = ask_for_insight(admin_url, account=account).report
    names = [each.table for each in whole.tables]
    wanted = parameters.get("table", "")
    table = next((name for name in names if name.lower() == wanted.lower()), None)
    if table is None and names and not wanted:
        table = names[0]
    shown = whole
    if table is not None:
        shown = ask_for_insight(admin_url, table, account).report
    values: dict[str, Any] = {
        "table": table,
        "names": names,
        "period": period,
        "periods": PERIOD_NAMES,
        "kind": kind,
        "kinds": KINDS,
        "scale": scale(),
        "unknown": wanted if table is None else "",
        "picture": _picture(shown, period, kind),
        "tables": [(each, each.activity[period], each.rates[period]) for each in whole.tables],
        "partitions": shown.partitions[period][:LISTED_MAX],
        "queries": scanning_queries(shown, period),
        "table_advice": table_advice(shown, period),
        "sizes": sizes_of(whole),
        "targets": whole.targets,
        "shown_bytes": shown_bytes,
        "pk_filter": lambda key: f"PartitionKey eq {quoted(key)}",
    }
    return page(request, "heat.html", **values)


def table_advice(report: InsightReport, period: str) -> list[Advice]:
    """The advice on tables and partitions; that on queries stands beside each query."""
    return [each for each in advise(workload_of(report, period)) if not each.filter][:LISTED_MAX]


def scanning_queries(report: InsightReport, period: str) -> list[ScanningQuery]:
    """The queries that read most beyond what they return, with the advice on each."""
    tables = {each.name.lower(): each for each in workload_of(report, period).tables}
    found = []
    for shape in shapes_of(report, period):
        ratio = shape.entities_read / max(shape.entities_returned, 1)
        if ratio < SCANNED_MIN:
            continue
        use = query_use(shape)
        table = tables.get(shape.table.lower(), TableUse(shape.table))
        advice = [] if use is None or shape.is_look else advise_on_query(use, table)
        found.append(ScanningQuery(shape, ratio, advice))
    return found[:LISTED_MAX]


def _picture(report: InsightReport, period: str, kind: str) -> Any:
    maps = next((each.heat for each in report.tables if each.heat is not None), None)
    if maps is None:
        return None
    chosen = maps.day if period == DAY else maps.hour
    return picture_of(chosen, reads=kind != "writes", writes=kind != "reads")


def _one_of(text: str | None, known: dict[str, str], default: str) -> str:
    return text if text in known else default


SHOWN: Final = {"/heat": heat}
