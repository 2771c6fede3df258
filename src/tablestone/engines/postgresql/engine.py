"""The engine in PostgreSQL: an `Engine` of `commit` and `read`. It forgets old floors and sessions."""

from __future__ import annotations

import asyncio
import logging
from math import inf
from typing import TYPE_CHECKING, Final

from tablestone.clock import TICKS_PER_SECOND, UNIX_EPOCH_TICKS, monotonic_seconds
from tablestone.engines.contract import (
    Committed,
    Conflict,
    EngineBusy,
    EngineUnavailable,
    KeyRange,
    Rows,
    StoredRow,
)
from tablestone.engines.leases import Leases
from tablestone.engines.postgresql.checks import NO_STANDBY, keep_rules
from tablestone.engines.postgresql.commit import Commits
from tablestone.engines.postgresql.connections import Connections, translated_errors
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
    from tablestone.engines.postgresql.checks import Examination

log = logging.getLogger(__name__)

FORGET_SECONDS: Final = 60.0
"""Between two looks for what is old."""
EXAMINE_SECONDS: Final = 10.0
"""Between two looks at the settings of the database: they may change while connections live."""
SNAPSHOTS: Final = 4
"""Connections for snapshots, for each other one: they are held while a request uses them."""
FORGET_FLOORS: Final = (
    "DELETE FROM floors WHERE version < (extract(epoch FROM now()) - 3600)::bigint "
    f"* {TICKS_PER_SECOND} + {UNIX_EPOCH_TICKS}"
)
"""No clock is an hour behind, so none gives such a version."""
FORGET_SESSIONS: Final = "DELETE FROM sessions WHERE at < now() - interval '1 day'"
"""A connection that commits again after a day begins a new one."""
BADLY_CUT: Final = (
    "SELECT count(*) FROM {} "
    f"WHERE octet_length(head) > {HEAD_BYTES} OR (tail <> '' AND octet_length(head) < {HEAD_BYTES}) "
    "OR digest <> CASE WHEN tail = '' THEN ''::bytea ELSE sha256(tail) END"
)


class PostgresqlEngine:
    capabilities = CAPABILITIES
    changes: ChangeLog | None = None

    def __init__(
        self,
        address: DatabaseAddress,
        clock: Clock,
        storage: StorageId,
        *,
        read_only: bool,
        is_alone: bool = False,
    ) -> None:
        self._clock = clock
        self._address = address
        self._storage = storage
        self._behind = 0
        """Ticks that are added to the clock, to have the database's."""
        self._warnings: list[str] = []
        self.logs_warnings = False
        self._read_only = read_only
        self._is_open = True
        self._under_way: set[asyncio.Task[Committed | Conflict]] = set()

        def connections(count: int) -> Connections:
            return Connections(
                address, count, storage, self.note, writes=not read_only, is_alone=is_alone
            )

        self._connections = connections(address.connections)
        self._snapshots = connections(SNAPSHOTS * address.connections)
        self._commits = Commits(self._connections, self._now, storage)
        self._reads = Reads(self._connections)
        self.leases = Leases(LEASE_SECONDS)

    @property
    def generation(self) -> int | None:
        return self.leases.generation

    async def keep_rules(self, *, all_upgraded: bool) -> str | None:
        """For `StoredAccounts.set_rules`."""
        with translated_errors():
            async with self._connections.aside() as connection:
                return await keep_rules(
                    connection.driver, self._address, self._storage, all_upgraded=all_upgraded
                )

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
        task = asyncio.ensure_future(self._carry_out(write_set))
        self._under_way.add(task)
        task.add_done_callback(self._forget)
        # A commit that has begun is carried out, even if its caller is cancelled.
        return await asyncio.shield(task)

    async def _carry_out(self, write_set: WriteSet) -> Committed | Conflict:
        if NO_STANDBY in self._warnings:
            # Each commit would take a connection from the reads and, given up, leave one that waits in PostgreSQL.
            await self._snapshots.examine()
            if NO_STANDBY in self._warnings:
                raise EngineBusy(NO_STANDBY)
        return await self._commits.commit(write_set)

    async def watch(self, *, leads: bool) -> None:
        """Look at the database's clock and settings, and forget what is old."""
        self.logs_warnings = leads
        forgot_at = -inf
        while True:
            try:
                await self._snapshots.examine()  # commits that wait hold none of these connections
                if (
                    leads
                    and not self._read_only
                    and monotonic_seconds() - forgot_at > FORGET_SECONDS
                ):
                    forgot_at = monotonic_seconds()
                    async with self._connections.one() as connection:
                        await connection.fetch(FORGET_FLOORS)
                        await connection.fetch(FORGET_SESSIONS)
            except EngineUnavailable as error:
                log.info("PostgreSQL was not looked at, and old rows stay for now: %s", error)
            await asyncio.sleep(EXAMINE_SECONDS)

    def note(self, found: Examination) -> None:
        """Go by what a look at the database has just found; log what is new in it."""
        self._behind = found.ticks_behind(self._clock)
        before, self._warnings = self._warnings, found.warnings(self._clock)
        if self.logs_warnings:
            for warning in self._warnings:
                if warning not in before:
                    log.warning("%s", warning)

    def warnings(self) -> list[str]:
        return self._warnings

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
            REQUEST.name: [
                sum(numbers)
                for numbers in zip(
                    self._connections.request_seconds.numbers(),
                    self._snapshots.request_seconds.numbers(),
                    strict=True,
                )
            ],
            "postgresql_wait_seconds": self._connections.wait_seconds
            + self._snapshots.wait_seconds,
            "postgresql_lock_wait_seconds": self._commits.lock_wait_seconds,
            "postgresql_connects": self._connections.connects + self._snapshots.connects,
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
