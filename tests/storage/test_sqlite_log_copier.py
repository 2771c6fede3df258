"""Commits during a checkpoint wait only for its last part."""

import asyncio
import threading
from contextlib import closing
from itertools import cycle
from pathlib import Path
from typing import cast

import apsw
import pytest

from storage.write_sets import put
from tablestone.clock import system_clock
from tablestone.engines.contract import ANY, Change, Committed, WriteSet
from tablestone.engines.kind import Opening
from tablestone.engines.sqlite.commit import CHECKPOINT_PAGES, LOG_PAGES_MAX, GroupCommit
from tablestone.engines.sqlite.commit_lock import CommitLock
from tablestone.engines.sqlite.data_directory import DataDirectory
from tablestone.engines.sqlite.write_ahead_log import LogCopier

MEGABYTE = 1_000_000
WAIT_SECONDS = 20.0


class SlowDisk:
    """A connection whose checkpoint lasts until the test ends it."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.copies = threading.Event()
        self.may_go_on = threading.Event()

    def wal_checkpoint(self, *, mode: int) -> tuple[int, int]:
        self.copies.set()
        assert self.may_go_on.wait(WAIT_SECONDS)
        return self._connection.wal_checkpoint(mode=mode)

    def close(self) -> None:
        self._connection.close()


@pytest.mark.asyncio
async def test_commits_go_on_while_the_log_is_copied_and_bound_it_again_afterwards(
    tmp_path: Path,
) -> None:
    directory = DataDirectory(tmp_path, Opening.SERVER)
    made: list[apsw.Connection | SlowDisk] = []
    connected = threading.Event()

    def connect() -> apsw.Connection:
        connection = directory.connect_writer()
        if made:
            made.append(SlowDisk(connection))
            connected.set()
        else:
            made.append(connection)
        return cast("apsw.Connection", made[-1])

    commits = GroupCommit(connect, CommitLock(tmp_path), system_clock, directory.open_generation())

    bytes_of = cycle((b"a", b"b"))  # unchanged pages would not be written

    async def write_megabytes(number: int) -> None:
        for _ in range(number):
            value = put(next(bytes_of) * MEGABYTE)
            write_set = WriteSet(b"p", [Change(b"r", ANY, value)])
            async with asyncio.timeout(WAIT_SECONDS):
                assert isinstance(await commits.commit(write_set), Committed)

    def log_bytes() -> int:
        return (tmp_path / "tablestone.db-wal").stat().st_size

    bound = CHECKPOINT_PAGES * 8192
    await write_megabytes(bound // MEGABYTE + 1)
    assert await asyncio.to_thread(connected.wait, WAIT_SECONDS)
    slow = cast("SlowDisk", made[1])
    assert await asyncio.to_thread(slow.copies.wait, WAIT_SECONDS)
    await write_megabytes(bound // MEGABYTE)
    grown = log_bytes()
    assert grown > 1.5 * bound, "nobody waited for the copy"
    slow.may_go_on.set()
    await write_megabytes(10 * bound // MEGABYTE)
    assert log_bytes() < grown + 3 * bound, "the log started anew"
    await commits.close()
    with closing(directory.connect_reader()) as reader:
        assert reader.pragma("integrity_check") == "ok"
    directory.close()


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_fast_writer_does_not_outrun_the_checkpoint(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, Opening.SERVER)
    copiers: list[SlowDisk] = []
    is_first = cycle((True, *[False] * 100))

    def connect() -> apsw.Connection:
        connection = directory.connect_writer()
        if next(is_first):
            return connection
        copiers.append(SlowDisk(connection))
        return cast("apsw.Connection", copiers[0])

    commits = GroupCommit(connect, CommitLock(tmp_path), system_clock, directory.open_generation())
    bound = LOG_PAGES_MAX * 8192 + 2 * MEGABYTE

    async def write() -> None:
        for number in range(3 * bound // MEGABYTE):
            value = put(b"%d" % (number % 2) * MEGABYTE)
            await commits.commit(WriteSet(b"p", [Change(b"r", ANY, value)]))

    writing = asyncio.ensure_future(write())
    log = tmp_path / "tablestone.db-wal"
    await asyncio.wait({writing}, timeout=3)
    assert not writing.done(), "the copy is waited for"
    assert log.stat().st_size < bound
    copiers[0].may_go_on.set()
    await asyncio.wait_for(writing, WAIT_SECONDS)
    assert log.stat().st_size < bound
    await commits.close()
    directory.close()


def test_a_copy_that_fails_ends_too() -> None:
    def connect() -> apsw.Connection:
        raise apsw.CantOpenError("no more files")

    copier = LogCopier(connect)
    for _ in range(2):
        assert not copier.has_copied(CHECKPOINT_PAGES)
        ended = threading.Event()
        for _ in range(2000):
            if copier.has_copied(CHECKPOINT_PAGES):
                ended.set()
                break
            threading.Event().wait(0.005)
        assert ended.is_set()
    copier.close()
