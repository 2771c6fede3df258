"""An engine behind a bad network: every call takes a while, overtakes others, and is lost now and then.

It keeps the contract, as a networked engine must: it repeats a lost call, and finds out the outcome of a commit whose
answer is lost. Each call has a time-out, which works only inside a task. One seed decides everything random.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, TypeVar

from tablestone.engines import request_time
from tablestone.engines.capabilities import Capabilities, StoredIn
from tablestone.engines.contract import (
    ABSENT,
    OUTDATED,
    Committed,
    Conflict,
    EngineBusy,
    EngineUnavailable,
    Key,
    KeyRange,
    SnapshotPassed,
    Update,
    decide_updates,
)
from tablestone.engines.forwarding_engine import ForwardingEngine, ForwardingSnapshot
from tablestone.engines.kind import CONTRACT, EngineKind
from tablestone.engines.leases import Leases
from tablestone.engines.memory import MemoryEngine

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tablestone.clock import Clock
    from tablestone.engines.change_record import (
        After,
        At,
        ChangeLog,
        ChangesRead,
        KeptChanges,
        Note,
        Retention,
    )
    from tablestone.engines.contract import Engine, Entry, Hint, Rows, Snapshot, StoredRow, WriteSet

Answer = TypeVar("Answer")

LEASE_SECONDS = 0.02
LOST = 0.05
"""The probability that a request is lost, and the same for an answer."""
TIMEOUT_SECONDS = 0.002
"""Seconds until a missing answer is asked for again."""
PAUSES = (None, 0, 0, 0, 0.0005)
"""The delays of a call: none, one turn of the loop, or half a millisecond."""


class RememberingMemory(MemoryEngine):
    """The memory engine with versions that outlive their rows, as an engine with leases must have."""

    capabilities = replace(MemoryEngine.capabilities, versions_outlive_rows=True)

    def __init__(self, clock: Clock) -> None:
        self._last_versions: dict[Key, int] = {}
        """Of rows that were deleted."""
        self._earliest = 0
        super().__init__(lambda: max(clock(), self._earliest))

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        keys = [Key(write_set.partition, change.row) for change in write_set.changes]
        stored, last = self._rows.stored, self._last_versions
        found = {key: stored[key][0] for key in keys if key in stored}
        self._earliest = 1 + max((last.get(key, 0) for key in keys), default=0)
        outcome = await super().commit(
            write_set
        )  # never suspends, so no other commit comes in between
        last.update({key: found[key] for key in found if key not in self._rows.stored})
        self._earliest = 0
        return outcome


class MemoryOfServers(RememberingMemory):
    """Several servers have it, as a cluster or a database."""

    capabilities = replace(RememberingMemory.capabilities, stored_in=StoredIn.SERVERS)


class SlowEngine(ForwardingEngine):
    """An `Engine` at the far end of a network; others on the same storage have their own network."""

    def __init__(
        self,
        engine: Engine,
        random: Random,
        *,
        leases: Leases | None = None,
        passes: bool = False,
        decides_first: bool = False,
    ) -> None:
        """With `passes`, it is like a cluster: a snapshot shows its moment until a row changes, a commit looks at no
        other rows than its own, and there are neither entries nor hints. With `decides_first`, it decides an `Update`
        by a row that it has read, and again if the row has changed by the time of the commit.
        """
        self._decides_first = decides_first
        super().__init__(engine)
        self._random = random
        self._leases = leases
        self.commits = 0
        """How many write sets this engine has applied: a snapshot's moment has passed if it changes."""
        self.failure: Exception | None = None
        """Raised instead of every answer, as when nothing can be reached."""
        self._is_open = True
        self._under_way = 0
        self._none_under_way = asyncio.Condition()
        self._capabilities = replace(
            engine.capabilities,
            waits=True,
            hints=engine.capabilities.hints and not passes,
            leases=leases is not None,
            snapshots_pass=passes,
            checks_relied_rows=engine.capabilities.checks_relied_rows and not passes,
            keeps_entries=engine.capabilities.keeps_entries and not passes,
        )
        self._changes = None if engine.changes is None else SlowChangeLog(self, engine.changes)

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def changes(self) -> ChangeLog | None:
        return self._changes

    @property
    def generation(self) -> int | None:
        return None if self._leases is None else self._leases.generation

    @property
    def leases(self) -> Leases | None:
        return self._leases

    async def get(self, key: Key) -> bytes | None:
        return await self._ask(lambda: self._engine.get(key))

    async def read(self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        return await self._ask(
            lambda: self._engine.read(ranges, rows_max=rows_max, bytes_max=bytes_max)
        )

    async def scan(self, key_range: KeyRange, *, rows_max: int) -> list[StoredRow]:
        return await self._ask(lambda: self._engine.scan(key_range, rows_max=rows_max))

    async def snapshot(self) -> SlowSnapshot:
        return SlowSnapshot(self, await self._ask(self._engine.snapshot))

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        partition, changes, *_ = write_set
        rows = [change.row for change in changes if isinstance(change.mutation, Update)]
        while rows and self._decides_first:
            every = KeyRange.of_partition(partition)
            stored = await self.scan(every, rows_max=10_000)
            found = {each.row: (each.version, each.value) for each in stored}
            decided = decide_updates(write_set, found)
            if isinstance(decided, Conflict):
                return OUTDATED if await self._is_outdated(write_set) else decided
            outcome = await self._commit(decided)
            if isinstance(outcome, Committed) or outcome.outdated:
                return outcome
            if changes[outcome.index].row not in rows:
                return outcome  # else another commit came in between
        return await self._commit(write_set)

    async def _is_outdated(self, write_set: WriteSet) -> bool:
        relied = () if write_set.relies_on is None else write_set.relies_on.rows
        present = [await self.scan(KeyRange.of_row(*key), rows_max=1) for key, _ in relied]
        return any(
            (rows[0].version if rows else ABSENT) != version
            for rows, (_, version) in zip(present, relied, strict=True)
        )

    async def _commit(self, write_set: WriteSet) -> Committed | Conflict:
        applied: asyncio.Future[Committed | Conflict] | None = None

        async def apply() -> Committed | Conflict:
            """The far end recognises a write set that it has applied already."""
            nonlocal applied
            if applied is None:
                applied = asyncio.ensure_future(self._engine.commit(write_set))
                self.commits += 1
            return await applied

        return await self._ask(apply)

    async def close(self) -> None:
        self._is_open = False
        async with self._none_under_way:
            await self._none_under_way.wait_for(lambda: not self._under_way)
        await self._engine.close()

    async def _ask(self, request: Callable[[], Awaitable[Answer]]) -> Answer:
        """Send a request until an answer comes back."""
        if not self._is_open:
            raise EngineUnavailable("The engine is closed.")
        if request_time.left() <= 0:
            raise EngineBusy("The time of the request is over.")
        self._under_way += 1
        try:
            while True:
                try:
                    # As in database drivers: this raises outside a task.
                    async with asyncio.timeout(60):
                        await self._travel()
                        answer = await request()
                        await self._travel()
                except ConnectionError:
                    await asyncio.sleep(TIMEOUT_SECONDS)
                else:
                    return answer
        finally:
            self._under_way -= 1
            async with self._none_under_way:
                self._none_under_way.notify_all()

    async def _travel(self) -> None:
        pause = self._random.choice(PAUSES)
        if pause is not None:
            await asyncio.sleep(pause)
        if self.failure is not None:
            raise self.failure
        if self._random.random() < LOST:
            raise ConnectionError


class SlowSnapshot(ForwardingSnapshot):
    """A snapshot over the same network."""

    def __init__(self, engine: SlowEngine, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._engine = engine
        self._commits: int | None = None

    async def read(
        self,
        ranges: Sequence[KeyRange],
        *,
        rows_max: int,
        bytes_max: int,
        hint: Hint | None = None,
        reverse: bool = False,
    ) -> Rows:
        if self._commits is None:
            self._commits = self._engine.commits
        elif self._engine.capabilities.snapshots_pass and self._commits != self._engine.commits:
            raise SnapshotPassed
        return await self._engine._ask(
            lambda: self._snapshot.read(
                ranges, rows_max=rows_max, bytes_max=bytes_max, hint=hint, reverse=reverse
            )
        )

    async def entries(
        self, start: Entry, end: Entry, *, entries_max: int, reverse: bool = False
    ) -> list[Entry]:
        return await self._engine._ask(
            lambda: self._snapshot.entries(start, end, entries_max=entries_max, reverse=reverse)
        )


class SlowChangeLog:
    """A record of changes over the same network. What is kept is known without asking."""

    def __init__(self, engine: SlowEngine, log: ChangeLog) -> None:
        self._engine = engine
        self._log = log
        self.age = log.age

    async def keep(self, retention: Retention | None, accepted: Retention | None = None) -> None:
        await self._engine._ask(lambda: self._log.keep(retention, accepted))

    def kept(self) -> KeptChanges | None:
        return self._log.kept()

    async def read(
        self, position: After | At, *, subject: bytes | None, rows_max: int, bytes_max: int
    ) -> ChangesRead | None:
        return await self._engine._ask(
            lambda: self._log.read(
                position, subject=subject, rows_max=rows_max, bytes_max=bytes_max
            )
        )

    async def news(self, after: int, seconds: float) -> Sequence[tuple[int, Note]]:
        return await self._engine._ask(lambda: self._log.news(after, seconds))


def _open(_place: str, clock: Clock, *_: object) -> SlowEngine:
    return SlowEngine(RememberingMemory(clock), Random(1), leases=Leases(LEASE_SECONDS))


KIND = EngineKind(
    replace(RememberingMemory.capabilities, waits=True, leases=True),
    ("slow",),
    _open,
    contract=CONTRACT,
)
