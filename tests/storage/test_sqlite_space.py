"""Free space in the database goes back to the file system, and a full disk can be emptied again."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import closing
from typing import TYPE_CHECKING
from unittest import mock

import apsw
import pytest

from storage.conftest import HeldClock
from storage.opened import close_healthy, files_no_longer_than, open_sqlite
from storage.watched_engine import TURNS_MAX, until, watched
from storage.write_sets import WHOLE, committed, insert, put, read_all, upsert
from tablestone.engines.change_record import Note, Retention
from tablestone.engines.contract import ANY, DELETE, Change, Committed, EngineUnavailable, WriteSet
from tablestone.engines.record_age import RecordAge
from tablestone.engines.registry import open_engine
from tablestone.engines.sqlite import engine as sqlite_engine
from tablestone.engines.sqlite import free_space
from tablestone.engines.sqlite.commit import SHORT_PAGES
from tablestone.engines.sqlite.data_directory import PAGE_SIZE_BYTES
from tablestone.engines.sqlite.free_space import (
    COPY_PAGES,
    KEPT_PAGES,
    RESERVE_BYTES,
    RESERVE_PART,
    DiskRoom,
    compact,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tablestone.engines.contract import Engine
    from tablestone.engines.sqlite.engine import SqliteEngine

ROWS = 1_200
VALUE = b"x" * 20_000
"""Three pages, so that values in overflow pages move too."""


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_engine, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(free_space, "STEP_PAUSE_SECONDS", 0.0)


async def store(engine: Engine) -> None:
    for start in range(0, ROWS, 50):
        rows = [
            Change(b"%05d" % number, ANY, put(b"%05d" % number + VALUE))
            for number in range(start, start + 50)
        ]
        await committed(engine, WriteSet(b"p", rows))


async def delete_most(engine: Engine) -> None:
    """Delete all but every fiftieth row."""
    for start in range(0, ROWS, 50):
        rows = [Change(b"%05d" % number, ANY, DELETE) for number in range(start + 1, start + 50)]
        await committed(engine, WriteSet(b"p", rows))


KEPT = [b"%05d" % number + VALUE for number in range(0, ROWS, 50)]


def file_pages(data: Path) -> int:
    return (data / "tablestone.db").stat().st_size // PAGE_SIZE_BYTES


@pytest.mark.asyncio
async def test_the_file_gets_shorter_after_deletions_and_nothing_is_lost(data: Path) -> None:
    engine = open_sqlite(data)
    await store(engine)
    full = engine.size()
    assert full.database_bytes > ROWS * len(VALUE)
    async with watched(engine):
        await delete_most(engine)
        most = KEPT_PAGES + 200  # the kept free pages, and the remaining rows
        await until(lambda: file_pages(data) < most)
        await until(lambda: engine.size().free_bytes <= 2 * KEPT_PAGES * PAGE_SIZE_BYTES)
    assert engine.size().free_bytes > KEPT_PAGES * PAGE_SIZE_BYTES // 2, "later writes need some"
    assert await read_all(engine) == KEPT
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_writes_go_on_while_space_is_given_back(data: Path) -> None:
    engine = open_sqlite(data)
    await store(engine)
    await delete_most(engine)
    written = 0
    async with watched(engine):
        while file_pages(data) > KEPT_PAGES + 400:
            await committed(engine, insert(b"q", b"%09d" % written))
            written += 1
            assert written < TURNS_MAX
    assert written > 0
    assert len(await read_all(engine)) == len(KEPT) + written
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_few_free_pages_are_kept(data: Path) -> None:
    engine = open_sqlite(data)
    for number in range(KEPT_PAGES // 4):
        await committed(engine, insert(b"p", b"%05d" % number, VALUE))
    for number in range(KEPT_PAGES // 4):
        await committed(engine, WriteSet(b"p", [Change(b"%05d" % number, ANY, DELETE)]))
    free = engine.size().free_bytes
    assert free > 0
    async with watched(engine):
        await asyncio.sleep(0.1)
    assert engine.size().free_bytes == free
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_a_database_without_auto_vacuum_keeps_its_size_and_is_left_alone(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await close_healthy(open_sqlite(data))
    with closing(apsw.Connection(str(data / "tablestone.db"))) as connection:
        connection.pragma("auto_vacuum", 0)
        connection.execute("VACUUM")
    step = mock.Mock(return_value=0)
    monkeypatch.setattr(free_space, "step", step)
    engine = open_sqlite(data)
    await store(engine)
    await delete_most(engine)
    free = engine.size().free_bytes
    async with watched(engine):
        await asyncio.sleep(0.1)
    step.assert_not_called()
    assert engine.size().free_bytes == free
    assert await read_all(engine) == KEPT
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_compacting_beside_a_server_gives_all_back(data: Path) -> None:
    engine = open_engine(f"sqlite:{data}", HeldClock(), shared=True)
    await store(engine)
    await delete_most(engine)
    told: list[tuple[int, int]] = []
    compacting = asyncio.ensure_future(
        asyncio.to_thread(compact, data, lambda done, whole: told.append((done, whole)))
    )
    written = 0
    while not compacting.done():
        await committed(engine, upsert(b"q", b"r", b"%d" % written))
        written += 1
    before, after = await compacting
    assert after.free_bytes <= STEPS_LEFT
    assert after.database_bytes < before.database_bytes // 5
    assert told[-1][0] > told[-1][1] * 0.9
    assert len(await read_all(engine)) == len(KEPT) + (written > 0)
    await close_healthy(engine)


STEPS_LEFT = 20 * PAGE_SIZE_BYTES
"""Pages that writes beside a compaction may free after its last step."""


class Disk:
    """A disk as the operating system describes it, with as much room as the test says."""

    def __init__(self, whole: int, free: int) -> None:
        self.whole, self.free = whole, free

    def __call__(self, path: Path) -> os.statvfs_result:
        del path
        return os.statvfs_result((1, 1, self.whole, self.free, self.free, 0, 0, 0, 0, 255))


GIB = 1 << 30
SMALL = 160 << 20

ENOUGH, TIGHT, SHORT = (False, False), (False, True), (True, True)
ROOM: list[tuple[Disk, int, int, tuple[bool, bool]]] = [
    (Disk(100 * GIB, GIB), 0, 0, ENOUGH),
    (Disk(100 * GIB, RESERVE_BYTES), 0, 0, ENOUGH),
    (Disk(100 * GIB, RESERVE_BYTES - 1), 0, 0, SHORT),
    (Disk(100 * GIB, RESERVE_BYTES + 10), 11, 0, TIGHT),  # copying the log may need room
    # Free pages are room for rows, and none for the log.
    (Disk(100 * GIB, RESERVE_BYTES - 1), 0, 1, TIGHT),
    (Disk(100 * GIB, RESERVE_BYTES + 10), 11, GIB, TIGHT),
    (Disk(SMALL, SMALL // RESERVE_PART), 0, 0, ENOUGH),
    (Disk(SMALL, SMALL // RESERVE_PART - 1), 0, 0, SHORT),
    (Disk(0, 0), 0, 0, ENOUGH),  # a file system that does not say
]


@pytest.mark.parametrize(("disk", "log_bytes", "free_bytes", "found"), ROOM)
def test_when_room_is_tight_and_when_it_is_short(
    tmp_path: Path, disk: Disk, log_bytes: int, free_bytes: int, found: tuple[bool, bool]
) -> None:
    room = DiskRoom(tmp_path, disk)
    room.look(0, free_bytes)
    assert room.look(log_bytes) is found[0]
    assert (room.is_short, room.is_tight) == found


def test_room_that_was_short_has_to_be_more_before_it_is_enough(tmp_path: Path) -> None:
    disk = Disk(100 * GIB, RESERVE_BYTES - 1)
    room = DiskRoom(tmp_path, disk)
    assert room.look(0)
    disk.free = RESERVE_BYTES
    assert room.look(0)
    disk.free = RESERVE_BYTES + RESERVE_BYTES // 4
    assert not room.look(0)


def full(engine: SqliteEngine, disk: Disk) -> None:
    engine._room._statistics = disk
    engine._room.look(0)


@pytest.mark.asyncio
async def test_a_quick_writer_notices_a_full_disk_though_its_log_stays_short(data: Path) -> None:
    engine = open_sqlite(data)
    disk = Disk(100 * GIB, RESERVE_BYTES + 10)
    full(engine, disk)

    async def write(first: int) -> None:
        for number in range(first, first + 40):
            await committed(engine, insert(b"p", b"%04d" % number, b"x" * 60_000))

    await write(0)  # room is tight, so the log restarts after every few of these
    disk.free = RESERVE_BYTES - 1
    with pytest.raises(EngineUnavailable, match="is full"):
        await write(40)
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_a_full_disk_takes_deletes_and_changes_of_tables_and_is_emptied_by_them(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = open_sqlite(data)
    await store(engine)
    disk = Disk(100 * GIB, 1000)
    full(engine, disk)
    for refused in (upsert(b"p", b"00000", b"new"), insert(b"p", b"new")):
        with pytest.raises(EngineUnavailable, match=r"^The disk of the data directory .* is full"):
            engine.commit(refused)
    await committed(engine, insert(b"\x01a", b"t")._replace(invalidates_caches=True))
    with caplog.at_level(logging.WARNING, "tablestone"):
        async with watched(engine):
            await until(lambda: "is nearly full" in caplog.text)
            await delete_most(engine)
            await until(lambda: file_pages(data) < 200)
            disk.free = GIB
            await until(lambda: "has room again" in caplog.text)
            await committed(engine, insert(b"p", b"new"))
    assert caplog.text.count("is nearly full") == 1
    assert len(await engine.scan(WHOLE, rows_max=ROWS)) == len(KEPT) + 2
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_the_log_does_not_grow_while_the_disk_is_full(data: Path) -> None:
    engine = open_sqlite(data)
    await store(engine)
    await engine.close()  # the log restarts
    engine = open_sqlite(data)
    full(engine, Disk(100 * GIB, 1000))
    log_bytes = 0
    for number in range(ROWS):
        await committed(engine, WriteSet(b"p", [Change(b"%05d" % number, ANY, DELETE)]))
        log_bytes = max(log_bytes, (data / "tablestone.db-wal").stat().st_size)
    assert 0 < log_bytes < 2 * SHORT_PAGES * PAGE_SIZE_BYTES
    await close_healthy(engine)


COPY_BYTES = COPY_PAGES * PAGE_SIZE_BYTES
CHANGED = Note(b"t", b"")
GROUP = [b"%02d" % number for number in range(50)]


def recorded(row: bytes, value: bytes) -> WriteSet:
    return WriteSet(b"p", [Change(row, ANY, put(value))], note=CHANGED)


@pytest.mark.asyncio
async def test_the_oldest_records_go_before_a_full_disk_refuses_writes(
    data: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are the same ones again and again, so all that grows is the record of changes."""
    monkeypatch.setattr(sqlite_engine, "LOOK_SECONDS", 1.0)
    engine = open_sqlite(data)
    await engine.changes.keep(Retention(None, GIB))
    disk = Disk(SMALL, 0)

    def statistics(path: Path) -> os.statvfs_result:
        used = sum(each.stat().st_size for each in path.iterdir())
        disk.free = 6 * SMALL // RESERVE_PART - used
        return disk(path)

    engine._room._statistics = statistics
    first = engine.changes.kept()
    assert first is not None
    with caplog.at_level(logging.WARNING, "tablestone"):
        async with watched(engine):
            for _ in range(60):
                outcomes = await asyncio.gather(
                    *(engine.commit(recorded(row, VALUE)) for row in GROUP)
                )
                assert all(isinstance(outcome, Committed) for outcome in outcomes)
                await asyncio.sleep(0)
    left = engine.changes.kept()
    assert left is not None
    assert left.makes_room
    assert left.last == first.last + 60 * len(GROUP)
    assert left.bytes > SMALL // RESERVE_PART, "only as many go as have to"
    assert caplog.text.count("the oldest records of changes are removed before their time") == 1
    assert "writes that need room are refused" not in caplog.text
    disk.free = GIB
    full(engine, disk)
    before = None
    while (left := engine.changes.kept()) != before:  # the removal that is under way ends
        before = left
        await asyncio.sleep(0.3)
    assert left is not None
    async with watched(engine):
        await asyncio.sleep(0.1)
    again = engine.changes.kept()
    assert again is not None
    assert (again.makes_room, again.bytes) == (False, left.bytes)
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_by_their_age_records_go_in_the_process_that_leads(data: Path) -> None:
    """Another one, which makes room, has not seen the clock each second."""
    engine = open_sqlite(data)
    await engine.changes.keep(Retention(1, GIB))
    await engine.commit(recorded(b"r", VALUE))
    engine.changes.age = RecordAge(lambda: 2_000)
    left: list[int] = []
    for leads in (False, True):
        await engine._trim(0, leads=leads)
        kept = engine.changes.kept()
        assert kept is not None
        left.append(kept.last + 1 - kept.first)
    assert left == [1, 0]
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_the_log_does_not_grow_while_an_ended_record_is_removed(data: Path) -> None:
    """Nobody commits meanwhile, so nothing else copies the log."""
    engine = open_sqlite(data)
    await engine.changes.keep(Retention(None, GIB))
    for _ in range(600):
        await asyncio.gather(*(engine.commit(recorded(row, VALUE[:900])) for row in GROUP))
    await engine.changes.keep(None)
    log_bytes = (data / "tablestone.db-wal").stat().st_size
    async with watched(engine):
        await until(lambda: engine.size().free_bytes > 600 * len(GROUP) * 900)
    assert (data / "tablestone.db-wal").stat().st_size < max(
        log_bytes, COPY_BYTES
    ) + COPY_BYTES // 2
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_a_server_with_the_same_setting_writes_nothing_so_it_starts_on_a_full_disk(
    data: Path,
) -> None:
    engine = open_sqlite(data)
    for size in (None, GIB):
        await engine.changes.keep(Retention(5, size))
        with files_no_longer_than(1):
            await engine.changes.keep(Retention(5, size))
    await close_healthy(engine)
