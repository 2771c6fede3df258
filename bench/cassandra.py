"""Tablestone on an Apache Cassandra cluster, beside the bare driver doing the same statements. Prints tables.

    python -m bench.cassandra operations --nodes 3 --servers 2  # rates, on a cluster of its own
    python -m bench.cassandra costs --nodes 3                   # round trips and bytes of each operation
    python -m bench.cassandra partition --nodes 1               # one partition of a million rows of 1 KiB
    python -m bench.cassandra partitions --nodes 1              # a million partitions of one row
    python -m bench.cassandra tables --nodes 1                  # 10,000 tables of one account, created and deleted

With `--engine URL` instead of `--nodes`, a cluster that runs already is used, and a keyspace of its own in it
(`python -m tests.storage.cluster up` prints a URL). `pip install '.[cassandra]'` comes first.
"""

import argparse
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from bench import paths
from bench.cassandra_beside import Comparison, measure_beside
from bench.cassandra_costs import measure_costs
from bench.cassandra_driver import ROWS, open_engine
from bench.cassandra_partition import measure_partition
from bench.cassandra_partitions import measure_partitions
from bench.cassandra_tables import measure_tables
from tablestone.engines.cassandra import opening
from tablestone.engines.cassandra.cluster_url import parse_address
from tablestone.engines.cassandra.connection import Connection


def main() -> None:
    options = _options()
    with cluster(options) as place, keyspace_of_its_own(place) as url:
        if options.command == "costs":
            measure_costs(url)
        elif options.command == "partition":
            measure_partition(open_engine(url, loads=True), options.rows)
        elif options.command == "partitions":
            measure_partitions(url, options.partitions)
        elif options.command == "tables":
            measure_tables(open_engine(url), options.tables)
        else:
            measure_beside(
                Comparison(
                    url,
                    options.servers,
                    options.rounds,
                    options.seconds,
                    options.warmup,
                    options.connections,
                    options.operations or list(ROWS),
                )
            )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cassandra", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("costs", "operations", "partition", "partitions", "tables"):
        command = commands.add_parser(name)
        where = command.add_mutually_exclusive_group(required=True)
        where.add_argument("--engine", help="the URL of a cluster that runs")
        where.add_argument("--nodes", type=int, help="start a cluster of as many nodes here")
        if name == "operations":
            command.add_argument("operations", nargs="*", metavar="OPERATION", help=", ".join(ROWS))
            command.add_argument("--servers", type=int, default=1)
            command.add_argument("--rounds", type=int, default=5)
            command.add_argument("--seconds", type=float, default=3.0)
            command.add_argument("--warmup", type=float, default=1.0)
            command.add_argument("--connections", type=int, default=16)
        if name == "partition":
            command.add_argument("--rows", type=int, default=1_000_000)
        if name == "partitions":
            command.add_argument("--partitions", type=int, default=1_000_000)
        if name == "tables":
            command.add_argument("--tables", type=int, default=10_000)
    options = parser.parse_args()
    if unknown := set(getattr(options, "operations", ())) - set(ROWS):
        parser.error(f"no such operation: {', '.join(sorted(unknown))}")
    return options


@contextmanager
def cluster(options: argparse.Namespace) -> Iterator[str]:
    """The URL of the cluster: the one that is named, or one started here and removed afterwards."""
    if options.engine:
        yield options.engine
        return
    with tempfile.TemporaryDirectory() as parent:
        tests = [sys.executable, "-m", "tests.storage.cluster"]
        place = ["--directory", f"{parent}/cluster"]
        up = subprocess.run(
            [*tests, "up", "--nodes", str(options.nodes), *place],
            cwd=paths.BENCH.parent,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if up.returncode:
            sys.exit(up.returncode)
        try:
            yield up.stdout.splitlines()[-1]
        finally:
            subprocess.run([*tests, "down", *place], cwd=paths.BENCH.parent, check=True)


@contextmanager
def keyspace_of_its_own(url: str) -> Iterator[str]:
    """A new keyspace with up to three copies of each row, dropped at the end; its URL."""
    address = replace(parse_address(url), keyspace=f"bench_{secrets.token_hex(4)}")
    connection = Connection(address, in_keyspace=False)
    try:
        # Nodes that have just started hear of each other a moment later.
        named = len(address.hosts)
        if (
            address.datacenter is not None
            and connection.nodes_in(address.datacenter, named) < named
        ):
            sys.exit("The nodes of the URL do not know each other yet.")
        nodes = len(connection.cluster.metadata.all_hosts())
        opening.initialize(replace(address, replication=min(nodes, 3)))
        print(f"{nodes} node(s), {min(nodes, 3)} copies of each row", flush=True)
        yield url.replace(f"/{parse_address(url).keyspace}", f"/{address.keyspace}", 1)
        connection.define(f"DROP KEYSPACE IF EXISTS {address.keyspace}")
    finally:
        connection.close()


if __name__ == "__main__":
    main()
