"""The SQLite engine for its own tests: opened on a directory, inspected, and checked before it is closed."""

from __future__ import annotations

import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

from storage.conftest import HeldClock
from tablestone.engines.registry import open_engine
from tablestone.engines.sqlite.engine import SqliteEngine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import apsw

    from tablestone.engines.contract import Engine


def open_sqlite(data: Path, *, read_only: bool = False) -> SqliteEngine:
    engine = open_engine(f"sqlite:{data}", HeldClock(), read_only=read_only)
    assert isinstance(engine, SqliteEngine)
    return engine


def writer_of(engine: SqliteEngine) -> apsw.Connection:
    assert engine._commits is not None
    return engine._commits._writer


async def close_healthy(engine: Engine) -> None:
    assert await engine.check() == []
    await engine.close()


@contextmanager
def files_no_longer_than(size: int) -> Iterator[None]:
    """Make this process's writes beyond `size` fail, so that COMMIT meets a real error halfway."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
