"""The engine in Apache Cassandra: an `Engine` whose parts are `commit`, `read`, `directory` and `emptied`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tablestone.clock import Clock
from tablestone.engines.cassandra.capabilities import CAPABILITIES, LEASE_SECONDS
from tablestone.engines.cassandra.cassandra_figures import REQUEST
from tablestone.engines.cassandra.commit import Commits
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
        self._last: dict[bytes, asyncio.Task[Committed | Conflict]] = {}
        self.directory = Directory(connection, clock, chance)
        widths = Widths(connection)
        self._commits = Commits(connection, self.directory, clock, seconds, writer, widths)
        self.emptied = Emptied(connection, self.directory, self._commits)
        self._reads = Reads(connection, self.directory, widths, self.emptied.note)
        self._leases = Leases(LEASE_SECONDS, moment_of=self._reads.moment)

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
        partition = write_set.partition
        task = asyncio.ensure_future(self._after(self._last.get(partition), write_set))
        self._last[partition] = task
        task.add_done_callback(lambda done: self._forget(partition, done))
        # The caller may be cancelled; a commit that has begun is carried out.
        return await asyncio.shield(task)

    async def watch(self, *, logs_warnings: bool) -> None:  # noqa: ARG002 - every server looks after what it met
        with self.connection.serving.here():
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
            if self._last:
                await asyncio.wait(list(self._last.values()))
            self.connection.close()

    async def _after(
        self, earlier: asyncio.Task[Committed | Conflict] | None, write_set: WriteSet
    ) -> Committed | Conflict:
        if not write_set.changes:
            return Committed([])
        if earlier is not None:
            await asyncio.wait((earlier,))
        outcome = await self._commits.commit(write_set)
        if any(change.mutation is DELETE for change in write_set.changes):
            self.emptied.note(write_set.partition)
        return outcome

    def _forget(self, partition: bytes, done: asyncio.Task[Committed | Conflict]) -> None:
        if self._last.get(partition) is done:
            del self._last[partition]
        if not done.cancelled():
            done.exception()  # the caller that waits gets it

    def _require_open(self) -> None:
        if not self._is_open:
            raise EngineUnavailable("The engine is closed.")
