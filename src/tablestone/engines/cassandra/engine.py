"""The engine in Apache Cassandra: an `Engine` whose parts are `commit`, `read`, `directory` and `emptied`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tablestone.clock import Clock
from tablestone.engines.cassandra.attempts import Attempts
from tablestone.engines.cassandra.capabilities import CAPABILITIES, LEASE_SECONDS
from tablestone.engines.cassandra.cassandra_figures import REQUEST
from tablestone.engines.cassandra.commit import COMMIT_SECONDS_MAX, Commits
from tablestone.engines.cassandra.connection import Connection
from tablestone.engines.cassandra.directory import Directory
from tablestone.engines.cassandra.emptied import Emptied
from tablestone.engines.cassandra.invariants import broken_invariants
from tablestone.engines.cassandra.read import PassingSnapshot, Reads
from tablestone.engines.cassandra.widths import Widths
from tablestone.engines.contract import (
    DELETE,
    Committed,
    Conflict,
    EngineUnavailable,
    Key,
    KeyRange,
    Rows,
    StoredRow,
    WriteSet,
)
from tablestone.engines.figures import Values
from tablestone.engines.leases import Leases
from tablestone.engines.write_queues import WriteQueues


class CassandraEngine:
    """An `Engine` on an open connection, which it closes. `writer` is a number that no other engine has."""

    capabilities = CAPABILITIES

    def __init__(
        self,
        connection: Connection,
        clock: Clock,
        seconds: Callable[[], float],
        chance: Callable[[], float],
        writer: int,
        *,
        read_only: bool = False,
    ) -> None:
        self.connection = connection
        self._read_only = read_only
        self._is_open = True
        self._queues: WriteQueues[bytes] = WriteQueues("partition")
        self._under_way: set[asyncio.Task[Committed | Conflict]] = set()
        self.directory = Directory(connection, clock, chance)
        widths = Widths(connection)
        self._commits = Commits(connection, self.directory, clock, seconds, writer, widths)
        self.emptied = Emptied(connection, self.directory, self._commits)
        self._reads = Reads(connection, self.directory, widths, self.emptied.note)
        self._leases = Leases(LEASE_SECONDS, moment_of=self._commits.moment)

    @property
    def generation(self) -> int | None:
        return self._leases.generation

    @property
    def leases(self) -> Leases | None:
        return self._leases

    async def get(self, key: Key) -> bytes | None:
        self._require_open()
        return await self._reads.get(key)

    async def read(self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        self._require_open()
        return await self._reads.read(ranges, rows_max, bytes_max)

    async def snapshot(self) -> PassingSnapshot:
        self._require_open()
        return self._reads.snapshot()

    async def scan(self, key_range: KeyRange, *, rows_max: int) -> list[StoredRow]:
        self._require_open()
        return await self._reads.scan(key_range, rows_max)

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        """Commits of one partition follow each other in the order in which they were asked for."""
        self._require_open()
        if self._read_only:
            raise EngineUnavailable("The engine was opened for reading only.")
        # The time of a commit begins before it waits for earlier ones: a client waits no longer for a busy partition.
        attempts = self.connection.attempts(COMMIT_SECONDS_MAX)
        task = asyncio.ensure_future(self._in_turn(write_set, attempts))
        self._under_way.add(task)
        task.add_done_callback(self._forget)
        # The caller may be cancelled; a commit that has begun is carried out.
        return await asyncio.shield(task)

    async def watch(self, *, logs_warnings: bool) -> None:  # noqa: ARG002 - every server looks after what it met
        await self.emptied.watch()

    async def check(self) -> list[str]:
        self._require_open()
        return await broken_invariants(self.connection, self.directory)

    def measure(self) -> Values:
        nodes, up = self.connection.nodes()
        return {
            REQUEST.name: self.connection.request_seconds.numbers(),
            "cassandra_request_failures": self.connection.failures,
            "cassandra_commits_in_doubt": self._commits.in_doubt,
            "cassandra_commits_overtaken": self._commits.overtaken,
            "cassandra_nodes": nodes,
            "cassandra_nodes_up": up,
        }

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            if self._under_way:
                await asyncio.wait(self._under_way)
            self.connection.close()

    async def _in_turn(self, write_set: WriteSet, attempts: Attempts) -> Committed | Conflict:
        partition, changes, _ = write_set
        if not changes:
            return Committed([])
        await self._queues.begin(partition, attempts.left)
        try:
            outcome = await self._commits.commit(write_set, attempts)
        finally:
            self._queues.end(partition)
        if any(change.mutation is DELETE for change in changes):
            self.emptied.note(partition)
        return outcome

    def _forget(self, done: asyncio.Task[Committed | Conflict]) -> None:
        self._under_way.discard(done)
        if not done.cancelled():
            done.exception()  # the caller that waits gets it

    def _require_open(self) -> None:
        if not self._is_open:
            raise EngineUnavailable("The engine is closed.")
