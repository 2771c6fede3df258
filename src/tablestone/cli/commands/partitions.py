"""`tablestone partitions`: the distinct PartitionKeys, skipping from one to the next."""

from __future__ import annotations

import sys

import click

from tablestone.cli.data_options import table_argument, with_endpoint
from tablestone.tools.client import TableEndpoint
from tablestone.tools.reading import TableReader


@click.command(epilog="Example: tablestone partitions Weather")
@table_argument
@with_endpoint
def partitions(endpoint: TableEndpoint, table: str) -> None:
    """List the distinct PartitionKeys of a table.

    A seek behind each PartitionKey finds the next one: the entities between them are not read.
    """
    for key in TableReader(endpoint).partition_keys(table):
        sys.stdout.write(key + "\n")
