"""The file of a database, read by bytes, in a process in which SQLite may have it open too.

It is opened through SQLite's own file layer: when a process closes a file, the kernel ends all locks that the process
has on it, and SQLite's layer waits for its own locks with that. Knows no page.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

import apsw

_VFS_NAME: Final = "unix"


class DatabaseFile:
    """An open database file. `OSError` if it is not there or cannot be read."""

    def __init__(self, path: Path) -> None:
        path.stat()
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB
        try:
            self._file = apsw.VFSFile(_VFS_NAME, os.fspath(path.absolute()), [flags, 0])
        except apsw.CantOpenError:
            with path.open("rb"):  # says why; if it can be opened now, nothing has its locks
                pass
            raise OSError("the database cannot be opened") from None
        self.size = self._file.xFileSize()

    def read(self, offset: int, length: int) -> bytes:
        """The bytes from `offset` on; fewer at the end of the file, or if the disk cannot read them."""
        length = min(length, self.size - offset)
        if length > 0:
            with suppress(apsw.IOError):
                return self._file.xRead(length, offset)
        return b""

    def close(self) -> None:
        self._file.xClose()


def is_special(path: Path) -> bool:
    """Whether something other than a regular file is there. It asks once: SQLite of another process may remove it."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False
