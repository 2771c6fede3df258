"""What the processes of a data directory share: the lock to commit, and the generation that says when caches are old.

SQLite has a lock for writers too, but a writer that finds it locked polls; here the kernel wakes the process that
waits. The lock is a `flock`, so the kernel releases it if the process dies. `flock` has no queue: a process that has
just committed and commits again would often be first. Therefore a second lock lets one process wait as the *next* one,
and no other can overtake it; only the processes behind it compete.
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
    """The lock of the directory `path`. One thread at a time may use it; it must not be used across a fork."""

    def __init__(self, path: Path) -> None:
        self._commit = os.open(path / COMMIT_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        self._next = os.open(path / NEXT_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        self.is_held = False
        self._is_next = False

    def try_take(self) -> bool:
        """Take the lock if it is free. After a False, `take` continues with the part that is already held."""
        if not self._is_next and not _lock_now(self._next):
            return False
        self._is_next = True
        if not _lock_now(self._commit):
            return False
        self._taken()
        return True

    def take(self) -> None:
        """Wait for the lock. The call blocks: never make it on the event loop's thread."""
        if not self._is_next:
            fcntl.flock(self._next, fcntl.LOCK_EX)
            self._is_next = True
        fcntl.flock(self._commit, fcntl.LOCK_EX)
        self._taken()

    def release(self) -> None:
        """Let the next process commit."""
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
    """The counters of one directory. Only the process that holds the commit lock calls `begin` and `end`."""

    def __init__(self, path: Path) -> None:
        """Raise `OSError` if the file can neither be opened nor made."""
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(file, _LENGTH)
            if hasattr(os, "posix_fallocate"):  # not on macOS
                # A full disk must fail here: writing into the mapped memory would kill the process.
                os.posix_fallocate(file, 0, _LENGTH)
            self._memory = mmap.mmap(file, _LENGTH)
        finally:
            os.close(file)
        self._counters = memoryview(self._memory).cast("Q")

    @property
    def current(self) -> int | None:
        """The generation; None while an invalidating commit is under way, or if one was when its process died."""
        ended = self._counters[_ENDED]
        return ended if self._counters[_BEGUN] == ended else None

    def begin(self) -> None:
        """Note that an invalidating commit is about to become visible: from now on no process uses its cache."""
        self._counters[_BEGUN] += 1

    def end(self) -> None:
        """Note that it is visible, or failed. This also ends a commit that a dead process began."""
        self._counters[_ENDED] = self._counters[_BEGUN]

    def close(self) -> None:
        self._counters.release()
        self._memory.close()
