"""Copies the write-ahead log into the database while commits go on, so that commits wait only for the rest of a copy.

Most of a copy is writing and flushing pages that no commit needs. Only its last part, after which the log may start
from its beginning again, has to happen while no process appends (`group_commit`). Knows a connection and its log; not
the content of the log, and not the commits.
"""

from __future__ import annotations

import time
from queue import SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

import apsw

if TYPE_CHECKING:
    from collections.abc import Callable

COPIES_MAX: Final = 4
"""Copies in a row at most: another copy follows if at least `MUCH_PAGES` were appended during the last one."""
MUCH_PAGES: Final = 250
OTHERS_PAUSE_SECONDS: Final = 0.005
OTHERS_PAUSES_MAX: Final = 400
"""Number of pauses, each of `OTHERS_PAUSE_SECONDS`, in which to wait for another process's copy: the pages that it
copies need not be copied again."""


class LogCopier:
    """The copier of one process. From its first copy on, it has a thread and a connection of its own."""

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._asked: SimpleQueue[bool] = SimpleQueue()
        self._thread: Thread | None = None
        self._pages = 0
        self._is_under_way = False
        self._ended = Event()

    def has_copied(self, pages: int) -> bool:
        """True once for each copy that has ended, also with an error. If no copy is under way, one begins.

        `pages` is the present length of the log. Called by one thread at a time; never waits.
        """
        self._pages = pages
        if self._ended.is_set():
            self.finish()
            return True
        if not self._is_under_way:
            self._is_under_way = True
            if self._thread is None:
                self._thread = Thread(target=self._copy_until_closed, name="tablestone-copy")
                self._thread.daemon = True
                self._thread.start()
            self._asked.put(True)
        return False

    def finish(self) -> None:
        """Wait for the end of a copy that is under way."""
        if self._is_under_way:
            self._ended.wait()
            self._ended.clear()
            self._is_under_way = False

    def close(self) -> None:
        """End the thread and its connection, after the copy that is under way."""
        if self._thread is not None:
            self._asked.put(False)
            self._thread.join()

    def _copy_until_closed(self) -> None:
        connection: apsw.Connection | None = None
        while self._asked.get():
            try:
                connection = connection or self._connect()
                self._copy(connection)
            except apsw.Error:  # copying the rest meets the same error, and reports it
                pass
            finally:
                self._ended.set()
        if connection is not None:
            connection.close()

    def _copy(self, connection: apsw.Connection) -> None:
        for _ in range(COPIES_MAX):
            if self._pages - _pages_copied(connection) < MUCH_PAGES:
                return


def _pages_copied(connection: apsw.Connection) -> int:
    """Copy the present log, and return the number of its pages that are in the database."""
    for _ in range(OTHERS_PAUSES_MAX):
        try:
            _, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            time.sleep(OTHERS_PAUSE_SECONDS)
        else:
            return copied
    return 0
