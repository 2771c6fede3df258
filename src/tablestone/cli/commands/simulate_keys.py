"""`tablestone simulate-keys`: the partitions and the queries of real data under other keys, before it is moved."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tablestone.cli.data_options import connection_for, opened, quiet_option, with_connection
from tablestone.cli.reading_options import reading_of, with_reading
from tablestone.cli.simulation_report import lines_of, members_of
from tablestone.insight.report import DAY
from tablestone.model.table_names import TABLE_NAME
from tablestone.tools.connection import GivenConnection
from tablestone.tools.formats.compressed import ReadPosition
from tablestone.tools.formats.reading_file import read_rows, require_kind
from tablestone.tools.formats.rows import Reading, Rejected, Row
from tablestone.tools.insight import ask_for_insight, queries_of, rate_of
from tablestone.tools.progress import progress_for
from tablestone.tools.reading import TableReader
from tablestone.tools.refusals import TransferFailed, TransferRefused
from tablestone.tools.simulated_queries import GivenQuery, distinct
from tablestone.tools.simulating import rows_of_table, simulate

CANNOT_BE_LOADED = 1
RATE_MAX = 1e12
"""Entities a second: far beyond any service, and a number of which a report can be made."""


def _number(_context: click.Context, _option: click.Parameter, rate: float | None) -> float | None:
    """The rate, unless it is no number."""
    if rate is not None and math.isnan(rate):
        raise click.BadParameter("nan is not a number of entities.")
    return rate


@click.command(
    name="simulate-keys",
    epilog="Example: tablestone simulate-keys weather.csv --partition-key origin --row-key time_hour "
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
    progress = progress_for(f"simulate-keys {source}", quiet=quiet)
    try:
        report = simulate(
            source,
            _rows(source, kind, reading, words, position),
            reading,
            distinct(asked),
            rate=rate,
            position=position,
            progress=progress,
        )
    finally:
        progress.close()
    text = json.dumps(members_of(report)) if as_json else "\n".join(lines_of(report))
    sys.stdout.write(text + "\n")
    return 0 if report.can_be_loaded else CANNOT_BE_LOADED


def _observed(admin: str, table: str) -> tuple[list[GivenQuery], float | None]:
    """The queries of a table that a server has seen, and the most entities a second that it took."""
    report = ask_for_insight(admin, table).report
    if not report.tables:
        raise TransferFailed(f"The server of {admin} has seen no request of the table {table}.")
    return queries_of(report, table, DAY), rate_of(report, table, DAY)


def _rows(
    source: str, kind: str | None, reading: Reading, words: GivenConnection, position: ReadPosition
) -> Iterator[Row | Rejected]:
    """The rows of the file or the table; a table's name has letters and digits only, and `--format` means a file."""
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
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TransferRefused(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise TransferRefused(f"{path} is not UTF-8.") from None
    return [line.strip() for line in text.splitlines() if line.strip()]
