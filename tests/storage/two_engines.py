"""Several engines on one storage, as in several processes, behind one interface: calls alternate between them.

The contract's tests run on this, so a caller cannot tell how many processes there are.
"""

from __future__ import annotations

import asyncio
from itertools import cycle
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tablestone.engines.capabilities import Capabilities
    from tablestone.engines.change_record import ChangeLog
    from tablestone.engines.contract import (
        Committed,
        Conflict,
        Engine,
        Key,
        KeyRange,
        Rows,
        Snapshot,
        StoredRow,
        WriteSet,
    )
    from tablestone.engines.leases import Leases


class TwoEngines:
    """An `Engine` that alternates between others."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.engines = engines
        self._turns = cycle(engines)

    @property
    def capabilities(self) -> Capabilities:
        return self._next().capabilities

    @property
    def generation(self) -> int | None:
        return self._next().generation

    @property
    def leases(self) -> Leases | None:
        return self._next().leases

    @property
    def changes(self) -> ChangeLog | None:
        return self._next().changes

    async def get(self, key: Key) -> bytes | None:
        return await self._next().get(key)

    async def read(self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        return await self._next().read(ranges, rows_max=rows_max, bytes_max=bytes_max)

    async def snapshot(self) -> Snapshot:
        return await self._next().snapshot()

    async def scan(self, key_range: KeyRange, *, rows_max: int) -> list[StoredRow]:
        return await self._next().scan(key_range, rows_max=rows_max)

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        return await self._next().commit(write_set)

    async def watch(self, *, leads: bool) -> None:
        await asyncio.gather(*(engine.watch(leads=leads) for engine in self.engines))

    async def check(self) -> list[str]:
        return [line for engine in self.engines for line in await engine.check()]

    async def close(self) -> None:
        for engine in self.engines:
            await engine.close()

    def _next(self) -> Engine:
        return next(self._turns)
