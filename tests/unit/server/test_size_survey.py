"""The sizes of tables: counted by the engine in pieces, and kept for a day."""

import asyncio
from itertools import count
from pathlib import Path

import pytest

from tablestone.clock import system_clock
from tablestone.engines.contract import (
    ABSENT,
    Change,
    Engine,
    EngineRefused,
    KeyRange,
    Put,
    WriteSet,
)
from tablestone.engines.figures import CountsRows, PartitionRows
from tablestone.engines.registry import open_engine
from tablestone.insight.report import SizeSample, TableSize
from tablestone.model.expiry import ExpiryPolicy
from tablestone.model.keys import EntityKey
from tablestone.server.admin import size_survey
from tablestone.server.admin.readiness import StorageProbe
from tablestone.server.admin.size_survey import IN_MEMORY, NOT_TOLD, SizeSurvey, _tables, thinned
from tablestone.tables import storage_keys
from tablestone.tables.catalog import Catalog
from tablestone.tables.index_building import IndexWork

SIZES = {"": 1, "a": 7, "b": 40, "ü": 2}
"""The entities of each partition."""
VALUE = b"x" * 5000
"""Longer than a page of SQLite."""
DAY = 86_400.0


class Weather:
    """An account that cannot be deleted."""

    name = "weather"
    incarnation = None
    known_at = None


async def fill(engine: Engine, table_id: bytes) -> dict[bytes, int]:
    """Store entities; returns the bytes of each partition."""
    sizes = {}
    for partition_key, entities in SIZES.items():
        places = [
            storage_keys.entity_place(table_id, EntityKey(partition_key, f"{number:03}"))
            for number in range(entities)
        ]
        changes = [Change(place.row, ABSENT, Put(lambda _version: VALUE)) for place in places]
        await engine.commit(WriteSet(places[0].partition, changes))
        each = len(places[0].partition) + len(places[0].row) + len(VALUE)
        sizes[places[0].partition] = entities * each
    return sizes


@pytest.mark.parametrize("rows_max", [1, 3, 7, 8, 49, 50, 51])
def test_an_engine_counts_in_pieces(tmp_path: Path, rows_max: int) -> None:
    async def counted() -> None:
        engine = open_engine(f"sqlite:{tmp_path}", system_clock, shared=False)
        assert isinstance(engine, CountsRows)
        table_id = b"12345678"
        sizes = await fill(engine, table_id)
        rest = storage_keys.table_range(table_id)
        found: dict[bytes, list[int]] = {}
        pieces = 0
        while True:
            piece = engine.count_rows(rest, rows_max)
            assert sum(each.rows for each in piece.partitions) <= rows_max
            pieces += 1
            for partition, rows, size in map(PartitionRows._make, piece.partitions):
                sums = found.setdefault(partition, [0, 0])
                sums[0] += rows
                sums[1] += size
            if piece.next_key is None:
                break
            rest = KeyRange(piece.next_key, rest.end)
        expected = dict(zip(sizes, zip(SIZES.values(), sizes.values(), strict=True), strict=True))
        assert {partition: tuple(sums) for partition, sums in found.items()} == expected
        assert pieces == -(-sum(SIZES.values()) // rows_max)
        await engine.close()

    asyncio.run(counted())


@pytest.mark.parametrize("shows_keys", [True, False])
def test_a_survey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, shows_keys: bool) -> None:
    """Two tables, one of them empty. A second survey adds to the growth."""
    monkeypatch.setattr(size_survey, "ROWS_PER_PIECE", 9)

    expiry = {}

    async def surveyed() -> dict[tuple[str, str], TableSize]:
        def opened() -> Engine:
            return open_engine(f"sqlite:{tmp_path}", system_clock, shared=True)

        engine = opened()
        ids = iter((b"12345678", b"23456789", b"a command"))
        catalog = Catalog(engine, system_clock, lambda: next(ids))
        await catalog.create(Weather(), "Readings")
        await catalog.create(Weather(), "Empty")
        work = IndexWork(catalog, Weather(), "Empty", "customer")
        await work.create(within_partition=True)
        await catalog.change_expiry(Weather(), "Empty", lambda _old: ExpiryPolicy(after=60))
        await fill(engine, b"12345678")
        probe = StorageProbe(opened)
        moments = count(1.0)
        survey = SizeSurvey(probe, "sqlite", lambda: next(moments), shows_keys=shows_keys)
        for _ in range(2):
            tables, found = await probe.ask(_tables)
            assert tables is not None
            expiry.update(found)
            await survey._survey(probe, tables)
        await probe.close()
        await engine.close()
        assert survey.note == ""
        return survey.sizes

    sizes = asyncio.run(surveyed())
    assert set(sizes) == {("weather", "readings"), ("weather", "empty")}
    size = sizes["weather", "readings"]
    assert (size.partitions, size.entities) == (4, 50)
    assert [sample.entities for sample in size.growth] == [50, 50]
    assert [each.entities for each in size.largest] == [40, 7, 2, 1]
    keys = [each.partition_key for each in size.largest]
    assert keys == ["b", "a", "ü", ""] if shows_keys else all(key[0] == "#" for key in keys)
    assert size.indexes == {}
    assert expiry == {("weather", "empty"): ("Empty", "1m after their Timestamp")}
    assert sizes["weather", "empty"].entities == 0
    assert sizes["weather", "empty"].indexes == {"customer": True}


def test_an_engine_that_does_not_count_tells_the_policies() -> None:
    """As Cassandra; and it tells the present ones."""

    async def surveyed() -> SizeSurvey:
        engine = open_engine("memory:", system_clock)
        catalog = Catalog(engine, system_clock, lambda: b"12345678")
        await catalog.create(Weather(), "Sessions")
        probe = StorageProbe(lambda: engine)
        survey = SizeSurvey(probe, "cassandra", shows_keys=True)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(survey.run(), 0.5)
        assert survey.expiry == {}
        await catalog.change_expiry(Weather(), "Sessions", lambda _old: ExpiryPolicy(after=7200))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(survey.run(), 0.5)
        return survey

    survey = asyncio.run(surveyed())
    assert survey.note == NOT_TOLD.format(engine="cassandra")
    assert survey.expiry == {("weather", "sessions"): ("Sessions", "2h after their Timestamp")}
    assert survey.sizes == {}


def test_an_automatic_index_is_told_when_it_is_made(tmp_path: Path) -> None:
    async def told() -> list[tuple[str, ...]]:
        engine = open_engine(f"sqlite:{tmp_path}", system_clock)
        catalog = Catalog(engine, system_clock, lambda: b"12345678")
        await catalog.create(Weather(), "Readings")
        work = IndexWork(catalog, Weather(), "Readings", "station")
        await work.ask_automatic(20_000)
        found = []
        for _ in range(2):
            tables, _expiry = await _tables(engine)
            assert tables is not None
            found.append(tables[0].automatic)
            if not found[-1]:
                await work.go_on()
        await engine.close()
        return found

    assert asyncio.run(told()) == [(), ("station",)]


def test_rows_in_memory_are_not_counted() -> None:
    survey = SizeSurvey(None, "memory", shows_keys=True)
    asyncio.run(survey.run())
    assert (survey.sizes, survey.note) == ({}, IN_MEMORY)


def test_storage_that_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report says so, and the survey goes on."""
    monkeypatch.setattr(size_survey, "SURVEY_PAUSE_SECONDS", 0.01)

    async def surveyed() -> str:
        loop, tried_again = asyncio.get_running_loop(), asyncio.Event()
        tries = count()

        def refused() -> Engine:
            if next(tries):
                loop.call_soon_threadsafe(tried_again.set)
            raise EngineRefused("The disk is gone.")

        probe = StorageProbe(refused)
        survey = SizeSurvey(probe, "sqlite", shows_keys=True)
        running = asyncio.create_task(survey.run())
        await tried_again.wait()
        running.cancel()
        return survey.note

    note = asyncio.run(asyncio.wait_for(surveyed(), 60))
    assert note == "The sizes of tables cannot be counted now: The disk is gone."


def test_samples_are_kept_for_a_day_and_thinned() -> None:
    kept: tuple[SizeSample, ...] = ()
    for number in range(2 * 1440):
        kept = thinned((*kept, SizeSample(60.0 * number, number, number)))
    newest = kept[-1].at
    assert newest == 60.0 * (2 * 1440 - 1)
    ages = [newest - sample.at for sample in kept]
    assert ages == sorted(ages, reverse=True)
    assert DAY - 900 <= ages[0] <= DAY + 900
    assert sum(age <= 3600 for age in ages) == 61
    assert len(kept) <= 61 + 96
