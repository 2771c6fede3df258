"""A clock that jitters and storage that pauses, so that concurrent clients interleave in every order.

Knows the engine contract and nothing above it. All chance comes from one seeded source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from random import Random

from tablestone.engines.capabilities import Capabilities
from tablestone.engines.contract import (
    Committed,
    Conflict,
    Engine,
    Hint,
    Key,
    KeyRange,
    Rows,
    Snapshot,
    StoredRow,
    WriteSet,
)

START = 636_192_000_000_000_000
"""2017-01-05T08:00:00Z in ticks."""


class JitteringClock:
    """Goes forward on the whole, and back now and then."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.now = START

    def __call__(self) -> int:
        self.now += self._random.choice((-30, -1, 0, 0, 1, 40))
        return self.now


class PausingEngine:
    """An engine that lets others run before and after each call, a random number of times."""

    def __init__(self, engine: Engine, random: Random) -> None:
        self._engine = engine
        self._random = random

    @property
    def capabilities(self) -> Capabilities:
        return replace(self._engine.capabilities, waits=True)

    @property
    def generation(self) -> int | None:
        return self._engine.generation

    @property
    def lease_seconds(self) -> float | None:
        return self._engine.lease_seconds

    async def _pause(self) -> None:
        for _ in range(self._random.randrange(4)):
            await asyncio.sleep(0)

    async def read(self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        await self._pause()
        rows = await self._engine.read(ranges, rows_max=rows_max, bytes_max=bytes_max)
        await self._pause()
        return rows

    async def snapshot(self) -> PausingSnapshot:
        await self._pause()
        return PausingSnapshot(await self._engine.snapshot(), self._pause)

    async def get(self, key: Key) -> bytes | None:
        await self._pause()
        value = await self._engine.get(key)
        await self._pause()
        return value

    async def scan(self, key_range: KeyRange, *, rows_max: int) -> list[StoredRow]:
        await self._pause()
        return await self._engine.scan(key_range, rows_max=rows_max)

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        await self._pause()
        outcome = await self._engine.commit(write_set)
        await self._pause()
        return outcome

    async def watch(self, *, logs_warnings: bool) -> None:
        await self._engine.watch(logs_warnings=logs_warnings)

    async def check(self) -> list[str]:
        return await self._engine.check()

    async def close(self) -> None:
        await self._engine.close()


class PausingSnapshot:
    """A snapshot between whose reads others run."""

    def __init__(self, snapshot: Snapshot, pause: Callable[[], Awaitable[None]]) -> None:
        self._snapshot = snapshot
        self._pause = pause

    async def read(
        self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int, hint: Hint | None = None
    ) -> Rows:
        await self._pause()
        rows = await self._snapshot.read(ranges, rows_max=rows_max, bytes_max=bytes_max, hint=hint)
        await self._pause()
        return rows

    async def close(self) -> None:
        await self._pause()
        await self._snapshot.close()
