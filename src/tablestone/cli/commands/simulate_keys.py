"""`tablestone simulate-keys`: the partitions and queries of real data under other keys, before it moves."""

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tablestone.cli.data_options import (
    connection_for,
    opened,
    print_report,
    quiet_option,
    reading_of,
    with_connection,
    with_reading,
)
from tablestone.insight.report import DAY
from tablestone.limits import PARTITION_RATE_TARGET
from tablestone.model.keys import TABLE_NAME
from tablestone.query.plan import PlanKind
from tablestone.tools.connection import GivenConnection
from tablestone.tools.errors import TransferFailed, TransferRefused, refusing_unreadable
from tablestone.tools.formats.compressed import ReadPosition
from tablestone.tools.formats.reading_file import read_rows, require_kind
from tablestone.tools.formats.rows import Reading, Rejected, Row
from tablestone.tools.insight import ask_for_insight, queries_of, rate_of
from tablestone.tools.progress import progress_for, shown_bytes, shown_count, shown_entities
from tablestone.tools.queries import TableReader, plan_name
from tablestone.tools.simulated_queries import GivenQuery, QueryFigures, distinct
from tablestone.tools.simulation import PERCENTILES, Simulation, rows_of_table, simulate

PARTITIONS_SHOWN_MAX = 5
REJECTED_SHOWN_MAX = 3


def lines_of(report: Simulation) -> Iterator[str]:
    keys = report.keys
    rows = shown_count(report.rows, "row")
    yield f"{report.source}: {rows}, PartitionKey {report.partition_key}, RowKey {report.row_key}"
    if report.example is not None:
        number, partition_key, row_key = report.example
        yield f"  row {number:,} gets PartitionKey {partition_key!r}, RowKey {row_key!r}"
    partitions = shown_count(keys.partitions, "partition")
    yield f"{shown_entities(keys.entities)} in {partitions}, {shown_bytes(keys.bytes)}"
    if keys.partitions:
        sizes = ", ".join(f"{n} %: {keys.percentiles[f'p{n}']:,}" for n in PERCENTILES)
        yield f"  entities of a partition: {sizes}, largest: {keys.percentiles['max']:,}"
    for each in keys.largest[:PARTITIONS_SHOWN_MAX]:
        is_spread = report.rate is not None and keys.newest_partition is None
        rate = f"  {(report.rate or 0) * each.share:,.0f} entities/s" if is_spread else ""
        size = f"{shown_entities(each.entities)}  {shown_bytes(each.bytes)}"
        yield f"  {each.share:6.1%}  {size}{rate}  {each.partition_key!r}"
    if report.rate is not None:
        yield _hot_line(report)
    yield from _refused_lines(report)
    for query in report.queries:
        yield from _query_lines(query)
    for advice in report.advice:
        yield f"{advice.severity.value}: {advice.text}"


def _hot_line(report: Simulation) -> str:
    target = f"{PARTITION_RATE_TARGET:,} entities/s"
    if not report.hot:
        spread = (
            "as the entities are"
            if report.keys.newest_partition is None
            else "over time as it is now"
        )
        return f"no partition above Azure's target of {target}, if use is spread {spread}"
    return f"above Azure's target of {target}: {', '.join(map(repr, report.hot))}"


def _refused_lines(report: Simulation) -> Iterator[str]:
    keys = report.keys
    if not keys.same_rows:
        yield "no two rows have the same key"
    else:
        rows = shown_count(keys.same_rows, "row has", "rows have")
        more = shown_count(keys.same_keys, "key occurs", "keys occur")
        yield f"{rows} the key of an earlier row; {more} more than once:"
        for same in keys.same:
            more = "" if same.rows == 2 else f" and {same.rows - 2:,} more"
            yield (
                f"  PartitionKey {same.partition_key!r}, RowKey {same.row_key!r}: "
                f"rows {same.first:,} and {same.second:,}{more}"
            )
    if report.rejected:
        yield f"{shown_count(report.rejected, 'row')} cannot be stored:"
        shown = report.rejected_rows[:REJECTED_SHOWN_MAX]
        yield from (f"  row {each.number:,}: {each.reason}" for each in shown)
        if report.rejected > len(shown):
            yield f"  and {report.rejected - len(shown):,} more"


def _query_lines(query: QueryFigures) -> Iterator[str]:
    runs = "" if query.runs is None else f"  ({shown_count(query.runs, 'run')})"
    what = "point reads by the present keys" if query.is_point_read else f"query: {query.filter}"
    yield f"{what}{runs}"
    if query.present_plan is not None:
        yield f"  now:  {_plan_cost(query.present_plan, query.present_entities_read, query.entities_returned)}"
    read = query.entities_read
    if query.is_shape:
        about = "" if read is None else f", up to the {shown_entities(read)} of a typical partition"
        if query.plan in (PlanKind.POINT, PlanKind.TABLE):
            about = f", {shown_entities(read or 0)}"
        yield f"  then: {plan_name(query.plan)}{about}"
    elif query.missed:
        found = (query.entities_returned or 0) - query.missed
        yield f"  then: {plan_name(query.plan)}, finds {found:,} of the {query.entities_returned:,} that match"
    else:
        yield f"  then: {_plan_cost(query.plan, read, query.entities_returned)}"
    if query.missed:
        yield (
            f"  {query.missed:,} of the matching entities are outside of these keys: their values have another type or "
            "form than the filter, so the query cannot use the keys"
        )
    before = query.present_entities_read
    if before is not None and read is not None and read > before and not query.missed:
        yield "  worse: with these keys, the query reads more"
    yield from (f"  {note}" for note in query.notes)


def _plan_cost(kind: PlanKind, read: int | None, returned: int | None) -> str:
    if read is None:
        return plan_name(kind)
    returns = "" if returned is None else f" for {returned:,} returned"
    return f"{plan_name(kind)}, {shown_entities(read)} read{returns}"


RATE_MAX = 1e12
"""Entities a second, far beyond any service. JSON has no infinity."""


def _number(_context: click.Context, _option: click.Parameter, rate: float | None) -> float | None:
    """Refuse NaN, which click takes for a number."""
    if rate is not None and math.isnan(rate):
        raise click.BadParameter("nan is not a number of entities.")
    return rate


@click.command(
    name="simulate-keys",
    epilog="Example: tablestone simulate-keys Weather --partition-key origin --row-key time_hour "
    "--query \"origin eq 'JFK' and time_hour ge '2013-07'\"",
)
@click.argument("source", metavar="FILE|TABLE")
@with_reading
@click.option(
    "--query",
    "filters",
    metavar="FILTER",
    multiple=True,
    help="A filter on the present properties, or its shape with ? for values.",
)
@click.option("--queries", metavar="FILE", help="A file with a filter in each line.")
@click.option(
    "--admin", metavar="[HOST:]PORT", help="Take queries and rate of the last day from this server."
)
@click.option(
    "--observed", metavar="TABLE", help="The table of --admin.  [default: the name of the source]"
)
@click.option(
    "--rate",
    type=click.FloatRange(0, RATE_MAX),
    metavar="N",
    callback=_number,
    help="Entities a second that the table takes, for hot partitions.",
)
@quiet_option
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
@with_connection
def simulate_keys(
    words: GivenConnection,
    source: str,
    kind: str | None,
    filters: tuple[str, ...],
    queries: str | None,
    admin: str | None,
    observed: str | None,
    rate: float | None,
    *,
    quiet: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Try other keys on real data, before it moves.

    Prints the partitions that the keys make, rows that would have the same key, and what each
    query would read. FILE is one that `import` reads; a name without a dot is a TABLE. Nothing is
    written. Exit status 1: an import would reject rows.
    """
    reading = reading_of(given, keeps_columns=True)
    asked = [GivenQuery(text) for text in (*filters, *_lines_of(queries))]
    if admin is not None:
        seen, seen_rate = _observed(admin, observed or Path(source).name.partition(".")[0])
        asked += seen
        rate = seen_rate if rate is None else rate
    elif observed is not None:
        raise TransferRefused("--observed names a table of --admin, which is not given.")
    position = ReadPosition()
    with closing(progress_for(f"simulate-keys {source}", quiet=quiet)) as progress:
        report = simulate(
            source,
            _rows(source, kind, reading, words, position),
            reading,
            distinct(asked),
            rate=rate,
            position=position,
            progress=progress,
        )
    members = {
        **asdict(report),
        "example": report.example and report.example._asdict(),
        "advice": [each.members() for each in report.advice],
    }
    print_report(list(lines_of(report)), members, as_json=as_json)
    return 0 if report.can_be_loaded else 1


def _observed(admin: str, table: str) -> tuple[list[GivenQuery], float | None]:
    """The queries of a table that a server has seen, and its busiest rate in entities a second."""
    report, _ = ask_for_insight(admin, table)
    if not report.tables:
        raise TransferFailed(f"The server of {admin} has seen no request of the table {table}.")
    return queries_of(report, table, DAY), rate_of(report, table, DAY)


def _rows(
    source: str, kind: str | None, reading: Reading, words: GivenConnection, position: ReadPosition
) -> Iterator[Row | Rejected]:
    """The rows of the file or the table. A table's name has only letters and digits, and `--format` means a file."""
    if kind is None and TABLE_NAME.fullmatch(source):
        with opened(connection_for(words), "tablestone-simulate-keys") as endpoint:
            yield from rows_of_table(TableReader(endpoint), source, reading)
    else:
        require_kind(source, kind)
        yield from read_rows(source, reading, kind, position)


def _lines_of(path: str | None) -> list[str]:
    """The filters of a file: its lines that are not empty."""
    if path is None:
        return []
    with refusing_unreadable(path):
        text = Path(path).read_text(encoding="utf-8-sig")
    return [line.strip() for line in text.splitlines() if line.strip()]
