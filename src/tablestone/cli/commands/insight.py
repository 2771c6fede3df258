"""`tablestone insight`: the hottest partitions, the queries that scan, and the tables of a running server.

Reads `/insight` of the admin address, and prints it for a person or as it is. Knows the report; does not know how
anything is counted, or how it looks (`insight_tables`).
"""

from __future__ import annotations

import http.client
import json
import sys
from typing import Final
from urllib.parse import urlencode, urlsplit

import click

from tablestone.cli.insight_tables import print_insight
from tablestone.telemetry.insight_report import HOUR, PERIODS, InsightReport
from tablestone.transfer.refusals import TransferFailed, TransferRefused

ANSWER_SECONDS_MAX: Final = 30
"""Seconds to wait for the admin address."""
PAGE: Final = "/insight"


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
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON.")
def insight(
    table: str | None, admin: str, account: str | None, period: str, top: int, *, as_json: bool
) -> None:
    """Show hot partitions and scanning queries of a server.

    The server must have been started with --admin. With a TABLE, everything is about this table.
    """
    report, text = _fetched(admin, table, account)
    if table is not None and not report.tables:
        raise TransferFailed(f"The server knows no table {table} with requests of the last day.")
    if as_json:
        sys.stdout.write(json.dumps(json.loads(text), indent=1, ensure_ascii=False) + "\n")
    else:
        print_insight(report, period, top, of_one_table=table is not None)


def _fetched(admin: str, table: str | None, account: str | None) -> tuple[InsightReport, bytes]:
    host, port = _address(admin)
    asked = {"table": table, "account": account}
    query = urlencode({name: value for name, value in asked.items() if value is not None})
    shown = f"The admin address {host}:{port}"
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_SECONDS_MAX)
    try:
        connection.request("GET", f"{PAGE}?{query}" if query else PAGE)
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise TransferFailed(
            f"{shown} does not answer ({why}): is the server running with --admin {admin}?"
        ) from None
    finally:
        connection.close()
    if answer.status == http.client.NOT_FOUND and text.startswith(b"Insight is off"):
        raise TransferFailed(text.decode("utf-8").strip())
    try:
        if answer.status != http.client.OK:
            raise ValueError(answer.status)  # noqa: TRY301 - one sentence for all that is no report
        return InsightReport.from_json(text), text
    except ValueError:
        raise TransferFailed(
            f"{shown} answers, but not with insight: it is no admin address of a Tablestone server that has it."
        ) from None


def _address(admin: str) -> tuple[str, int]:
    """The host and the port of `[HOST:]PORT`, or of a URL."""
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
