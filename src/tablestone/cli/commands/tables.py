"""`tablestone tables`: the names of an account's tables; also makes one or deletes one."""

from __future__ import annotations

import click

from tablestone.cli.data_options import require_consent, with_endpoint, yes_option
from tablestone.transfer.wire import TableEndpoint


@click.command(epilog="Example: tablestone tables --profile production")
@click.option("--create", metavar="TABLE", help="Create this table.")
@click.option("--delete", metavar="TABLE", help="Delete this table with everything in it.")
@yes_option
@with_endpoint
def tables(endpoint: TableEndpoint, create: str | None, delete: str | None, *, yes: bool) -> None:
    """List the tables of an account."""
    if create is not None:
        made = endpoint.create_table(create)
        print(f"Table {create} created." if made else f"Table {create} was there.")
    if delete is not None:
        require_consent(endpoint.connection, f"Deleting the table {delete}", yes=yes)
        endpoint.delete_table(delete)
        print(f"Table {delete} deleted.")
    if create is None and delete is None:
        for name in endpoint.table_names():
            print(name)
