"""`tablestone cluster`: work on a Cassandra keyspace. What needs the driver is imported when a command runs."""

from __future__ import annotations

import asyncio
import heapq
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tablestone.cli import options, storage_move
from tablestone.cli.data_options import account_option
from tablestone.clock import monotonic_seconds, system_clock
from tablestone.engines.cassandra.cluster_url import FORM, SCHEME, ClusterAddress, parse_address
from tablestone.engines.cassandra.kind import require_driver
from tablestone.engines.contract import (
    Engine,
    EngineRefused,
    EngineUnavailable,
    KeyRange,
    StorageId,
)
from tablestone.tables import storage_keys
from tablestone.tables.catalog import every_table, read_record
from tablestone.tables.storage_keys import partition_in_words
from tablestone.tables.storage_migration import is_empty
from tablestone.tools.progress import Reached, progress_for, shown_bytes

if TYPE_CHECKING:
    from tablestone.engines.cassandra.connection import Connection
    from tablestone.engines.cassandra.engine import CassandraEngine

CLUSTER_OPTIONS = storage_move.engine_option("cluster", FORM)


def cluster_address(given: dict[str, Any]) -> ClusterAddress:
    """The address in the options; `BrokenOption` if they name no cluster."""
    return parse_address(storage_move.engine_url(given, SCHEME, "cluster", FORM))


@click.group()
def cluster() -> None:
    """Prepare, check, fill and look at an Apache Cassandra cluster.

    Servers on any number of machines can keep their tables in one cluster, and act as one.
    """


@cluster.command()
@options.with_options(CLUSTER_OPTIONS)
def init(**given: Any) -> int:
    """Create the keyspace and its tables.

    The number of copies of each row is replication=3, or replication=DC1:3,DC2:3, in the engine's
    URL. A keyspace that exists does not change, except that one of an older layout is
    brought to the present one.
    """
    address = cluster_address(given)
    require_driver()
    from tablestone.engines.cassandra.opening import initialize  # noqa: PLC0415 - needs the driver

    made = initialize(address)
    print(f"Keyspace {address.keyspace}: {'made' if made else 'exists already'}.")
    return _report(address)


@cluster.command()
@options.with_options(CLUSTER_OPTIONS)
def check(**given: Any) -> int:
    """Check the cluster's nodes, settings, clocks and keyspace.

    Exit status: 0 if nothing or only warnings. Otherwise a server would refuse to start: 1 if
    the check found why, 2 if it could not begin, as without a node or without the keyspace.
    `tablestone check` reads the stored data.
    """
    return _report(cluster_address(given))


def _report(address: ClusterAddress) -> int:
    """Print what is wrong; the exit status is 1 if a server would refuse to start."""
    require_driver()
    from tablestone.engines.cassandra.opening import examine_cluster  # noqa: PLC0415 - needs the driver

    found = examine_cluster(address, system_clock)
    for sentence in (*(f"warning: {each}" for each in found.warnings), *found.refusals):
        print(sentence)
    if found.refusals:
        return 1
    print("A server can use it." if found.warnings else "The cluster is as it should be.")
    return 0


LEAVING_SECONDS_MAX: Final = 5.0
"""Seconds for which nodes may still list the connections of a server that has stopped."""


@cluster.command(
    epilog="Example: tablestone cluster load --from ./data "
    "--engine 'cassandra://node1,node2,node3/tablestone?datacenter=dc1'"
)
@storage_move.moving(*storage_move.FROM, CLUSTER_OPTIONS)
def load(directory: Path, encryption_key_file: str | None, *, quiet: bool, **given: Any) -> int:
    """Bring a data directory into a cluster.

    Accounts, policies, service properties, roles, tables and entities come with their versions, so
    ETags stay good. The keyspace must be new (`tablestone cluster init`), and no server can use
    it until everything was compared. After an interruption, the same command continues.

    Exit status: 0 if both hold the same, 1 if not or if it failed, 2 if it could not begin.
    """
    address = cluster_address(given)

    @asynccontextmanager
    async def target(
        storage: StorageId, _source: Engine
    ) -> AsyncIterator[tuple[Engine, storage_move.Filling]]:
        require_driver()
        from tablestone.engines.cassandra import loading, opening  # noqa: PLC0415 - need the driver

        engine = opening.open_cassandra(address, system_clock, may_be_loading=True)
        try:
            if not loading.is_under_way(engine.connection) and not await is_empty(engine):
                raise EngineRefused(
                    f"The keyspace {address.keyspace} holds data already: load into a new one."
                )
            await _require_alone(engine, address)
            yield engine, loading.Load(engine.connection, storage)
        finally:
            await engine.close()

    name = f"keyspace {address.keyspace}"
    return storage_move.load(directory, encryption_key_file, target, name, quiet=quiet)


@cluster.command(
    epilog="Example: tablestone cluster unload --to ./data "
    "--engine 'cassandra://node1,node2,node3/tablestone?datacenter=dc1'"
)
@storage_move.moving(*storage_move.TO, CLUSTER_OPTIONS)
def unload(directory: Path, encryption_key_file: str | None, *, quiet: bool, **given: Any) -> int:
    """Bring the content of a cluster into a new data directory.

    Everything comes with its versions, so ETags stay good. Stop every server first. DIR appears
    when everything was compared. After an interruption, the same command continues.

    Exit status: 0 if both hold the same, 1 if not or if it failed, 2 if it could not begin.
    """
    address = cluster_address(given)
    require_driver()
    from tablestone.engines.cassandra import opening  # noqa: PLC0415 - needs the driver

    @asynccontextmanager
    async def source() -> AsyncIterator[tuple[Engine, StorageId]]:
        engine = opening.open_cassandra(address, system_clock, read_only=True)
        try:
            await _require_alone(engine, address)
            yield engine, opening.storage_id(engine.connection)
        finally:
            await engine.close()

    name = f"keyspace {address.keyspace}"
    return storage_move.unload(directory, encryption_key_file, source, name, quiet=quiet)


async def _require_alone(engine: CassandraEngine, address: ClusterAddress) -> None:
    """Refuse while a server is connected: it could change rows that are already copied."""
    for datacenter in engine.connection.every_node.silent_datacenters():
        print(
            f"tablestone: No node of datacenter {datacenter} answers, so a server there would not be seen: make sure "
            "that none runs.",
            file=sys.stderr,
        )
    deadline = monotonic_seconds() + LEAVING_SECONDS_MAX
    while clients := engine.connection.other_clients():
        if monotonic_seconds() < deadline:  # a server that has just stopped
            await asyncio.sleep(0.5)
            continue
        raise EngineRefused(
            f"The keyspace {address.keyspace} is in use from {', '.join(clients)}: stop every server first."
        )


LARGEST_SHOWN: Final = 10
_HEAD: Final = ("node", "datacenter", "rack", "version", "state", "share", "partitions", "on disk")


@cluster.command(
    epilog="Example: tablestone cluster status --table Readings --partition-key EWR "
    "--engine 'cassandra://node1,node2,node3/tablestone?datacenter=dc1'"
)
@options.with_options(CLUSTER_OPTIONS)
@click.option(
    "--count", "counts", is_flag=True, help="Count exactly; the nodes read all rows for it."
)
@click.option("--table", metavar="NAME", help="Show the nodes that hold a partition of this table.")
@click.option("--partition-key", metavar="KEY", help="The PartitionKey of that partition.")
@account_option
@options.quiet_option
def status(
    table: str | None,
    partition_key: str | None,
    account_name: str,
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
        raise options.BrokenOption("--table and --partition-key belong together.")
    address = cluster_address(given)
    require_driver()
    from tablestone.engines.cassandra import connection as to_nodes  # noqa: PLC0415 - need the driver
    from tablestone.engines.cassandra import loading, opening  # noqa: PLC0415

    try:
        engine = opening.open_cassandra(address, system_clock, read_only=True, may_be_loading=True)
    except EngineUnavailable:
        # Each node can still be asked about itself.
        with closing(to_nodes.Connection(address)) as connection:
            _print_uses(connection)
        raise
    try:
        if loading.is_under_way(engine.connection):
            print(
                "The keyspace is being loaded: servers refuse it until `cluster load` has ended.\n"
            )
        if table is not None and partition_key is not None:
            return _print_nodes_of(engine, account_name, table, partition_key)
        _print_uses(engine.connection)
        if counts:
            _print_counts(engine, quiet=quiet)
    finally:
        asyncio.run(engine.close())
    return 0


def _print_uses(connection: Connection) -> None:
    """Print what each node says of itself."""
    from tablestone.engines.cassandra import placement  # noqa: PLC0415 - needs the driver

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


def _print_counts(engine: CassandraEngine, *, quiet: bool) -> None:
    from tablestone.engines.cassandra import placement  # noqa: PLC0415 - needs the driver

    connection = engine.connection
    partitions_on: Counter[str] = Counter()
    rows_on: Counter[str] = Counter()
    largest: list[tuple[int, bytes]] = []
    seen = 0
    with closing(progress_for("count", quiet=quiet, counted="rows")) as progress:

        def tell(more: int) -> None:
            nonlocal seen
            seen += more
            progress.update(Reached(seen, 0))

        partitions = rows = 0
        for partition, number in placement.count_partitions(connection, tell):
            partitions += 1
            rows += number
            copies_in = placement.nodes_of(connection, partition)
            for node in chain.from_iterable(copies_in.values()):
                partitions_on[node] += 1
                rows_on[node] += number
            heapq.heappush(largest, (number, partition))
            if len(largest) > LARGEST_SHOWN:
                heapq.heappop(largest)
    print(
        f"\n{partitions:,} partitions with {rows:,} rows, among them those of accounts and tables."
    )
    if not partitions:
        return
    print("\nThe copies on each node:")
    lines = [(node, f"{partitions_on[node]:,}", f"{rows_on[node]:,}") for node in sorted(rows_on)]
    _print_columns([("node", "partitions", "rows"), *lines])
    names = asyncio.run(_table_names(engine))
    print("\nThe largest partitions, by rows:")
    for number, partition in sorted(largest, reverse=True):
        size = shown_bytes(number * placement.mean_row_size(connection, partition))
        nodes = _copies_in_words(placement.nodes_of(connection, partition))
        words = partition_in_words(partition, names)
        print(f"  {number:,} rows, about {size}: {words}, on {nodes}")


def _print_nodes_of(engine: CassandraEngine, account: str, table: str, partition_key: str) -> int:
    from tablestone.engines.cassandra import placement  # noqa: PLC0415 - needs the driver

    stored = asyncio.run(engine.get(storage_keys.table_place(account, table)))
    if stored is None:
        print(f"tablestone: The account {account} has no table {table}.", file=sys.stderr)
        return 1
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
    return {
        record.table_id: f"{record.name} of {account}"
        async for account, record in every_table(engine)
    }


def _print_columns(lines: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())
