"""The SQLite engine in several processes: no write is lost or half done, none starves, and the log stays bounded.

The contract's tests also run on two engines with one caller (`two_engines`).
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest

from storage.conftest import HeldClock
from storage.neighbours import (
    COUNTER,
    INCREMENTS,
    ROWS_OF_A_SET,
    TASKS,
    begin_invalidating,
    increment,
    increment_counter,
    insert_sets,
    neighbour,
    read_pages,
    shared,
    write_big,
)
from storage.opened import close_healthy, open_sqlite
from storage.write_sets import WHOLE, committed, insert, put, read_all
from tablestone.engines.contract import ANY, Change, EngineRefused, WriteSet
from tablestone.engines.registry import held_for_processes, open_engine
from tablestone.engines.sqlite.commit import CHECKPOINT_PAGES
from tablestone.engines.sqlite.commit_lock import CommitLock
from tablestone.engines.sqlite.data_directory import PAGE_SIZE_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from tablestone.engines.contract import Engine

COMMIT_SECONDS_MAX = 5.0
"""How long a commit may take on a busy machine."""


@pytest.mark.asyncio
async def test_increments_in_several_processes_lose_nothing_and_versions_increase(
    data: Path,
) -> None:
    """The clock is stopped in all processes: each version is the previous one plus one, in whichever process."""
    engine = shared(data)
    await committed(engine, insert(*COUNTER, b"0"))
    with ExitStack() as stack:
        pipes = [stack.enter_context(neighbour(increment, data))[1] for _ in range(2)]
        for pipe in pipes:
            assert await asyncio.to_thread(pipe.recv) == "open"
        for pipe in pipes:
            pipe.send("go")
        versions: list[int] = []
        await asyncio.gather(*(increment_counter(engine, versions) for _ in range(TASKS)))
        for pipe in pipes:
            given = await asyncio.to_thread(pipe.recv)
            assert given == sorted(given)
            versions += given
    total = 3 * TASKS * INCREMENTS
    assert await read_all(engine) == [b"%d" % total]
    assert sorted(versions) == list(range(HeldClock().now + 1, HeldClock().now + 1 + total))
    await close_healthy(engine)


@pytest.mark.asyncio
@pytest.mark.crash
async def test_a_process_that_is_killed_leaves_no_half_of_a_write_and_no_lock(data: Path) -> None:
    engine = shared(data)
    acknowledged: set[tuple[bytes, int]] = set()
    for kill in range(5):
        with neighbour(insert_sets, data) as (process, pipe):
            acknowledged |= {await asyncio.to_thread(pipe.recv) for _ in range(20 * kill + 1)}
            process.kill()
            await asyncio.to_thread(process.join)
            try:
                while True:
                    acknowledged.add(pipe.recv())
            except EOFError:
                pass
        asked_at = time.monotonic()
        await committed(engine, insert(b"after", b"%d" % kill))
        assert time.monotonic() - asked_at < COMMIT_SECONDS_MAX
    stored = {
        (row.partition, int(row.row[:6]), int(row.row[7:]))
        for row in await engine.scan(WHOLE, rows_max=1_000_000)
        if row.partition != b"after"
    }
    sets = {(partition, number) for partition, number, _part in stored}
    assert acknowledged <= sets
    assert stored == {(*each, part) for each in sets for part in range(ROWS_OF_A_SET)}
    await close_healthy(engine)


@pytest.mark.asyncio
@pytest.mark.crash
async def test_a_kill_during_an_invalidating_commit_leaves_nothing_unknown_for_long(
    data: Path,
) -> None:
    """While its outcome is unknown, nothing may be cached; the next process to commit, or to start, ends that."""
    engine = shared(data)
    before = generation_of(engine)
    for mend in ("a commit", "an opening"):
        with neighbour(begin_invalidating, data) as (process, pipe):
            await asyncio.to_thread(pipe.recv)
            assert generation_of(engine) is None
            process.kill()
            await asyncio.to_thread(process.join)
        assert generation_of(engine) is None
        if mend == "a commit":
            await committed(engine, insert(b"p", b"r"))
        else:
            await close_healthy(shared(data))
        assert generation_of(engine) not in (before, None)
        before = generation_of(engine)
    await close_healthy(engine)


def generation_of(engine: Engine) -> int | None:
    return engine.generation


@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_log_stays_bounded_while_other_processes_read_and_write(data: Path) -> None:
    engine = shared(data)
    log_bytes_max = 0
    step = CHECKPOINT_PAGES * PAGE_SIZE_BYTES
    bound = 6 * step
    with ExitStack() as stack:
        for work in (read_pages, read_pages, write_big):
            _process, pipe = stack.enter_context(neighbour(work, data))
            await asyncio.to_thread(pipe.recv)
        for number in range(0, 12 * step // 50_000, 10):
            changes = [
                Change(b"%06d" % (number % 500 + i), ANY, put(b"x" * 50_000)) for i in range(10)
            ]
            await committed(engine, WriteSet(b"p", changes))
            log_bytes_max = max(log_bytes_max, (data / "tablestone.db-wal").stat().st_size)
    assert step < log_bytes_max < bound
    await close_healthy(engine)


def test_the_last_holder_of_the_lock_does_not_overtake_a_waiting_process(tmp_path: Path) -> None:
    with ExitStack() as stack:
        one, other, third = (
            stack.enter_context(closing(CommitLock(tmp_path))) for _process in range(3)
        )
        assert one.try_take()
        assert not other.try_take()  # and is next
        assert not third.try_take()
        one.release()
        assert not one.try_take()
        assert not third.try_take()
        assert other.try_take()
        other.release()
        third.take()
        assert not one.try_take()
        third.release()
        assert one.try_take()
        one.release()


def test_a_lock_goes_with_its_process(tmp_path: Path) -> None:
    """The kernel releases the locks of a process that dies, even of one that waits."""
    gone, waiting, left = (CommitLock(tmp_path) for _process in range(3))
    assert gone.try_take()
    assert not waiting.try_take()
    gone.close()
    waiting.close()
    with closing(left):
        assert left.try_take()


@pytest.mark.asyncio
async def test_a_shared_engine_works_with_and_without_a_server(data: Path) -> None:
    engine = shared(data)  # makes the directory, as a server does
    await committed(engine, insert(b"p", b"1"))
    server = open_sqlite(data)
    beside = shared(data)
    await committed(beside, insert(b"p", b"2"))
    await committed(server, insert(b"p", b"3"))
    for each in (engine, server, beside):
        assert len(await read_all(each)) == 3
    with pytest.raises(EngineRefused, match="in use by another Tablestone server"):
        open_sqlite(data)
    await close_healthy(server)
    await committed(beside, insert(b"p", b"4"))
    await close_healthy(open_sqlite(data))
    await close_healthy(engine)
    await close_healthy(beside)
    assert not (data / "tablestone.db-wal").exists(), "the last one out removes the log"


@pytest.mark.asyncio
async def test_a_server_of_several_processes_keeps_other_servers_out(data: Path) -> None:
    with held_for_processes(f"sqlite:{data}"):
        engines = [shared(data), shared(data)]
        for opening in (open_sqlite, lambda path: held_for_processes(f"sqlite:{path}").__enter__()):
            with pytest.raises(EngineRefused, match="in use by another Tablestone server"):
                opening(data)
        for engine in engines:
            await close_healthy(engine)
    await close_healthy(open_sqlite(data))


def test_memory_is_not_for_several_processes() -> None:
    with (
        pytest.raises(
            EngineRefused, match=r"^Only one process can have the engine memory: open\.$"
        ),
        held_for_processes("memory:"),
    ):
        pass


def test_a_shared_engine_refuses_what_a_server_refuses(data: Path) -> None:
    data.mkdir()
    (data / "novel.txt").write_text("Call me Ishmael.")
    with pytest.raises(EngineRefused, match="holds no Tablestone data but other files"):
        open_engine(f"sqlite:{data}", HeldClock(), shared=True)
    assert [path.name for path in data.iterdir()] == ["novel.txt"]
