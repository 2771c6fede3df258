"""The record of changes in the files: backups, commands that write the database again, check, salvage."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest

from storage.encrypted_directory import KEY, OTHER, open_with, untold
from storage.test_change_record import ALL, kept, log_of, records, write
from storage.write_sets import WHOLE, committed, put, read_all
from tablestone.engines.contract import ABSENT, DELETE, Key
from tablestone.engines.sqlite.backup import copy_database, end_record
from tablestone.engines.sqlite.data_directory import PAGE_SIZE_BYTES
from tablestone.engines.sqlite.free_space import compact
from tablestone.engines.sqlite.reencryption import reencrypt
from tablestone.engines.sqlite.salvage import SalvagedRows, damaged_storage
from tablestone.engines.sqlite.upgrade import upgrade

if TYPE_CHECKING:
    from collections.abc import Callable

    from tablestone.engines.change_record import ChangeRecord, KeptChanges
    from tablestone.engines.kind import EncryptionKey

asynchronous = pytest.mark.asyncio
ROWS = 120


async def fill(data: Path, key: EncryptionKey | None) -> None:
    """Store rows of many lengths, with their record, also for an archive, and delete and trim some."""
    engine = open_with(data, key)
    await log_of(engine).keep(ALL._replace(bytes=1_000_000))
    with closing(engine.archive_source()) as source:
        source.keep()
    draw = random.Random(4)
    for number in range(ROWS):
        value = draw.randbytes(draw.choice((20, 300, 9_000, 30_000)))
        await committed(engine, write(b"%03d" % number, put(value), expectation=ABSENT))
    for number in range(0, ROWS, 3):
        await committed(engine, write(b"%03d" % number, put(b"other")))
    for number in range(1, ROWS, 9):
        await committed(engine, write(b"%03d" % number, DELETE))
    trimmed = kept(engine)
    assert not trimmed.is_complete
    assert trimmed.last - trimmed.first > ROWS // 3
    await engine.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[EncryptionKey | None, Path]:
    directory = tmp_path_factory.mktemp("made")
    filled: dict[EncryptionKey | None, Path] = {
        None: directory / "plain",
        KEY: directory / "secret",
    }
    for key, data in filled.items():
        asyncio.run(fill(data, key))
    return filled


@pytest.fixture
def key() -> EncryptionKey | None:
    return None


@pytest.fixture
def data(made: dict[EncryptionKey | None, Path], key: EncryptionKey | None, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made[key], tmp_path / "data"))


async def state(
    data: Path, key: EncryptionKey | None = None
) -> tuple[KeptChanges | None, list[ChangeRecord], list[bytes]]:
    """What is kept, the records, and the values of the rows."""
    engine = open_with(data, key, read_only=True)
    try:
        assert await engine.check() == []
        return log_of(engine).kept(), await records(engine), await read_all(engine)
    finally:
        await engine.close()


@pytest.mark.parametrize(
    ("key", "new", "run"),
    [
        pytest.param(None, None, lambda data: compact(data, untold), id="compact"),
        pytest.param(None, None, upgrade, id="upgrade"),
        pytest.param(None, KEY, lambda data: reencrypt(data, None, KEY, untold), id="encrypt"),
        pytest.param(KEY, OTHER, lambda data: reencrypt(data, KEY, OTHER, untold), id="rekey"),
        pytest.param(KEY, None, lambda data: reencrypt(data, KEY, None, untold), id="decrypt"),
    ],
)
@asynchronous
async def test_what_writes_the_database_again_keeps_records_and_epoch(
    data: Path, key: EncryptionKey | None, new: EncryptionKey | None, run: Callable[[Path], object]
) -> None:
    before = await state(data, key)
    run(data)
    assert await state(data, new) == before
    engine = open_with(data, new)
    await log_of(engine).keep(ALL)
    await committed(engine, write(b"later", put(b"1")))
    assert before[0] is not None
    assert (kept(engine).epoch, kept(engine).last) == (before[0].epoch, before[0].last + 1)
    await engine.close()


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "encrypted"])
@asynchronous
async def test_a_backup_has_no_records_and_a_restored_one_begins_an_epoch(
    data: Path, tmp_path: Path, key: EncryptionKey | None
) -> None:
    before, _records, rows = await state(data, key)
    assert before is not None
    (tmp_path / "restored").mkdir()
    restored = tmp_path / "restored" / "tablestone.db"
    copy_database(data, restored, untold, key)
    data_bytes = sum(map(len, rows))
    assert data_bytes < restored.stat().st_size < data_bytes * 1.5
    backed_up, nothing, its_rows = await state(restored.parent, key)
    assert backed_up is not None
    assert (backed_up.epoch, backed_up.last, nothing, its_rows) == (
        before.epoch,
        before.last,
        [],
        rows,
    )
    end_record(restored, key)
    assert await state(restored.parent, key) == (None, [], rows)
    engine = open_with(restored.parent, key)
    await log_of(engine).keep(ALL)
    again = kept(engine)
    assert again.storage == before.storage
    assert again.epoch != before.epoch
    assert (again.is_complete, again.first) == (False, again.last + 1)
    await committed(engine, write(b"later", put(b"1")))
    (record,) = await records(engine)
    assert record.number > before.last
    await engine.close()


def test_a_medium_that_is_only_read_shows_its_records(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(data.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr("os.access", lambda _path, mode: mode == os.R_OK)
        found = asyncio.run(state(data))
    assert sorted(data.iterdir()) == before
    assert len(found[1]) > ROWS // 3
    assert asyncio.run(state(data)) == found


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("DELETE FROM change_records WHERE number = ?", 6),
        ("UPDATE change_records SET time = time - 1 WHERE number = ?", 5),
        ("UPDATE change_records SET bytes_up_to = bytes_up_to - 90000 WHERE number = ?", 5),
    ],
)
@asynchronous
async def test_check_finds_a_record_that_does_not_follow(
    data: Path, wrong: str, named: int
) -> None:
    found = (await state(data))[0]
    assert found is not None
    with closing(apsw.Connection(str(data / "tablestone.db"))) as writer:
        writer.execute(wrong, (found.first + 5,))
    engine = open_with(data, None, read_only=True)
    assert await engine.check() == [
        f"the record of changes is broken before number {found.first + named}"
    ]
    await engine.close()


CHANGE_TREES = ("change_records", "change_records_by_subject", "change_log", "archive_state")


def pages_of(data: Path, *names: str) -> list[int]:
    """The pages of tables and indexes, those too on which their payloads continue."""
    with closing(apsw.Connection(str(data / "tablestone.db"))) as reader:
        found: list[tuple[str, int]] = reader.execute("SELECT name, pageno FROM dbstat").fetchall()  # type: ignore[assignment]
    return [number for name, number in found if name in names]


def overwrite(data: Path, numbers: list[int]) -> None:
    draw = random.Random(5)
    with (data / "tablestone.db").open("r+b") as file:
        for number in numbers:
            file.seek((number - 1) * PAGE_SIZE_BYTES)
            file.write(draw.randbytes(PAGE_SIZE_BYTES))


def salvaged(data: Path) -> tuple[dict[Key, bytes], SalvagedRows]:
    with damaged_storage(data) as storage:
        found = {Key(row.partition, row.row): row.value for _place, row in storage.rows()}
        return found, storage


async def rows_of(data: Path) -> dict[Key, bytes]:
    engine = open_with(data, None, read_only=True)
    rows = await engine.scan(WHOLE, rows_max=ROWS)
    await engine.close()
    return {Key(row.partition, row.row): row.value for row in rows}


@asynchronous
async def test_salvage_passes_over_the_pages_of_the_record(data: Path) -> None:
    whole = await rows_of(data)
    found, storage = salvaged(data)
    assert found == whole
    assert (storage.damaged_pages, storage.is_complete) == (set(), True)
    pages = set(pages_of(data, *CHANGE_TREES))
    assert len(pages) > 100
    assert pages <= storage._seen


@pytest.mark.parametrize("with_schema", [True, False], ids=["with its schema", "without"])
@asynchronous
async def test_no_record_is_taken_for_a_row(data: Path, *, with_schema: bool) -> None:
    """The first pages of rows and of their index are lost, so that every other page is looked at, also old ones."""
    whole = await rows_of(data)
    overwrite(data, [3, 4] if with_schema else [1, 3, 4])
    found, storage = salvaged(data)
    assert {key: found.get(key) for key in whole} == whole
    assert {3, 4} <= storage.damaged_pages
    assert storage.damaged_pages <= {1, 3, 4}
    assert {key.partition for key in found} == {b"p"}


@pytest.mark.parametrize("tree", CHANGE_TREES)
@asynchronous
async def test_damage_of_the_record_costs_no_row_and_is_named(data: Path, tree: str) -> None:
    whole = await rows_of(data)
    number = pages_of(data, tree)[-1]
    overwrite(data, [number])
    found, storage = salvaged(data)
    assert (found, storage.lost_keys()) == (whole, [])
    assert storage.damaged_pages == {number}
