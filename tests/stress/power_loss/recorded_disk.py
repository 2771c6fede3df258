"""A disk that records how SQLite changes its files: a VFS below the engine, written with apsw.

Every write, truncation, flush, creation and deletion becomes an event, in order, beside the notes of the program that
runs. A flush is not passed on to the real disk.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw

from storage.replaced_disk import connections_on

VFS_NAME: Final = "recorded"


class Created(NamedTuple):
    """A name that belongs to a new, empty file from now on."""

    name: str
    file: int


class Deleted(NamedTuple):
    """A name that is gone from now on; on the disk at once if the directory `is_flushed`."""

    name: str
    is_flushed: bool


class Written(NamedTuple):
    """Bytes that a file was given."""

    file: int
    offset: int
    content: bytes


class Truncated(NamedTuple):
    """A file that was cut or extended to this size in bytes."""

    file: int
    size: int


class Flushed(NamedTuple):
    """The end of a flush: everything of the file before the event with this number is on the disk."""

    file: int
    before: int


class Note(NamedTuple):
    """A program's own event: its write set of this number in the partition has begun, or was acknowledged."""

    partition: bytes
    number: int
    is_acknowledged: bool


Event = Created | Deleted | Written | Truncated | Flushed | Note


@dataclass
class Recording:
    """The events so far. Flushes of the files in `unflushed` are skipped: a bug that a test plants."""

    events: list[Event] = field(default_factory=list)
    unflushed: frozenset[str] = frozenset()
    _names: dict[str, int] = field(default_factory=dict)
    _files: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, event: Event) -> None:
        with self._lock:
            self.events.append(event)

    def opened(self, name: str) -> int:
        """The number of the file with this name; a new file if there is none."""
        with self._lock:
            if name not in self._names:
                self._files += 1
                self._names[name] = self._files
                self.events.append(Created(name, self._files))
            return self._names[name]

    def deleted(self, name: str, *, is_flushed: bool) -> None:
        with self._lock:
            if self._names.pop(name, None) is not None:
                self.events.append(Deleted(name, is_flushed))


def _name_of(path: Any) -> str:
    return Path(path.filename() if isinstance(path, apsw.URIFilename) else str(path)).name


class _File(apsw.VFSFile):
    def __init__(self, recording: Recording, base: str, path: Any, flags: list[int]) -> None:
        super().__init__(base, path, flags)
        self._recording = recording
        self._name = _name_of(path)
        self._file = recording.opened(self._name)

    # Recorded when it has ended: a flush that another thread began in the meantime does not cover it.
    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's names
        super().xWrite(data, offset)
        self._recording.note(Written(self._file, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        super().xTruncate(newsize)
        self._recording.note(Truncated(self._file, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802, ARG002
        if self._name not in self._recording.unflushed:
            self._recording.note(Flushed(self._file, len(self._recording.events)))


class _System(apsw.VFS):
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._base = apsw.vfs_names()[0]
        super().__init__(VFS_NAME, self._base)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _File(self._recording, self._base, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802, FBT001
        super().xDelete(filename, syncdir)
        self._recording.deleted(_name_of(filename), is_flushed=bool(syncdir))


@contextmanager
def recorded_disk() -> Iterator[Recording]:
    """A recording of every connection opened in the block."""
    recording = Recording()
    with connections_on(_System(recording), VFS_NAME):
        yield recording
