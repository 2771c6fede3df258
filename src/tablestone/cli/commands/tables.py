"""`tablestone tables`, `count` and `partitions`: what is at an endpoint."""

import sys
from contextlib import closing

import click

from tablestone.cli import data_options
from tablestone.tools.client import Query, TableEndpoint
from tablestone.tools.errors import TransferFailed, TransferRefused
from tablestone.tools.progress import progress_for, shown_bytes, shown_entities
from tablestone.tools.queries import Met, TableReader, checked_filter, count_by, size_of


@click.command(epilog="Example: tablestone count Weather --by PartitionKey")
@data_options.table_argument
@data_options.filter_option
@click.option("--by", "name", metavar="NAME", help="One line for each value of this property.")
@data_options.quiet_option
@data_options.with_endpoint
def count(
    endpoint: TableEndpoint, table: str, filter_text: str | None, name: str | None, *, quiet: bool
) -> None:
    """Count entities exactly.

    A server with --query-extensions counts them itself. Azure does not: all keys are read, page by page.
    """
    with closing(progress_for(f"count {table}", quiet=quiet)) as progress:
        reader = TableReader(endpoint)
        asked = Query(table, checked_filter(filter_text), (name or "PartitionKey",))
        met = Met([] if name is None else [name])
        entities = met.watch(reader.entities(asked, progress))
        counted = endpoint.count(Query(table, asked.filter)) if name is None else None
        if name is None:
            lines = [str(sum(1 for _ in entities) if counted is None else counted)]
        else:
            lines = [f"{number}\t{value}" for value, number in count_by(entities, name)]
        print("\n".join(lines), flush=True)
        data_options.tell_of_absent(
            *(endpoint, asked, counted or reader.cost.entities), dict.fromkeys(met.missing, "--by")
        )


@click.command(epilog="Example: tablestone partitions Weather")
@data_options.table_argument
@data_options.with_endpoint
def partitions(endpoint: TableEndpoint, table: str) -> None:
    """List the distinct PartitionKeys of a table.

    Each query seeks past the last PartitionKey; the entities in between are not read.
    """
    for key in TableReader(endpoint).partition_keys(table):
        sys.stdout.write(key + "\n")


@click.command(epilog="Example: tablestone tables --sizes --profile production")
@click.option("--sizes", is_flag=True, help="Entities and bytes of each; reads all entities.")
@click.option("--create", metavar="TABLE", help="Create this table.")
@click.option("--delete", metavar="TABLE", help="Delete this table with everything in it.")
@data_options.yes_option
@data_options.quiet_option
@data_options.json_option
@data_options.with_endpoint
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

    No endpoint reports the size of a table: --sizes reads all entities. The bytes follow the
    service's documented formula for entities.
    """
    changes = create is not None or delete is not None
    if changes and (sizes or as_json):
        raise TransferRefused("--sizes and --json go with a list, not with --create or --delete.")
    if create is not None:
        made = endpoint.create_table(create)
        print(f"Table {create} created." if made else f"Table {create} was there.")
    if delete is not None:
        data_options.require_consent(endpoint.connection, f"Deleting the table {delete}", yes=yes)
        if not endpoint.delete_table(delete):
            raise TransferFailed(f"There is no table {delete}.")
        print(f"Table {delete} deleted.")
    if changes:
        return
    for name in endpoint.table_names():
        line, members = name, {"table": name}
        if sizes:
            with closing(progress_for(f"size of {name}", quiet=quiet)) as progress:
                size = size_of(TableReader(endpoint), name, progress)
            line = f"{name}\t{shown_entities(size.entities)}\t{shown_bytes(size.bytes)}"
            members = size._asdict()
        data_options.print_report([line], members, as_json=as_json)
