"""The Cassandra engine for the contract's tests: many fresh engines in one keyspace of one cluster.

Creating a keyspace takes a second, so each test gets partitions of its own in a shared one: every partition gets a
prefix on the way in and loses it on the way out, which keeps their order. The cluster is the one that ENGINE_UNDER_TEST
names: `python -m tests.storage.cluster up` prints it, `tablestone cluster init` prepares it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from storage import engines_under_test
from tablestone.engines.contract import (
    EngineRefused,
    EngineUnavailable,
    Key,
    KeyRange,
    Rows,
    StoredRow,
    WriteSet,
)
from tablestone.engines.forwarding_engine import ForwardingEngine, ForwardingSnapshot
from tablestone.engines.leases import Leases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tablestone.clock import Clock
    from tablestone.engines.cassandra.cluster_url import ClusterAddress
    from tablestone.engines.cassandra.connection import Connection
    from tablestone.engines.cassandra.engine import CassandraEngine
    from tablestone.engines.contract import Committed, Conflict, Hint, Snapshot

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


class ClusterEngine(ForwardingEngine):
    """An engine on a cluster, in a range of partitions of its own."""

    def __init__(self, clock: Clock, prefix: bytes, *, shares_connection: bool) -> None:
        self.prefix = prefix
        self._shares_connection = shares_connection
        engine = _on_shared_connection(clock) if shares_connection else open_on_cluster(clock)
        engine.leases = Leases(LEASE_SECONDS)
        super().__init__(engine)

    async def get(self, key: Key) -> bytes | None:
        return await self._engine.get(self._inside(key))

    async def read(self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        inside = [self._range(key_range) for key_range in ranges]
        return self._rows(await self._engine.read(inside, rows_max=rows_max, bytes_max=bytes_max))

    async def snapshot(self) -> _Inside:
        return _Inside(self, await self._engine.snapshot())

    async def scan(self, key_range: KeyRange, *, rows_max: int) -> list[StoredRow]:
        rows = await self._engine.scan(self._range(key_range), rows_max=rows_max)
        return [row._replace(partition=self._outside(row.partition)) for row in rows]

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        return await self._engine.commit(
            write_set._replace(partition=self.prefix + write_set.partition)
        )

    async def check(self) -> list[str]:
        """Check the whole keyspace, with what other tests left there; the many engines of a process skip it."""
        return [] if self._shares_connection else await self._engine.check()

    async def close(self) -> None:
        if not self._shares_connection:
            await self._engine.close()

    def _inside(self, key: Key) -> Key:
        return Key(self.prefix + key.partition, key.row)

    def _outside(self, partition: bytes) -> bytes:
        assert partition.startswith(self.prefix)
        return partition[len(self.prefix) :]

    def _range(self, key_range: KeyRange) -> KeyRange:
        return KeyRange(self._inside(key_range.start), self._inside(key_range.end))

    def _rows(self, rows: Rows) -> Rows:
        key = rows.next_key
        return Rows(rows.values, key and Key(self._outside(key.partition), key.row))


class _Inside(ForwardingSnapshot):
    """A snapshot of these partitions."""

    def __init__(self, engine: ClusterEngine, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._part = engine

    async def read(
        self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int, hint: Hint | None = None
    ) -> Rows:
        inside = [self._part._range(key_range) for key_range in ranges]
        rows = await super().read(inside, rows_max=rows_max, bytes_max=bytes_max, hint=hint)
        return self._part._rows(rows)
