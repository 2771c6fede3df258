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

LOOK_PAGES: Final = 128
"""Pages that commits append to the log between two looks at the disk: a quick writer fills it quickly."""

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
        self._pages_before = 0
        self._pages_at_look = 0
        self.is_short = False
        """Whether writes that need room are to be refused."""
        self.is_tight = False
        """Whether the log is to be copied into the database soon, so that neither it nor its copy needs more room."""

    def is_tight_after_commit(self, log_pages: int, page_bytes: int) -> bool:
        """Return `is_tight`, after a look at the disk now and then. The log is `log_pages` pages long now.

        A log that is shorter than after the commit before has started from its beginning, which is a moment to look:
        while room is tight, it never gets as long as `LOOK_PAGES`.
        """
        has_restarted = log_pages < self._pages_before
        self._pages_before = log_pages
        if has_restarted or log_pages >= self._pages_at_look + LOOK_PAGES:
            self._pages_at_look = log_pages
            self.look(log_pages * page_bytes)
        return self.is_tight

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
        available = found.f_bavail * found.f_frsize
        room = available + self._free_bytes
        # More than the reserve ends a shortage, so that it does not begin and end again and again.
        self.is_short = room < (reserve + reserve // 4 if self.is_short else reserve)
        # Free pages inside the database are room for rows. The log cannot grow into them.
        self.is_tight = self.is_short or available < reserve + log_bytes
        return self.is_short
