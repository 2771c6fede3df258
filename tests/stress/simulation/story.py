"""A story: servers on a simulated cluster, where a test decides which replicas a write reaches and which are asked."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any, Final, TypeVar

from stress.simulation.simulated_cluster import SimulatedCluster, Trouble
from stress.simulation.simulated_loop import SimulatedLoop
from stress.simulation.simulated_server import SimulatedServer, simulated_time
from tablestone.engines.cassandra.directory import make_root
from tablestone.engines.contract import ANY, Change, Key, KeyRange, Put, WriteSet

PARTITION: Final = b"p"
ROWS: Final = (b"a", b"b")
Told = TypeVar("Told")


class Story:
    """Three servers on a cluster that brings decided writes only to `reached`, and asks only `asked`.

    With `is_early`, a read at SERIAL is answered as soon as one replica has what was decided.
    """

    def __init__(self, *, is_early: bool = False) -> None:
        self.cluster = SimulatedCluster(Random(1), Trouble())
        self.reached = {0, 1, 2}
        self.asked = [0, 1]
        bring = self.cluster._bring

        def bring_if_reached(key: Any, index: int, only: Any = None) -> None:
            if index in self.reached:
                bring(key, index, only)

        def complete(key: Any) -> None:
            for index in self.asked:
                bring(key, index)

        self.cluster.random.random = lambda: 0.0 if is_early else 0.99  # type: ignore[method-assign]
        self.cluster._bring = bring_if_reached  # type: ignore[method-assign]
        self.cluster._complete = complete  # type: ignore[method-assign]
        self.cluster.random.sample = lambda _population, k, **_named: self.asked[:k]  # type: ignore[assignment,method-assign]
        self.servers = [
            SimulatedServer(f"server {number}", self.cluster, Random(number), ahead=0, rate=1)
            for number in range(3)
        ]

    async def write(self, value: bytes) -> None:
        changes = [Change(row, ANY, Put(lambda _: value)) for row in ROWS]
        await self.servers[0].start(self.servers[0].engine.commit(WriteSet(PARTITION, changes)))

    async def get(self, server: SimulatedServer, row: bytes) -> bytes | None:
        return await server.start(server.engine.get(Key(PARTITION, row)))

    async def page(self, server: SimulatedServer) -> list[bytes]:
        everything = [KeyRange.of_partition(PARTITION)]
        rows = await server.start(server.engine.read(everything, rows_max=9, bytes_max=1 << 20))
        return rows.values

    async def end(self) -> None:
        for server in self.servers:
            server.engine.connection.close()
        tasks: set[asyncio.Task[object]] = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def begun(*, is_early: bool = False) -> Story:
    """A story whose first transaction is on every replica."""
    story = Story(is_early=is_early)
    first = story.servers[0]
    await first.start(make_root(first.engine.connection))
    await story.write(b"old")
    await asyncio.sleep(1)
    return story


def told(work: Coroutine[Any, Any, Told]) -> Told:
    """Run a story in its own time, and return its result."""
    loop = SimulatedLoop()
    try:
        with simulated_time(Random(1)):
            return loop.run_until_complete(work)
    finally:
        loop.close()
