"""A transaction that one replica has, and the others do not have yet: readers see all of it or nothing.

A read at QUORUM repairs the rows that it has read, and no others. After a point read, a second replica would have one
row of the transaction, and a page of the two replicas that lack the rest would show half of it.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

from simulation.simulated_cluster import SimulatedCluster, Trouble
from simulation.simulated_loop import SimulatedLoop
from simulation.simulated_server import SimulatedServer, simulated_time
from tablestone.engines.cassandra.directory_nodes import make_root
from tablestone.engines.contract import ANY, Change, Key, KeyRange, Put, WriteSet

if TYPE_CHECKING:
    from collections.abc import Coroutine

PARTITION: Final = b"p"
ROWS: Final = (b"a", b"b")


class Story:
    """Three servers on a cluster that brings decided writes only to `reached`, and asks only `asked`."""

    def __init__(self) -> None:
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


async def half_of_it() -> tuple[bytes | None, list[bytes], bytes | None]:
    story = Story()
    first = story.servers[0]
    await first.start(make_root(first.engine.connection))
    await story.write(b"old")
    await asyncio.sleep(1)
    story.reached = {0}
    writing = asyncio.ensure_future(story.write(b"new"))
    await asyncio.sleep(0.1)
    seen = await story.get(story.servers[1], ROWS[0])
    story.asked = [1, 2]
    found = seen, await story.page(story.servers[2]), await story.get(story.servers[2], ROWS[1])
    story.reached = {0, 1, 2}
    writing.cancel()
    for server in story.servers:
        server.engine.connection.close()
    tasks: set[asyncio.Task[object]] = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return found


def run(work: Coroutine[None, None, tuple[bytes | None, list[bytes], bytes | None]]) -> object:
    loop = SimulatedLoop()
    try:
        with simulated_time(Random(1)):
            return loop.run_until_complete(work)
    finally:
        loop.close()


def test_a_point_read_tears_no_transaction_that_is_on_its_way() -> None:
    assert run(half_of_it()) in (
        (b"new", [b"new", b"new"], b"new"),
        (b"old", [b"old", b"old"], b"old"),
        (b"old", [b"new", b"new"], b"new"),
    )
