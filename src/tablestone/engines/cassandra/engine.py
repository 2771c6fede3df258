"""The engine in Apache Cassandra: an `Engine` of `commit`, `read` and `directory`. It removes empty partitions."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from tablestone.clock import Clock, elapsed_seconds
from tablestone.engines.cassandra.commit import (
    COMMIT_SECONDS_MAX,
    OVERTAKEN_PAUSE_SECONDS_MAX,
    Commits,
)
from tablestone.engines.cassandra.connection import Attempts, Connection, OutcomeInDoubt
from tablestone.engines.cassandra.directory import Directory
from tablestone.engines.cassandra.kind import CAPABILITIES, LEASE_SECONDS, REQUEST
from tablestone.engines.cassandra.layout import ROWS, keep_rules
from tablestone.engines.cassandra.read import PassingSnapshot, Reads, Widths
from tablestone.engines.cassandra.unknown_outcome import FORGOTTEN_SECONDS, Outcomes, State
from tablestone.engines.change_record import ChangeLog
from tablestone.engines.contract import (
    DELETE,
    Committed,
    Conflict,
    EngineBusy,
    EngineUnavailable,
    Key,
    KeyRange,
    Rows,
    StoredRow,
    Update,
    WriteSet,
    decide_updates,
)
from tablestone.engines.figures import Values
from tablestone.engines.leases import Leases
from tablestone.engines.request_time import WriteQueues

log = logging.getLogger(__name__)

KEPT_MAX: Final = 100_000
"""Partitions that wait to be examined. Further ones are not noted: later reads find them again."""
PAUSE_SECONDS: Final = 5.0
"""Empty partitions stay listed for this long at least: they are often filled again."""


class EmptyPartitions:
    """Takes partitions without rows out of the directory."""

    def __init__(self, connection: Connection, directory: Directory, outcomes: Outcomes) -> None:
        self._connection = connection
        self._directory = directory
        self._outcomes = outcomes
        self._noted: dict[bytes, None] = {}
        self._any_row = connection.prepare(
            f"SELECT row FROM {ROWS} WHERE partition = ? LIMIT 1", serial=True
        )

    def note(self, partition: bytes) -> None:
        """This partition may be empty."""
        if len(self._noted) < KEPT_MAX:
            self._noted[partition] = None

    async def watch(self) -> None:
        """Clean the noted partitions, one by one, while the server runs."""
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            noted, self._noted = self._noted, {}
            for partition in noted:
                try:
                    await self.clean(partition)
                except (EngineUnavailable, OutcomeInDoubt) as error:
                    log.info("an empty partition stays in the directory for now: %s", error)
            try:
                await self._directory.join_empty()
            except (EngineUnavailable, OutcomeInDoubt) as error:
                log.info("empty nodes of the directory stay for now: %s", error)

    async def clean(self, partition: bytes) -> bool:
        """Take the partition out of the directory if it is empty; True if it was taken out."""
        state, _ = await self._outcomes.state(partition)
        # Static columns without rows are one line whose row is null.
        answer = await self._connection.read(self._any_row, (partition,))
        if answer and answer[0][0] is not None:
            return False
        epoch = abs(state.listed)
        if state.listed > 0 or (state.mark and not epoch):
            # No epoch: the first write gave up after it had listed the partition.
            epoch = epoch or max(self._directory.epoch_now(), 1)
            # Every commit moves the mark: if the state is still the same, there is still no row.
            unlisted = State(state.mark + 1, state.floor, -epoch)
            if not await self._outcomes.change_state(partition, state, unlisted, FORGOTTEN_SECONDS):
                return False
        elif state.mark == 0:
            # A server died while it did this, and the state has expired.
            epoch = self._directory.epoch_now() - FORGOTTEN_SECONDS * 1_000_000
        await self._directory.remove(partition, epoch)
        return True


class CassandraEngine:
    """`writer` is this engine's alone. `seconds` goes on while the machine sleeps, as the cluster's time does."""

    capabilities = CAPABILITIES

    def __init__(
        self,
        connection: Connection,
        clock: Clock,
        seconds: Callable[[], float] = elapsed_seconds,
        writer: int | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        self.connection = connection
        self._read_only = read_only
        self._is_open = True
        self._queues: WriteQueues[bytes] = WriteQueues("partition")
        self._updates: WriteQueues[Key] = WriteQueues("row")
        self._under_way: set[asyncio.Task[Committed | Conflict]] = set()
        self.directory = Directory(connection, clock)
        widths = Widths(connection)
        outcomes = Outcomes(connection, seconds, secrets.randbits(62) if writer is None else writer)
        self._commits = Commits(connection, self.directory, clock, seconds, outcomes, widths)
        self.empty_partitions = EmptyPartitions(connection, self.directory, outcomes)
        self._reads = Reads(connection, self.directory, widths, self.empty_partitions.note)
        self.leases = Leases(LEASE_SECONDS, last_change_of=outcomes.mark_of)

    @property
    def generation(self) -> int | None:
        return self.leases.generation

    changes: ChangeLog | None = None

    async def keep_rules(self, *, all_upgraded: bool) -> str | None:
        """For `StoredAccounts.set_rules`."""
        return await asyncio.to_thread(keep_rules, self.connection, all_upgraded=all_upgraded)

    async def get(self, key: Key) -> bytes | None:
        self._require_open()
        return await self._reads.get(key)

    async def read(self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        self._require_open()
        rows, _ = await self._reads.read(ranges, rows_max, bytes_max)
        return rows

    async def snapshot(self) -> PassingSnapshot:
        self._require_open()
        return PassingSnapshot(self._reads)

    async def scan(self, key_range: KeyRange, *, rows_max: int) -> list[StoredRow]:
        self._require_open()
        return await self._reads.scan(key_range, rows_max)

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        """Commits of one partition follow each other in the order of their calls."""
        self._require_open()
        if self._read_only:
            raise EngineUnavailable("The engine was opened for reading only.")
        # The time includes the wait for earlier commits, so no client waits longer for a busy partition.
        attempts = self.connection.attempts(COMMIT_SECONDS_MAX)
        is_update = any(isinstance(change.mutation, Update) for change in write_set.changes)
        carry_out = self._update if is_update else self._in_turn
        task = asyncio.ensure_future(carry_out(write_set, attempts))
        self._under_way.add(task)
        task.add_done_callback(self._forget)
        # A commit that has begun is carried out, even if its caller is cancelled.
        return await asyncio.shield(task)

    async def watch(self, *, leads: bool) -> None:  # noqa: ARG002 - every server looks after what it met
        await self.empty_partitions.watch()

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

    async def _update(self, write_set: WriteSet, attempts: Attempts) -> Committed | Conflict:
        """Read the rows, decide the updates, and commit; begin again if another server was first.

        This server's updates of a row take turns, since all but one would commit in vain. A write set waits for the
        turn of one row only, so no two wait for each other.
        """
        partition, changes, *_ = write_set
        rows = [change.row for change in changes]
        turn = Key(partition, min(c.row for c in changes if isinstance(c.mutation, Update)))
        await self._updates.begin(turn, attempts.left)
        try:
            while True:
                decided = decide_updates(write_set, await self._reads.rows(partition, rows))
                if isinstance(decided, Conflict):
                    return decided
                outcome = await self._in_turn(decided, attempts)
                if isinstance(outcome, Committed):
                    return outcome
                if not isinstance(changes[outcome.index].mutation, Update):
                    return outcome
                overtaken = EngineBusy("Other servers keep writing to the same rows.")
                await attempts.pause(overtaken, OVERTAKEN_PAUSE_SECONDS_MAX)
        finally:
            self._updates.end(turn)

    async def _in_turn(self, write_set: WriteSet, attempts: Attempts) -> Committed | Conflict:
        partition, changes, *_ = write_set
        if not changes:
            return Committed([])
        await self._queues.begin(partition, attempts.left)
        try:
            outcome = await self._commits.commit(write_set, attempts)
        finally:
            self._queues.end(partition)
        if any(change.mutation is DELETE for change in changes):
            self.empty_partitions.note(partition)
        return outcome

    def _forget(self, done: asyncio.Task[Committed | Conflict]) -> None:
        self._under_way.discard(done)
        if not done.cancelled():
            done.exception()  # the caller that waits gets it

    def _require_open(self) -> None:
        if not self._is_open:
            raise EngineUnavailable("The engine is closed.")


PARTITIONS_PER_READ = 1000


async def broken_invariants(connection: Connection, directory: Directory) -> list[str]:
    """A sentence for each broken invariant. Has the list of all partitions in memory.

    Servers may list partitions or take them out meanwhile, so what seems wrong is read again.
    """
    broken: list[str] = []
    async for level, low, node in directory.nodes():
        if node.high is not None and node.high <= low:
            broken.append(
                f"node {low.hex()!r} of level {level} of the directory ends before it begins"
            )
    entries: list[bytes] = []
    async for partitions in directory.partitions(b"", None, None):
        entries += partitions
    if any(later <= earlier for earlier, later in pairwise(entries)):
        broken.append("the directory is not in order")
    listed = set(entries)
    listed_now = connection.prepare(f"SELECT DISTINCT listed FROM {ROWS} WHERE partition = ?")
    for partition, mark, state in await _states(connection):
        if state > 0 and (mark is None or mark <= 0):
            broken.append(f"partition {partition.hex()!r} is listed and has no mark")
        if state > 0 and partition not in listed and not await directory.holds(partition):
            now = await connection.read(listed_now, (partition,))
            if now and now[0][0] == state:  # it was not taken out meanwhile
                broken.append(f"partition {partition.hex()!r} is not in the directory")
    return broken


async def _states(connection: Connection) -> list[tuple[bytes, int | None, int]]:
    select = f"SELECT DISTINCT partition, mark, listed, token(partition) FROM {ROWS}"
    first = connection.prepare(f"{select} LIMIT ?")
    following = connection.prepare(f"{select} WHERE token(partition) > ? LIMIT ?")
    found: list[tuple[bytes, int | None, int]] = []
    rows = await connection.read(first, (PARTITIONS_PER_READ,))
    while rows:
        found += [(partition, mark, listed or 0) for partition, mark, listed, _ in rows]
        rows = await connection.read(following, (rows[-1][3], PARTITIONS_PER_READ))
    return found
