"""`tablestone cluster status`: the nodes, what each of them holds, the largest partitions, the nodes of a given one.

Knows the printed text. `engines.cassandra.placement` has the facts, `tables.storage_keys` the form of partitions.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import click

from tablestone import limits
from tablestone.cli.commands.cluster_address import CLUSTER_OPTIONS, cluster_address, opening
from tablestone.cli.option_values import BrokenOption
from tablestone.cli.parameters import with_options
from tablestone.clock import system_clock
from tablestone.configuration import DEVELOPMENT_ACCOUNT_NAME
from tablestone.engines.contract import Engine, EngineUnavailable, Key, KeyRange
from tablestone.tables import storage_keys
from tablestone.tables.catalog import read_record
from tablestone.tables.storage_keys import partition_in_words
from tablestone.tools.progress import Reached, progress_for, shown_bytes

if TYPE_CHECKING:
    from types import ModuleType

    from tablestone.engines.cassandra.connection import Connection
    from tablestone.engines.cassandra.engine import CassandraEngine

LARGEST_SHOWN: Final = 10
NO_SUCH_TABLE: Final = 1
_HEAD: Final = ("node", "datacenter", "rack", "version", "state", "share", "partitions", "on disk")


@click.command(
    epilog="Example: tablestone cluster status --table Readings --partition-key EWR "
    "--engine 'cassandra://node1,node2,node3/tablestone?datacenter=dc1'"
)
@with_options(CLUSTER_OPTIONS)
@click.option(
    "--count", "counts", is_flag=True, help="Count exactly; the nodes read all rows for it."
)
@click.option("--table", metavar="NAME", help="Show the nodes that hold a partition of this table.")
@click.option("--partition-key", metavar="KEY", help="The PartitionKey of that partition.")
@click.option(
    "--account",
    metavar="NAME",
    default=DEVELOPMENT_ACCOUNT_NAME,
    show_default=True,
    help="The account of the table.",
)
@click.option("--quiet", is_flag=True, help="No progress on standard error.")
def status(
    table: str | None,
    partition_key: str | None,
    account: str,
    *,
    counts: bool,
    quiet: bool,
    **given: Any,
) -> int:
    """Show the nodes and what each of them holds.

    The nodes estimate their partitions and bytes from what is on disk, every few minutes. With
    --count, everything is counted, and the largest partitions are listed.
    """
    if (table is None) != (partition_key is None):
        raise BrokenOption("--table and --partition-key belong together.")
    address = cluster_address(given)
    opened = opening()
    from tablestone.engines.cassandra import placement  # noqa: PLC0415 - needs the driver

    try:
        engine = opened.open_cassandra(address, system_clock, read_only=True, may_be_loading=True)
    except EngineUnavailable:
        _print_nodes_alone(placement, opened.connect(address))
        raise
    try:
        if opened.is_loading(engine):
            print(
                "The keyspace is being loaded: servers refuse it until `cluster load` has ended.\n"
            )
        if table is not None and partition_key is not None:
            return _print_nodes_of(placement, engine, account, table, partition_key)
        _print_uses(placement, engine.connection)
        if counts:
            _print_counts(placement, engine, quiet=quiet)
    finally:
        asyncio.run(engine.close())
    return 0


def _print_nodes_alone(placement: ModuleType, connection: Connection) -> None:
    """The nodes of a keyspace that cannot be read, each asked about itself."""
    try:
        _print_uses(placement, connection)
    finally:
        connection.close()


def _print_uses(placement: ModuleType, connection: Connection) -> None:
    uses = placement.node_uses(connection)
    lines = [
        (
            *(use.address, use.datacenter, use.rack, use.version),
            "up" if use.is_up else "down",
            f"{use.share:.0%}",
            "?" if use.partitions is None else f"about {use.partitions:,}",
            "?" if use.size is None else shown_bytes(use.size),
        )
        for use in uses
    ]
    _print_columns([_HEAD, *lines])
    largest = max((use.largest or 0 for use in uses), default=0)
    if largest:
        print(
            f"By these figures, which are of compressed files, no partition is larger than {shown_bytes(largest)}."
        )


def _print_counts(placement: ModuleType, engine: CassandraEngine, *, quiet: bool) -> None:
    connection = engine.connection
    partitions_on: dict[str, int] = {}
    rows_on: dict[str, int] = {}
    largest: list[tuple[int, bytes]] = []
    partitions = rows = seen = 0
    progress = progress_for("count", quiet=quiet, counted="rows")

    def tell(more: int) -> None:
        nonlocal seen
        seen += more
        progress.update(Reached(seen, 0))

    try:
        for counted in placement.count_partitions(connection, tell):
            partitions += 1
            rows += counted.rows
            copies_in = placement.nodes_of(connection, counted.partition)
            for node in chain.from_iterable(copies_in.values()):
                partitions_on[node] = partitions_on.get(node, 0) + 1
                rows_on[node] = rows_on.get(node, 0) + counted.rows
            entry = (counted.rows, counted.partition)
            if len(largest) < LARGEST_SHOWN:
                heapq.heappush(largest, entry)
            else:
                heapq.heappushpop(largest, entry)
    finally:
        progress.close()
    print(
        f"\n{partitions:,} partitions with {rows:,} rows, among them those of accounts and tables."
    )
    if not partitions:
        return
    print("\nThe copies on each node:")
    _print_columns(
        [
            ("node", "partitions", "rows"),
            *(
                (node, f"{number:,}", f"{rows_on[node]:,}")
                for node, number in sorted(partitions_on.items())
            ),
        ]
    )
    names = asyncio.run(_table_names(engine))
    print("\nThe largest partitions, by rows:")
    for number, partition in sorted(largest, reverse=True):
        size = shown_bytes(number * placement.mean_row_size(connection, partition))
        nodes = _copies_in_words(placement.nodes_of(connection, partition))
        words = partition_in_words(partition, names)
        print(f"  {number:,} rows, about {size}: {words}, on {nodes}")


def _print_nodes_of(
    placement: ModuleType, engine: CassandraEngine, account: str, table: str, partition_key: str
) -> int:
    stored = asyncio.run(engine.get(storage_keys.table_place(account, table)))
    if stored is None:
        print(f"tablestone: The account {account} has no table {table}.", file=sys.stderr)
        return NO_SUCH_TABLE
    partition = storage_keys.entity_partition(read_record(stored).table_id, partition_key)
    copies_in = placement.nodes_of(engine.connection, partition)
    if not asyncio.run(engine.scan(KeyRange.of_partition(partition), rows_max=1)):
        print("No entity has this PartitionKey. These nodes would hold the partition:")
    for datacenter, nodes in copies_in.items():
        for node in nodes:
            print(node if len(copies_in) == 1 else f"{node}  {datacenter}")
    return 0


def _copies_in_words(copies_in: Mapping[str, Sequence[str]]) -> str:
    """The nodes of a partition, with their datacenters if there are several."""
    if len(copies_in) == 1:
        return ", ".join(*copies_in.values())
    return "; ".join(f"{name}: {', '.join(nodes)}" for name, nodes in copies_in.items())


async def _table_names(engine: Engine) -> dict[bytes, str]:
    """The names of all tables with their accounts, by the ids of the tables."""
    names: dict[bytes, str] = {}
    rest = storage_keys.catalogs_after(b"")
    while rows := await engine.scan(rest, rows_max=limits.PAGE_ENTITIES_MAX):
        for row in rows:
            if storage_keys.is_table_row(row.row):
                record = read_record(row.value)
                account = storage_keys.account_of(row.partition)
                names[record.table_id] = f"{record.name} of {account}"
        rest = KeyRange(Key(rows[-1].partition, rows[-1].row + b"\0"), rest.end)
    return names


def _print_columns(lines: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())
