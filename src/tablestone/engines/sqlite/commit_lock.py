"""What the processes of a data directory share: the lock to commit, and the generation that ends caches.

SQLite has a lock for writers too, but its writers poll; here the kernel wakes the process that waits. The lock is a
`flock`, so the kernel releases it if the process dies. `flock` has no queue: a process that commits again and again
would often be first. So a second lock lets one process wait as the *next* one; only the processes after it compete.
"""

from __future__ import annotations

import fcntl
import mmap
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
    """One thread at a time may use it; never use it across a fork."""

    def __init__(self, path: Path) -> None:
        self._commit = os.open(path / COMMIT_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        self._next = os.open(path / NEXT_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        self.is_held = False
        self._is_next = False

    def try_take(self) -> bool:
        """Take the lock if it is free. If not, `take` continues with the part that is already held."""
        if not self._is_next and not _lock_now(self._next):
            return False
        self._is_next = True
        if not _lock_now(self._commit):
            return False
        self._taken()
        return True

    def take(self) -> None:
        """Wait for the lock. Blocks, so never call it on the event loop's thread."""
        if not self._is_next:
            fcntl.flock(self._next, fcntl.LOCK_EX)
            self._is_next = True
        fcntl.flock(self._commit, fcntl.LOCK_EX)
        self._taken()

    def release(self) -> None:
        self.is_held = False
        fcntl.flock(self._commit, fcntl.LOCK_UN)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait for the lock, and hold it while the block runs."""
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
    except OSError:  # another process holds it; the call that waits meets any other error again
        return False
    return True


_COUNTERS: Final = 2
_LENGTH: Final = 8 * _COUNTERS
_BEGUN, _ENDED = range(_COUNTERS)


class Generation:
    """The counters of a directory. Only the process with the commit lock calls `begin` and `end`."""

    def __init__(self, path: Path) -> None:
        """`OSError` if the file can neither be opened nor made."""
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(file, _LENGTH)
            if hasattr(os, "posix_fallocate"):  # not on macOS
                # A full disk must fail here: a write to the mapped memory would kill the process.
                os.posix_fallocate(file, 0, _LENGTH)
            self._memory = mmap.mmap(file, _LENGTH)
        finally:
            os.close(file)
        self._counters = memoryview(self._memory).cast("Q")

    @property
    def current(self) -> int | None:
        """None while an invalidating commit is under way, or if its process died meanwhile."""
        ended = self._counters[_ENDED]
        return ended if self._counters[_BEGUN] == ended else None

    def begin(self) -> None:
        """An invalidating commit is about to show: from now on no process uses its cache."""
        self._counters[_BEGUN] += 1

    def end(self) -> None:
        """It shows, or has failed. This also ends the commit of a dead process."""
        self._counters[_ENDED] = self._counters[_BEGUN]

    def close(self) -> None:
        self._counters.release()
        self._memory.close()
