"""Fills a new schema with rows that have versions already, such as those of a data directory.

Its row in `storage` has the source and the position of the load, and servers refuse the schema meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tablestone.clock import monotonic_seconds
from tablestone.engines.contract import EngineRefused, Key, StorageId, StoredRow
from tablestone.engines.postgresql.connections import Connections
from tablestone.engines.postgresql.schema import RULES_FORMAT, stored_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from tablestone.engines.contract import Entry
    from tablestone.engines.postgresql.address import DatabaseAddress

KEPT_SECONDS: Final = 2.0
"""How often the position is stored."""
ROWS: Final = """
INSERT INTO rows (head, digest, tail, version, value)
    SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bytea[])
    ON CONFLICT (head, digest) DO UPDATE SET version = excluded.version, value = excluded.value
"""
ENTRIES: Final = """
INSERT INTO entries (head, digest, tail) SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[])
    ON CONFLICT DO NOTHING
"""


class Load:
    at_once = 2

    def __init__(
        self,
        address: DatabaseAddress,
        storage: StorageId,
        entries: Callable[[], AsyncIterator[list[Entry]]],
        end: Callable[[str], Awaitable[None]],
    ) -> None:
        """`entries` gives all entries that indexes of the loaded tables should have. `begin` comes first.

        `end` runs the last statement, unless another program may have come in meanwhile.
        """
        self._address = address
        self._entries = entries
        self._end = end
        self._connections = Connections(
            address, self.at_once, storage, lambda _found: None, writes=True, is_alone=True
        )
        self.reached: Key | None = None
        self._kept_at = monotonic_seconds()

    async def begin(self, source: StorageId, *, is_empty: bool) -> None:
        """Begin a load, or continue an earlier attempt; `EngineRefused` if the schema has other rows."""
        async with self._connections.one() as connection:
            [(begun_from, partition, row, may_load)] = await connection.fetch(
                "SELECT source, partition, row, has_table_privilege('storage', 'UPDATE') FROM storage"
            )
        if not may_load:
            raise EngineRefused(f"{self._address.in_words} is another role's, which can load it.")
        if begun_from is None and not is_empty:
            raise EngineRefused(
                f"{self._address.in_words} holds data already: load into a new one."
            )
        if begun_from not in (None, source):
            raise EngineRefused(
                f"{self._address.in_words} is being loaded from another directory: name that one, or drop the schema."
            )
        async with self._connections.one() as connection:
            await connection.fetch("UPDATE storage SET source = $1", source)
        self.reached = None if partition is None else Key(partition, row)

    async def write(self, rows: Sequence[StoredRow]) -> None:
        keys = [stored_key(row.partition, row.row) for row in rows]
        async with self._connections.one() as connection:
            await connection.fetch(
                ROWS,
                [key.head for key in keys],
                [key.digest for key in keys],
                [key.tail for key in keys],
                [row.version for row in rows],
                [row.value for row in rows],
            )

    async def reach(self, key: Key) -> None:
        """Store the position, at most once in `KEPT_SECONDS`."""
        now = monotonic_seconds()
        if now - self._kept_at > KEPT_SECONDS:
            self._kept_at = now
            async with self._connections.one() as connection:
                await connection.fetch("UPDATE storage SET partition = $1, row = $2", *key)

    async def keep_rules(self) -> None:
        async with self._connections.one() as connection:
            await connection.fetch("UPDATE storage SET format = $1", RULES_FORMAT)

    async def finish(self) -> None:
        """Let servers use the schema."""
        async with self._connections.one() as connection:
            async for entries in self._entries():
                keys = [stored_key(*entry) for entry in entries]
                await connection.fetch(
                    ENTRIES,
                    [key.head for key in keys],
                    [key.digest for key in keys],
                    [key.tail for key in keys],
                )
        await self._end("UPDATE storage SET source = NULL, partition = NULL, row = NULL")

    async def close(self) -> None:
        await self._connections.close()
