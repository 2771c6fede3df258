"""Moving all rows from one engine to another: what is moved, what is compared, and how it continues."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING

import pytest

from tablestone.clock import system_clock
from tablestone.engines.contract import (
    ABSENT,
    ANY,
    DELETE,
    Change,
    EngineRefused,
    EngineUnavailable,
    Key,
    KeyRange,
    Put,
    StorageId,
    StoredRow,
    WriteSet,
    WriteTooLarge,
)
from tablestone.engines.memory import MemoryEngine
from tablestone.engines.registry import open_engine
from tablestone.engines.sqlite.backup import NewDirectory, count_rows
from tablestone.tables import storage_keys, storage_migration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tablestone.engines.contract import Engine

TABLE_ID = b"\x00\x01\x02\x03\x04\x05\x06\x07"
RECORD = b'{"name":"tab","id":"0001020304050607","ticks":1,"version":1}'
CATALOG = storage_keys.catalog_partition("acct")
ALL = KeyRange(Key(b"", b""), Key(b"\xff" * 16, b""))

Row = tuple[bytes, bytes, bytes]

SOURCE = StorageId(b"keyspace")
ROWS: tuple[Row, ...] = (
    (CATALOG, storage_keys.table_row("tab"), RECORD),
    (storage_keys.documents_partition(b"account"), b"acct", b"{}"),
    *(
        (
            storage_keys.entity_partition(TABLE_ID, f"p{number % 7}"),
            b"r%04d" % number,
            b"x" * number,
        )
        for number in range(1300)
    ),
)
FOR_LEASES: tuple[Row, ...] = (
    (CATALOG, storage_keys.SENTINEL_ROW, b""),
    (CATALOG, storage_keys.mark_row(b"0" * 16), b""),
)


def always(value: bytes) -> Put:
    return Put(lambda _version: value)


async def filled(rows: Iterable[Row]) -> MemoryEngine:
    """An engine with rows whose versions all differ."""
    ticks = count(1_000)
    engine = MemoryEngine(lambda: next(ticks))
    for partition, row, value in rows:
        await engine.commit(WriteSet(partition, (Change(row, ABSENT, always(value)),)))
    return engine


async def all_rows(engine: Engine) -> list[StoredRow]:
    return await engine.scan(ALL, rows_max=10_000)


def nothing(_count: int, _size: int) -> None:
    """Ignore progress."""


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_a_directory_gets_every_row_with_its_version_however_often_it_is_interrupted(
    tmp_path: Path, failures: int
) -> None:
    class Failing(NewDirectory):
        """Fails at the third piece."""

        pieces = 0

        async def write(self, rows: Sequence[StoredRow]) -> None:
            self.pieces += 1
            if self.pieces == 3:
                raise EngineUnavailable("no disk")
            await super().write(rows)

    async def run() -> None:
        source = await filled((*ROWS, *FOR_LEASES))
        told: list[int] = []
        for _ in range(failures):
            with pytest.raises(EngineUnavailable), Failing(tmp_path / "new", SOURCE) as interrupted:
                await storage_migration.move(source, interrupted, nothing)
            assert not (tmp_path / "new").exists()
        with NewDirectory(tmp_path / "new", SOURCE) as target:
            assert (target.reached is None) == (failures == 0)
            await storage_migration.move(source, target, lambda rows, _: told.append(rows))
            target.finish()
        assert (told[-1] == len(ROWS)) == (failures == 0)
        assert count_rows(tmp_path / "new") == len(ROWS)
        last_but_one = sorted(Key(row.partition, row.row) for row in await all_rows(source))[-2]
        assert count_rows(tmp_path / "new", after=last_but_one) == 1
        copy = open_engine(f"sqlite:{tmp_path / 'new'}", system_clock, read_only=True)
        expected = [
            row
            for row in await all_rows(source)
            if (row.partition, row.row) not in {FOR_LEASES[0][:2], FOR_LEASES[1][:2]}
        ]
        assert await all_rows(copy) == expected
        found = await storage_migration.compare(source, copy, nothing)
        counts = found.counts
        assert (found.differences, found.described) == (0, [])
        assert (counts.tables, counts.accounts, counts.entities, counts.others) == (1, 1, 1300, 0)
        await copy.close()

    asyncio.run(run())


def test_a_row_that_is_too_large_for_the_target_is_named(tmp_path: Path) -> None:
    class Narrow(NewDirectory):
        async def write(self, rows: Sequence[StoredRow]) -> None:
            for row in rows:
                if len(row.value) > 1298:
                    raise WriteTooLarge("It takes 1,298 bytes.", Key(row.partition, row.row))
            await super().write(rows)

    async def run() -> None:
        source = await filled(ROWS)
        told = (
            "^The entity PartitionKey='p4', RowKey='r1299' of table tab is too large for the target. It takes 1,298 "
            "bytes.$"
        )
        with pytest.raises(WriteTooLarge, match=told), Narrow(tmp_path / "new", SOURCE) as target:
            await storage_migration.move(source, target, nothing)

    asyncio.run(run())


@pytest.mark.parametrize("is_there", ["a file in it", "a file of that name"])
def test_a_directory_that_is_there_already_is_refused(tmp_path: Path, is_there: str) -> None:
    place = tmp_path / "new"
    if is_there == "a file in it":
        place.mkdir()
        (place / "x").touch()
    else:
        place.touch()
    with pytest.raises(EngineRefused):
        NewDirectory(place, SOURCE)
    assert not (tmp_path / "new.part").exists()


@pytest.mark.parametrize(
    ("change", "how"),
    [
        (None, []),
        (DELETE, ["The entity PartitionKey='p1', RowKey='r0001' of table tab is missing."]),
        (always(b"x"), ["The entity PartitionKey='p1', RowKey='r0001' of table tab differs."]),
    ],
)
def test_a_row_that_differs_or_is_missing_is_named(change: Put | None, how: list[str]) -> None:
    """The second change writes the same value again, so only the version differs."""

    async def run() -> None:
        mine, theirs = await filled(ROWS), await filled(ROWS)
        if change is not None:
            partition = storage_keys.entity_partition(TABLE_ID, "p1")
            await theirs.commit(WriteSet(partition, (Change(b"r0001", ANY, change),)))
        assert (await storage_migration.compare(mine, theirs, nothing)).described == how
        backwards = await storage_migration.compare(theirs, mine, nothing)
        assert backwards.described == [
            text.replace("is missing", "has no counterpart") for text in how
        ]

    asyncio.run(run())


def test_many_differences_are_counted_and_a_few_are_named() -> None:
    async def run() -> None:
        found = await storage_migration.compare(await filled(ROWS), await filled(ROWS[:2]), nothing)
        assert (found.differences, len(found.described)) == (
            1300,
            storage_migration.DIFFERENCES_DESCRIBED_MAX,
        )

    asyncio.run(run())


def test_storage_with_nothing_but_marks_is_empty() -> None:
    async def run() -> None:
        assert await storage_migration.is_empty(await filled(FOR_LEASES))
        assert not await storage_migration.is_empty(await filled([*FOR_LEASES, ROWS[-1]]))

    asyncio.run(run())
