"""Where Azure differs from one machine: a secondary that lags behind, and pages that end with partition ranges.

The secondary follows the primary at once, some seconds later, or not at all. While it lags, it has rows of its own: a
copy of the primary's from when the lag began, to which it applies each commit when that is due. It runs on the loop of
the storage; any thread may set the lag.
"""

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from tablestone.clock import TICKS_PER_SECOND
from tablestone.engines import contract
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
"""The lag of the secondary with `realism`. Azure guarantees no limit; minutes are usual."""


class _Lag(NamedTuple):
    """The lag of the secondary, and the tick at which it began. Compared by identity."""

    seconds: float
    began: int


class _Commit(NamedTuple):
    """A commit of the primary: the clock's `elapsed_seconds` then, and the version of each change."""

    at: float
    write_set: contract.WriteSet
    versions: Sequence[int]


class Secondary:
    """The secondary of one storage. `usual_seconds` is its lag unless a test sets another."""

    def __init__(self, clock: StorageClock, usual_seconds: float = 0.0) -> None:
        self._clock = clock
        self._usual_seconds = usual_seconds
        self._lag = _Lag(usual_seconds, clock.ticks())
        self._copied_for: _Lag | None = None
        self._copying = asyncio.Lock()
        self._waiting: deque[_Commit] = deque()
        self._version = 0
        self._rows = MemoryEngine(lambda: self._version)
        self._tables = TableService(
            self._rows, clock.ticks, clock.elapsed_seconds, storage_keys.fresh_table_id
        )

    @property
    def is_behind(self) -> bool:
        return self._lag.seconds > 0

    @property
    def seconds_behind(self) -> float:
        """The lag in seconds; infinite while it is frozen."""
        return self._lag.seconds

    def follow(self, seconds: float | None = None) -> None:
        """From now on, follow the primary this many seconds later; None is the usual lag."""
        behind: Any = self._usual_seconds if seconds is None else seconds
        if not isinstance(behind, int | float) or not behind >= 0:
            raise FaultRefused(
                f"The secondary is behind by a number of seconds that is not negative, not {behind!r}."
            )
        self._lag = _Lag(behind, self._clock.ticks())

    def freeze(self) -> None:
        """Keep the present state, whatever the primary does."""
        self.follow(math.inf)

    def replace(self, contents: MemoryRows) -> None:
        """Take the rows that the primary was restored to. A frozen secondary stays frozen with them."""
        if self.is_behind:
            self._rows.replace(contents)
            self._waiting.clear()
            self._copied_for = self._lag

    async def copy(self, primary: contract.Engine) -> None:
        """Copy the rows of the primary, before its first commit since the lag began."""
        if self._copied_for is self._lag or not self.is_behind:
            return
        async with self._copying:
            lag = self._lag
            if self._copied_for is not lag:
                self._waiting.clear()
                self._rows.replace(await _contents_of(primary))
                self._copied_for = lag

    async def learn(
        self, write_set: contract.WriteSet, versions: Sequence[int], *, at_once: bool
    ) -> None:
        """Queue a commit of the primary; `at_once` applies it and all that wait."""
        if math.isinf(self._lag.seconds) or not self.is_behind:
            return
        self._waiting.append(_Commit(self._clock.elapsed_seconds(), write_set, versions))
        await self._catch_up(math.inf if at_once else -math.inf)

    async def execute(self, primary: Next, owner: Owner, operation: Operation) -> Result:
        """Carry out an operation that reads. Before the first commit, the primary has the same rows and answers."""
        lag = self._lag
        if isinstance(operation, GetServiceStats):
            if math.isinf(lag.seconds):
                return ServiceStats(lag.began)
            return ServiceStats(self._clock.ticks() - round(lag.seconds * TICKS_PER_SECOND))
        if self._copied_for is not lag:
            return await primary(owner, operation)
        await self._catch_up(self._clock.elapsed_seconds() - lag.seconds)
        return await self._tables.execute(Named(owner.name), operation)

    async def _catch_up(self, until: float) -> None:
        while self._waiting and self._waiting[0].at <= until:
            commit = self._waiting.popleft()
            for change, version in zip(commit.write_set.changes, commit.versions, strict=True):
                self._version = version
                changes = [contract.Change(change.row, contract.ANY, change.mutation)]
                await self._rows.commit(
                    commit.write_set._replace(changes=changes, note=None, relies_on=None)
                )


class FollowedEngine(ForwardingEngine):
    """The engine of the primary, which tells the secondary of its commits; without lag if `at_once`."""

    def __init__(
        self, engine: contract.Engine, secondary: Secondary, *, at_once: bool = False
    ) -> None:
        super().__init__(engine)
        self._secondary = secondary
        self._at_once = at_once

    async def commit(self, write_set: contract.WriteSet) -> contract.Committed | contract.Conflict:
        await self._secondary.copy(self._engine)
        outcome = await super().commit(write_set)
        if isinstance(outcome, contract.Committed):
            await self._secondary.learn(write_set, outcome.versions, at_once=self._at_once)
        return outcome


async def _contents_of(engine: contract.Engine) -> MemoryRows:
    if isinstance(engine, MemoryEngine):
        return engine.contents()
    rows: dict[contract.Key, tuple[int, bytes]] = {}
    async for found in scan_in_steps(engine, storage_keys.EVERYTHING):
        for row in found:
            rows[contract.Key(row.partition, row.row)] = (row.version, row.value)
    return MemoryRows(sorted(rows), rows, [])


PARTITIONS_PER_RANGE: Final = 4
"""On average."""
_KEY_BEGINS: Final = len(storage_keys.ENTITIES) + storage_keys.TABLE_ID_LENGTH


def begins_range(partition: bytes) -> bool:
    """Whether a range begins with this partition: by a hash of its PartitionKey, so that every run is the same."""
    return blake2b(partition[_KEY_BEGINS:], digest_size=1).digest()[0] % PARTITIONS_PER_RANGE == 0


class RangedEngine(ForwardingEngine):
    """An engine whose reads of entities end with a partition range."""

    async def read(
        self, ranges: Sequence[contract.KeyRange], *, rows_max: int, bytes_max: int
    ) -> contract.Rows:
        rows = await super().read(ranges, rows_max=rows_max, bytes_max=bytes_max)
        return _of_first_range(rows, ranges[0].start)

    async def snapshot(self) -> contract.Snapshot:
        return _RangedSnapshot(await super().snapshot())


class _RangedSnapshot(ForwardingSnapshot):
    """A snapshot that raises `SnapshotPassed` where a partition range ends: the page ends there, even an empty one."""

    def __init__(self, snapshot: contract.Snapshot) -> None:
        super().__init__(snapshot)
        self._has_passed = False

    async def read(
        self,
        ranges: Sequence[contract.KeyRange],
        *,
        rows_max: int,
        bytes_max: int,
        hint: contract.Hint | None = None,
        reverse: bool = False,
    ) -> contract.Rows:
        if self._has_passed:
            raise contract.SnapshotPassed
        if reverse:  # an extension, which no Azure cuts
            return await super().read(
                ranges, rows_max=rows_max, bytes_max=bytes_max, hint=hint, reverse=True
            )
        # No hint: rows that the engine would leave out may begin a range.
        rows = await super().read(ranges, rows_max=rows_max, bytes_max=bytes_max)
        first = _of_first_range(rows, ranges[0].start)
        self._has_passed = first.next_key is not None and _divides(first, first.next_key)
        return first

    async def entries(
        self,
        start: contract.Entry,
        end: contract.Entry,
        *,
        entries_max: int,  # noqa: ARG002
        reverse: bool = False,
    ) -> list[contract.Entry]:
        """No entries, so that every query scans, as on Azure: an index would pass over the ends of ranges."""
        return await super().entries(start, end, entries_max=0, reverse=reverse)


def _of_first_range(rows: contract.Rows, start: contract.Key) -> contract.Rows:
    """The rows before the next range. The first row's partition never counts as its beginning: a page gets on."""
    if not start.partition.startswith(storage_keys.ENTITIES):
        return rows
    before: bytes | None = None
    for number, value in enumerate(rows.values):
        key = _key_of(value, start)
        if before not in (None, key.partition) and begins_range(key.partition):
            return contract.Rows(rows.values[:number], key)
        before = key.partition
    return rows


def _divides(rows: contract.Rows, next_key: contract.Key) -> bool:
    """Whether the next row is in another partition than the last one, and begins a range."""
    if not rows.values or not next_key.partition.startswith(storage_keys.ENTITIES):
        return False
    last = _key_of(rows.values[-1], next_key)
    return last.partition != next_key.partition and begins_range(next_key.partition)


def _key_of(value: bytes, of_same_table: contract.Key) -> contract.Key:
    table_id = of_same_table.partition[len(storage_keys.ENTITIES) : _KEY_BEGINS]
    return storage_keys.entity_place(table_id, key_of(read_raw(value)))
