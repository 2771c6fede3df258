"""`tablestone cluster`: work on a Cassandra keyspace. What needs the driver is imported when a command runs."""

from __future__ import annotations

import asyncio
import heapq
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, closing, contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tablestone.cli import options
from tablestone.cli.data_options import account_option, advising_after_interrupt, together
from tablestone.cli.local_directory import SCHEME as DIRECTORY_SCHEME
from tablestone.cli.local_directory import LocalDirectory
from tablestone.cli.option_sources import KEY_VARIABLE, key_of_directory, read_configuration
from tablestone.clock import monotonic_seconds, system_clock
from tablestone.configuration import DEVELOPMENT_ACCOUNT_NAME
from tablestone.engines.cassandra.cluster_url import FORM, SCHEME, ClusterAddress, parse_address
from tablestone.engines.cassandra.kind import require_driver
from tablestone.engines.contract import (
    Engine,
    EngineRefused,
    EngineUnavailable,
    KeyRange,
    StorageId,
)
from tablestone.engines.kind import EngineUrl
from tablestone.engines.registry import held_for_processes, open_engine
from tablestone.tables import storage_keys
from tablestone.tables.catalog import TableRecord, every_table, read_record
from tablestone.tables.indexes import IndexState
from tablestone.tables.storage_keys import partition_in_words
from tablestone.tables.storage_migration import Progress, StorageComparison, compare, is_empty, move
from tablestone.tools.progress import Reached, progress_for, shown_bytes, shown_count

if TYPE_CHECKING:
    from tablestone.engines.cassandra.connection import Connection
    from tablestone.engines.cassandra.engine import CassandraEngine

CLUSTER_OPTIONS = (replace(options.ENGINE, help=f"The cluster: {FORM}.", default="none"),)


def cluster_address(given: dict[str, Any]) -> ClusterAddress:
    """The address in the options; `BrokenOption` if they name no cluster."""
    # A data directory or a key in the environment is for `load`, `unload` or another server, not for the cluster.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(KEY_VARIABLE) and name != options.DATA.variable
    }
    configuration = read_configuration(given, environment)
    if EngineUrl.parse(configuration.engine).scheme != SCHEME:
        raise options.BrokenOption(f"Say which cluster: --engine '{FORM}'.")
    return parse_address(configuration.engine)


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


def _moving(flag: str, text: str) -> Callable[[Any], Any]:
    """The options of a move between a directory and a cluster."""
    kind = click.Path(path_type=Path)
    return together(
        options.with_options(CLUSTER_OPTIONS),
        click.option(flag, "directory", metavar="DIR", required=True, type=kind, help=text),
        options.key_file_option("the data directory"),
        options.quiet_option,
    )


@cluster.command(
    epilog="Example: tablestone cluster load --from ./data "
    "--engine 'cassandra://node1,node2,node3/tablestone?datacenter=dc1'"
)
@_moving("--from", "The data directory; it must not be in use by a server.")
def load(directory: Path, encryption_key_file: str | None, *, quiet: bool, **given: Any) -> int:
    """Bring a data directory into a cluster.

    Accounts, policies, service properties, roles, tables and entities come with their versions, so
    ETags stay good. The keyspace must be new (`tablestone cluster init`), and no server can use
    it until everything was compared. After an interruption, the same command continues.

    Exit status: 0 if both hold the same, 1 if not or if it failed, 2 if it could not begin.
    """
    address = cluster_address(given)
    source = LocalDirectory(directory, key_of_directory(encryption_key_file))
    place = f"{DIRECTORY_SCHEME}:{directory}"
    # Refuse a directory without data: locking it would create a database there.
    asyncio.run(open_engine(place, system_clock, read_only=True, key=source.key).close())
    with advising_after_interrupt(), held_for_processes(place, source.key) as storage:
        return asyncio.run(_load(address, storage, source, quiet=quiet))


@cluster.command(
    epilog="Example: tablestone cluster unload --to ./data "
    "--engine 'cassandra://node1,node2,node3/tablestone?datacenter=dc1'"
)
@_moving("--to", "The data directory to make; it must not exist, or be empty.")
def unload(directory: Path, encryption_key_file: str | None, *, quiet: bool, **given: Any) -> int:
    """Bring the content of a cluster into a new data directory.

    Everything comes with its versions, so ETags stay good. Stop every server first. DIR appears
    when everything was compared. After an interruption, the same command continues.

    Exit status: 0 if both hold the same, 1 if not or if it failed, 2 if it could not begin.
    """
    address = cluster_address(given)
    target = LocalDirectory(directory, key_of_directory(encryption_key_file))
    with advising_after_interrupt():
        return asyncio.run(_unload(address, target, quiet=quiet))


async def _load(
    address: ClusterAddress, storage: StorageId, local: LocalDirectory, *, quiet: bool
) -> int:
    require_driver()
    from tablestone.engines.cassandra import loading, opening  # noqa: PLC0415 - need the driver
    from tablestone.engines.sqlite.backup import count_rows  # noqa: PLC0415 - for this command only

    directory, key = local
    async with AsyncExitStack() as ends:
        target = opening.open_cassandra(address, system_clock, may_be_loading=True)
        ends.push_async_callback(target.close)
        if not loading.is_under_way(target.connection) and not await is_empty(target):
            raise EngineRefused(
                f"The keyspace {address.keyspace} holds data already: load into a new one."
            )
        await _require_alone(target, address)
        source = open_engine(
            f"{DIRECTORY_SCHEME}:{directory}", system_clock, shared=True, storage=storage, key=key
        )
        ends.push_async_callback(source.close)
        rows = count_rows(directory, key)
        filled = loading.Load(target.connection, storage)
        left = count_rows(directory, key, filled.reached)
        with _progress("load", left, quiet=quiet) as tell:
            await move(source, filled, tell)
        advice = (
            f"The keyspace {address.keyspace} is not as {directory}: drop it, make it again, and "
            "repeat the load."
        )
        found = await _compared(source, target, rows, advice, quiet=quiet)
        if found.differences:
            return 1
        await filled.finish()
        print(f"The keyspace {address.keyspace} holds what {directory} holds: {_counted(found)}.")
        await _tell_expiry(source)
        if indexed := await in_words(source, indexes_of):
            print(
                f"A cluster keeps no indexes, so the queries that these served will scan: {indexed}."
            )
        return 0


async def _unload(address: ClusterAddress, local: LocalDirectory, *, quiet: bool) -> int:
    from tablestone.engines.sqlite.backup import NewDirectory  # noqa: PLC0415 - for this command only

    directory, key = local
    require_driver()
    from tablestone.engines.cassandra import opening  # noqa: PLC0415 - needs the driver

    source = opening.open_cassandra(address, system_clock, read_only=True)
    try:
        await _require_alone(source, address)
        with NewDirectory(directory, opening.storage_id(source.connection), key) as target:
            with _progress("unload", None, quiet=quiet) as tell:
                await move(source, target, tell)
            copy = open_engine(
                f"{DIRECTORY_SCHEME}:{target.partial}", system_clock, read_only=True, key=key
            )
            advice = (
                f"{address.keyspace} has changed meanwhile: stop every server, remove {target.partial}, and repeat "
                "the command."
            )
            try:
                found = await _compared(source, copy, None, advice, quiet=quiet)
                indexed = await in_words(copy, indexes_of)
            finally:
                await copy.close()
            if found.differences:
                return 1
            target.finish()
        print(f"{directory} holds what the keyspace {address.keyspace} holds: {_counted(found)}.")
        await _tell_expiry(source)
        if indexed:
            print(
                f"No query uses these indexes until `tablestone index check` has made them again: {indexed}."
            )
        return 0
    finally:
        await source.close()


async def in_words(engine: Engine, words_of: Callable[[TableRecord], Iterable[str]]) -> str:
    """What `words_of` says of each table, such as its indexes, in a line; empty if it says nothing."""
    return ", ".join(
        [
            f"{record.name} {words}"
            + (f" of account {account}" * (account != DEVELOPMENT_ACCOUNT_NAME))
            async for account, record in every_table(engine)
            for words in words_of(record)
        ]
    )


def indexes_of(record: TableRecord) -> list[str]:
    ended = (IndexState.READY, IndexState.BROKEN)
    return [each.property for each in record.indexes if each.state in ended]


async def _tell_expiry(engine: Engine) -> None:
    """Say what will expire. Unlike a restore, a move brings the last state of a storage, so it suspends no policy."""

    def words_of(table: TableRecord) -> list[str]:
        return [] if table.acting_expiry is None else [table.acting_expiry.in_words]

    if found := await in_words(engine, words_of):
        print(
            "Entities go on to expire, and a server removes them from an hour after its start on; `tablestone expiry "
            f"suspend` keeps them: {found}."
        )


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


async def _compared(
    source: Engine, copy: Engine, rows: int | None, advice: str, *, quiet: bool
) -> StorageComparison:
    """Compare both, and print the differences and then the advice if there are some."""
    with _progress("compare", rows, quiet=quiet) as tell:
        found = await compare(source, copy, tell)
    for sentence in found.described:
        print(sentence)
    if found.differences > len(found.described):
        print(f"… and {found.differences - len(found.described):,} more differences.")
    if found.differences:
        print(advice)
    return found


def _counted(found: StorageComparison) -> str:
    counts = found.counts
    parts = (
        shown_count(counts.accounts, "account"),
        shown_count(counts.tables, "table"),
        shown_count(counts.entities, "entity", "entities"),
        shown_count(counts.others, "other row"),
    )
    return f"{', '.join(parts)}, {shown_bytes(counts.size)}, every row compared"


@contextmanager
def _progress(title: str, rows: int | None, *, quiet: bool) -> Iterator[Progress]:
    """Show the progress in rows, of which there are `rows` if that is known."""
    with closing(progress_for(title, quiet=quiet, counted="rows")) as progress:
        yield lambda count, size: progress.update(Reached(count, size, position=count, length=rows))


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
