"""Cache invalidation: a change of a cached row (`cached_rows`) that no cache and no lease of any process can hide.

If the engine tells every process of an invalidating commit, a change is one commit. If it gives leases, a change has
three steps: put a mark into the partition, which stops processes from caching its rows; wait for the leases that began
before the mark; commit the change and remove the mark. `remove_old_marks` removes the mark of a process that died.
docs/decisions/0008-leases.md has the reasons.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, Self, TypeVar

from tablestone import limits
from tablestone.clock import elapsed_seconds
from tablestone.engines.change_record import Note
from tablestone.engines.contract import (
    ABSENT,
    ANY,
    DELETE,
    Change,
    Committed,
    Conflict,
    Engine,
    EngineBusy,
    EngineUnavailable,
    OutcomeUnknown,
    Put,
    WriteSet,
)
from tablestone.tables import storage_keys
from tablestone.tables.change_notes import SETTINGS_NOTE

CLOCKS_DIFFER_MAX: Final = 0.02
"""The part of a lease by which another machine's clock may be slower than this one's."""
Result = TypeVar("Result")
MARK: Final = b""
"""The value of a mark and of a sentinel; the value of no cached row."""
SHORT_NAMES_MAX: Final = 4
"""How many of the 256 short names a change tries for its mark. If all are taken, it takes a long one."""


def one_more_conflict(conflicts: int, what: str) -> int:
    """The number of conflicts with this one; at `limits.COMMIT_ATTEMPTS_MAX`, `EngineBusy`, whose text names `what`."""
    if conflicts + 1 >= limits.COMMIT_ATTEMPTS_MAX:
        raise EngineBusy(f"Other requests keep changing {what}.")
    return conflicts + 1


class InvalidatingChange:
    """One change of cached rows of one partition, from the first attempt to the commit; used with `async with`."""

    def __init__(self, engine: Engine, partition: bytes) -> None:
        self._engine = engine
        self._partition = partition
        self._lease_seconds = None if engine.leases is None else engine.leases.seconds
        self._unmark: Change | None = None
        """The change that removes this change's mark, and expects that the mark still exists; None without a mark."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._unmark is not None:
            with suppress(EngineUnavailable, OutcomeUnknown):
                # Under its version, as everywhere: a change of another process may have the name now.
                await self._engine.commit(WriteSet(self._partition, (self._unmark,)))

    async def waits(self) -> bool:
        """Wait until no lease can hide the change; True if it waited: then decide again, rows may be out of date."""
        if self._lease_seconds is None or self._unmark is not None:
            return False
        await self._wait(self._lease_seconds)
        return True

    async def commit(
        self,
        changes: tuple[Change, ...],
        *,
        last: bool = True,
        note: Note = SETTINGS_NOTE,
        entries_of: Callable[[bytes], Sequence[bytes]] | None = None,
    ) -> Committed | Conflict:
        """Commit changes that no lease can hide any more. With `last` False, more commits of this change follow.

        If `waits` was not called, no process may have cached the changed rows. A mark is empty, so it has no entries.
        """
        while self._lease_seconds is not None and self._unmark is not None:
            mark = self._unmark if last else self._unmark._replace(mutation=None)
            write_set = WriteSet(self._partition, (*changes, mark), True, note, entries_of)
            outcome = await self._engine.commit(write_set)
            if isinstance(outcome, Committed):
                if last:
                    self._unmark = None
                return Committed(outcome.versions[: len(changes)])
            if outcome.index < len(changes):
                return outcome
            # The mark was removed as an old one, and its name may be taken: other processes may have cached rows since.
            await self._wait(self._lease_seconds)
        return await self._engine.commit(WriteSet(self._partition, changes, True, note, entries_of))

    async def _wait(self, lease_seconds: float) -> None:
        self._unmark = await self._mark()
        await outlast(lease_seconds)

    async def _mark(self) -> Change:
        """Put a mark into the partition; returns the change that removes it.

        An engine with leases may have to read past rows that were deleted. So marks have few names, which are used
        again, and the first mark brings the partition's sentinel, before which no row is deleted.
        """
        put = Put(lambda _version: MARK)
        sentinel = Change(storage_keys.SENTINEL_ROW, ANY, put)
        attempts = 0
        while True:
            attempts += 1
            name = uuid.uuid4().bytes
            row = storage_keys.mark_row(name[:1] if attempts <= SHORT_NAMES_MAX else name)
            marking = WriteSet(self._partition, (Change(row, ABSENT, put), sentinel))
            outcome = await self._engine.commit(marking)
            if isinstance(outcome, Committed):
                return Change(row, outcome.versions[0], DELETE)


async def invalidate(
    engine: Engine, partition: bytes, work: Callable[[InvalidatingChange], Awaitable[Result]]
) -> Result:
    """The result of `work` inside `async with`, for compiled modules, which must not await at the end of one."""
    async with InvalidatingChange(engine, partition) as change:
        return await work(change)


async def outlast(lease_seconds: float) -> None:
    """Wait until every lease that any process began before this call has ended."""
    end = elapsed_seconds() + lease_seconds * (1 + CLOCKS_DIFFER_MAX)
    rest = end - elapsed_seconds()
    while rest > 0:  # the loop's clock may be ahead of this one
        await asyncio.sleep(rest)
        rest = end - elapsed_seconds()


async def remove_old_marks(engine: Engine, partition: bytes, before: int) -> None:
    """Remove the marks that were made before this time (ticks): no process works on such a change any more.

    A process that was suspended for longer finds its mark gone, and waits again.
    """
    rows = await engine.scan(storage_keys.marks(partition), rows_max=limits.PAGE_ENTITIES_MAX)
    old = [Change(row.row, row.version, DELETE) for row in rows if row.version < before]
    if old:
        await engine.commit(WriteSet(partition, old))
