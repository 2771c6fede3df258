"""A world of one seed for the directory alone: partitions are filled and emptied, nodes split and are joined again.

Each client has its own partitions, and knows after each answer which of them have a row. It then reads the whole range
through another server. `live_in_directory` is a pure function of its seed and the planted bug.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from stress.simulation.simulated_cluster import SimulatedCluster, Trouble
from stress.simulation.simulated_loop import SimulatedLoop
from stress.simulation.simulated_server import SimulatedServer, simulated_time
from tablestone.engines.cassandra.connection import OutcomeInDoubt
from tablestone.engines.cassandra.directory import LEAF, Directory, make_root
from tablestone.engines.contract import (
    ANY,
    DELETE,
    Change,
    Committed,
    EngineUnavailable,
    Key,
    KeyRange,
    OutcomeUnknown,
    Put,
    WriteSet,
)

CLIENTS: Final = 3
PARTITIONS: Final = 8
"""The partitions of each client."""
ROUNDS: Final = 5
"""How often a client fills some of its partitions, and empties some."""
SERVERS: Final = 3
AHEAD_SECONDS: Final = (0.0, 0.0, 0.5, -0.5, 60.0, -60.0, 3600.0)
PAUSES: Final = (0.02, 0.3, 4.0)
EVERYTHING: Final = KeyRange(Key(b"p", b""), Key(b"q", b""))
Plant = Callable[[SimulatedServer], None]


@dataclass
class LifeOfDirectory:
    """The end of a world: what was wrong, how many leaves there were in all, and how many of them are gone."""

    seed: int
    wrong: list[str]
    leaves: int
    joined: int


def live_in_directory(seed: int, plant: Plant | None = None) -> LifeOfDirectory:
    """The world of a seed, with a bug in every server if one is planted."""
    loop = SimulatedLoop()
    try:
        with simulated_time(Random(f"{seed}/uuid")):
            world = _DirectoryWorld(seed, loop, plant)
            try:
                return loop.run_until_complete(world.live())
            finally:
                loop.run_until_complete(world.end())
    finally:
        loop.close()


class _DirectoryWorld:
    def __init__(self, seed: int, loop: SimulatedLoop, plant: Plant | None) -> None:
        self._seed = seed
        self._random = Random(f"{seed}/directory")
        self._loop = loop
        self._plant = plant
        self._servers: list[SimulatedServer] = []
        self._all_servers: list[SimulatedServer] = []
        self._wrong: list[str] = []

    async def live(self) -> LifeOfDirectory:
        self._cluster = SimulatedCluster(self._random, Trouble())
        first = self._server()
        await first.start(make_root(first.engine.connection))
        self._servers = [first, *(self._server() for _ in range(SERVERS - 1))]
        share = self._random.choice((0.0, 0.002, 0.01))
        self._cluster.trouble = Trouble(
            share, share, share, share, self._random.choice((5e-4, 5e-3))
        )
        troubles = self._loop.create_task(self._make_trouble())
        clients = [_Client(self, number, self._random) for number in range(CLIENTS)]
        await asyncio.gather(*(client.work() for client in clients))
        troubles.cancel()
        return await self._look_at_it(clients)

    async def end(self) -> None:
        for server in self._all_servers:
            server.engine.connection.close()
            server.bury()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

    def some_server(self, random: Random) -> SimulatedServer:
        return random.choice(self._servers)

    def complain(self, what: str) -> None:
        self._wrong.append(f"{what}, at {self._loop.time():.3f} s")

    async def carried_out(self, server: SimulatedServer, work: Any) -> Any:
        """The result, or None if the server died or the outcome is unknown."""
        task = server.start(work)
        await asyncio.wait({task, server.died}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            return None
        try:
            return task.result()
        except (EngineUnavailable, OutcomeUnknown, OutcomeInDoubt):
            return None

    async def _look_at_it(self, clients: list[_Client]) -> LifeOfDirectory:
        """Heal everything, let all late messages arrive, and ask a new server."""
        self._cluster.away.clear()
        self._cluster.trouble = Trouble()
        for server in self._servers:
            if server.is_paused:
                server.resume()
        await asyncio.sleep(60)
        self._cluster.replicate_everything()
        last = self._server()
        for client in clients:
            await client.look(last)
        for line in await last.start(last.engine.check()):
            self._wrong.append(f"at the end: {line}")
        self._wrong += self._cluster.faults
        leaves = await last.start(_leaves(last.engine.directory))
        made = [
            key for key in self._cluster.truth.partitions if key[:2] == ("directory_nodes", LEAF)
        ]
        return LifeOfDirectory(self._seed, self._wrong, len(made), len(made) - leaves)

    def _server(self) -> SimulatedServer:
        server = SimulatedServer(
            f"server {len(self._all_servers)}",
            self._cluster,
            Random(self._random.random()),
            ahead=self._random.choice(AHEAD_SECONDS),
            rate=1.0,
        )
        if self._plant is not None:
            server.context.run(self._plant, server)
        server.start(self._clean_often(server, Random(self._random.random())))
        self._all_servers.append(server)
        return server

    async def _clean_often(self, server: SimulatedServer, random: Random) -> None:
        emptied = server.engine.empty_partitions
        while server.engine.connection.is_open:
            await asyncio.sleep(random.uniform(0.01, 0.2))
            noted, emptied._noted = emptied._noted, {}
            for partition in noted:
                with suppress(EngineUnavailable, OutcomeInDoubt):
                    await emptied.clean(partition)
            with suppress(EngineUnavailable, OutcomeInDoubt):
                await server.engine.directory.join_empty()

    async def _make_trouble(self) -> None:
        random = self._random
        often = random.choice((0.1, 0.5, 5.0))
        while True:
            await asyncio.sleep(random.expovariate(1 / often))
            index = random.randrange(len(self._servers))
            what = random.choice(("pause", "pause", "kill", "away"))
            if what == "kill":
                self._servers[index].kill()
                self._servers[index] = self._server()
            elif what == "pause" and not self._servers[index].is_paused:
                self._servers[index].pause()
                self._loop.call_later(random.choice(PAUSES), self._servers[index].resume)
            elif what == "away" and not self._cluster.away:
                self._cluster.away.add(random.randrange(3))
                self._loop.call_later(random.choice((0.05, 0.5)), self._cluster.away.clear)


class _Client:
    """Fills and empties its partitions; `has_row` says which of them have a row.

    An unanswered write may take effect much later, so its partition is not used again; another one takes its place.
    """

    def __init__(self, world: _DirectoryWorld, number: int, random: Random) -> None:
        self._world = world
        self._number = number
        self._random = Random(random.random())
        names = [b"p%02d/%d" % (index, number) for index in range(PARTITIONS)]
        self.has_row = dict.fromkeys(names, False)

    async def work(self) -> None:
        random = self._random
        for _ in range(ROUNDS):
            for fills in (True, False):
                for partition in random.sample(list(self.has_row), random.randint(3, PARTITIONS)):
                    await self._write(partition, fills=fills)
                    if random.random() < 0.3:
                        await self.look(self._world.some_server(random))
                await asyncio.sleep(random.choice((0.0, 0.3, 1.0)))

    async def _write(self, partition: bytes, *, fills: bool) -> None:
        change = Change(b"r", ANY, Put(lambda _: b"v") if fills else DELETE)
        server = self._world.some_server(self._random)
        del self.has_row[partition]
        work = server.engine.commit(WriteSet(partition, [change]))
        is_done = isinstance(await self._world.carried_out(server, work), Committed)
        self.has_row[partition if is_done else partition + b"'"] = is_done and fills

    async def look(self, server: SimulatedServer) -> None:
        """Read all of it. No other client writes to the partitions of this one."""
        found = await self._world.carried_out(server, _names(server))
        if found is None:
            return
        for partition, has_row in self.has_row.items():
            if has_row != (partition in found):
                self._world.complain(f"{partition!r} {'is not' if has_row else 'is'} there")


async def _names(server: SimulatedServer) -> set[bytes]:
    """The partitions in which a read of the whole range finds a row."""
    rows = await server.engine.scan(EVERYTHING, rows_max=1 << 30)
    return {row.partition for row in rows}


async def _leaves(directory: Directory) -> int:
    return len([low async for level, low, _ in directory.nodes() if level == LEAF])
