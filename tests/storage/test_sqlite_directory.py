"""The data directories that the SQLite engine creates, accepts and refuses, and what it says when it refuses."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
from typing import TYPE_CHECKING

import apsw
import pytest

from storage.conftest import HeldClock
from storage.opened import close_healthy, files_no_longer_than, open_sqlite, writer_of
from storage.write_sets import committed, insert, read_all
from tablestone.engines.contract import EngineRefused, EngineUnavailable
from tablestone.engines.registry import open_engine
from tablestone.engines.sqlite.data_directory import (
    FORMAT_VERSION,
    LOCKED_MS_MAX,
    PAGE_SIZE_BYTES,
    RULES_FORMAT_VERSION,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tablestone.engines.sqlite.engine import SqliteEngine


@pytest.mark.asyncio
async def test_a_new_directory_is_private_and_its_file_says_what_it_is(tmp_path: Path) -> None:
    data = tmp_path / "not" / "yet" / "there"
    engine = open_sqlite(data)
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert stat.S_IMODE((data / "tablestone.db").stat().st_mode) == 0o600
    pragmas = {
        name: writer_of(engine).pragma(name)
        for name in ("application_id", "user_version", "page_size", "journal_mode", "synchronous")
    }
    assert pragmas == {
        "application_id": int.from_bytes(b"TBST", "big"),
        "user_version": FORMAT_VERSION,
        "page_size": PAGE_SIZE_BYTES,
        "journal_mode": "wal",
        "synchronous": 2,  # FULL
    }
    await close_healthy(engine)


@pytest.mark.parametrize(("shared", "read_only"), [(True, False), (False, True), (False, False)])
def test_a_database_that_another_process_locks_for_a_moment_is_waited_for(
    tmp_path: Path, *, shared: bool, read_only: bool
) -> None:
    """As after a kill, when the first process to open the database recovers the log."""
    asyncio.run(open_sqlite(tmp_path).close())
    other = apsw.Connection(os.fspath(tmp_path / "tablestone.db"))
    other.pragma("locking_mode", "EXCLUSIVE")
    other.execute("BEGIN IMMEDIATE; PRAGMA user_version = 1; COMMIT")
    timer = threading.Timer(10 * LOCKED_MS_MAX / 1000, other.close)
    timer.start()
    try:
        engine = open_engine(f"sqlite:{tmp_path}", lambda: 1, shared=shared, read_only=read_only)
        asyncio.run(engine.close())
    finally:
        timer.join()


def make_newer(data: Path) -> None:
    asyncio.run(open_sqlite(data).close())
    connection = apsw.Connection(os.fspath(data / "tablestone.db"))
    connection.pragma("user_version", RULES_FORMAT_VERSION + 1)
    connection.close()


def make_foreign(data: Path) -> None:
    data.mkdir()
    connection = apsw.Connection(os.fspath(data / "tablestone.db"))
    connection.execute("CREATE TABLE songs (title)")
    connection.close()


def make_garbage(data: Path) -> None:
    data.mkdir()
    (data / "tablestone.db").write_bytes(b"no database at all " * 1_000)


def make_directory_of_database(data: Path) -> None:
    (data / "tablestone.db").mkdir(parents=True)


def make_files(data: Path, *names: str) -> None:
    data.mkdir()
    for name in names:
        (data / name).touch()


def make_and_cut(data: Path) -> None:
    asyncio.run(open_sqlite(data).close())
    os.truncate(data / "tablestone.db", 0)


def make_and_lose(data: Path) -> None:
    asyncio.run(open_sqlite(data).close())
    (data / "tablestone.db").unlink()


def make_and_keep_the_log(data: Path) -> None:
    """The files that a copy, or a tool that removes a database, may leave."""
    make_files(data, "lock", "tablestone.db-shm")
    (data / "tablestone.db-wal").write_bytes(b"rows that were acknowledged")


LOST = (
    "The data directory {data} was used, but its tablestone.db is gone: put it back, or name a new or an empty "
    "directory."
)
REFUSED: list[tuple[Callable[[Path], object], str]] = [
    (
        make_newer,
        "The data directory {data} was written by a newer version of Tablestone "
        "(format 5; this one reads 4).",
    ),
    (make_foreign, "{data}/tablestone.db belongs to another program: it is not Tablestone data."),
    (
        make_garbage,
        "{data}/tablestone.db is not a Tablestone database: file is not a database. For a list of all problems: "
        "tablestone check --data {data}",
    ),
    (
        make_directory_of_database,
        "The data directory {data} cannot be used: tablestone.db is no regular file.",
    ),
    (
        make_and_cut,
        "{data}/tablestone.db has been cut to nothing. For a list of all problems: tablestone check --data {data}",
    ),
    (make_and_lose, LOST),
    (make_and_keep_the_log, LOST),
    (lambda data: data.write_text("a file"), "The data directory {data} is not a directory."),
    (lambda data: data.symlink_to("nowhere"), "The data directory {data} is not a directory."),
    (
        lambda data: make_files(data, "b.txt", "a.txt", ".git"),
        "The data directory {data} holds no Tablestone data but other files, such as 'a.txt': "
        "name a new or an empty directory.",
    ),
]


@pytest.mark.parametrize(("make", "sentence"), REFUSED)
def test_a_directory_that_cannot_be_used_is_refused_in_one_sentence(
    data: Path, make: Callable[[Path], object], sentence: str
) -> None:
    make(data)
    before = {path: path.stat().st_size for path in data.glob("tablestone.db*")}
    with pytest.raises(EngineRefused) as refused:
        open_sqlite(data)
    assert str(refused.value) == sentence.format(data=data)
    assert {path: path.stat().st_size for path in data.glob("tablestone.db*")} == before


def test_a_first_start_without_room_says_so_and_leaves_nothing_in_the_way(data: Path) -> None:
    """A limit on the length of files acts like a full disk; SQLite's -shm of 32 KiB is the first file to exceed it."""
    with (
        pytest.raises(
            EngineRefused, match=r"db cannot be opened: there is no room for tablestone\.db-shm\.$"
        ),
        files_no_longer_than(20 * 1024),
    ):
        open_sqlite(data)
    asyncio.run(close_healthy_after_opening(data))


def test_a_full_disk_refuses_a_start_where_memory_could_not_be_mapped(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing to a mapped file that the disk has no room for kills the process with SIGBUS."""

    def is_full(_file: int, start: int, length: int) -> None:
        assert (start, length) == (0, 16)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", is_full, raising=False)
    with pytest.raises(EngineRefused) as refused:
        open_sqlite(data)
    assert str(refused.value) == (
        f"The data directory {data} cannot be used: there is no room in it."
    )


@pytest.mark.parametrize("make", [make_and_lose, make_and_keep_the_log])
def test_a_lost_database_is_not_there_to_be_read_either(
    data: Path, make: Callable[[Path], object]
) -> None:
    make(data)
    with pytest.raises(EngineRefused) as refused:
        open_sqlite(data, read_only=True)
    assert str(refused.value) == LOST.format(data=data)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unwritable for the superuser")
def test_a_directory_that_cannot_be_written_is_refused(data: Path) -> None:
    data.mkdir(mode=0o500)
    with pytest.raises(EngineRefused, match=r"cannot be used: Permission denied\.$"):
        open_sqlite(data)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unwritable for the superuser")
def test_a_database_that_cannot_be_written_is_refused_and_left_alone(data: Path) -> None:
    asyncio.run(open_sqlite(data).close())
    before = sorted(data.iterdir())
    (data / "tablestone.db").chmod(0o400)
    with pytest.raises(EngineRefused, match=r": tablestone\.db cannot be written\.$"):
        open_sqlite(data)
    assert sorted(data.iterdir()) == before


@pytest.fixture(params=["cannot be written", "is said not to be writable"])
def read_only(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Path], None]:
    """Make a directory read-only; for the superuser, who can write anyway, make the code believe it."""
    may = os.access

    def refuse(data: Path) -> None:
        if request.param == "cannot be written":
            data.chmod(0o500)
        else:
            monkeypatch.setattr(
                os, "access", lambda path, mode: may(path, mode) and (path, mode) != (data, os.W_OK)
            )

    if request.param == "cannot be written" and os.geteuid() == 0:
        pytest.skip("nothing is unwritable for the superuser")
    return refuse


@pytest.mark.parametrize(
    "beside",
    [
        pytest.param((), id="as a server leaves it"),
        pytest.param(("tablestone.db-wal",), id="with an empty log"),
        pytest.param(("tablestone.db-shm",), id="with the memory that was shared"),
    ],
)
def test_what_cannot_be_written_is_read_and_nothing_is_made(
    tmp_path: Path, read_only: Callable[[Path], None], beside: tuple[str, ...]
) -> None:
    data = tmp_path / "100% ?#"  # each of these has a meaning in the URI for SQLite
    engine = open_sqlite(data)
    asyncio.run(committed_and_closed(engine))
    for name in beside:
        (data / name).touch()
    before = sorted(data.iterdir())
    read_only(data)

    async def read() -> None:
        engine = open_sqlite(data, read_only=True)
        assert await read_all(engine) == [b"value"]
        assert sorted(data.iterdir()) == before
        await close_healthy(engine)

    asyncio.run(read())
    data.chmod(0o700)


async def committed_and_closed(engine: SqliteEngine) -> None:
    await committed(engine, insert(b"p", b"r"))
    await engine.close()


@pytest.mark.parametrize("name", ["tablestone.db-wal", "tablestone.db-journal"])
def test_a_log_that_cannot_be_read_is_not_left_out(
    data: Path, read_only: Callable[[Path], None], name: str
) -> None:
    asyncio.run(committed_and_closed(open_sqlite(data)))
    (data / name).write_bytes(b"rows that were acknowledged")
    read_only(data)
    with pytest.raises(EngineRefused) as refused:
        open_sqlite(data, read_only=True)
    assert str(refused.value) == (
        f"The data directory {data} cannot be read where nothing can be written, because {name} contains part "
        "of the data: make a copy that can be written."
    )
    data.chmod(0o700)


def test_a_database_that_may_not_be_read_is_refused(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(open_sqlite(data).close())
    database = data / "tablestone.db"
    database.chmod(0)
    if os.geteuid() == 0:  # root may read everything
        monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (database, os.R_OK))
    with pytest.raises(EngineRefused) as refused:
        open_sqlite(data, read_only=True)
    assert str(refused.value) == (
        f"The data directory {data} cannot be used: tablestone.db cannot be read."
    )


@pytest.mark.parametrize("change", ["removed", "made"])
def test_a_log_that_another_process_changes_meanwhile_is_not_taken_for_unwritable(
    data: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    asyncio.run(open_sqlite(data).close())
    log, may = data / "tablestone.db-wal", os.access
    if change == "removed":
        log.touch()

    def meanwhile(path: Path, mode: int) -> bool:
        if path == log and change == "removed":
            log.unlink(missing_ok=True)
        answer = may(path, mode)
        if path == log and change == "made":
            log.touch()
        return answer

    monkeypatch.setattr(os, "access", meanwhile)
    asyncio.run(open_sqlite(data).close())


@pytest.mark.parametrize(
    "present",
    [
        pytest.param((), id="nothing"),
        pytest.param(("lost+found", ".snapshot"), id="what a volume is born with"),
        pytest.param(("lock",), id="a start that was killed before it made the database"),
        pytest.param(
            ("lock", "commit.lock", "next.lock", "tablestone.db"),
            id="a start that was killed before it wrote the database",
        ),
        pytest.param(
            ("lock", "commit.lock", "next.lock", "tablestone.db-wal", "tablestone.db-shm"),
            id="a start that was killed, and of the database nothing came to the disk",
        ),
    ],
)
def test_a_directory_without_data_is_accepted(data: Path, present: tuple[str, ...]) -> None:
    make_files(data, *present)
    asyncio.run(close_healthy_after_opening(data))


async def close_healthy_after_opening(data: Path) -> None:
    await close_healthy(open_sqlite(data))


def test_a_refused_directory_is_let_go(data: Path) -> None:
    make_garbage(data)
    with pytest.raises(EngineRefused):
        open_sqlite(data)
    (data / "tablestone.db").unlink()
    asyncio.run(open_sqlite(data).close())


@pytest.mark.parametrize("url", ["", "memory", "memory:x", "sqlite:", "postgres://x", "/a/path"])
def test_an_unknown_engine_is_refused_in_one_sentence(url: str) -> None:
    with pytest.raises(EngineRefused) as refused:
        open_engine(url, HeldClock())
    assert str(refused.value) == (
        f"The engine {url!r} is not known: "
        "use sqlite:DIR, memory:, postgresql://[USER@]HOST[:PORT][,HOST]/DB or cassandra://HOST[,HOST]/KEYSPACE?datacenter=DC."
    )


@pytest.mark.asyncio
async def test_a_second_server_is_refused_and_a_reader_is_not(data: Path) -> None:
    engine = open_sqlite(data)
    await committed(engine, insert(b"p", b"r"))
    with pytest.raises(EngineRefused) as refused:
        open_sqlite(data)
    assert str(refused.value) == (
        f"The data directory {data} is in use by another Tablestone server."
    )
    reader = open_sqlite(data, read_only=True)
    assert (engine.generation, reader.generation) == (0, None)
    assert await read_all(reader) == [b"value"]
    with pytest.raises(EngineUnavailable):
        await reader.commit(insert(b"p", b"s"))
    await close_healthy(reader)
    await committed(engine, insert(b"p", b"s"))
    await close_healthy(engine)
    await close_healthy(open_sqlite(data))


def test_reading_only_where_there_is_nothing_is_refused_and_makes_nothing(data: Path) -> None:
    with pytest.raises(EngineRefused, match=r"holds no Tablestone data\.$"):
        open_sqlite(data, read_only=True)
    assert not data.exists()
