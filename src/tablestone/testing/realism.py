"""Where Azure differs from one machine: a secondary that is behind, and pages that end with partition ranges.

The secondary follows the primary at once, some seconds later, or not at all. While it is behind, it has its own rows: a
copy from the moment when that began, to which the commits of the primary are applied when they are due. It runs on the
loop of the storage; any thread may set how far it is behind.
"""

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from tablestone.clock import TICKS_PER_SECOND
from tablestone.engines.contract import (
    ANY,
    Change,
    Committed,
    Conflict,
    Engine,
    Entry,
    Hint,
    Key,
    KeyRange,
    MomentPassed,
    Rows,
    Snapshot,
    WriteSet,
)
from tablestone.engines.forwarding_engine import ForwardingEngine, ForwardingSnapshot
from tablestone.engines.memory import MemoryEngine, MemoryRows
from tablestone.model.entity_json import key_of, read_raw
from tablestone.model.operations import GetServiceStats, Operation, Result, ServiceStats
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Named, Owner
from tablestone.tables.catalog import scan_in_steps
from tablestone.tables.service import TableService
from tablestone.testing.clock import StorageClock
from tablestone.testing.fault_rules import FaultRefused
from tablestone.testing.recorded_requests import Next

EVENTUAL_SECONDS: Final = 60.0
"""How far the secondary is behind with `realism`. Azure guarantees no limit; minutes are usual."""


class _Course(NamedTuple):
    """How far the secondary is behind, from a moment on. Compared by identity."""

    seconds: float
    began: int


class _Commit(NamedTuple):
    """A commit of the primary: its moment, and the version of each of its changes."""

    at: float
    write_set: WriteSet
    versions: Sequence[int]


class Secondary:
    """The secondary of one storage. `usual_seconds` is how far it is behind unless a test says otherwise."""

    def __init__(self, clock: StorageClock, usual_seconds: float = 0.0) -> None:
        self._clock = clock
        self._usual_seconds = usual_seconds
        self._course = _Course(usual_seconds, clock.ticks())
        self._copied_for: _Course | None = None
        self._copying = asyncio.Lock()
        self._waiting: deque[_Commit] = deque()
        self._version = 0
        self._rows = MemoryEngine(lambda: self._version)
        self._tables = TableService(
            self._rows, clock.ticks, clock.elapsed_seconds, storage_keys.fresh_table_id
        )

    @property
    def is_behind(self) -> bool:
        return self._course.seconds > 0

    @property
    def seconds_behind(self) -> float:
        """How far it is behind, in seconds; infinite while it is frozen."""
        return self._course.seconds

    def follow(self, seconds: float | None = None) -> None:
        """From now on, follow the primary this many seconds later; None is the usual delay."""
        behind: Any = self._usual_seconds if seconds is None else seconds
        if not isinstance(behind, int | float) or not behind >= 0:
            raise FaultRefused(
                f"The secondary is behind by a number of seconds that is not negative, not {behind!r}."
            )
        self._course = _Course(behind, self._clock.ticks())

    def freeze(self) -> None:
        """Keep the present state."""
        self.follow(math.inf)

    def replace(self, contents: MemoryRows) -> None:
        """Take these rows, which the primary was restored to. A frozen secondary stays frozen with them."""
        if self.is_behind:
            self._rows.replace(contents)
            self._waiting.clear()
            self._copied_for = self._course

    async def copy(self, primary: Engine) -> None:
        """Copy the rows of the primary before its first commit, if the secondary is behind."""
        if self._copied_for is self._course or not self.is_behind:
            return
        async with self._copying:
            course = self._course
            if self._copied_for is not course:
                self._waiting.clear()
                self._rows.replace(await _contents_of(primary))
                self._copied_for = course

    async def learn(self, write_set: WriteSet, versions: Sequence[int], *, at_once: bool) -> None:
        """Queue a commit of the primary. `at_once` applies it and all that wait."""
        if math.isinf(self._course.seconds) or not self.is_behind:
            return
        self._waiting.append(_Commit(self._clock.elapsed_seconds(), write_set, versions))
        await self._catch_up(math.inf if at_once else -math.inf)

    async def execute(self, primary: Next, owner: Owner, operation: Operation) -> Result:
        """Carry out an operation that reads. Until the first commit, the primary has the same rows."""
        course = self._course
        if isinstance(operation, GetServiceStats):
            if math.isinf(course.seconds):
                return ServiceStats(course.began)
            return ServiceStats(self._clock.ticks() - round(course.seconds * TICKS_PER_SECOND))
        if self._copied_for is not course:
            return await primary(owner, operation)
        await self._catch_up(self._clock.elapsed_seconds() - course.seconds)
        return await self._tables.execute(Named(owner.name), operation)

    async def _catch_up(self, until: float) -> None:
        while self._waiting and self._waiting[0].at <= until:
            commit = self._waiting.popleft()
            for change, version in zip(commit.write_set.changes, commit.versions, strict=True):
                self._version = version
                changes = [Change(change.row, ANY, change.mutation)]
                await self._rows.commit(
                    commit.write_set._replace(changes=changes, note=None, relies_on=None)
                )


class FollowedEngine(ForwardingEngine):
    """The engine of the primary. The secondary learns of its commits, without delay if `at_once`."""

    def __init__(self, engine: Engine, secondary: Secondary, *, at_once: bool = False) -> None:
        super().__init__(engine)
        self._secondary = secondary
        self._at_once = at_once

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        await self._secondary.copy(self._engine)
        outcome = await super().commit(write_set)
        if isinstance(outcome, Committed):
            await self._secondary.learn(write_set, outcome.versions, at_once=self._at_once)
        return outcome


async def _contents_of(engine: Engine) -> MemoryRows:
    if isinstance(engine, MemoryEngine):
        return engine.contents()
    rows: dict[Key, tuple[int, bytes]] = {}
    async for found in scan_in_steps(engine, storage_keys.EVERYTHING):
        for row in found:
            rows[Key(row.partition, row.row)] = (row.version, row.value)
    return MemoryRows(sorted(rows), rows, [])


PARTITIONS_PER_RANGE: Final = 4
"""On average."""
_KEY_BEGINS: Final = len(storage_keys.ENTITIES) + storage_keys.TABLE_ID_LENGTH


def begins_range(partition: bytes) -> bool:
    """Whether a range begins with this partition. This depends on the PartitionKey alone, so every run is the same."""
    return blake2b(partition[_KEY_BEGINS:], digest_size=1).digest()[0] % PARTITIONS_PER_RANGE == 0


class RangedEngine(ForwardingEngine):
    """An engine whose reads of entities end with a partition range."""

    async def read(self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        rows = await super().read(ranges, rows_max=rows_max, bytes_max=bytes_max)
        return _of_first_range(rows, ranges[0].start)

    async def snapshot(self) -> Snapshot:
        return _RangedSnapshot(await super().snapshot())


class _RangedSnapshot(ForwardingSnapshot):
    """A snapshot whose moment passes when a partition range ends, so that the page ends there, even if empty."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._has_passed = False

    async def read(
        self,
        ranges: Sequence[KeyRange],
        *,
        rows_max: int,
        bytes_max: int,
        hint: Hint | None = None,  # noqa: ARG002
    ) -> Rows:
        if self._has_passed:
            raise MomentPassed
        # Without the hint: rows that the engine left out may begin a range.
        rows = await super().read(ranges, rows_max=rows_max, bytes_max=bytes_max)
        first = _of_first_range(rows, ranges[0].start)
        self._has_passed = first.next_key is not None and _divides(first, first.next_key)
        return first

    async def entries(self, start: Entry, end: Entry, *, entries_max: int) -> list[Entry]:  # noqa: ARG002
        """No entries, so every query is a scan, as on Azure: an index would pass over ends of ranges."""
        return await super().entries(start, end, entries_max=0)


def _of_first_range(rows: Rows, start: Key) -> Rows:
    """The rows up to the next partition, after that of the first row, that begins a range."""
    if not start.partition.startswith(storage_keys.ENTITIES):
        return rows
    before: bytes | None = None
    for number, value in enumerate(rows.values):
        place = _place_of(value, start)
        if before not in (None, place.partition) and begins_range(place.partition):
            return Rows(rows.values[:number], place)
        before = place.partition
    return rows


def _divides(rows: Rows, next_key: Key) -> bool:
    """Whether the next row is in another partition than the last one, and begins a range."""
    if not rows.values or not next_key.partition.startswith(storage_keys.ENTITIES):
        return False
    last = _place_of(rows.values[-1], next_key)
    return last.partition != next_key.partition and begins_range(next_key.partition)


def _place_of(value: bytes, of_same_table: Key) -> Key:
    table_id = of_same_table.partition[len(storage_keys.ENTITIES) : _KEY_BEGINS]
    return storage_keys.entity_place(table_id, key_of(read_raw(value)))
