"""The Cassandra engine for the contract's tests: many fresh engines in one keyspace of one cluster.

Creating a keyspace takes a second, so each test gets partitions of its own in a shared one (`PrefixedEngine`). The
cluster is the one that ENGINE_UNDER_TEST names: `python -m tests.storage.cluster up` prints it, `tablestone cluster
init` prepares it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from storage import engines_under_test
from storage.prefixed_engine import PrefixedEngine
from tablestone.engines.contract import EngineRefused, EngineUnavailable
from tablestone.engines.leases import Leases

if TYPE_CHECKING:
    from tablestone.clock import Clock
    from tablestone.engines.cassandra.cluster_url import ClusterAddress
    from tablestone.engines.cassandra.connection import Connection
    from tablestone.engines.cassandra.engine import CassandraEngine

_url = engines_under_test.URL
URL = _url if _url is not None and _url.startswith("cassandra:") else None
"""The engine's URL; None if no cluster is under test."""

DROPS_MAX = 3
"""How many attempts to drop a keyspace may take; a busy node has a minute for each."""
LEASE_SECONDS = 0.01
"""Every test that creates a table waits for a lease to end."""


def open_on_cluster(clock: Clock) -> CassandraEngine:
    """An engine with its own connection; a test's clock is not compared with those of the nodes."""
    from tablestone.engines.cassandra.engine import CassandraEngine  # noqa: PLC0415 - needs the driver

    return CassandraEngine(_connect(), clock)


def drop_keyspace(address: ClusterAddress) -> None:
    """Drop the keyspace of a test. A node that did not answer in time may have dropped it all the same."""
    from tablestone.engines.cassandra.connection import Connection  # noqa: PLC0415 - needs the driver

    for attempt in range(1, DROPS_MAX + 1):
        try:
            connection = Connection(address, in_keyspace=False)
            try:
                connection.define(f"DROP KEYSPACE IF EXISTS {address.keyspace}")
            finally:
                connection.close()
        except (EngineRefused, EngineUnavailable):
            if attempt == DROPS_MAX:
                raise
        else:
            return


def _on_shared_connection(clock: Clock) -> CassandraEngine:
    """One of many engines of this process, none of which is ever closed."""
    from tablestone.engines.cassandra.engine import CassandraEngine  # noqa: PLC0415 - needs the driver

    return CassandraEngine(_shared_connection(), clock)


@functools.cache
def _shared_connection() -> Connection:
    return _connect()


def _connect() -> Connection:
    from tablestone.engines.cassandra.cluster_url import parse_address  # noqa: PLC0415
    from tablestone.engines.cassandra.connection import Connection  # noqa: PLC0415 - needs the driver

    assert URL is not None
    return Connection(parse_address(URL))


class ClusterEngine(PrefixedEngine):
    """An engine on a cluster, in a range of partitions of its own."""

    def __init__(self, clock: Clock, prefix: bytes, *, shares_connection: bool) -> None:
        self._shares_connection = shares_connection
        engine = _on_shared_connection(clock) if shares_connection else open_on_cluster(clock)
        engine.leases = Leases(LEASE_SECONDS)
        super().__init__(engine, prefix)

    async def check(self) -> list[str]:
        """Check the whole keyspace, with what other tests left there; the many engines of a process skip it."""
        return [] if self._shares_connection else await self._engine.check()

    async def close(self) -> None:
        if not self._shares_connection:
            await self._engine.close()
