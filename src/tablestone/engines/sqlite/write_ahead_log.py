"""SQLite's write-ahead log: how far it is whole, refusing one whose damage would cost writes, and copying it back.

Each frame has a sum over all frames before it. SQLite compares the sums only when it opens a log that no process has
open, and then silently ends the log before the first frame that differs; the commits after it would be overwritten.
So the log is read here first, also after that frame. While commits go on, a thread copies the log into the database, so
that commits wait only for the rest of a copy. Format: https://www.sqlite.org/fileformat2.html#walformat.
"""

from __future__ import annotations

import shlex
import struct
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import apsw

from tablestone.engines.contract import EngineBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOG_MAGIC: Final = 0x377F0682
"""The first number of a log; its last bit says that sums are of big-endian words."""
LOG_HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
_MASK: Final = 0xFFFFFFFF


class StoredLog:
    """The log in a file, which may be missing. A log that is damaged counts up to the damage, as for SQLite."""

    def __init__(self, path: Path, page_bytes: int) -> None:
        self._page_bytes = page_bytes
        self.places: dict[int, int] = {}
        """Where in the log the latest committed content of a page is."""
        self.pages: int | None = None
        """The pages of the database after the last commit; None without one."""
        self.frames = 0
        """Frames that are whole and follow each other from the start."""
        self.lost_commits = False
        """Whether commits that were flushed follow a frame that is damaged: SQLite does not read them any more."""
        self._file = None
        try:
            self._file = path.open("rb")
        except FileNotFoundError:
            return
        self._read()

    def read(self, place: int) -> bytes:
        """The page at a place of `places`."""
        assert self._file is not None
        self._file.seek(place)
        return self._file.read(self._page_bytes)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _read(self) -> None:
        assert self._file is not None
        header = self._file.read(LOG_HEADER_BYTES)
        order = _order(header, self._page_bytes)
        if order is not None:
            sums = _sums(header)
            place = LOG_HEADER_BYTES + FRAME_HEADER_BYTES
            waiting: dict[int, int] = {}
            for frame in _frames(self._file, self._page_bytes):
                # A frame with other salts is from before the log last started from its beginning.
                if frame[8:16] != header[16:24] or not _follows(frame, sums, order):
                    break
                sums = _sums(frame)
                self.frames += 1
                number, pages_after = struct.unpack(">2I", frame[:8])
                waiting[number] = place
                place += len(frame)
                if pages_after:  # a commit
                    self.places.update(waiting)
                    waiting.clear()
                    self.pages = pages_after
        self.lost_commits = loses_commits(self._file, self._page_bytes, self.frames)


def loses_commits(file: BinaryIO, page_bytes: int, frames: int) -> bool:
    """Whether commits that were flushed follow the first `frames` frames of the log, at which SQLite ends it.

    This reads one header, and only the frames after the place. No other process may write the log at this time. Raises
    `OSError`.
    """
    file.seek(0)
    header = file.read(LOG_HEADER_BYTES)
    order = _order(header, page_bytes)
    if order is None:
        return _holds_commit(file, page_bytes)
    file.seek(LOG_HEADER_BYTES + frames * (FRAME_HEADER_BYTES + page_bytes))
    return _holds_flushed_commit(file, page_bytes, header, order)


def _order(header: bytes, page_bytes: int) -> str | None:
    """The order of bytes in the sums of a log; None if its header is not whole, so that SQLite leaves out the log."""
    if len(header) < LOG_HEADER_BYTES:
        return None
    magic, _version, found_bytes = struct.unpack(">3I", header[:12])
    order = ">" if magic & 1 else "<"
    is_whole = magic | 1 == LOG_MAGIC | 1 and found_bytes == page_bytes
    return order if is_whole and checksum(header[:24], (0, 0), order) == _sums(header) else None


def _frames(file: BinaryIO, page_bytes: int) -> Iterator[bytes]:
    """The rest of the frames, each with its page."""
    size = FRAME_HEADER_BYTES + page_bytes
    while len(frame := file.read(size)) == size:
        yield frame


def _holds_flushed_commit(file: BinaryIO, page_bytes: int, header: bytes, order: str) -> bool:
    """Whether the rest of the log has a commit that another frame follows: it was flushed before.

    A power failure leaves no such frames: only the last commit, which was not acknowledged, can be there in part.
    """
    before: bytes | None = None
    for frame in _frames(file, page_bytes):
        if frame[8:16] != header[16:24]:  # from an earlier start of the log, or damaged there
            before = None
            continue
        if before and _is_commit(before) and _follows(frame, _sums(before), order):
            return True
        before = frame
    return False


def _holds_commit(file: BinaryIO, page_bytes: int) -> bool:
    """Whether a log without a whole header has a frame of a commit. The header is flushed before the first frame."""
    file.seek(LOG_HEADER_BYTES)
    salts: bytes | None = None
    for frame in _frames(file, page_bytes):
        salts = salts or frame[8:16]
        if frame[8:16] != salts:
            return False
        if _is_commit(frame):
            return True
    return False


def _is_commit(frame: bytes) -> bool:
    return frame[4:8] != bytes(4)


def _follows(frame: bytes, sums: tuple[int, int], order: str) -> bool:
    """Whether the sums of a frame are those of its content after frames with these sums."""
    return checksum(frame[24:], checksum(frame[:8], sums, order), order) == _sums(frame)


def _sums(header: bytes) -> tuple[int, int]:
    """The sums at the end of the header of the log, or of a frame and its page."""
    first, second = struct.unpack(
        ">2I", header[24:32] if len(header) == LOG_HEADER_BYTES else header[16:24]
    )
    return first, second


def checksum(content: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    """The sums of a log, continued over more content."""
    first, second = sums
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & _MASK
        second = (second + odd + first) & _MASK
    return first, second


def counted_frames(connection: apsw.Connection) -> int:
    """The frames of the log that SQLite reads, as it keeps their number in memory; -1 if nothing tells it."""
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    try:
        frames, _copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    except apsw.ReadOnlyError:  # the log of a killed server, on a medium that cannot be written
        return -1
    return frames


def require_whole_log(connection: apsw.Connection, log: Path) -> None:
    """Raise `EngineBroken` if flushed commits follow the end that SQLite has found, and leave the log as it is.

    The caller holds the commit lock. This takes some milliseconds for a log of 32 MiB.
    """
    frames = counted_frames(connection)
    if frames < 0:
        return
    try:
        with log.open("rb") as file:
            if not loses_commits(file, connection.pragma("page_size"), frames):
                return
    except FileNotFoundError:
        return
    # Closing the last connection would copy the log up to the damage, and remove it.
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    raise EngineBroken(
        f"{log} is damaged: acknowledged writes follow the damage, and would be lost. Restore a backup, "
        f"or save what can be read in a new directory: tablestone salvage {shlex.quote(str(log.parent))} OUT"
    )


COPIES_MAX: Final = 4
"""Copies in a row at most: another copy follows if at least `MUCH_PAGES` were appended during the last one."""
MUCH_PAGES: Final = 250
OTHERS_PAUSE_SECONDS: Final = 0.005
OTHERS_PAUSES_MAX: Final = 400
"""Number of pauses, each of `OTHERS_PAUSE_SECONDS`, in which to wait for another process's copy: the pages that it
copies need not be copied again."""


class LogCopier:
    """The copier of one process. From its first copy on, it has a thread and a connection of its own."""

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._connection: apsw.Connection | None = None
        self._thread = ThreadPoolExecutor(1, "tablestone-copy")
        self._copying: Future[None] | None = None
        self._pages = 0

    def has_copied(self, pages: int) -> bool:
        """True once for each copy that has ended, also with an error. If no copy is under way, one begins.

        `pages` is the present length of the log. Called by one thread at a time; never waits.
        """
        self._pages = pages
        if self._copying is None:
            self._copying = self._thread.submit(self._copy)
        elif self._copying.done():
            self._copying = None
            return True
        return False

    def finish(self) -> None:
        """Wait for the end of a copy that is under way."""
        if self._copying is not None:
            wait((self._copying,))  # copying the rest meets its error again, and reports that
            self._copying = None

    def close(self) -> None:
        """End the thread and its connection, after the copy that is under way."""
        self._thread.shutdown()
        if self._connection is not None:
            self._connection.close()

    def _copy(self) -> None:
        self._connection = self._connection or self._connect()
        for _ in range(COPIES_MAX):
            if self._pages - _pages_copied(self._connection) < MUCH_PAGES:
                return


def _pages_copied(connection: apsw.Connection) -> int:
    """Copy the present log, and return the number of its pages that are in the database."""
    for _ in range(OTHERS_PAUSES_MAX):
        try:
            _, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            time.sleep(OTHERS_PAUSE_SECONDS)
        else:
            return copied
    return 0
