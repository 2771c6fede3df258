"""Compaction: all free pages of a data directory are given back, beside a running server or without one.

A database that an older version made cannot give pages back: it is written again as a whole, once. Knows the order of
the steps; `free_space` knows the steps.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple

import apsw

from tablestone.engines.contract import EngineUnavailable
from tablestone.engines.encryption_key import EncryptionKey
from tablestone.engines.kind import Opening
from tablestone.engines.sqlite.commit_lock import CommitLock
from tablestone.engines.sqlite.data_directory import LOG_NAME, DataDirectory
from tablestone.engines.sqlite.free_space import FreeSpace, rewrite, size_of
from tablestone.engines.storage_size import StorageSize

READS_MS_MAX: Final = 5_000
"""Milliseconds to wait for reads of other processes, after which the log keeps its length."""

Told = Callable[[int, int], None]
"""Takes the bytes that were given back, and all that can be."""


class Compacted(NamedTuple):
    """The result of a compaction."""

    before: StorageSize
    after: StorageSize
    was_rewritten: bool


def compact(path: Path, told: Told, key: EncryptionKey | None = None) -> Compacted:
    """Give all free pages back. `key` is the one that encrypts the directory, if one does.

    `EngineRefused` if the directory cannot be used, `EngineUnavailable` if a step fails; earlier steps stay done.
    """
    DataDirectory(
        path, Opening.READ_ONLY, key=key
    ).release()  # a directory without data is not to be created
    directory = DataDirectory(path, Opening.SHARED, key=key)
    free_space = FreeSpace(directory.connect_writer, CommitLock(path))
    try:
        with closing(directory.connect_reader()) as reader:
            log = path / LOG_NAME
            before = size_of(reader, log)
            was_rewritten = not free_space.can_be_given_back()
            if was_rewritten:
                _rewrite(directory)
            else:
                _give_back(free_space, before, told)
        with closing(directory.connect_writer()) as writer, closing(CommitLock(path)) as lock:
            writer.set_busy_timeout(READS_MS_MAX)
            with lock.held(), suppress(apsw.BusyError):
                writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            return Compacted(before, size_of(writer, log), was_rewritten)
    except apsw.Error as error:
        raise EngineUnavailable(f"The space could not be given back: {error}.") from error
    finally:
        free_space.close()
        directory.release()


def _give_back(free_space: FreeSpace, before: StorageSize, told: Told) -> None:
    free_space.copy_log()
    left = before.free_bytes // before.page_bytes + 1
    while left:
        last, left = left, free_space.step(copies_log=True)
        told(max(0, before.free_bytes - left * before.page_bytes), before.free_bytes)
        if left >= last:  # other processes free as many
            return


def _rewrite(directory: DataDirectory) -> None:
    # SQLite's temporary file has a copy of the data: it belongs on the same disk, and not in a common place.
    os.environ.setdefault("SQLITE_TMPDIR", str(directory.path))
    with closing(directory.connect_writer()) as writer, closing(CommitLock(directory.path)) as lock:
        rewrite(writer, lock, READS_MS_MAX)
