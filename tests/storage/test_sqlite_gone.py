"""A data directory that is removed, moved or replaced under a running engine: the engine notices, and stops writing."""

from __future__ import annotations

import asyncio
import logging
import shutil
from typing import TYPE_CHECKING

import pytest

from storage.conftest import HeldClock
from storage.opened import close_healthy, open_sqlite
from storage.watched_engine import TURNS_MAX, until, watched
from storage.write_sets import WHOLE, committed, insert, read_all
from tablestone.engines.contract import EngineRefused, EngineUnavailable
from tablestone.engines.registry import held_for_processes, open_engine
from tablestone.engines.sqlite import engine as sqlite_engine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_engine, "LOOK_SECONDS", 0.0)


def remove(data: Path) -> None:
    shutil.rmtree(data)


def move(data: Path) -> None:
    data.rename(data.with_name("moved"))


def move_back(data: Path) -> None:
    data.with_name("moved").rename(data)


def replace(data: Path) -> None:
    move(data)
    data.mkdir()
    (data / "tablestone.db").touch()


def make_a_file_of_it(data: Path) -> None:
    move(data)
    data.touch()


GONE = (
    "The data directory {data} no longer holds the database that is served: it was removed, moved or "
    "replaced. Writes are refused until it is back."
)
WAYS = [remove, move, replace, make_a_file_of_it]


@pytest.mark.asyncio
@pytest.mark.parametrize("take_away", WAYS)
async def test_writes_are_refused_where_nobody_would_find_them_and_reads_go_on(
    data: Path, caplog: pytest.LogCaptureFixture, take_away: Callable[[Path], None]
) -> None:
    engine = open_sqlite(data)
    async with watched(engine):
        await committed(engine, insert(b"p", b"before"))
        take_away(data)
        await until(lambda: bool(caplog.records))
        with pytest.raises(EngineUnavailable, match=r"is gone\.$"):
            await engine.commit(insert(b"p", b"after"))
        assert await read_all(engine) == [b"value"]
        await asyncio.sleep(0.01)  # the second check logs nothing
    said = [(each.levelno, each.getMessage()) for each in caplog.records]
    assert said == [(logging.ERROR, GONE.format(data=data))]
    await engine.close()


@pytest.mark.asyncio
async def test_a_directory_that_is_moved_and_back_has_all_that_was_acknowledged(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = open_sqlite(data)
    await committed(engine, insert(b"p", b"before"))
    move(data)
    await committed(engine, insert(b"p", b"before it was noticed"))
    async with watched(engine):
        await until(lambda: len(caplog.records) == 1)
        move_back(data)
        await until(lambda: len(caplog.records) == 2)
        await committed(engine, insert(b"p", b"after"))
    assert caplog.messages[1] == f"The data directory {data} is back: writes are accepted."
    rows = [row.row for row in await engine.scan(WHOLE, rows_max=10)]
    assert rows == [b"after", b"before", b"before it was noticed"]
    await close_healthy(engine)
    engine = open_sqlite(data)
    assert [row.row for row in await engine.scan(WHOLE, rows_max=10)] == rows
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_processes_that_do_not_log_the_loss_refuse_too(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = open_sqlite(data)
    async with watched(engine, leads=False):
        remove(data)
        for turn in range(TURNS_MAX):
            try:
                await engine.commit(insert(b"p", b"%d" % turn))
            except EngineUnavailable:
                break
            await asyncio.sleep(0.001)
        else:
            raise AssertionError("it was not noticed")
    assert caplog.messages == []
    await engine.close()


@pytest.mark.asyncio
async def test_another_servers_data_in_its_place_is_neither_read_nor_written(data: Path) -> None:
    engine = open_sqlite(data)
    await committed(engine, insert(b"p", b"ours", b"ours"))
    move(data)
    other = open_sqlite(data)
    await committed(other, insert(b"p", b"theirs", b"theirs"))
    with pytest.raises(EngineUnavailable, match="no longer leads to the database"):
        await engine.snapshot()  # needs a connection of its own
    await engine.close()
    assert await read_all(other) == [b"theirs"]
    await close_healthy(other)


@pytest.mark.parametrize("take_away", WAYS)
def test_a_process_that_replaces_one_of_several_begins_nothing_new(
    data: Path, take_away: Callable[[Path], None]
) -> None:
    with held_for_processes(f"sqlite:{data}") as storage:
        take_away(data)
        before = sorted(data.parent.rglob("*"))
        with pytest.raises(EngineRefused) as refused:
            open_engine(f"sqlite:{data}", HeldClock(), shared=True, storage=storage)
        assert str(refused.value) == (
            f"The data directory {data} no longer holds the database that this server opened."
        )
        assert sorted(data.parent.rglob("*")) == before
