"""`tablestone cluster`: creates a keyspace in Apache Cassandra, and checks whether a cluster is configured correctly.

Knows the printed text. The checks and the statements are in `engines.cassandra`, which is imported when a command runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tablestone.cli.commands.cluster_address import CLUSTER_OPTIONS, cluster_address, opening
from tablestone.cli.commands.cluster_moving import load, unload
from tablestone.cli.commands.cluster_status import status
from tablestone.cli.parameters import with_options
from tablestone.clock import system_clock

if TYPE_CHECKING:
    from tablestone.engines.cassandra.cluster_url import ClusterAddress

FOUND_WRONG = 1


@click.group()
def cluster() -> None:
    """Prepare, check, fill and look at an Apache Cassandra cluster.

    Servers on any number of machines can keep their tables in one cluster, and act as one.
    """


@cluster.command()
@with_options(CLUSTER_OPTIONS)
def init(**given: Any) -> int:
    """Create the keyspace and its tables.

    The number of copies of each row is replication=3, or replication=DC1:3,DC2:3, in the engine's
    URL. A keyspace that exists does not change, except that one of an older layout is
    brought to the present one.
    """
    address = cluster_address(given)
    made = opening().initialize(address)
    print(f"Keyspace {address.keyspace}: {'made' if made else 'was there already'}.")
    return _report(address)


@cluster.command()
@with_options(CLUSTER_OPTIONS)
def check(**given: Any) -> int:
    """Check the cluster's nodes, settings, clocks and keyspace.

    Exit status: 0 if nothing or only warnings. Otherwise a server would refuse to start: 1 if
    the check found why, 2 if it could not begin, as without a node or without the keyspace.
    `tablestone check` reads the stored data.
    """
    return _report(cluster_address(given))


cluster.add_command(load)
cluster.add_command(unload)
cluster.add_command(status)


def _report(address: ClusterAddress) -> int:
    found = opening().examine_cluster(address, system_clock)
    _print("warning: ", found.warnings)
    _print("", found.refusals)
    if not found.refusals:
        print("A server can use it." if found.warnings else "The cluster is as it should be.")
    return FOUND_WRONG if found.refusals else 0


def _print(before: str, sentences: Sequence[str]) -> None:
    for sentence in sentences:
        print(before + sentence)
