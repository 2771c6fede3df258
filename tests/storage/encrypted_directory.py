"""Encrypted directories for the tests of encryption: their keys, their rows, and the content of their files."""

import asyncio
import shutil
from pathlib import Path

from storage.conftest import HeldClock
from storage.write_sets import committed, insert
from tablestone.engines.contract import Key
from tablestone.engines.kind import EncryptionKey
from tablestone.engines.registry import open_engine
from tablestone.engines.sqlite.data_directory import PAGE_SIZE_BYTES
from tablestone.engines.sqlite.engine import SqliteEngine

KEY, OTHER = EncryptionKey(bytes(range(32))), EncryptionKey(bytes(range(1, 33)))
MARKER = b"the text that no file may have"
ROWS = 120


def untold(_done: int, _whole: int) -> None:
    """Ignore progress."""


def open_with(data: Path, key: EncryptionKey | None, *, read_only: bool = False) -> SqliteEngine:
    engine = open_engine(f"sqlite:{data}", HeldClock(), read_only=read_only, key=key)
    assert isinstance(engine, SqliteEngine)
    return engine


def value_of(number: int) -> bytes:
    """Values of many lengths; some need overflow pages."""
    return (
        MARKER + b"%d " % number + b"v" * (number % 7 * 300 + (30_000 if number % 40 == 0 else 0))
    )


VALUES = {Key(b"p", b"%04d" % number): value_of(number) for number in range(ROWS)}


async def fill(engine: SqliteEngine) -> None:
    """Store the rows, and leave free pages by deleting others."""
    for key, value in VALUES.items():
        await committed(engine, insert(key.partition, key.row, value))


def content_of(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def altered(content: dict[str, bytes]) -> dict[str, bytes]:
    """The content without an empty log and SQLite's -shm, which a command that only reads may leave."""
    return {name: each for name, each in content.items() if each and not name.endswith("-shm")}


def made_directory(data: Path) -> Path:
    """An encrypted directory with the rows, closed."""

    async def make() -> None:
        engine = open_with(data, KEY)
        await fill(engine)
        await engine.close()

    asyncio.run(make())
    return data


async def logged(data: Path, into: Path, key: EncryptionKey | None) -> Path:
    """A copy of a directory as a kill leaves it, with commits that are only in the log."""
    engine = open_with(data, key)
    await fill(engine)
    shutil.copytree(data, into)
    await engine.close()
    assert (into / "tablestone.db-wal").stat().st_size > 20 * PAGE_SIZE_BYTES
    return into
