"""Examines a cluster before it is used: nodes, settings, clocks, keyspace, and the copies of each row.

A state that would lose or mix up data, or cannot work, is a refusal; an unwise setting is a warning. For the reasons
see docs/guides/cassandra-settings.md. The nodes of all datacenters are asked.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final

from cassandra import Unauthorized

from tablestone.clock import TICKS_PER_SECOND, UNIX_EPOCH_TICKS, Clock
from tablestone.engines.cassandra.cluster_url import ClusterAddress
from tablestone.engines.cassandra.connection import UNLIMITED, Connection
from tablestone.engines.cassandra.layout import (
    COMPACTION,
    GC_GRACE_SECONDS,
    LAYOUT,
    LOADING,
    SPECULATIVE_RETRY,
    TABLES,
    replication,
    require_own,
)
from tablestone.engines.cassandra.session import FROM_A_NODE, in_words
from tablestone.engines.contract import EngineRefused, EngineUnavailable

VERSION_MIN: Final = (5, 0)
ALLOWS_ALL: Final = "AllowAllAuthenticator"
MUTATION_BYTES_ADVISED: Final = 8 << 20
"""The largest transaction has 4 MiB in a request; nodes write it twice, with its state."""
_UNITS: Final = {"B": 0, "KiB": 10, "MiB": 20, "GiB": 30}
GC_GRACE_SECONDS_MIN: Final = 3 * 60 * 60
"""The default `max_hint_window`: a node that was away for less gets the missed writes as hints."""
CLOCK_SECONDS_ADVISED: Final = 1.0
CLOCK_SECONDS_MAX: Final = 12 * 60 * 60
"""A quarter of `unknown_outcome.FORGOTTEN_SECONDS`."""


@dataclass
class Examination:
    refusals: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    write_bytes_max: int = UNLIMITED
    """The largest write that all nodes take that have shown their settings."""


def examine(
    connection: Connection,
    clock: Clock,
    *,
    may_be_loading: bool = False,
    wanted: ClusterAddress | None = None,
) -> Examination:
    """Examine everything. Blocks while every node answers a few questions.

    With an address, compare its number of copies with the keyspace's. If too few nodes answer about the keyspace, that
    is then a finding; without an address, it raises `EngineUnavailable`.
    """
    found = Examination()
    try:
        _examine_keyspace(connection, found, wanted, may_be_loading=may_be_loading)
    except EngineRefused as refused:
        found.refusals.append(str(refused))
    except EngineUnavailable as error:
        if wanted is None:
            raise
        found.refusals.append(error.sentence)
    for host in connection.every_node.all():
        _examine_node(connection, host, clock, found)
    return found


def _examine_keyspace(
    connection: Connection,
    found: Examination,
    wanted: ClusterAddress | None,
    *,
    may_be_loading: bool,
) -> None:
    name = connection.keyspace
    keyspace = connection.cluster.metadata.keyspaces[name]
    layout = require_own(connection, keyspace)
    missing = [table for table in TABLES if table not in keyspace.tables]
    # First, because the sentence below advises `cluster init`, which refuses a keyspace without copies by datacenter.
    copies_in = held_copies(connection, keyspace)
    if missing:
        raise EngineRefused(
            f"The keyspace {name} has no table {missing[0]}: run `tablestone cluster init`."
        )
    if LOADING in keyspace.tables and not may_be_loading:
        found.refusals.append(
            f"The keyspace {name} is being loaded: wait for `tablestone cluster load`, or run it again if it was "
            "interrupted."
        )
    if layout is None:
        found.refusals.append(
            f"The keyspace {name} was not made to its end: run `tablestone cluster init`."
        )
    elif layout < LAYOUT:
        found.refusals.append(
            f"The keyspace {name} has layout {layout}, of an older version of Tablestone: stop all servers, "
            "and run `tablestone cluster init`, which upgrades it."
        )
    if not keyspace.durable_writes:
        found.refusals.append(
            f"The keyspace {name} has durable_writes = false: a node that stops loses what it acknowledged. "
            f"ALTER KEYSPACE {name} WITH durable_writes = true."
        )
    for table in TABLES:
        _examine_table(f"{name}.{table}", keyspace.tables[table].options, found)
    found.refusals += too_many_copies(connection, copies_in, is_made=True)
    found.warnings += few_copies(copies_in)
    if wanted is not None:
        found.warnings += other_copies(wanted, connection, copies_in)


def _examine_table(table: str, options: Mapping[str, Any], found: Examination) -> None:
    """An operator may have changed the settings that `cluster init` gave a table."""
    read_repair = options.get("read_repair")
    if read_repair != "BLOCKING":
        found.refusals.append(
            f"The table {table} has read_repair = '{read_repair}': a later read could see less than an "
            f"earlier one. ALTER TABLE {table} WITH read_repair = 'BLOCKING'."
        )
    lifetime = options.get("default_time_to_live") or 0
    if lifetime:
        found.refusals.append(
            f"The table {table} has default_time_to_live = {lifetime}: what is written is gone after this time. "
            f"ALTER TABLE {table} WITH default_time_to_live = 0."
        )
    grace = options.get("gc_grace_seconds", GC_GRACE_SECONDS)
    if grace < GC_GRACE_SECONDS:
        # After three hours a node gets no more hints, and a repair has to come within gc_grace_seconds.
        worst = found.refusals if grace < GC_GRACE_SECONDS_MIN else found.warnings
        worst.append(
            f"The table {table} has gc_grace_seconds = {grace}: deleted rows can come back if a node is away or not "
            f"repaired for longer. ALTER TABLE {table} WITH gc_grace_seconds = {GC_GRACE_SECONDS}."
        )
    compaction = str(options.get("compaction", {}).get("class", "")).rpartition(".")[2]
    if compaction != COMPACTION:
        found.warnings.append(
            f"The table {table} has the compaction {compaction}, and its reads may meet many sstables. "
            f"ALTER TABLE {table} WITH compaction = {{'class': '{COMPACTION}'}}."
        )
    retry = options.get("speculative_retry") or ""
    if retry != "ALWAYS" and "ms" not in retry:
        found.warnings.append(
            f"The table {table} has speculative_retry = '{retry}': while a node hangs, requests wait. "
            f"ALTER TABLE {table} WITH speculative_retry = '{SPECULATIVE_RETRY}'."
        )


def _examine_node(connection: Connection, host: Any, clock: Clock, found: Examination) -> None:
    nodes = connection.every_node
    node = f"Node {host.endpoint}"
    if not nodes.is_near(host):
        node += f" of datacenter {host.datacenter}"
    if not nodes.is_up(host):
        found.warnings.append(f"{node} does not answer.")
        return
    version = tuple(map(int, re.findall(r"\d+", host.release_version or "")[:2]))
    if version < VERSION_MIN:
        found.refusals.append(
            f"{node} is Cassandra {host.release_version}: 5.0 or later is needed."
        )
        return
    before = clock()
    try:
        [(milliseconds,)] = nodes.ask(host, "SELECT toUnixTimestamp(now()) FROM system.local")
    except Exception as error:  # noqa: BLE001 - of the driver and of the node
        found.warnings.append(_no_answer(node, error))
        return
    ticks = milliseconds * TICKS_PER_SECOND // 1000 + UNIX_EPOCH_TICKS
    apart = max(before - ticks, ticks - clock(), 0) / TICKS_PER_SECOND
    if apart > CLOCK_SECONDS_MAX:
        found.refusals.append(
            f"{node} and this machine have clocks {apart / 3600:.0f} hours apart: set them by NTP."
        )
    elif apart > CLOCK_SECONDS_ADVISED:
        found.warnings.append(
            f"{node} and this machine have clocks {apart:.0f} s apart: set them by NTP. Writes become slower by it."
        )
    try:
        settings: dict[str, str | None] = dict(
            nodes.ask(host, "SELECT name, value FROM system_views.settings")
        )
    except Unauthorized:
        found.warnings.append(
            f"{node} does not show its settings to this user, and they were not checked: GRANT SELECT ON "
            "system_views.settings."
        )
    except Exception as error:  # noqa: BLE001 - as above
        found.warnings.append(_no_answer(node, error))
    else:
        _examine_settings(node, settings, found)
        if is_open_to_all(settings, str(host.address), names_user=connection.names_user):
            found.warnings.append(
                f"{node} asks for no password: each program that reaches it reads and changes everything, the keys of "
                "the accounts too. Set authenticator: PasswordAuthenticator and authorizer: CassandraAuthorizer."
            )


def _no_answer(node: str, error: Exception) -> str:
    """Only an error of the node itself says why."""
    if isinstance(error, FROM_A_NODE):
        return f"{node} does not answer: {in_words(error)}."
    return f"{node} does not answer."


def is_open_to_all(settings: Mapping[str, str | None], address: str, *, names_user: bool) -> bool:
    """Whether a node asks for no password, although the URL names a user or other machines may reach it."""
    if "authenticator.class_name" not in settings:
        return False
    # Without one in cassandra.yaml, a node asks for no password.
    kind = settings["authenticator.class_name"] or ALLOWS_ALL
    if kind.rpartition(".")[2] != ALLOWS_ALL:
        return False
    return names_user or not ip_address(address).is_loopback


def _examine_settings(node: str, settings: Mapping[str, str | None], found: Examination) -> None:
    if settings.get("commitlog_sync") == "periodic":
        period = settings.get("commitlog_sync_period") or "10 s"
        found.warnings.append(
            f"{node} has commitlog_sync: periodic: what it acknowledged in the last {period} is lost if all nodes "
            f"lose power. Set commitlog_sync: group, commitlog_sync_group_window: 2ms, commitlog_sync_period: 0ms."
        )
    if settings.get("paxos_variant", "v1") != "v2":
        found.warnings.append(
            f"{node} has paxos_variant: {settings.get('paxos_variant', 'v1')}: every write takes four round trips and "
            f"not two. Set paxos_variant: v2 on all nodes."
        )
    most = _bytes(settings.get("max_mutation_size")) or (
        (_bytes(settings.get("commitlog_segment_size")) or MUTATION_BYTES_ADVISED * 2) // 2
    )
    message = _bytes(settings.get("native_transport_max_message_size")) or most
    # The rest is for what nodes add to a write.
    found.write_bytes_max = min(found.write_bytes_max, min(most, message) * 15 // 16)
    if most < MUTATION_BYTES_ADVISED:
        found.warnings.append(
            f"{node} takes writes of at most {most >> 10} KiB: larger transactions are refused. Set max_mutation_size: "
            f"{MUTATION_BYTES_ADVISED >> 20}MiB or more."
        )


def _bytes(text: str | None) -> int | None:
    """A size as cassandra.yaml writes it, or None."""
    found = re.fullmatch(r"(\d+)(B|KiB|MiB|GiB)", text or "")
    return None if found is None else int(found[1]) << _UNITS[found[2]]


COPIES_ADVISED: Final = 3
BY_DATACENTER: Final = "NetworkTopologyStrategy"


def wanted_copies(address: ClusterAddress, connection: Connection) -> dict[str, int]:
    """The copies that each datacenter is to have: the URL's number, or 3."""
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
    """The copies in each datacenter; `EngineRefused` if the keyspace does not say it by datacenter."""
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
    """A sentence for each datacenter with fewer nodes than copies. `is_made`: the keyspace exists."""
    there = {name: connection.nodes_in(name, number) for name, number in copies_in.items()}
    fitting = {name: min(number, there[name]) for name, number in copies_in.items() if there[name]}
    if is_made:
        fewer = f"ALTER KEYSPACE {connection.keyspace} WITH {replication(fitting)}"
    else:
        option = ",".join(f"{name}:{number}" for name, number in fitting.items())
        fewer = f"make the keyspace with replication={option}"
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


def few_copies(copies_in: Mapping[str, int]) -> list[str]:
    """A sentence if no node may stop: QUORUM and SERIAL need a majority of the copies of all datacenters together."""
    if sum(copies_in.values()) >= COPIES_ADVISED:
        return []
    return [
        f"Each row has {_in_words(copies_in)}: with fewer than {COPIES_ADVISED} in all datacenters together, every "
        "node that stops takes rows out of service."
    ]


def other_copies(
    address: ClusterAddress, connection: Connection, copies_in: Mapping[str, int]
) -> list[str]:
    """A sentence if the URL asks for other copies than the keyspace has; `EngineRefused` if it names no datacenter."""
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


def _in_words(copies_in: Mapping[str, int]) -> str:
    words = [f"{_copies(number)} in {name}" for name, number in copies_in.items()]
    return " and ".join(words) or "no copies"


def _copies(number: int) -> str:
    return "1 copy" if number == 1 else f"{number} copies"
