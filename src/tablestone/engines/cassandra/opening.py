"""Opens the engine of a URL, and makes its keyspace. Importing this module imports the driver."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import ExitStack, closing

from tablestone.clock import Clock, system_clock
from tablestone.engines.cassandra import layout
from tablestone.engines.cassandra.checks import (
    Examination,
    examine,
    held_copies,
    too_many_copies,
    wanted_copies,
)
from tablestone.engines.cassandra.cluster_url import ClusterAddress
from tablestone.engines.cassandra.connection import SCHEMA_SECONDS_MAX, Connection
from tablestone.engines.cassandra.directory import make_root
from tablestone.engines.cassandra.engine import CassandraEngine
from tablestone.engines.contract import EngineRefused, StorageId

log = logging.getLogger(__name__)


def open_cassandra(
    address: ClusterAddress,
    clock: Clock,
    *,
    read_only: bool = False,
    warns: bool = False,
    storage: StorageId | None = None,
    may_be_loading: bool = False,
) -> CassandraEngine:
    """Open a keyspace that `initialize` made; `EngineRefused` says why that fails.

    `warns` logs unwise settings of the cluster. `may_be_loading` is for the load itself.
    """
    with ExitStack() as after_an_error:
        connection = after_an_error.enter_context(closing(Connection(address)))
        found = examine(connection, clock, may_be_loading=may_be_loading)
        if found.refusals:
            raise EngineRefused(" ".join(found.refusals))
        connection.write_bytes_max = found.write_bytes_max
        connection.every_node.leave()  # a server has no more questions to far nodes
        if storage is not None and storage_id(connection) != storage:
            raise EngineRefused(
                f"The keyspace {connection.keyspace} is not the one that the server was started on."
            )
        for warning in found.warnings if warns else ():
            log.warning("%s", warning)
        if not (read_only or may_be_loading):
            layout.note_use(connection)
        engine = CassandraEngine(connection, clock, read_only=read_only)
        after_an_error.pop_all()
        return engine


def identity_of(address: ClusterAddress) -> StorageId:
    """The `storage_id` of a keyspace that a server can use; logs the warnings of its start."""
    engine = open_cassandra(address, system_clock, read_only=True, warns=True)
    with closing(engine.connection) as connection:
        return storage_id(connection)


def storage_id(connection: Connection) -> StorageId:
    """The id of the table of rows: another keyspace of the same name has another."""
    [(made,)] = connection.execute(
        "SELECT id FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s",
        (connection.keyspace, layout.ROWS),
    )
    identity: bytes = made.bytes
    return StorageId(identity)


def examine_cluster(address: ClusterAddress, clock: Clock) -> Examination:
    """`EngineRefused` if the cluster cannot be reached."""
    with closing(Connection(address)) as connection:
        return examine(connection, clock, wanted=address)


def initialize(address: ClusterAddress, steps: Mapping[int, str] = layout.STEPS) -> bool:
    """Create the keyspace and its tables, unless they exist; True if the keyspace was created.

    `steps` upgrade an older layout. `EngineRefused`, before anything is made, if the keyspace is another program's or a
    newer version's.
    """
    with closing(Connection(address, in_keyspace=False)) as connection:
        keyspace = connection.cluster.metadata.keyspaces.get(address.keyspace)
        is_new = True
        if keyspace is None:
            copies_in = wanted_copies(address, connection)
            if wrong := too_many_copies(connection, copies_in, is_made=False):
                raise EngineRefused(" ".join(wrong))
            connection.define(layout.keyspace_statement(address.keyspace, copies_in))
        else:
            # Servers refuse a keyspace without a number.
            is_new = layout.require_own(connection, keyspace) is None
            held_copies(connection, keyspace)
        connection.use_keyspace()
        for statement in layout.TABLES.values():
            connection.define(statement)
        if is_new:
            layout.note_new(connection)
        connection.execute(
            f"INSERT INTO {layout.ABOUT} (name, number) VALUES ('layout', %s) IF NOT EXISTS",
            (layout.LAYOUT,),
        )
        _upgrade(connection, steps)
        # Nodes that have just started may take each other for dead, and refuse for a while.
        connection.waited_for(lambda: asyncio.run(make_root(connection)), SCHEMA_SECONDS_MAX)
        return keyspace is None


def _upgrade(connection: Connection, steps: Mapping[int, str]) -> None:
    """Upgrade a keyspace of an older layout; `EngineRefused` while a server uses it."""
    [(stored,)] = connection.execute(f"SELECT number FROM {layout.ABOUT} WHERE name = 'layout'")
    older = range(stored, layout.LAYOUT)
    if not older:
        return
    if missing := [each for each in older if each not in steps]:
        raise EngineRefused(
            f"The keyspace {connection.keyspace} has layout {missing[0]}, which cannot be upgraded."
        )
    if users := connection.other_clients():
        raise EngineRefused(
            f"The keyspace {connection.keyspace} has layout {stored} and is in use by {', '.join(users)}: stop the "
            "servers, and run `tablestone cluster init` again."
        )
    for each in older:
        connection.define(steps[each])
        connection.execute(
            f"UPDATE {layout.ABOUT} SET number = %s WHERE name = 'layout' IF number = %s",
            (each + 1, each),
        )
