"""A server of the simulation: the table service on the Cassandra engine, connected to the simulated cluster.

All of it is the code that ships, except that `SimulatedConnection` replaces the driver, and clocks and random numbers
are arguments.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import Any, Final
from unittest import mock
from uuid import UUID

from stress.simulation.simulated_cluster import Call, SimulatedCluster, no_answer_in_time
from stress.simulation.simulated_loop import CURRENT, Process
from stress.simulation.statements import parse
from tablestone.clock import TICKS_PER_SECOND
from tablestone.engines.cassandra.connection import Connection, OutcomeInDoubt
from tablestone.engines.cassandra.engine import CassandraEngine
from tablestone.engines.cassandra.kind import LEASE_SECONDS
from tablestone.engines.cassandra.session import REQUEST_SECONDS_MAX, Answer
from tablestone.engines.contract import EngineUnavailable
from tablestone.engines.leases import Leases
from tablestone.tables import cache_invalidation
from tablestone.tables.metadata import Documents
from tablestone.tables.service import TableService

BEGINNING: Final = 638_000_000_000_000_000
"""The time at which every simulation begins, in ticks."""
ENTRIES_MAX: Final = 3
"""A node of the directory with more entries is split."""
CALLS_MAX: Final = 2
"""A split of more entries copies them in several batches."""
EMPTY_SECONDS: Final = 0.05
"""For how long an empty partition stays listed at the beginning."""
TABLE_ID_LENGTH: Final = 8


class SimulatedConnection(Connection):
    """A connection to the simulated cluster: the real one, without the driver's session."""

    def __init__(
        self, cluster: SimulatedCluster, seconds: Callable[[], float], chance: Callable[[], float]
    ) -> None:
        self._seconds = seconds
        self.chance = chance
        self._simulated = cluster
        self.keyspace = "tablestone"
        self.is_open = True

    def prepare(self, text: str, *, serial: bool = False) -> Any:
        return parse(text).copied(is_serial=serial)

    def close(self) -> None:
        self.is_open = False

    async def _send(self, calls: Sequence[Call], *, direct: bool = True) -> Answer:  # type: ignore[override]  # noqa: ARG002 - there is one way
        if not self.is_open:
            raise EngineUnavailable("The engine is closed.")
        future = self._simulated.send(calls)
        is_late = False

        def give_up() -> None:
            nonlocal is_late
            is_late = future.cancel()

        timer = asyncio.get_running_loop().call_later(REQUEST_SECONDS_MAX, give_up)
        try:
            return await future
        except asyncio.CancelledError:
            if is_late:
                raise no_answer_in_time() from None
            raise
        finally:
            timer.cancel()


class SimulatedServer(Process):
    """A process with its own clock, which is `ahead` seconds ahead of others and runs at its own `rate`."""

    def __init__(
        self, name: str, cluster: SimulatedCluster, random: Random, *, ahead: float, rate: float
    ) -> None:
        super().__init__(name)
        self.died: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._ahead = round(ahead * TICKS_PER_SECOND)
        self._rate = rate
        self.context.run(self._open, cluster, random)

    def clock(self) -> int:
        """Wall time in ticks."""
        return BEGINNING + self._ahead + int(self._loop.time() * TICKS_PER_SECOND)

    def elapsed(self) -> float:
        """Seconds on the clock that leases use."""
        return self._loop.time() * self._rate

    def kill(self) -> None:
        super().kill()
        if not self.died.done():
            self.died.set_result(None)

    def _open(self, cluster: SimulatedCluster, random: Random) -> None:
        connection = SimulatedConnection(cluster, self._loop.time, random.random)
        self.engine = CassandraEngine(
            connection, self.clock, self._loop.time, random.getrandbits(62)
        )
        self.engine.leases = Leases(
            LEASE_SECONDS, self.elapsed, self.engine._commits._outcomes.mark_of
        )
        self.engine.directory._entries_max = ENTRIES_MAX
        self.engine.directory._count_every = 1
        self.engine.directory._calls_max = CALLS_MAX
        self.service = TableService(
            self.engine, self.clock, self._loop.time, lambda: random.randbytes(TABLE_ID_LENGTH)
        )
        self.documents = Documents(self.engine)
        self._loop.create_task(self._clean(), context=self.context)

    async def _clean(self) -> None:
        """Like `EmptyPartitions.watch`, but soon and often at first, because a simulation is short."""
        pause = EMPTY_SECONDS
        while self.engine.connection.is_open:
            await asyncio.sleep(pause)
            pause *= 1.5
            emptied = self.engine.empty_partitions
            noted, emptied._noted = emptied._noted, {}
            for partition in noted:
                with suppress(EngineUnavailable, OutcomeInDoubt):
                    await emptied.clean(partition)
            with suppress(EngineUnavailable, OutcomeInDoubt):
                await self.engine.directory.join_empty()


@contextmanager
def simulated_time(random: Random) -> Iterator[None]:
    """While the block runs, code that reads the clock or draws random numbers by itself gets the simulation's."""

    def fresh_uuid() -> UUID:
        return UUID(int=random.getrandbits(128))

    def elapsed() -> float:
        process = CURRENT.get()
        assert isinstance(process, SimulatedServer)
        return process.elapsed()

    with (
        mock.patch.object(cache_invalidation, "elapsed_seconds", elapsed),
        mock.patch("uuid.uuid4", fresh_uuid),
    ):
        yield
