"""The fixtures of the engine tests: each engine in turn, fresh, with a clock that the test controls."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from storage.cluster_engine import open_on_cluster
from storage.engines_under_test import ENGINES, named

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

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


@pytest.fixture(params=ENGINES)
def opened(request: pytest.FixtureRequest, clock: HeldClock, tmp_path: Path) -> Engine:
    """The engine under test, opened."""
    return named(request.param, clock, os.fspath(tmp_path))


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
