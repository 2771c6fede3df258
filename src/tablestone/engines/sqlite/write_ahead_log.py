"""SQLite's write-ahead log: finds damage that would cost writes, and copies the log back into the database.

Each frame has a checksum over all frames before it. SQLite compares the checksums only when it opens a log that no
process has open. It then silently ends the log at the first frame that differs, and overwrites the commits after it. So
this module reads the log first, and beyond that frame. While commits go on, a thread copies the log, so that they wait
only for the rest of a copy. Format: https://www.sqlite.org/fileformat2.html#walformat.
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
"""The first number of a log; if its last bit is set, checksums are of big-endian words."""
LOG_HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
_MASK: Final = 0xFFFFFFFF


class StoredLog:
    """The log in a file, which may be missing. A damaged log ends at the damage, as for SQLite."""

    def __init__(self, path: Path, page_bytes: int) -> None:
        self._page_bytes = page_bytes
        self.offsets: dict[int, int] = {}
        """By number of the page: where in the log its latest committed content is."""
        self.pages: int | None = None
        """The pages of the database after the last commit; None without one."""
        self.frames = 0
        """Frames from the start of the log that are whole."""
        self.lost_commits = False
        """Whether flushed commits follow a damaged frame: SQLite does not read them any more."""
        self._file = None
        try:
            self._file = path.open("rb")
        except FileNotFoundError:
            return
        self._read()

    def read(self, offset: int) -> bytes:
        assert self._file is not None
        self._file.seek(offset)
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
            offset = LOG_HEADER_BYTES + FRAME_HEADER_BYTES
            waiting: dict[int, int] = {}
            for frame in _frames(self._file, self._page_bytes):
                # A frame with other salts is from before the log's last restart.
                if frame[8:16] != header[16:24] or not _follows(frame, sums, order):
                    break
                sums = _sums(frame)
                self.frames += 1
                number, pages_after = struct.unpack(">2I", frame[:8])
                waiting[number] = offset
                offset += len(frame)
                if pages_after:  # a commit
                    self.offsets.update(waiting)
                    waiting.clear()
                    self.pages = pages_after
        self.lost_commits = loses_commits(self._file, self._page_bytes, self.frames)


def loses_commits(file: BinaryIO, page_bytes: int, frames: int) -> bool:
    """Whether flushed commits follow the first `frames` frames of the log, after which SQLite ends it.

    Reads one header, and only the later frames. No other process may write the log meanwhile. Raises `OSError`.
    """
    file.seek(0)
    header = file.read(LOG_HEADER_BYTES)
    order = _order(header, page_bytes)
    if order is None:
        return _holds_commit(file, page_bytes)
    file.seek(LOG_HEADER_BYTES + frames * (FRAME_HEADER_BYTES + page_bytes))
    return _holds_flushed_commit(file, page_bytes, header, order)


def _order(header: bytes, page_bytes: int) -> str | None:
    """The byte order of a log's checksums; None if its header is not whole: then SQLite ignores the log."""
    if len(header) < LOG_HEADER_BYTES:
        return None
    magic, _version, found_bytes = struct.unpack(">3I", header[:12])
    order = ">" if magic & 1 else "<"
    is_whole = magic | 1 == LOG_MAGIC | 1 and found_bytes == page_bytes
    return order if is_whole and checksum(header[:24], (0, 0), order) == _sums(header) else None


def _frames(file: BinaryIO, page_bytes: int) -> Iterator[bytes]:
    """The remaining frames, each with its page."""
    size = FRAME_HEADER_BYTES + page_bytes
    while len(frame := file.read(size)) == size:
        yield frame


def _holds_flushed_commit(file: BinaryIO, page_bytes: int, header: bytes, order: str) -> bool:
    """Whether the rest of the log has a commit with another frame after it: then that commit was flushed.

    A power failure leaves no such frames: it can cut only the last commit, which was not acknowledged.
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
    """Whether a log with a damaged header has a commit. (SQLite flushes the header before the first frame.)"""
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
    """Whether a frame's checksums continue these."""
    return checksum(frame[24:], checksum(frame[:8], sums, order), order) == _sums(frame)


def _sums(header: bytes) -> tuple[int, int]:
    """The checksums at the end of the log's header, or in the header of a frame."""
    first, second = struct.unpack(
        ">2I", header[24:32] if len(header) == LOG_HEADER_BYTES else header[16:24]
    )
    return first, second


def checksum(content: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    """Continue a log's checksums over more content."""
    first, second = sums
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & _MASK
        second = (second + odd + first) & _MASK
    return first, second


def counted_frames(connection: apsw.Connection) -> int:
    """The number of frames that SQLite reads, from its memory; -1 if it does not tell."""
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    try:
        frames, _copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    except apsw.ReadOnlyError:  # the log of a killed server on a read-only medium
        return -1
    return frames


def require_whole_log(connection: apsw.Connection, log: Path) -> None:
    """Raise `EngineBroken`, and keep the log, if flushed commits follow the end that SQLite has found.

    The caller holds the commit lock. 32 MiB take some milliseconds.
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
"""Copies in a row: another one follows if commits appended at least `MUCH_PAGES` during the last."""
MUCH_PAGES: Final = 250
OTHERS_PAUSE_SECONDS: Final = 0.005
OTHERS_PAUSES_MAX: Final = 400
"""Pauses in which to wait for another process's copy: its pages need not be copied again."""


class LogCopier:
    """The copier of one process, with its own thread and connection from the first copy on."""

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._connection: apsw.Connection | None = None
        self._thread = ThreadPoolExecutor(1, "tablestone-copy")
        self._copying: Future[None] | None = None
        self._pages = 0

    def has_copied(self, pages: int) -> bool:
        """True once for each copy that has ended or failed. If no copy is under way, begin one.

        `pages` is the present length of the log. One thread at a time may call this; it never waits.
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
            wait((self._copying,))  # the copy of the rest meets its error again and reports it
            self._copying = None

    def close(self) -> None:
        """End the thread and its connection after the copy under way."""
        self._thread.shutdown()
        if self._connection is not None:
            self._connection.close()

    def _copy(self) -> None:
        self._connection = self._connection or self._connect()
        for _ in range(COPIES_MAX):
            if self._pages - _pages_copied(self._connection) < MUCH_PAGES:
                return


def _pages_copied(connection: apsw.Connection) -> int:
    """Copy the log; returns how many of its pages are in the database."""
    for _ in range(OTHERS_PAUSES_MAX):
        try:
            _, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            time.sleep(OTHERS_PAUSE_SECONDS)
        else:
            return copied
    return 0
