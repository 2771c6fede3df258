"""Announced commits: how the processes on one data directory learn that what they keep in memory may be out of date.

Two counters in a small file that every process maps into its memory: announced commits begun, and ended. They are
equal while none is under way, and asking costs no system call. Knows no rows and no SQLite. The file need not be
durable: when the machine stops, so does everybody who kept anything.
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
    """The counters of one directory. `begin` and `end` are called by who holds the right to commit, and nobody else."""

    def __init__(self, path: Path) -> None:
        """Raise `OSError` if the file can neither be opened nor made."""
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(file, _LENGTH)
            if hasattr(os, "posix_fallocate"):  # not on macOS
                # Room that is not there must fail here: writing into the mapped memory would end the process.
                os.posix_fallocate(file, 0, _LENGTH)
            self._memory = mmap.mmap(file, _LENGTH)
        finally:
            os.close(file)
        self._counters = memoryview(self._memory).cast("Q")

    @property
    def current(self) -> int | None:
        """The generation; None while an announced commit is under way, or was when its process died."""
        ended = self._counters[_ENDED]
        return ended if self._counters[_BEGUN] == ended else None

    def begin(self) -> None:
        """An announced commit is about to become visible: from now on nobody uses what they keep."""
        self._counters[_BEGUN] += 1

    def end(self) -> None:
        """It is visible, or will never be; this also ends what a dead process began."""
        self._counters[_ENDED] = self._counters[_BEGUN]

    def close(self) -> None:
        self._counters.release()
        self._memory.close()
