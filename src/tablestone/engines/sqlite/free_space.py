"""Gives the free pages of a database back to the file system, a few at a time and beside any number of processes.

Deleted rows leave free pages. A step moves pages from the end of the file into some of them and cuts the file, as one
commit under the commit lock, so it is as short as other commits. Some free pages are kept for later writes. Knows pages
and the log; knows no rows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Final

import apsw

from tablestone.engines.storage_size import StorageSize

if TYPE_CHECKING:
    from pathlib import Path

    from tablestone.engines.sqlite.commit_lock import CommitLock

STEP_PAGES: Final = 64
"""Free pages that one step gives back: half a megabyte, and some milliseconds in which no other process commits."""
KEPT_PAGES: Final = 256
"""Free pages that are kept in any case: 2 MiB."""
KEPT_PART: Final = 8
"""A part of the pages with data, one eighth, is kept free too: steady deletes and inserts then cut and grow nothing."""
COPY_PAGES: Final = 1000
"""Pages in the log from which a step copies it into the database, as the commits do (`group_commit`)."""
INCREMENTAL: Final = 2
"""The value of `PRAGMA auto_vacuum` for a database whose free pages can be given back."""


def size_of(connection: apsw.Connection, log: Path) -> StorageSize:
    """The sizes of a database, as this connection sees them. Costs some microseconds."""
    page_bytes = connection.pragma("page_size")
    try:
        log_bytes = log.stat().st_size
    except OSError:  # no process has the database open
        log_bytes = 0
    return StorageSize(
        database_bytes=connection.pragma("page_count") * page_bytes,
        free_bytes=connection.pragma("freelist_count") * page_bytes,
        log_bytes=log_bytes,
        page_bytes=page_bytes,
    )


def kept_bytes(size: StorageSize) -> int:
    """The free bytes that a database of this size keeps for later writes."""
    return KEPT_PAGES * size.page_bytes + (size.database_bytes - size.free_bytes) // KEPT_PART


class FreeSpace:
    """The free pages of one database, for one process. `connect` makes a connection that may write.

    It is used by one thread at a time, which may be another one each time.
    """

    def __init__(self, connect: Callable[[], apsw.Connection], lock: CommitLock) -> None:
        self._connect = connect
        self._lock = lock
        self._connection: apsw.Connection | None = None
        self._is_used = Lock()
        self._is_closed = False
        self._log_pages = 0

    def step(self, *, copies_log: bool = False) -> int:
        """Give up to `STEP_PAGES` free pages back; returns the number of free pages that are left.

        With `copies_log`, the log is copied into the database too, which is when the file gets shorter. Waits for the
        commit lock. Raises `apsw.Error`.
        """
        with self._is_used:
            if self._is_closed:
                return 0
            connection = self._opened()
            with self._lock.held():
                connection.execute(f"PRAGMA incremental_vacuum({STEP_PAGES})").fetchall()
                free = int(connection.pragma("freelist_count"))
                if copies_log or not free or self._log_pages >= COPY_PAGES:
                    self._copy_log(connection)
            return free

    def can_be_given_back(self) -> bool:
        """Whether the database gives free pages back. One that an older version made has to be rewritten first."""
        with self._is_used:
            return bool(self._opened().pragma("auto_vacuum") == INCREMENTAL)

    def copy_log(self) -> None:
        """Copy the log into the database, so that the file gets shorter or the log can start from its beginning."""
        with self._is_used:
            if not self._is_closed:
                connection = self._opened()
                with self._lock.held():
                    self._copy_log(connection)

    def close(self) -> None:
        """Wait for a step that is under way, and close the connection."""
        with self._is_used:
            self._is_closed = True
            if self._connection is not None:
                with self._lock.held():
                    self._connection.close()
            self._lock.close()

    def _opened(self) -> apsw.Connection:
        if self._connection is None:
            self._connection = self._connect()
            self._connection.set_wal_hook(self._note_log_pages)
        return self._connection

    def _copy_log(self, connection: apsw.Connection) -> None:
        with suppress(apsw.BusyError):  # another process is copying
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        self._log_pages = 0

    def _note_log_pages(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK


def rewrite(connection: apsw.Connection, lock: CommitLock, wait_ms: int) -> None:
    """Write the whole database again without its free pages, as one whose free pages can be given back.

    No process commits in that time; reads go on. Needs room for two copies of the data. A crash, or an `apsw.Error`,
    leaves the database as it was.
    """
    with lock.held():
        connection.set_busy_timeout(wait_ms)
        connection.pragma("auto_vacuum", INCREMENTAL)
        # The library would keep the temporary copy in memory. A database that has to be written again is older than
        # encryption, so the file may be in the clear.
        connection.pragma("temp_store", "FILE")
        connection.execute("VACUUM")
        with suppress(
            apsw.BusyError
        ):  # a read of another process lasts: later commits copy the log
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
