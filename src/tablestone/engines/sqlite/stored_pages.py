"""The pages of a database as they are in its two files, read without SQLite: for a database that SQLite cannot read.

A page is in the write-ahead log if it was changed and not copied yet, else in the database file. Formats:
https://www.sqlite.org/fileformat2.html. Knows pages by number; knows no tree and no row.
"""

from __future__ import annotations

import struct
from io import BufferedReader
from pathlib import Path
from typing import Final

from tablestone.engines.sqlite.data_directory import DATABASE_NAME, LOG_NAME, PAGE_SIZE_BYTES

MAGIC: Final = b"SQLite format 3\0"
LOG_MAGIC: Final = 0x377F0682
"""The first number of a log; its last bit says that sums are of big-endian words."""
LOG_HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
PAGE_BYTES_MIN: Final = 512
PAGE_BYTES_MAX: Final = 65536
RESERVED_MAX: Final = 64
_MASK: Final = 0xFFFFFFFF


class StoredPages:
    """The pages of one data directory. Raises `OSError` if the database cannot be opened."""

    def __init__(self, directory: Path) -> None:
        self._file = (directory / DATABASE_NAME).open("rb")
        header = self._file.read(100)
        self.page_bytes = PAGE_SIZE_BYTES
        reserved = 0
        if header.startswith(MAGIC):
            said = int.from_bytes(header[16:18], "big")
            said = PAGE_BYTES_MAX if said == 1 else said
            if said >= PAGE_BYTES_MIN and said & (said - 1) == 0:
                self.page_bytes = said
            if header[20] <= RESERVED_MAX:
                reserved = header[20]
        self.usable_bytes = self.page_bytes - reserved
        self._log: BufferedReader | None = None
        self._places: dict[int, int] = {}
        """Where in the log the latest committed content of a page is."""
        size = self._file.seek(0, 2)
        self.count = -(-size // self.page_bytes)
        self._read_log(directory / LOG_NAME)

    def read(self, number: int) -> bytes | None:
        """The content of a page, from 1; None if it is not there as a whole."""
        place = self._places.get(number)
        if place is not None and self._log is not None:
            self._log.seek(place)
            return self._log.read(self.page_bytes)
        if not 1 <= number <= self.count:
            return None
        self._file.seek((number - 1) * self.page_bytes)
        content = self._file.read(self.page_bytes)
        return content if len(content) == self.page_bytes else None

    def close(self) -> None:
        self._file.close()
        if self._log is not None:
            self._log.close()

    def _read_log(self, path: Path) -> None:
        """Note the committed pages of the log. A log that is damaged counts up to the damage, as for SQLite."""
        try:
            self._log = log = path.open("rb")
        except FileNotFoundError:
            return
        header = log.read(LOG_HEADER_BYTES)
        if len(header) < LOG_HEADER_BYTES:
            return
        magic, _version, page_bytes = struct.unpack(">3I", header[:12])
        if magic | 1 != LOG_MAGIC | 1 or page_bytes != self.page_bytes:
            return
        order = ">" if magic & 1 else "<"
        sums = checksum(header[:24], (0, 0), order)
        if sums != struct.unpack(">2I", header[24:32]):
            return
        waiting: dict[int, int] = {}
        while len(frame := log.read(FRAME_HEADER_BYTES)) == FRAME_HEADER_BYTES:
            place = log.tell()
            content = log.read(page_bytes)
            if len(content) < page_bytes or frame[8:16] != header[16:24]:
                return
            sums = checksum(content, checksum(frame[:8], sums, order), order)
            if sums != struct.unpack(">2I", frame[16:24]):
                return
            number, pages_after = struct.unpack(">2I", frame[:8])
            waiting[number] = place
            if pages_after:  # a commit
                self._places.update(waiting)
                waiting.clear()
                self.count = pages_after


def checksum(content: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    """The sums of a log, continued over more content."""
    first, second = sums
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & _MASK
        second = (second + odd + first) & _MASK
    return first, second
