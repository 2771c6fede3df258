"""The room that is left on the disk of a data directory, and whether it is short.

While it is short, an engine refuses writes that need room, and goes on with deletes: what they free is given back. So
a disk that the data filled can be emptied again without another disk. Knows the file system; knows no rows.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

RESERVE_BYTES: Final = 64 * 1024 * 1024
"""The room that is left for deletes and for their log."""
RESERVE_PART: Final = 16
"""On a small disk, the reserve is a sixteenth of it."""

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The errors of the system for a disk that is full, or for a quota that is used up."""

Statistics = Callable[[Path], os.statvfs_result]

log = logging.getLogger(__name__)


class DiskRoom:
    """The room on the disk of one directory, as one process last saw it."""

    def __init__(self, path: Path, statistics: Statistics = os.statvfs) -> None:
        self._path = path
        self._statistics = statistics
        self._free_bytes = 0
        self.is_short = False
        """Whether writes that need room are to be refused."""
        self.is_tight = False
        """Whether the log is to be copied into the database soon: it may need room at the end of it."""

    def look(self, log_bytes: int, free_bytes: int | None = None) -> bool:
        """Look at the disk, and return `is_short`.

        `log_bytes` is the length of the log that may have to be copied to the end of the database. `free_bytes` is the
        free room inside the database, if it is known; otherwise it is as it was at the last look.
        """
        if free_bytes is not None:
            self._free_bytes = free_bytes
        try:
            found = self._statistics(self._path)
        except OSError:  # the directory is gone, which the engine notices by itself
            return self.is_short
        whole = found.f_blocks * found.f_frsize
        if not whole:  # this file system does not say
            return self.is_short
        reserve = min(RESERVE_BYTES, whole // RESERVE_PART)
        room = found.f_bavail * found.f_frsize + self._free_bytes
        # More than the reserve ends a shortage, so that it does not begin and end again and again.
        self.is_short = room < (reserve + reserve // 4 if self.is_short else reserve)
        self.is_tight = self.is_short or room < reserve + log_bytes
        return self.is_short
