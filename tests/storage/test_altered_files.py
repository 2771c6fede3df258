"""Flipped bits in the files of a data directory are found, and reads of encrypted pages never return wrong data."""

import random
import shutil
from contextlib import closing, suppress
from pathlib import Path

import pytest

from storage.encrypted_directory import KEY, VALUES, logged, made_directory, open_with
from storage.write_sets import WHOLE, committed, upsert
from tablestone.engines.contract import (
    EngineBroken,
    EngineDamaged,
    EngineRefused,
    EngineUnavailable,
    Key,
)
from tablestone.engines.kind import EncryptionKey
from tablestone.engines.sqlite.data_directory import PAGE_SIZE_BYTES
from tablestone.engines.sqlite.salvage import StoredPages, damaged_storage

FRAME_BYTES = 24 + PAGE_SIZE_BYTES


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_directory(tmp_path_factory.mktemp("made") / "data")


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "data"))


@pytest.mark.asyncio
async def test_a_flipped_bit_in_any_page_is_found_and_nothing_wrong_is_read(data: Path) -> None:
    """Every page: of the table and the index, overflow pages, free pages, and SQLite's own."""
    engine = open_with(data, KEY)
    await committed(engine, upsert(b"p", b"big", b"x" * 300_000))
    await committed(engine, upsert(b"p", b"big", b""))  # leaves free pages
    await engine.close()
    expected = VALUES | {Key(b"p", b"big"): b""}
    draw = random.Random(19)
    whole = (data / "tablestone.db").read_bytes()
    assert len(whole) // PAGE_SIZE_BYTES > 60
    for page in range(len(whole) // PAGE_SIZE_BYTES):
        bit = draw.randrange(page * PAGE_SIZE_BYTES * 8, (page + 1) * PAGE_SIZE_BYTES * 8)
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        (data / "tablestone.db").write_bytes(flipped)
        try:
            engine = open_with(data, KEY, read_only=True)
        except EngineBroken:
            assert page == 0
            continue
        assert page > 0
        assert await engine.check() == [f"page {page + 1} was altered since it was written"]
        for key, value in expected.items():
            try:
                assert await engine.get(key) == value
            except EngineDamaged:
                continue
        await engine.close()


@pytest.mark.parametrize("bit", [*range(0, 192, 23), 24 * 8 + 5, PAGE_SIZE_BYTES * 8 - 1])
def test_a_damaged_first_page_is_not_called_another_key(bit: int, data: Path) -> None:
    whole = bytearray((data / "tablestone.db").read_bytes())
    whole[bit // 8] ^= 1 << bit % 8
    (data / "tablestone.db").write_bytes(whole)
    with pytest.raises(EngineBroken):
        open_with(data, KEY)
    with pytest.raises(EngineRefused):
        open_with(data, None)


@pytest.mark.asyncio
async def test_salvage_reads_the_other_pages(data: Path) -> None:
    file = data / "tablestone.db"
    whole = bytearray(file.read_bytes())
    with closing(StoredPages(data, KEY)) as pages:
        leaf = next(n for n in range(5, pages.count) if (pages.read(n) or b"")[0] == 13)
    whole[leaf * PAGE_SIZE_BYTES - 100] ^= 1
    file.write_bytes(whole)
    with damaged_storage(data, KEY) as storage:
        found = {Key(row.partition, row.row): row.value for _place, row in storage.rows()}
        assert storage.damaged_pages == {leaf}
        assert found | dict.fromkeys(storage.lost_keys(), b"lost") == VALUES | dict.fromkeys(
            VALUES.keys() - found.keys(), b"lost"
        )
        assert 0 < len(VALUES.keys() - found.keys()) < 30


@pytest.mark.parametrize("key", [None, KEY], ids=["in the clear", "encrypted"])
@pytest.mark.asyncio
async def test_a_flipped_bit_in_the_log_is_found(key: EncryptionKey | None, tmp_path: Path) -> None:
    """In an open log, and in one left by a kill, where SQLite silently stops before the damage."""
    data = await logged(tmp_path / "first", tmp_path / "data", key)
    draw = random.Random(19)
    whole = (data / "tablestone.db-wal").read_bytes()
    frames = (len(whole) - 32) // FRAME_BYTES
    flipped = bytearray()
    for number in draw.sample(range(frames - 4), 8):
        place = 32 + number * FRAME_BYTES + 24 + draw.randrange(PAGE_SIZE_BYTES)
        flipped = bytearray(whole)
        flipped[place] ^= 1 << draw.randrange(8)
        left = tmp_path / f"left {number}"
        shutil.copytree(data, left)
        (left / "tablestone.db-shm").unlink()
        (left / "tablestone.db-wal").write_bytes(flipped)
        engine = open_with(left, key, read_only=True)
        (found,) = await engine.check()
        assert "log is damaged" in found
        await engine.close()
    engine = open_with(data, key)
    assert await engine.check() == []
    (data / "tablestone.db-wal").write_bytes(flipped)
    (found,) = await engine.check()
    assert "log is damaged" in found
    await engine.close()


@pytest.mark.parametrize("key", [None, KEY], ids=["in the clear", "encrypted"])
@pytest.mark.parametrize(
    "place",
    [
        pytest.param(3, id="the magic number of the log"),
        pytest.param(17, id="the salts of the log"),
        pytest.param(25, id="the sums of the header"),
        pytest.param(32 + 2, id="the page number of the first frame"),
        pytest.param(32 + 5 * FRAME_BYTES + 6, id="the commit mark of a frame"),
        pytest.param(32 + 5 * FRAME_BYTES + 9, id="the salts of a frame"),
        pytest.param(32 + 5 * FRAME_BYTES + 20, id="the sums of a frame"),
        pytest.param(32 + 5 * FRAME_BYTES + 4_000, id="a page"),
    ],
)
@pytest.mark.asyncio
async def test_a_start_that_would_lose_commits_is_refused(
    place: int, key: EncryptionKey | None, tmp_path: Path
) -> None:
    """A kill left the log, and a bit of it flipped: the start writes nothing, so the log can still be mended."""
    data = await logged(tmp_path / "first", tmp_path / "data", key)
    (data / "tablestone.db-shm").unlink()
    log = data / "tablestone.db-wal"
    whole = log.read_bytes()
    flipped = bytearray(whole)
    flipped[place] ^= 2
    log.write_bytes(flipped)
    for _attempt in range(2):
        with pytest.raises(EngineBroken, match=r"wal is damaged: acknowledged writes .* salvage"):
            open_with(data, key)
    assert log.read_bytes() == flipped
    with damaged_storage(data, key) as storage:
        assert storage.lost_writes
    engine = open_with(data, key, read_only=True)
    (found,) = await engine.check()
    assert "log is damaged" in found
    await engine.close()
    log.write_bytes(whole)
    (data / "tablestone.db-shm").unlink(missing_ok=True)
    engine = open_with(data, key)
    assert await engine.check() == []
    await engine.close()


@pytest.mark.asyncio
async def test_a_torn_end_of_the_log_is_not_called_damage(tmp_path: Path) -> None:
    """A power failure leaves it: the last commit, never acknowledged, is there in part."""
    data = await logged(tmp_path / "first", tmp_path / "data", None)
    (data / "tablestone.db-shm").unlink()
    log = data / "tablestone.db-wal"
    whole = log.read_bytes()
    for cut in (1, 5_000, PAGE_SIZE_BYTES + 24, 2 * PAGE_SIZE_BYTES):
        log.write_bytes(whole[:-cut] + bytes(cut))
        engine = open_with(data, None, read_only=True)
        assert await engine.check() == []
        await engine.close()
        (data / "tablestone.db-shm").unlink(missing_ok=True)
        copy = tmp_path / f"without {cut}"
        shutil.copytree(data, copy)
        await open_with(copy, None).close()


@pytest.mark.asyncio
async def test_an_unreadable_commit_is_refused(data: Path) -> None:
    """A page was altered under a running server: the read fails instead of returning it."""
    engine = open_with(data, KEY)
    whole = bytearray((data / "tablestone.db").read_bytes())
    for page in range(2, len(whole) // PAGE_SIZE_BYTES):
        whole[page * PAGE_SIZE_BYTES + 700] ^= 4
    (data / "tablestone.db").write_bytes(whole)
    with pytest.raises(EngineUnavailable, match="run tablestone check"):
        await engine.scan(WHOLE, rows_max=1_000)
    await engine.close()


@pytest.mark.parametrize("place", ["in the head of the page", "anywhere"])
@pytest.mark.asyncio
async def test_a_flipped_bit_in_a_page_that_is_not_encrypted(place: str, tmp_path: Path) -> None:
    """SQLite has no checksums, so a changed value goes unnoticed; a damaged structure is found."""
    await logged(tmp_path / "data", tmp_path / "copy", None)
    file = tmp_path / "data" / "tablestone.db"
    draw = random.Random(19)
    whole = file.read_bytes()
    pages = len(whole) // PAGE_SIZE_BYTES
    found = served = 0
    for page in range(pages):
        flipped = bytearray(whole)
        at = 0 if place == "in the head of the page" else draw.randrange(PAGE_SIZE_BYTES)
        flipped[page * PAGE_SIZE_BYTES + at] ^= 1 << draw.randrange(8)
        file.write_bytes(flipped)
        try:
            engine = open_with(tmp_path / "data", None, read_only=True)
        except EngineRefused:
            found += 1
            continue
        is_found = bool(await engine.check())
        wrong = 0
        for key, value in VALUES.items():
            with suppress(EngineUnavailable):
                wrong += await engine.get(key) not in {value, None}
        await engine.close()
        assert is_found or wrong <= 1, "at most the one value in which the bit is"
        found += is_found
        served += wrong > 0
    if place == "anywhere":
        assert served > pages // 2
    else:
        assert found == pages
