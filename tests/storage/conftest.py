"""The fixtures of the engine tests: each engine in turn, fresh, with a clock that the test controls."""

from __future__ import annotations

import secrets
from random import Random
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from storage.cluster_engine import URL, ClusterEngine, open_on_cluster
from storage.slow_engine import LEASE_SECONDS, SlowEngine
from storage.two_engines import TwoEngines
from tablestone.engines.leases import Leases
from tablestone.engines.memory import MemoryEngine
from tablestone.engines.registry import open_engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tablestone.clock import Clock
    from tablestone.engines.cassandra.engine import CassandraEngine
    from tablestone.engines.contract import Engine


class HeldClock:
    """A clock that only moves when the test moves it."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory that does not exist yet."""
    return tmp_path / "data"


EMBEDDED = ["memory", "sqlite", "two on sqlite", "slow", "slow, without leases"]
ON_A_CLUSTER = ["cassandra", "two on cassandra"]
ENGINES = EMBEDDED if URL is None else ON_A_CLUSTER


def engines_of(name: str, clock: Clock, data: Path) -> list[Engine]:
    """The engines of this many servers, each opened on the same storage."""
    number = 2 if name.startswith("two") else 1
    if name in ON_A_CLUSTER:
        prefix = b"test " + secrets.token_bytes(8)
        return [ClusterEngine(clock, prefix=prefix) for _ in range(number)]
    url = "memory:" if name == "memory" else f"sqlite:{data}"
    return [open_engine(url, clock, shared=number > 1) for _ in range(number)]


@pytest.fixture(params=ENGINES)
def opened(request: pytest.FixtureRequest, clock: HeldClock, data: Path) -> Engine:
    """The engine under test, opened: an embedded one, or one on the cluster that ENGINE_UNDER_TEST names."""
    if request.param in ON_A_CLUSTER:
        return ClusterEngine(clock, 1 + ON_A_CLUSTER.index(request.param))
    if request.param == "two on sqlite":
        return TwoEngines(data, clock)
    if request.param == "slow":
        return SlowEngine(MemoryEngine(clock), Random(5), leases=Leases(LEASE_SECONDS))
    if request.param == "slow, without leases":
        return SlowEngine(MemoryEngine(clock), Random(6), passes=True)
    return open_engine("memory:" if request.param == "memory" else f"sqlite:{data}", clock)


@pytest_asyncio.fixture
async def engine(opened: Engine) -> AsyncIterator[Engine]:
    """The engine under test; its invariants must hold at the end of every test."""
    engine = opened
    yield engine
    assert await engine.check() == []
    await engine.close()


@pytest.fixture
def partition() -> bytes:
    """A partition that no test has used."""
    return b"lone " + secrets.token_bytes(8)


@pytest_asyncio.fixture
async def servers() -> AsyncIterator[tuple[CassandraEngine, CassandraEngine]]:
    """The engines of two servers whose clocks are an hour apart."""
    ahead, behind = HeldClock(), HeldClock()
    ahead.now, behind.now = 40_000_000_000, 4_000_000_000
    engines = open_on_cluster(ahead), open_on_cluster(behind)
    yield engines
    for engine in engines:
        assert await engine.check() == []
        await engine.close()
