"""What every test of engines needs: each engine in turn, fresh, on a clock that the test holds still."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from engines.two_engines import TwoEngines
from tablestone.engines.registry import open_engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tablestone.engines.contract import Engine


class HeldClock:
    """A clock that stands where the test put it."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory that is not there yet."""
    return tmp_path / "data"


@pytest.fixture(params=["memory", "sqlite", "two on sqlite"])
def opened(request: pytest.FixtureRequest, clock: HeldClock, data: Path) -> Engine:
    """The engine under test, opened."""
    if request.param == "two on sqlite":
        return TwoEngines(data, clock)
    return open_engine("memory:" if request.param == "memory" else f"sqlite:{data}", clock)


@pytest_asyncio.fixture
async def engine(opened: Engine) -> AsyncIterator[Engine]:
    """The engine under test; whatever the test did, its invariants hold in the end."""
    engine = opened
    yield engine
    assert await engine.check() == []
    await engine.close()
