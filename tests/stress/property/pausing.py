"""A clock that jitters and storage that pauses, so that concurrent clients interleave in every order.

One seed decides everything random.
"""

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
from tablestone.engines.forwarding_engine import ForwardingEngine, ForwardingSnapshot

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


class PausingEngine(ForwardingEngine):
    """An engine that lets others run before and after each call, a random number of times."""

    def __init__(self, engine: Engine, random: Random) -> None:
        super().__init__(engine)
        self._random = random

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, waits=True)

    async def _pause(self) -> None:
        for _ in range(self._random.randrange(4)):
            await asyncio.sleep(0)

    async def read(self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        await self._pause()
        rows = await super().read(ranges, rows_max=rows_max, bytes_max=bytes_max)
        await self._pause()
        return rows

    async def snapshot(self) -> Snapshot:
        await self._pause()
        return PausingSnapshot(await super().snapshot(), self._pause)

    async def get(self, key: Key) -> bytes | None:
        await self._pause()
        value = await super().get(key)
        await self._pause()
        return value

    async def scan(self, key_range: KeyRange, *, rows_max: int) -> list[StoredRow]:
        await self._pause()
        return await super().scan(key_range, rows_max=rows_max)

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        await self._pause()
        outcome = await super().commit(write_set)
        await self._pause()
        return outcome


class PausingSnapshot(ForwardingSnapshot):
    """A snapshot that lets others run between its reads."""

    def __init__(self, snapshot: Snapshot, pause: Callable[[], Awaitable[None]]) -> None:
        super().__init__(snapshot)
        self._pause = pause

    async def read(
        self,
        ranges: Sequence[KeyRange],
        *,
        rows_max: int,
        bytes_max: int,
        hint: Hint | None = None,
        reverse: bool = False,
    ) -> Rows:
        await self._pause()
        rows = await super().read(
            ranges, rows_max=rows_max, bytes_max=bytes_max, hint=hint, reverse=reverse
        )
        await self._pause()
        return rows

    async def close(self) -> None:
        await self._pause()
        await super().close()
