"""A CSV file with a mark behind its end, so that the parser itself tells whether the last quote is closed.

A quote that is never closed makes the rest of a file one cell, and no parser complains. Behind a closed file the mark
is a row of its own; behind an open quote it is a part of a cell. Knows bytes and cells; does not know what cells mean.
"""

from __future__ import annotations

import codecs
import csv
import io
import secrets
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

_WIDE: Final = ("utf-16", "utf-32")


class UnclosedQuote(Exception):
    """A quote is open at the end of the file. `line` is the line where it opens, from 1."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


class MarkedEnd(io.RawIOBase):
    """The file, followed by a row with a mark. `width` is the number of cells of a row."""

    def __init__(self, file: io.BufferedReader[Any], encoding: str, width: int) -> None:
        self._file = file
        self._mark = secrets.token_hex(16)
        self._swallowed: str | None = None
        name = codecs.lookup(encoding).name.removesuffix("-sig")
        if name in _WIDE:
            # The order of the bytes is that of the mark at the beginning of the file.
            is_big = file.peek(4)[:4].startswith((codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE))
            name += "-be" if is_big else "-le"
        self._newline = "\n".encode(name)
        self._rest = f"\n{self._mark}{',' * (width - 1)}\n".encode(name)
        self._lines = 0

    def readable(self) -> bool:
        """True: the parser reads it."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill a part of the buffer; 0 behind the mark."""
        read = self._file.read1(len(buffer))
        if read:
            self._lines += read.count(self._newline)
        else:
            read, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(read)] = read
        return len(read)

    def saw_ragged(self, text: str) -> None:
        """Look for the mark in a row that has too few or too many cells."""
        if self._mark in text:
            self._swallowed = _last_cell(text)

    def without_mark(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows before the mark; `UnclosedQuote` comes before the rows of the batch that has the open quote."""
        for batch in batches:
            rows = batch.num_rows
            if rows:
                last = [column[rows - 1].as_py() or "" for column in batch.columns]
                if last[0] == self._mark:
                    yield batch.slice(0, rows - 1)
                    return
                for cell in last:
                    if self._mark in cell:
                        self._swallowed = cell
            if self._swallowed is not None:
                break
            yield batch
        if self._swallowed is not None:
            # One of the newlines before the mark belongs to the mark.
            within = self._swallowed.partition(self._mark)[0].count("\n") - 1
            raise UnclosedQuote(1 + self._lines - within)


def _last_cell(text: str) -> str:
    """The cell that a quote which is not closed makes of the rest of a row."""
    try:
        return next(csv.reader([text]))[-1]
    except (csv.Error, StopIteration):
        return text  # too long for the module: the line where the row begins
