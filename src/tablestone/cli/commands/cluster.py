"""`tablestone cluster`: creates a keyspace in Apache Cassandra, and checks whether a cluster is configured correctly.

Knows the printed text. The checks and the statements are in `engines.cassandra`, which is imported when a command runs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from tablestone.cli.option_sources import read_configuration
from tablestone.cli.option_values import BrokenOption
from tablestone.cli.options import ENGINE
from tablestone.cli.parameters import by_option_name, with_options
from tablestone.clock import system_clock
from tablestone.engines.cassandra.cluster_url import FORM, SCHEME, ClusterAddress, parse_address
from tablestone.engines.engine_url import EngineUrl

if TYPE_CHECKING:
    from types import ModuleType

FOUND_WRONG = 1
CLUSTER_OPTIONS = (replace(ENGINE, help=f"The cluster: {FORM}.", default="none"),)


@click.group()
def cluster() -> None:
    """Prepare and check an Apache Cassandra cluster.

    Servers on any number of machines can keep their tables in one cluster, and act as one.
    """


@cluster.command()
@with_options(CLUSTER_OPTIONS)
def init(**given: Any) -> int:
    """Create the keyspace and its tables.

    The number of copies of each row is replication=3, or replication=DC1:3,DC2:3, in the engine's
    URL. A keyspace or table that exists does not change.
    """
    address = _address(given)
    made = _opening().initialize(address)
    print(f"Keyspace {address.keyspace}: {'made' if made else 'was there already'}.")
    return _report(address)


@cluster.command()
@with_options(CLUSTER_OPTIONS)
def check(**given: Any) -> int:
    """Check the cluster's nodes, settings, clocks and keyspace.

    Exit status: 0 if nothing or only warnings, 1 if a server would refuse to start, 2 if the
    cluster cannot be asked. `tablestone check` reads the stored data.
    """
    return _report(_address(given))


def _report(address: ClusterAddress) -> int:
    found = _opening().examine_cluster(address, system_clock)
    _print("warning: ", found.warnings)
    _print("", found.refusals)
    if not found.refusals:
        print("A server can use it." if found.warnings else "The cluster is as it should be.")
    return FOUND_WRONG if found.refusals else 0


def _print(before: str, sentences: Sequence[str]) -> None:
    for sentence in sentences:
        print(before + sentence)


def _address(given: dict[str, Any]) -> ClusterAddress:
    configuration = read_configuration(by_option_name(given), os.environ)
    if EngineUrl.parse(configuration.engine).scheme != SCHEME:
        raise BrokenOption(f"Say which cluster: --engine '{FORM}'.")
    return parse_address(configuration.engine)


def _opening() -> ModuleType:
    from tablestone.engines.cassandra.kind import opening  # noqa: PLC0415 - for this command only

    return opening()
