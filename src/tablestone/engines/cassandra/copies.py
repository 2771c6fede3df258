"""How many copies of each row the datacenters hold: as the engine's URL asks for, and as the keyspace has it.

Each thing that does not fit is one sentence. Asks the cluster for its nodes; changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tablestone.engines.cassandra.cluster_url import ClusterAddress
from tablestone.engines.cassandra.schema import replication
from tablestone.engines.contract import EngineRefused

if TYPE_CHECKING:
    from tablestone.engines.cassandra.connection import Connection

COPIES_ADVISED: Final = 3
BY_DATACENTER: Final = "NetworkTopologyStrategy"


def wanted_copies(address: ClusterAddress, connection: Connection) -> dict[str, int]:
    """How many copies each datacenter is to have: as the URL says, else 3."""
    if isinstance(address.replication, Mapping):
        return dict(address.replication)
    datacenters = _datacenters(connection)
    if address.datacenter is None and len(datacenters) > 1:
        raise EngineRefused(
            f"The cluster has the datacenters {', '.join(datacenters)}: say replication="
            f"{','.join(f'{name}:{COPIES_ADVISED}' for name in datacenters)} or another number of copies in each."
        )
    copies = address.replication if isinstance(address.replication, int) else COPIES_ADVISED
    return {address.datacenter or datacenters[0]: copies}


def held_copies(connection: Connection, keyspace: Any) -> dict[str, int]:
    """How many copies each datacenter holds; `EngineRefused` if the keyspace does not say it by datacenter."""
    options = keyspace.replication_strategy.export_for_schema()
    if isinstance(options, str):  # as CQL writes a map
        options = dict(re.findall(r"'([^']*)': '([^']*)'", options))
    strategy = options.pop("class", "").rpartition(".")[2]
    if strategy != BY_DATACENTER:
        there = _datacenters(connection)
        example = replication(dict.fromkeys(there[:1], COPIES_ADVISED))
        raise EngineRefused(
            f"The keyspace {connection.keyspace} has the replication {strategy}, and needs {BY_DATACENTER}: "
            f"ALTER KEYSPACE {connection.keyspace} WITH {example}, or the number of copies that it is to have."
        )
    return {name: int(str(copies).partition("/")[0]) for name, copies in options.items()}


def too_many_copies(
    connection: Connection, copies_in: Mapping[str, int], *, is_made: bool
) -> list[str]:
    """A sentence for each datacenter that has fewer nodes than copies. `is_made`: the keyspace exists."""
    there = {name: connection.nodes_in(name, number) for name, number in copies_in.items()}
    fitting = {name: min(number, there[name]) for name, number in copies_in.items() if there[name]}
    if is_made:
        fewer = f"ALTER KEYSPACE {connection.keyspace} WITH {replication(fitting)}"
    else:
        fewer = f"make the keyspace with replication={_as_option(fitting)}"
    found = []
    for name, number in copies_in.items():
        if not there[name]:
            found.append(
                f"The cluster has no datacenter {name!r}, which is to hold {_copies(number)} of each row: there is "
                f"{', '.join(_datacenters(connection))}."
            )
        elif number > there[name]:
            nodes = "1 node" if there[name] == 1 else f"{there[name]} nodes"
            found.append(
                f"Datacenter {name} has {nodes}, and is to hold {_copies(number)} of each row: start more nodes, or "
                f"{fewer}."
            )
    return found


def nodes_that_may_stop(copies_in: Mapping[str, int]) -> int:
    """How many of the nodes that hold a row may stop, whichever they are, and the row can still be read and written.

    QUORUM and SERIAL need a majority of the copies of all datacenters together (Cassandra's documentation: Dynamo,
    Tunable Consistency).
    """
    return max(sum(copies_in.values()) - 1, 0) // 2


def few_copies(copies_in: Mapping[str, int]) -> list[str]:
    """A sentence if there are so few copies that no node may stop."""
    if nodes_that_may_stop(copies_in) > 0:
        return []
    return [
        f"Each row has {_in_words(copies_in)}: with fewer than {COPIES_ADVISED} in all datacenters together, every "
        "node that stops takes rows out of service."
    ]


def other_copies(
    address: ClusterAddress, connection: Connection, copies_in: Mapping[str, int]
) -> list[str]:
    """A sentence if the URL asks for other copies than the keyspace has; `EngineRefused` if it asks for none."""
    if address.replication is None:
        return []
    wanted = wanted_copies(address, connection)
    if wanted == copies_in:
        return []
    return [
        f"The keyspace {connection.keyspace} has {_in_words(copies_in)}, and not {_in_words(wanted)}: replication= "
        "only counts when a keyspace is made, and ALTER KEYSPACE changes it afterwards."
    ]


def _datacenters(connection: Connection) -> list[str]:
    return sorted({str(host.datacenter) for host in connection.cluster.metadata.all_hosts()})


def _as_option(copies_in: Mapping[str, int]) -> str:
    return ",".join(f"{name}:{number}" for name, number in copies_in.items())


def _in_words(copies_in: Mapping[str, int]) -> str:
    words = [f"{_copies(number)} in {name}" for name, number in copies_in.items()]
    return " and ".join(words) or "no copies"


def _copies(number: int) -> str:
    return "1 copy" if number == 1 else f"{number} copies"
