"""`tablestone insight`: the hottest partitions, the queries that scan, and the tables of a running server.

Reads `/insight` of the admin address, and prints it for a person or as it is. Knows the report; does not know how
anything is counted, or how it looks (`insight_tables`).
"""

from __future__ import annotations

import json
import sys

import click

from tablestone.advice.advising import advise
from tablestone.cli.insight_tables import print_insight
from tablestone.insight.report import HOUR, PERIODS
from tablestone.tools.insight import ask_for_insight, workload_of
from tablestone.tools.refusals import TransferFailed


@click.command(epilog="Example: tablestone insight Weather --admin 10003")
@click.argument("table", metavar="[TABLE]", required=False)
@click.option(
    "--admin",
    metavar="[HOST:]PORT",
    required=True,
    envvar="TABLESTONE_ADMIN",
    help="The admin address of the server; HOST is 127.0.0.1 unless given.",
)
@click.option("--account", metavar="NAME", help="Show this account only.")
@click.option(
    "--period",
    type=click.Choice(PERIODS),
    default=HOUR,
    show_default=True,
    help="The length of time: five minutes, an hour or a day.",
)
@click.option(
    "--top",
    type=click.IntRange(1, 50),
    default=10,
    show_default=True,
    help="How many partitions, queries and tables.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the whole report and the advice as JSON."
)
def insight(
    table: str | None, admin: str, account: str | None, period: str, top: int, *, as_json: bool
) -> None:
    """Show hot partitions and scanning queries of a server.

    The server must have been started with --admin. With a TABLE, everything is about this table.
    Advice says which keys would be better; there is none where nothing is wrong.
    """
    report, text = ask_for_insight(admin, table, account)
    if table is not None and not report.tables:
        raise TransferFailed(f"The server knows no table {table} with requests of the last day.")
    advice = advise(workload_of(report, period, of_one_table=table is not None))
    if as_json:
        members = {**json.loads(text), "advice": [each.members() for each in advice]}
        sys.stdout.write(json.dumps(members, indent=1, ensure_ascii=False) + "\n")
    else:
        print_insight(report, period, top, advice[:top], of_one_table=table is not None)
