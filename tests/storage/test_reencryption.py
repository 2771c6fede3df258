"""A data directory that is rewritten with a key, another key, or none: complete after every kill."""

import random
import shutil
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from storage.encrypted_directory import (
    KEY,
    MARKER,
    OTHER,
    ROWS,
    VALUES,
    altered,
    content_of,
    logged,
    made_directory,
    open_with,
    untold,
)
from storage.neighbours import neighbour
from storage.write_sets import WHOLE, committed, insert
from tablestone.engines.contract import EngineDamaged, EngineRefused, EngineUnavailable, Key
from tablestone.engines.kind import EncryptionKey
from tablestone.engines.sqlite import encryption, reencryption
from tablestone.engines.sqlite.data_directory import (
    PAGE_SIZE_BYTES,
    REENCRYPTED_NAME,
    RESTORED_NAME,
)
from tablestone.engines.sqlite.reencryption import reencrypt
from tablestone.engines.sqlite.salvage import StoredPages

INDEX_LEAF = 10
"""The first byte of an index leaf: https://www.sqlite.org/fileformat2.html."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_directory(tmp_path_factory.mktemp("made") / "data")


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "data"))


@pytest.mark.parametrize(
    ("old", "new"), [(None, KEY), (KEY, OTHER), (KEY, None)], ids=["encrypt", "rekey", "decrypt"]
)
@pytest.mark.asyncio
async def test_a_directory_is_written_again(
    old: EncryptionKey | None, new: EncryptionKey | None, tmp_path: Path
) -> None:
    data = await logged(tmp_path / "first", tmp_path / "data", old)
    engine = open_with(data, old)
    before = await engine.scan(WHOLE, rows_max=1_000)
    await engine.close()
    assert reencrypt(data, old, new, untold)[0] == ROWS
    assert not (data / REENCRYPTED_NAME).exists()
    has_marker = any(MARKER in each for each in content_of(data).values())
    assert has_marker == (new is None)
    engine = open_with(data, new)
    assert await engine.scan(WHOLE, rows_max=1_000) == before
    assert await engine.check() == []
    await committed(engine, insert(b"p", b"later"))
    await engine.close()
    if old is not None:
        with pytest.raises(EngineRefused):
            open_with(data, old)


@pytest.mark.parametrize("read_only", [False, True], ids=["a server", "a command that reads"])
@pytest.mark.asyncio
async def test_a_directory_in_use_is_not_written_again(data: Path, *, read_only: bool) -> None:
    engine = open_with(data, KEY, read_only=read_only)
    assert await engine.get(Key(b"p", b"0001")) == VALUES[Key(b"p", b"0001")]
    with pytest.raises(EngineRefused, match="is in use by another"):
        reencrypt(data, KEY, OTHER, untold)
    await engine.close()
    open_with(data, KEY)


@pytest.mark.asyncio
async def test_a_failure_leaves_the_directory_as_it_was(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_path: Path) -> None:
        raise OSError(28, "No space left on device")

    before = content_of(data)
    monkeypatch.setattr("tablestone.engines.sqlite.reencryption.flush_file", fail)
    with pytest.raises(OSError, match="No space left"):
        reencrypt(data, KEY, OTHER, untold)
    assert altered(content_of(data)) == altered(before)
    assert not (data / REENCRYPTED_NAME).exists()


@pytest.mark.parametrize("old", [None, KEY], ids=["encrypt", "decrypt"])
@pytest.mark.asyncio
async def test_damaged_data_is_not_written_again(old: EncryptionKey | None, tmp_path: Path) -> None:
    """The damage is in an index page, which rewriting the rows does not read."""
    await logged(tmp_path / "data", tmp_path / "unused", old)
    data = tmp_path / "data"
    with closing(StoredPages(data, old)) as pages:
        index = [n for n in range(2, pages.count) if (pages.read(n) or b"")[0] == INDEX_LEAF]
    whole = bytearray((data / "tablestone.db").read_bytes())
    start = (index[-1] - 1) * PAGE_SIZE_BYTES
    whole[start : start + 16] = bytes(each ^ 0xFF for each in whole[start : start + 16])
    (data / "tablestone.db").write_bytes(whole)
    before = content_of(data)
    with pytest.raises(
        EngineDamaged, match=r"is damaged, and was not changed\. .*tablestone check"
    ):
        reencrypt(data, old, OTHER, untold)
    assert altered(content_of(data)) == altered(before)


def test_a_full_disk_is_the_reason(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite has its own error for it, without the path."""

    def fail(*_arguments: object) -> int:
        raise apsw.FullError("not an error")

    monkeypatch.setattr(reencryption, "_write_again", fail)
    with pytest.raises(OSError, match="No space left") as refused:
        reencrypt(data, KEY, OTHER, untold)
    assert refused.value.filename == str(data / REENCRYPTED_NAME)


def test_a_copy_that_cannot_be_made_is_refused_without_the_key(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's own error has the URI of the copy, and the key in it."""
    monkeypatch.setattr(Path, "as_uri", lambda path: f"file://{path}/not/there")
    with pytest.raises(EngineUnavailable, match=r"cannot be made\.$") as refused:
        reencrypt(data, KEY, OTHER, untold)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def write_again_for_ever(data: Path, pipe: object) -> None:
    """Switch between the two keys forever, from whichever is the present one."""
    present, coming = KEY, OTHER
    while True:
        with suppress(EngineRefused):
            reencrypt(data, present, coming, untold)
        present, coming = coming, present
        pipe.send("written")  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.asyncio
async def test_a_kill_leaves_the_one_key_or_the_other_and_every_row(data: Path) -> None:
    draw = random.Random(19)
    for _ in range(12):
        with neighbour(write_again_for_ever, data) as (process, pipe):
            assert pipe.recv() == "written"
            assert pipe.recv() == "written"
            process.join(draw.random() * 0.15)
            process.kill()
            process.join()
        fitting = []
        for key in (KEY, OTHER):
            try:
                engine = open_with(data, key)
            except EngineRefused:
                continue
            fitting.append(key)
            rows = await engine.scan(WHOLE, rows_max=1_000)
            assert {Key(row.partition, row.row): row.value for row in rows} == VALUES
            assert await engine.check() == []
            await engine.close()
        assert len(fitting) == 1
    assert not any(MARKER in each for each in content_of(data).values())


MOMENTS = ("some rows are written", "it is whole", "it is flushed", "it is in its place")
"""When the process is killed; at the last moment the change is done."""


def decrypt_until_killed(data: Path, pipe: Any) -> None:
    """Decrypt the directory, and stop at each of the moments until the test goes on, or kills."""

    def reach(moment: str) -> None:
        pipe.send(moment)
        pipe.recv()

    def tell(_done: int, _whole: int) -> None:
        copy = data / REENCRYPTED_NAME / "tablestone.db"
        if not told and copy.exists() and MARKER in copy.read_bytes():
            told.append(1)
            reach(MOMENTS[0])

    def connect(name: str, flags: int, key: EncryptionKey | None) -> apsw.Connection:
        connection = really_connect(name, flags, key)
        connection.pragma("cache_size", 1)  # pages are written before the last row is there
        return connection

    def flush_file(path: Path) -> None:
        reach(MOMENTS[1])
        really["flush_file"](path)
        reach(MOMENTS[2])

    def flush_directory(path: Path) -> None:
        really["flush_directory"](path)
        if not (path / REENCRYPTED_NAME / "tablestone.db").exists():
            reach(MOMENTS[3])

    told: list[int] = []
    really = dict(vars(reencryption))
    really_connect = encryption.connect
    encryption.connect = connect
    vars(reencryption).update(
        STEPS_PER_NEWS=50, flush_file=flush_file, flush_directory=flush_directory
    )
    reencrypt(data, KEY, None, tell)


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.asyncio
async def test_the_next_start_removes_the_copy_of_a_killed_decryption(
    moment: str, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The copy is in the clear; until it is removed, only its owner can read it."""
    with neighbour(decrypt_until_killed, data) as (process, pipe):
        while pipe.poll(120) and pipe.recv() != moment:
            pipe.send("go on")
        process.kill()
        process.join()
    copy = data / REENCRYPTED_NAME
    left = content_of(copy)
    assert any(MARKER in each for each in left.values()) == (moment != MOMENTS[3])
    assert copy.stat().st_mode & 0o077 == 0
    engine = open_with(data, None if moment == MOMENTS[3] else KEY)
    assert not copy.exists()
    assert caplog.text.count("that a killed command left") == 1
    rows = await engine.scan(WHOLE, rows_max=1_000)
    assert {Key(row.partition, row.row): row.value for row in rows} == VALUES
    assert await engine.check() == []
    await engine.close()
    if moment != MOMENTS[3]:
        assert not any(MARKER in each for each in content_of(data).values())


@pytest.mark.parametrize("name", [REENCRYPTED_NAME, RESTORED_NAME])
@pytest.mark.asyncio
async def test_only_a_server_removes_an_unfinished_copy(
    name: str, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A command beside it does not, because another command may be writing the copy."""
    (data / name).mkdir()
    (data / name / "tablestone.db").write_bytes(MARKER)
    await open_with(data, KEY, read_only=True).close()
    assert (data / name).exists()
    await open_with(data, KEY).close()
    assert not (data / name).exists()
    assert caplog.text.count(name) == 1
