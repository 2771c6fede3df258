"""The generation of a data directory: it tells the processes on it that their caches may be out of date.

It is two counters in a small file, which every process maps into its memory: the number of invalidating commits that
have begun, and that have ended. They are equal while none is under way, and reading them costs no system call. Knows no
rows and no SQLite. The file need not be durable: if the machine stops, every cache is lost too.
"""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

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
