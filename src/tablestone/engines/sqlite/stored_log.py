"""SQLite's write-ahead log as it is in its file: where the committed content of pages is, and how far the log is whole.

Each frame has a sum over all frames before it. SQLite compares the sums only when it opens a log that no process has
open, and then silently ends the log before the first frame that differs, or leaves out the whole log if its header
differs. This module looks behind that place.
Formats: https://www.sqlite.org/fileformat2.html#walformat. Knows pages by number; not their content.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO, Final

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
        if len(header) < LOG_HEADER_BYTES:
            return
        order = _order(header, self._page_bytes)
        if order is None:
            self.lost_commits = _holds_commit(self._file, self._page_bytes)
            return
        sums = _sums(header)
        waiting: dict[int, int] = {}
        while True:
            start = self._file.tell()
            frame = self._file.read(FRAME_HEADER_BYTES + self._page_bytes)
            if not self._is_next(frame, header) or not _follows(frame, sums, order):
                self._file.seek(start)
                self.lost_commits = _holds_flushed_commit(
                    self._file, self._page_bytes, header, order
                )
                return
            sums = _sums(frame)
            self.frames += 1
            place = start + FRAME_HEADER_BYTES
            number, pages_after = struct.unpack(">2I", frame[:8])
            waiting[number] = place
            if pages_after:  # a commit
                self.places.update(waiting)
                waiting.clear()
                self.pages = pages_after

    def _is_next(self, frame: bytes, header: bytes) -> bool:
        """Whether the frame is there as a whole, and from the time since the log last started from its beginning."""
        return len(frame) == FRAME_HEADER_BYTES + self._page_bytes and frame[8:16] == header[16:24]


def loses_commits(path: Path, page_bytes: int, frames: int) -> bool:
    """Whether commits that were flushed follow the first `frames` frames of the log, at which SQLite ends it.

    This reads one header, and only the frames behind the place. No other process may write the log at this time. Raises
    `OSError`.
    """
    with path.open("rb") as file:
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


def _holds_flushed_commit(file: BinaryIO, page_bytes: int, header: bytes, order: str) -> bool:
    """Whether the rest of the log has a commit that another frame follows: it was flushed before.

    A power failure leaves no such frames: only the last commit, which was not acknowledged, can be there in part.
    """
    before: bytes | None = None
    while (
        len(frame := file.read(FRAME_HEADER_BYTES + page_bytes)) == FRAME_HEADER_BYTES + page_bytes
    ):
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
    frame = file.read(FRAME_HEADER_BYTES + page_bytes)
    salts = frame[8:16]
    while len(frame) == FRAME_HEADER_BYTES + page_bytes and frame[8:16] == salts:
        if _is_commit(frame):
            return True
        frame = file.read(FRAME_HEADER_BYTES + page_bytes)
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
