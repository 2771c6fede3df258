"""A disk whose system calls fail when a test says so: a SQLite VFS below the engine, written with apsw.

It counts every call on the engine's own files. One of them, or all from one on, raises the operating system error that
the test chose.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import apsw

from storage.replaced_disk import connections_on

VFS_NAME: Final = "failing"

Failure = type[apsw.Error]
NO_ROOM: Final = (apsw.FullError, apsw.SQLITE_FULL)
"""ENOSPC, for which SQLite's own VFS answers SQLITE_FULL."""
BROKEN: Final = (apsw.IOError, apsw.SQLITE_IOERR)
"""EIO, EROFS on an open file, a short write: SQLite's own VFS answers SQLITE_IOERR."""
NOT_FLUSHED: Final = (apsw.IOError, apsw.SQLITE_IOERR_FSYNC)
NOT_OPENED: Final = (apsw.CantOpenError, apsw.SQLITE_CANTOPEN)
"""EMFILE, EROFS, EACCES."""


@dataclass
class Plan:
    """The call that fails: the `number`-th of a kind, once, or all from it on until `is_over`."""

    kind: str
    number: int
    error: tuple[Failure, int]
    is_lasting: bool = False
    counted: int = 0
    failed: int = 0

    def fails(self, kind: str) -> bool:
        if kind != self.kind:
            return False
        self.counted += 1
        if self.counted == self.number or (self.is_lasting and self.counted > self.number):
            self.failed += 1
            return True
        return False


@dataclass
class Disk:
    """The calls so far, by kind, and the plan."""

    plan: Plan | None = None
    calls: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self, kind: str) -> None:
        """Count a system call; raises if it fails."""
        with self._lock:
            self.calls[kind] = self.calls.get(kind, 0) + 1
            if self.plan is None or not self.plan.fails(kind):
                return
            error, code = self.plan.error
        raised: Any = error("planted")
        raised.result = raised.extendedresult = code
        raise raised


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, base: str, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self._kind = "log" if flags[0] & apsw.SQLITE_OPEN_WAL else "database"
        disk.call(f"open {self._kind}")
        super().__init__(base, name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - SQLite's names
        self._disk.call(f"read {self._kind}")
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        try:
            self._disk.call(f"write {self._kind}")
        except apsw.IOError:
            super().xWrite(data[: len(data) // 2], offset)  # a short write
            raise
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.call(f"flush {self._kind}")
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.call(f"truncate {self._kind}")
        super().xTruncate(newsize)


class _System(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._base = apsw.vfs_names()[0]
        super().__init__(VFS_NAME, self._base)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _File(self._disk, self._base, name, flags)


@contextmanager
def failing_disk() -> Iterator[Disk]:
    """A disk for every connection opened in the block."""
    disk = Disk()
    with connections_on(_System(disk), VFS_NAME):
        yield disk
