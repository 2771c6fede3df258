"""`tablestone count`: exact counts, also by the values of a property."""

from __future__ import annotations

from collections.abc import Iterator

import click

from tablestone.cli.data_options import (
    connection_for,
    filter_option,
    opened,
    quiet_option,
    table_argument,
    with_connection,
)
from tablestone.tools.client import Query, RawEntity, TableEndpoint
from tablestone.tools.connection import GivenConnection
from tablestone.tools.progress import Reached, progress_for
from tablestone.tools.queries import count_by
from tablestone.tools.reading import TableReader, checked_filter


@click.command(epilog="Example: tablestone count Weather --by PartitionKey")
@table_argument
@filter_option
@click.option("--by", "name", metavar="NAME", help="One line for each value of this property.")
@quiet_option
@with_connection
def count(
    words: GivenConnection, table: str, filter_text: str | None, name: str | None, *, quiet: bool
) -> None:
    """Count entities exactly.

    The service does not count: all keys are read, page by page.
    """
    with opened(connection_for(words), "tablestone-count") as endpoint:
        _count(endpoint, table, filter_text, name, quiet=quiet)


def _count(
    endpoint: TableEndpoint, table: str, filter_text: str | None, name: str | None, *, quiet: bool
) -> None:
    reader = TableReader(endpoint)
    progress = progress_for(f"count {table}", quiet=quiet)
    asked = Query(table, checked_filter(filter_text), (name or "PartitionKey",))

    def entities() -> Iterator[RawEntity]:
        for page in reader.pages(asked):
            progress.update(Reached(reader.cost.entities, reader.cost.bytes))
            yield from page.entities

    try:
        if name is None:
            for _ in entities():
                pass
            lines = [str(reader.cost.entities)]
        else:
            lines = [f"{number}\t{value}" for value, number in count_by(entities(), name)]
    finally:
        progress.close()
    print("\n".join(lines))
