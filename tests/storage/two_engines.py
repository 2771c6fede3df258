"""Several engines on one storage, as in several processes, behind one interface: calls alternate between them.

The contract's tests run on this, so a caller cannot tell how many processes there are.
"""

from __future__ import annotations

import asyncio
from itertools import cycle
from typing import TYPE_CHECKING

from tablestone.engines.forwarding_engine import ForwardingEngine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tablestone.engines.contract import Engine


class TwoEngines(ForwardingEngine):
    """An `Engine` that alternates between others: each call goes to the next one."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.engines = engines
        self._turns = cycle(engines)

    @property
    def _engine(self) -> Engine:
        return next(self._turns)

    @_engine.setter
    def _engine(self, engine: Engine) -> None:
        raise AssertionError(engine)

    async def watch(self, *, leads: bool) -> None:
        await asyncio.gather(*(engine.watch(leads=leads) for engine in self.engines))

    async def check(self) -> list[str]:
        return [line for engine in self.engines for line in await engine.check()]

    async def close(self) -> None:
        for engine in self.engines:
            await engine.close()
