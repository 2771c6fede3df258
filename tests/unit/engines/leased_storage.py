"""Storage for tests of leases, and a clock that a test sets."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

from storage.slow_engine import SlowEngine
from tablestone.engines.contract import ANY, Change, EngineUnavailable, Put, WriteSet
from tablestone.engines.memory import MemoryEngine
from tablestone.tables import storage_keys
from tablestone.tables.metadata import DocumentKind

if TYPE_CHECKING:
    from tablestone.engines.contract import Committed, Conflict, Key, Rows
    from tablestone.engines.leases import Leases

KIND = DocumentKind.ROLES
PLACE = storage_keys.document_place(KIND.value, "name")


class Elapsed:
    """A clock that the test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class CountingEngine(MemoryEngine):
    """Counts the calls. `last_change_of` counts the commits to a partition, as `leases.LastChangeOf`."""

    def __init__(self) -> None:
        super().__init__(count(1_000).__next__)
        self.reads = 0
        self.last_changes_asked = 0
        self._commits: Counter[bytes] = Counter()

    async def last_change_of(self, partition: bytes) -> int:
        self.last_changes_asked += 1
        return self._commits[partition]

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        self._commits[write_set.partition] += 1
        return await super().commit(write_set)

    async def get(self, key: Key) -> bytes | None:
        self.reads += 1
        return await super().get(key)

    async def read(self, ranges: Any, *, rows_max: int, bytes_max: int) -> Rows:
        self.reads += 1
        return await super().read(ranges, rows_max=rows_max, bytes_max=bytes_max)


class HeldEngine(CountingEngine):
    """Answers as many reads as the test lets through; fails them if it `fails`."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = asyncio.Semaphore(0)
        self.fails = False
        self.asked = 0

    async def get(self, key: Key) -> bytes | None:
        self.asked += 1
        await self.let_go.acquire()
        found = await super().get(key)
        if self.fails:
            raise EngineUnavailable("held")
        return found


def at_once(storage: MemoryEngine, leases: Leases | None) -> SlowEngine:
    """A connection that loses nothing, so that the calls can be counted."""
    engine = SlowEngine(storage, Random(0), leases=leases)
    engine._random.random = lambda: 1.0  # type: ignore[method-assign]
    return engine


async def stored(storage: MemoryEngine, value: bytes = b'{"version":1,"members":{}}') -> None:
    await storage.commit(WriteSet(PLACE.partition, [Change(PLACE.row, ANY, Put(lambda _: value))]))
