"""`tablestone tables`: the names of an account's tables, and their sizes; also makes one or deletes one."""

from __future__ import annotations

import click

from tablestone.cli.data_options import (
    json_option,
    print_report,
    quiet_option,
    require_consent,
    with_endpoint,
    yes_option,
)
from tablestone.tools.client import TableEndpoint
from tablestone.tools.progress import progress_for, shown_bytes
from tablestone.tools.reading import TableReader, TableSize, size_of
from tablestone.tools.refusals import TransferFailed, TransferRefused


@click.command(epilog="Example: tablestone tables --sizes --profile production")
@click.option("--sizes", is_flag=True, help="Entities and bytes of each; reads all entities.")
@click.option("--create", metavar="TABLE", help="Create this table.")
@click.option("--delete", metavar="TABLE", help="Delete this table with everything in it.")
@yes_option
@quiet_option
@json_option
@with_endpoint
def tables(
    endpoint: TableEndpoint,
    create: str | None,
    delete: str | None,
    *,
    sizes: bool,
    yes: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """List the tables of an account.

    No endpoint tells the size of a table: --sizes reads it. The bytes are those of the service's
    documented formula for entities.
    """
    changes = create is not None or delete is not None
    if changes and (sizes or as_json):
        raise TransferRefused("--sizes and --json go with a list, not with --create or --delete.")
    if create is not None:
        made = endpoint.create_table(create)
        print(f"Table {create} created." if made else f"Table {create} was there.")
    if delete is not None:
        require_consent(endpoint.connection, f"Deleting the table {delete}", yes=yes)
        if not endpoint.delete_table(delete):
            raise TransferFailed(f"There is no table {delete}.")
        print(f"Table {delete} deleted.")
    if changes:
        return
    for name in endpoint.table_names():
        if sizes:
            size = _measured(endpoint, name, quiet=quiet)
            print_report([_line(size)], size._asdict(), as_json=as_json)
        else:
            print_report([name], {"table": name}, as_json=as_json)


def _measured(endpoint: TableEndpoint, table: str, *, quiet: bool) -> TableSize:
    progress = progress_for(f"size of {table}", quiet=quiet)
    try:
        return size_of(TableReader(endpoint), table, progress)
    finally:
        progress.close()


def _line(size: TableSize) -> str:
    return f"{size.table}\t{size.entities:,} entities\t{shown_bytes(size.bytes)}"
