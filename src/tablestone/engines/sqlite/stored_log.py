"""SQLite's write-ahead log as it is in its file: where the committed content of pages is, and how far the log is whole.

Each frame has a sum over all frames before it. SQLite compares the sums only when it opens a log that no process has
open, and then silently ends the log before the first frame that differs. This module looks behind that frame.
Formats: https://www.sqlite.org/fileformat2.html#walformat. Knows pages by number; not their content.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

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
        magic, _version, page_bytes = struct.unpack(">3I", header[:12])
        if magic | 1 != LOG_MAGIC | 1 or page_bytes != self._page_bytes:
            return
        order = ">" if magic & 1 else "<"
        sums = checksum(header[:24], (0, 0), order)
        if sums != struct.unpack(">2I", header[24:32]):
            return
        waiting: dict[int, int] = {}
        while (frame := self._frame(header)) is not None:
            place = self._file.tell() - page_bytes
            if checksum(frame[24:], checksum(frame[:8], sums, order), order) != _sums(frame):
                self._look_behind(frame, header, order)
                return
            sums = _sums(frame)
            self.frames += 1
            number, pages_after = struct.unpack(">2I", frame[:8])
            waiting[number] = place
            if pages_after:  # a commit
                self.places.update(waiting)
                waiting.clear()
                self.pages = pages_after

    def _frame(self, header: bytes) -> bytes | None:
        """The next frame with its page; None after the last frame since the log last started from its beginning."""
        assert self._file is not None
        frame = self._file.read(FRAME_HEADER_BYTES + self._page_bytes)
        is_whole = len(frame) == FRAME_HEADER_BYTES + self._page_bytes
        return frame if is_whole and frame[8:16] == header[16:24] else None

    def _look_behind(self, frame: bytes, header: bytes, order: str) -> None:
        """Look for a commit that another frame follows: it was flushed before that frame was written.

        A power failure leaves no such frames: only the last commit, which was not acknowledged, can be there in part.
        """
        before = frame
        while (frame := self._frame(header) or b"") and not self.lost_commits:
            follows = checksum(frame[24:], checksum(frame[:8], _sums(before), order), order)
            is_commit = before[4:8] != bytes(4)
            self.lost_commits = is_commit and follows == _sums(frame)
            before = frame


def _sums(frame: bytes) -> tuple[int, int]:
    first, second = struct.unpack(">2I", frame[16:24])
    return first, second


def checksum(content: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    """The sums of a log, continued over more content."""
    first, second = sums
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & _MASK
        second = (second + odd + first) & _MASK
    return first, second
