"""The Cassandra engine on a simulated cluster of three replicas, for programs: its messages arrive, in any order.

Time passes only while the program waits, so leases and time-outs take none. `stress/simulation` simulates faults. Needs
the Cassandra driver.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from random import Random
from unittest import mock

from stress.simulation.simulated_cluster import SimulatedCluster, Trouble
from stress.simulation.simulated_server import SimulatedConnection
from tablestone.engines.cassandra.directory import make_root
from tablestone.engines.cassandra.engine import CassandraEngine
from tablestone.engines.contract import Engine
from tablestone.engines.leases import Leases
from tablestone.tables import cache_invalidation

LEASE_SECONDS = 0.5


@contextmanager
def simulated_time() -> Iterator[None]:
    """While the block runs, code that reads the clock by itself gets the time of the loop."""
    with mock.patch.object(cache_invalidation, "elapsed_seconds", _elapsed):
        yield


def _seconds() -> float:
    return asyncio.get_running_loop().time()


_readings = count()


def _elapsed() -> float:
    """The time of the loop, plus a microsecond for each reading, so that a wait too short for the loop ends."""
    return _seconds() + next(_readings) * 1e-6


async def open_simulated(clock: Callable[[], int], random: Random) -> Engine:
    """An engine on its own cluster, in a simulated loop. `clock` is wall time in ticks."""
    cluster = SimulatedCluster(random, Trouble())
    connection = SimulatedConnection(cluster, _seconds, random.random)
    engine = CassandraEngine(connection, clock, _seconds, random.getrandbits(62))
    engine.leases = Leases(LEASE_SECONDS, _elapsed)
    await make_root(connection)
    return engine
