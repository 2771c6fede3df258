"""Whose turn it is to write: one lock for all processes that commit into one directory.

SQLite keeps writers apart too, but who meets its lock sleeps and asks again; here the kernel wakes who waits. The
lock is held by `flock`, so that the kernel takes it from a process that dies. It has no queue: who has just written
and asks again would often win. Therefore one waits *next*, on a lock of its own, and nobody passes it; only those
behind it compete. Knows nothing of SQLite.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMIT_NAME: Final = "commit.lock"
NEXT_NAME: Final = "next.lock"
COMMIT_LOCK_NAMES: Final = frozenset({COMMIT_NAME, NEXT_NAME})


class CommitLock:
    """The lock of the directory `path`. One thread at a time uses it; it is not to be carried over a fork."""

    def __init__(self, path: Path) -> None:
        self._commit = os.open(path / COMMIT_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        self._next = os.open(path / NEXT_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        self.is_held = False
        self._is_next = False

    def try_take(self) -> bool:
        """Take the lock if that needs no waiting. After a False, `take` goes on from where this got to."""
        if not self._is_next and not _lock_now(self._next):
            return False
        self._is_next = True
        if not _lock_now(self._commit):
            return False
        self._taken()
        return True

    def take(self) -> None:
        """Wait until the lock is this process's. Blocks: not for the event loop's thread."""
        if not self._is_next:
            fcntl.flock(self._next, fcntl.LOCK_EX)
            self._is_next = True
        fcntl.flock(self._commit, fcntl.LOCK_EX)
        self._taken()

    def release(self) -> None:
        """Let the next one write."""
        self.is_held = False
        fcntl.flock(self._commit, fcntl.LOCK_UN)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the lock, waiting for it, for as long as the block runs."""
        self.take()
        try:
            yield
        finally:
            self.release()

    def close(self) -> None:
        os.close(self._commit)
        os.close(self._next)

    def _taken(self) -> None:
        self.is_held = True
        self._is_next = False
        fcntl.flock(self._next, fcntl.LOCK_UN)


def _lock_now(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # somebody has it; or what is wrong is said by the call that waits
        return False
    return True
