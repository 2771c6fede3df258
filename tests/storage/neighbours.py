"""Other processes on an engine's directory during a test: each function is the work of one process.

`neighbour` starts them by `spawn`, so they share nothing with the test's process, like any other program.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from storage.conftest import HeldClock
from storage.write_sets import WHOLE, put
from tablestone.engines.contract import ABSENT, ANY, Change, Committed, WriteSet
from tablestone.engines.registry import open_engine
from tablestone.engines.sqlite.engine import SqliteEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess
    from pathlib import Path

    from tablestone.engines.contract import Engine

COUNTER = (b"p", b"counter")
TASKS = 3
INCREMENTS = 40
ROWS_OF_A_SET = 5


@contextmanager
def neighbour(
    work: Callable[[Path, Connection], None], data: Path
) -> Iterator[tuple[BaseProcess, Connection]]:
    """A process that runs this function on the directory, and our end of its pipe; killed at the end of the block."""
    context: Any = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(data, theirs))
    process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        process.kill()
        process.join()
        process.close()
        ours.close()


def shared(data: Path) -> Engine:
    """The engine as one of several processes opens it, on a stopped clock."""
    return open_engine(f"sqlite:{data}", HeldClock(), shared=True)


def increment(data: Path, pipe: Connection) -> None:
    """Increment the counter under the version that was read; report the versions assigned."""

    async def run() -> list[int]:
        engine = shared(data)
        pipe.send("open")
        pipe.recv()
        versions: list[int] = []
        await asyncio.gather(*(increment_counter(engine, versions) for _ in range(TASKS)))
        await engine.close()
        return versions

    pipe.send(asyncio.run(run()))


async def increment_counter(engine: Engine, versions: list[int]) -> None:
    given = 0
    while given < INCREMENTS:
        (found,) = await engine.scan(WHOLE, rows_max=1)
        value = b"%d" % (int(found.value) + 1)
        change = Change(COUNTER[1], found.version, put(value))
        outcome = await engine.commit(WriteSet(COUNTER[0], [change]))
        if isinstance(outcome, Committed):
            versions += outcome.versions
            given += 1


def insert_sets(data: Path, pipe: Connection) -> None:
    """Insert sets of rows, eight at a time, forever; report which are acknowledged."""

    async def write(engine: Engine, partition: bytes) -> None:
        number = 0
        while True:
            number += 1
            rows = [b"%06d-%d" % (number, part) for part in range(ROWS_OF_A_SET)]
            changes = [Change(row, ABSENT, put(b"x" * 1400)) for row in rows]
            outcome = await engine.commit(WriteSet(partition, changes))
            assert isinstance(outcome, Committed)
            pipe.send((partition, number))

    async def run() -> None:
        engine = shared(data)
        name = multiprocessing.current_process().name.encode()
        await asyncio.gather(*(write(engine, name + b" %d" % index) for index in range(8)))

    asyncio.run(run())


def begin_invalidating(data: Path, pipe: Connection) -> None:
    """Stop in the middle of an invalidating commit."""

    async def run() -> None:
        engine = shared(data)
        assert isinstance(engine, SqliteEngine)
        assert engine._commits is not None
        assert engine._commits._lock.try_take()
        assert engine._generation is not None
        engine._generation.begin()
        pipe.send("begun")
        await asyncio.sleep(60)

    asyncio.run(run())


def read_pages(data: Path, pipe: Connection) -> None:
    """Read pages, one after the other, forever."""

    async def run() -> None:
        engine = shared(data)
        pipe.send("open")
        while True:
            await engine.read([WHOLE], rows_max=100, bytes_max=1 << 20)

    asyncio.run(run())


def write_big(data: Path, pipe: Connection) -> None:
    """Write and rewrite big rows forever."""

    async def run() -> None:
        engine = shared(data)
        pipe.send("open")
        number = 0
        while True:
            number = (number + 10) % 500
            changes = [Change(b"%06d" % (number + i), ANY, put(b"x" * 50_000)) for i in range(10)]
            await engine.commit(WriteSet(b"other", changes))

    asyncio.run(run())
