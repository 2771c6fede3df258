"""An engine whose `watch` task runs, and the wait for a condition that this task brings about."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tablestone.engines.contract import Engine

TURNS_MAX = 20_000


@asynccontextmanager
async def watched(engine: Engine, *, leads: bool = True) -> AsyncIterator[None]:
    watching = asyncio.ensure_future(engine.watch(leads=leads))
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait({watching})


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(TURNS_MAX):
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")
