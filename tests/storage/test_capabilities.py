"""Engines behave as their capabilities say: snapshots, generations, leases, reads that do not wait. On every engine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from storage.engines_under_test import on_engines_that
from storage.write_sets import WHOLE, committed, put, read_all, snapshot_of, upsert
from tablestone.engines.contract import ANY, Change, Key, KeyRange, SnapshotPassed, WriteSet

if TYPE_CHECKING:
    from tablestone.engines.contract import Engine


@pytest.mark.asyncio
async def test_a_snapshot_sees_one_moment_and_others_the_present(engine: Engine) -> None:
    """It never sees another moment: a read says that the snapshot's moment has passed."""
    rows = [b"%02d" % index for index in range(6)]
    await committed(engine, WriteSet(b"p", [Change(row, ANY, put(b"old")) for row in rows]))
    snapshot = await engine.snapshot()
    first = await snapshot.read([WHOLE], rows_max=2, bytes_max=1 << 20)
    assert first.values == [b"old"] * 2
    assert first.next_key is not None
    await committed(engine, WriteSet(b"p", [Change(row, ANY, put(b"new")) for row in rows]))
    rest = [KeyRange(first.next_key, Key(b"p", b"04")), KeyRange(Key(b"p", b"04"), WHOLE.end)]
    if engine.capabilities.snapshots_pass:
        with pytest.raises(SnapshotPassed):
            await snapshot.read(rest, rows_max=9, bytes_max=1 << 20)
    else:
        assert (await snapshot.read(rest, rows_max=9, bytes_max=1 << 20)).values == [b"old"] * 4
    assert await read_all(engine, WHOLE) == [b"new"] * 6
    await snapshot.close()
    later = await engine.snapshot()
    assert (await later.read([WHOLE], rows_max=9, bytes_max=1 << 20)).values == [b"new"] * 6
    await later.close()


@pytest.mark.asyncio
async def test_snapshots_are_as_many_as_are_asked_for(engine: Engine) -> None:
    snapshots = []
    for generation in range(10):
        await committed(engine, upsert(b"p", b"r", b"%d" % generation))
        snapshot = await engine.snapshot()
        await snapshot.read([WHOLE], rows_max=1, bytes_max=1 << 20)
        snapshots.append(snapshot)
    for generation, snapshot in enumerate(snapshots):
        if engine.capabilities.snapshots_pass and generation < 9:
            with pytest.raises(SnapshotPassed):
                await snapshot.read([WHOLE], rows_max=1, bytes_max=1 << 20)
        else:
            values = (await snapshot.read([WHOLE], rows_max=1, bytes_max=1 << 20)).values
            assert values == [b"%d" % generation]
        await snapshot.close()


@pytest.mark.asyncio
async def test_what_an_engine_can_do_is_what_its_kind_can_do(engine: Engine) -> None:
    capabilities = engine.capabilities
    assert capabilities == engine.capabilities
    assert (engine.leases is not None) == capabilities.leases
    if engine.leases is not None:
        assert engine.leases.seconds > 0
        assert engine.generation is not None


@pytest.mark.asyncio
async def test_the_generation_is_another_one_after_an_invalidating_commit_or_a_lease(
    engine: Engine,
) -> None:
    if engine.generation is None:
        return  # no row may be cached
    before = {engine.generation for _ in range(2)}  # of two processes, if there are two
    await committed(engine, upsert(b"p", b"r"))
    await committed(engine, upsert(b"p", b"r")._replace(invalidates_caches=True))
    if engine.leases is not None:
        await asyncio.sleep(1.1 * engine.leases.seconds)
    after = {engine.generation for _ in range(2)}
    assert None not in before | after
    assert before.isdisjoint(after)


@on_engines_that(lambda can: not can.waits)
def test_a_read_of_an_engine_that_does_not_wait_needs_no_task(opened: Engine) -> None:
    """A read never suspends, and uses nothing of asyncio that needs a task."""

    async def reads() -> None:
        await opened.get(Key(b"p", b"r"))
        await opened.read([WHOLE], rows_max=9, bytes_max=1 << 20)
        await opened.scan(WHOLE, rows_max=9)
        async with snapshot_of(opened) as snapshot:
            await snapshot.read([WHOLE], rows_max=9, bytes_max=1 << 20)

    reading = reads()
    with pytest.raises(StopIteration):
        reading.send(None)
    reading.close()
    asyncio.run(opened.close())
