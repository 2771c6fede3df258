"""The engine in PostgreSQL: an `Engine` of `commit` and `read`. It forgets old floors and sessions."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from tablestone.clock import TICKS_PER_SECOND, UNIX_EPOCH_TICKS
from tablestone.engines.contract import (
    Committed,
    Conflict,
    EngineUnavailable,
    KeyRange,
    Rows,
    StoredRow,
)
from tablestone.engines.leases import Leases
from tablestone.engines.postgresql.commit import Commits
from tablestone.engines.postgresql.connections import Connections
from tablestone.engines.postgresql.kind import CAPABILITIES, LEASE_SECONDS, REQUEST
from tablestone.engines.postgresql.read import Reads, Snapshot
from tablestone.engines.postgresql.schema import HEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tablestone.clock import Clock
    from tablestone.engines.change_record import ChangeLog
    from tablestone.engines.contract import Key, StorageId, WriteSet
    from tablestone.engines.figures import Values
    from tablestone.engines.postgresql.address import DatabaseAddress

log = logging.getLogger(__name__)

FORGET_SECONDS: Final = 60.0
"""Between two looks for what is old."""
SNAPSHOTS: Final = 4
"""Connections for snapshots, for each other one: they are held while a request uses them."""
CLOCK_SECONDS_MAX: Final = 60.0
"""A server whose clock differs by more from the database's goes by that one."""
FORGET_FLOORS: Final = (
    "DELETE FROM floors WHERE version < (extract(epoch FROM now()) - 3600)::bigint "
    f"* {TICKS_PER_SECOND} + {UNIX_EPOCH_TICKS}"
)
"""No clock is an hour behind, so none gives such a version."""
FORGET_SESSIONS: Final = "DELETE FROM sessions WHERE at < now() - interval '1 day'"
"""A connection that commits again after a day begins a new one."""
SECONDS: Final = "SELECT extract(epoch FROM clock_timestamp())"
BADLY_CUT: Final = (
    "SELECT count(*) FROM {} "
    f"WHERE octet_length(head) > {HEAD_BYTES} OR (tail <> '' AND octet_length(head) < {HEAD_BYTES}) "
    "OR digest <> CASE WHEN tail = '' THEN ''::bytea ELSE sha256(tail) END"
)


class PostgresqlEngine:
    capabilities = CAPABILITIES
    changes: ChangeLog | None = None

    def __init__(
        self, address: DatabaseAddress, clock: Clock, storage: StorageId, *, read_only: bool
    ) -> None:
        self._clock = clock
        self._behind = 0
        """Ticks that are added to the clock, to have the database's."""
        self._read_only = read_only
        self._is_open = True
        self._under_way: set[asyncio.Task[Committed | Conflict]] = set()
        writes = not read_only
        self._connections = Connections(address, address.connections, writes=writes)
        self._snapshots = Connections(address, SNAPSHOTS * address.connections, writes=writes)
        self._commits = Commits(self._connections, self._now, storage)
        self._reads = Reads(self._connections)
        self.leases = Leases(LEASE_SECONDS)

    @property
    def generation(self) -> int | None:
        return self.leases.generation

    async def get(self, key: Key) -> bytes | None:
        self._require_open()
        return await self._reads.get(key)

    async def read(self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        self._require_open()
        return await self._reads.read(ranges, rows_max, bytes_max)

    async def snapshot(self) -> Snapshot:
        self._require_open()
        return Snapshot(self._snapshots)

    async def scan(self, key_range: KeyRange, *, rows_max: int) -> list[StoredRow]:
        self._require_open()
        return await self._reads.scan(key_range, rows_max)

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        self._require_open()
        if self._read_only:
            raise EngineUnavailable("The engine was opened for reading only.")
        task = asyncio.ensure_future(self._commits.commit(write_set))
        self._under_way.add(task)
        task.add_done_callback(self._forget)
        # A commit that has begun is carried out, even if its caller is cancelled.
        return await asyncio.shield(task)

    async def watch(self, *, leads: bool) -> None:
        """Compare the clocks, and forget what is old."""
        while True:
            try:
                async with self._connections.one() as connection:
                    [(seconds,)] = await connection.fetch(SECONDS)
                    self._compare(float(seconds))
                    if leads and not self._read_only:
                        await connection.fetch(FORGET_FLOORS)
                        await connection.fetch(FORGET_SESSIONS)
            except EngineUnavailable as error:
                log.info("old rows of PostgreSQL stay for now: %s", error)
            await asyncio.sleep(FORGET_SECONDS)

    def _compare(self, unix_seconds: float) -> None:
        ticks = int(unix_seconds * TICKS_PER_SECOND) + UNIX_EPOCH_TICKS
        difference = ticks - self._clock()
        was_behind, self._behind = self._behind, 0
        if abs(difference) > CLOCK_SECONDS_MAX * TICKS_PER_SECOND:
            self._behind = difference
            if not was_behind:
                log.warning(
                    "The clock of this server differs from PostgreSQL's by %d s: entities get PostgreSQL's time.",
                    -difference // TICKS_PER_SECOND,
                )

    def _now(self) -> int:
        return self._clock() + self._behind

    async def check(self) -> list[str]:
        self._require_open()
        broken: list[str] = []
        async with self._snapshots.transaction() as connection:
            await connection.fetch("SET LOCAL statement_timeout = 0")
            for table in ("rows", "entries"):
                [(count,)] = await connection.fetch(BADLY_CUT.format(table))
                if count:
                    broken.append(f"{count:,} {table} have a key that is not cut as it has to be.")
        return broken

    def measure(self) -> Values:
        return {
            REQUEST.name: self._connections.request_seconds.numbers(),
            "postgresql_wait_seconds": self._connections.wait_seconds,
            "postgresql_commits_repeated": self._commits.repeated,
            "postgresql_commits_in_doubt": self._commits.in_doubt,
        }

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            if self._under_way:
                await asyncio.wait(self._under_way)
            await self._connections.close()
            await self._snapshots.close()

    def _forget(self, done: asyncio.Task[Committed | Conflict]) -> None:
        self._under_way.discard(done)
        if not done.cancelled():
            done.exception()  # the caller that waits gets it

    def _require_open(self) -> None:
        if not self._is_open:
            raise EngineUnavailable("The engine is closed.")
