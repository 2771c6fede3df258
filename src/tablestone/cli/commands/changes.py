"""`tablestone changes`: the feed of changes of a table or of an account, as JSON lines."""

import sys

import click

from tablestone.cli.data_options import complete_tables, with_endpoint
from tablestone.tools.changes import pages_of_changes
from tablestone.tools.client import TableEndpoint
from tablestone.tools.errors import TransferRefused


@click.command(epilog="Example: tablestone changes Orders --since now --follow")
@click.argument("table", required=False, shell_complete=complete_tables)
@click.option("--follow", is_flag=True, help="Go on with every change to come.")
@click.option(
    "--since",
    metavar="CURSOR|TIME|now",
    help="Only changes after a cursor, or from a time (ISO 8601) on.  [default: all that are kept]",
)
@with_endpoint
def changes(endpoint: TableEndpoint, table: str | None, since: str | None, *, follow: bool) -> None:
    """Show what was stored and deleted, in order.

    JSON lines, each with the cursor from which to go on. Without TABLE, those of all tables of the
    account. The server must keep changes: `tablestone serve --keep-changes 7d`.
    """
    if table == "":  # an unset variable of a script must not show all tables
        raise TransferRefused("TABLE is empty: give a name, or leave it out for all tables.")
    cursor = ""
    for page in pages_of_changes(endpoint, table, since, follows=follow):
        for line in page.lines:
            sys.stdout.write(line.decode("utf-8") + "\n")
            if follow:
                sys.stdout.flush()
        cursor = page.cursor
    sys.stdout.flush()
    print(f"For later changes: --since {cursor}", file=sys.stderr)
