"""Fills a new keyspace with rows that have versions already, such as those of a data directory.

Nothing else writes to the keyspace meanwhile, so the writes have no conditions, and all have the earliest timestamp. A
later commit takes its timestamp from a node's clock and replaces what was loaded, however wrong the clock is. Of two
values with the same timestamp Cassandra keeps the greater: a row may be written again, and a partition's mark is its
greatest version. A table `loading` has the position of the load; while it exists, servers refuse the keyspace.
"""

import asyncio
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from tablestone.clock import UNIX_EPOCH_TICKS, monotonic_seconds
from tablestone.engines.cassandra.connection import Call, Connection, pieces
from tablestone.engines.cassandra.directory import Directory
from tablestone.engines.cassandra.layout import (
    LOADING,
    LOADING_TABLE,
    ROWS,
    keep_rules,
    note_use,
    require_new,
)
from tablestone.engines.cassandra.read import Widths
from tablestone.engines.contract import EngineRefused, Key, StorageId, StoredRow

WRITES_AT_ONCE_MAX: Final = 32
"""Batches under way: enough for a cluster, and a few MiB."""
KEPT_SECONDS: Final = 2.0
"""How often the position is stored."""
LISTED_KEPT_MAX: Final = 10_000
TIMESTAMP: Final = 1
"""The timestamp of every write of a load, and the epoch of its entries: 1970, in microseconds."""
BEGINNING: Final = TIMESTAMP * 10 + UNIX_EPOCH_TICKS
"""The same in ticks, as the clock of the directory."""


class Load:
    at_once = 4

    def __init__(self, connection: Connection, source: StorageId) -> None:
        self._connection = connection
        self.reached = _begin(connection, source)
        self._directory = Directory(connection, lambda: BEGINNING)
        self._widths = Widths(connection)
        self._slots = asyncio.Semaphore(WRITES_AT_ONCE_MAX)
        self._listed: dict[bytes, int] = {}
        self._kept_at = monotonic_seconds()
        prepare = connection.prepare
        self._state = prepare(
            f"UPDATE {ROWS} USING TIMESTAMP ? SET mark = ?, floor = 0, listed = ? WHERE partition = ?"
        )
        self._row = prepare(
            f"INSERT INTO {ROWS} (partition, row, version, value) VALUES (?, ?, ?, ?) USING TIMESTAMP ?"
        )
        self._reach = prepare(f"UPDATE {LOADING} SET partition = ?, row = ? WHERE id = 0")

    async def write(self, rows: Sequence[StoredRow]) -> None:
        """Several partitions at a time, at a quorum."""
        partitions = groupby(rows, key=lambda row: row.partition)
        await asyncio.gather(
            *(self._write(partition, list(some)) for partition, some in partitions)
        )

    async def reach(self, key: Key) -> None:
        """Store the position, at most once in `KEPT_SECONDS`."""
        now = monotonic_seconds()
        if now - self._kept_at > KEPT_SECONDS:
            self._kept_at = now
            await self._connection.write([(self._reach, key)])

    async def keep_rules(self) -> None:
        keep_rules(self._connection, all_upgraded=True)

    async def finish(self) -> None:
        """Let servers use the keyspace."""
        note_use(self._connection)
        self._connection.define(f"DROP TABLE IF EXISTS {LOADING}")

    async def _write(self, partition: bytes, rows: list[StoredRow]) -> None:
        async with self._slots:
            epoch = self._listed.get(partition)
            if epoch is None:
                if len(self._listed) >= LISTED_KEPT_MAX:
                    self._listed.clear()
                epoch = self._listed[partition] = await self._directory.enlist(partition, 0)
            await self._widths.note(partition, max(len(row.value) for row in rows))
            mark = max(row.version for row in rows)
            calls: list[Call] = [
                (self._state, (TIMESTAMP, mark, epoch, partition)),
                *((self._row, (*row, TIMESTAMP)) for row in rows),
            ]
            for row, call in zip(rows, calls[1:], strict=True):
                self._connection.require_takable((call,), Key(partition, row.row))
            for piece in pieces(calls):
                await self._connection.write(piece)


def _begin(connection: Connection, source: StorageId) -> Key | None:
    """Begin a load, or return the position of an earlier attempt."""
    if is_under_way(connection):
        found = connection.execute(f"SELECT source, partition, row FROM {LOADING}")
        if found:
            begun_from, partition, row = found[0]
            if begun_from != source:
                raise EngineRefused(
                    f"The keyspace {connection.keyspace} is being loaded from another directory: name that one, or "
                    "drop the keyspace and make it again."
                )
            return None if partition is None else Key(partition, row)
    require_new(connection)
    connection.define(LOADING_TABLE)
    connection.execute(
        f"INSERT INTO {LOADING} (id, source, begun) VALUES (0, %s, %s)", (source, TIMESTAMP)
    )
    return None


def is_under_way(connection: Connection) -> bool:
    connection.cluster.refresh_schema_metadata()
    return LOADING in connection.cluster.metadata.keyspaces[connection.keyspace].tables
