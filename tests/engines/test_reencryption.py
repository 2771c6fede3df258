"""A data directory that is written again, with a key, with another one, or without: whole after every kill."""

from __future__ import annotations

import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from engines.encrypted_directory import (
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
from engines.neighbours import neighbour
from engines.write_sets import WHOLE, committed, insert
from tablestone.engines.contract import (
    EngineRefused,
    Key,
)
from tablestone.engines.encryption_key import EncryptionKey
from tablestone.engines.sqlite.reencryption import STAGING_NAME, reencrypt


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
    assert reencrypt(data, old, new, untold).rows == ROWS
    assert not (data / STAGING_NAME).exists()
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
    assert not (data / STAGING_NAME).exists()


def write_again_for_ever(data: Path, pipe: object) -> None:
    """From the one key to the other and back, for ever, from whichever is the present one."""
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
