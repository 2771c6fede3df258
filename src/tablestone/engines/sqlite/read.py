"""Reads of rows, of their number and of index entries, each in one committed snapshot."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import apsw

from tablestone.engines.contract import (
    EngineDamaged,
    EngineUnavailable,
    Entry,
    Key,
    KeyRange,
    Rows,
    StoredRow,
)
from tablestone.engines.figures import PartitionRows, RowsCounted
from tablestone.engines.sqlite.data_directory import INDEXED_FORMAT_VERSION
from tablestone.engines.sqlite.hinted_read import FORWARDS, HintedReader, Walks, walk_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tablestone.engines.contract import Hint

READ_POINT: Final = "SELECT value FROM stored_rows WHERE partition = ? AND row = ?"
SCAN: Final = """
SELECT partition, row, version, value FROM stored_rows
WHERE (partition, row) >= (?, ?) AND (partition, row) < (?, ?) ORDER BY partition, row LIMIT ?
"""

SCAN_BYTES: Final = 8 << 20
"""About the most bytes of a scan: 500 entities of 2 MiB would be 3 GB."""
_OF_ONE_VALUE: Final = """
SELECT entry, partition, row FROM index_entries
WHERE entry = ? AND (partition, row) >= (?, ?) AND (partition, row) < (?, ?)
ORDER BY partition {0}, row {0} LIMIT ?
"""
_ENTRIES: Final = """
SELECT entry, partition, row FROM index_entries
WHERE (entry, partition, row) >= (?, ?, ?) AND (entry, partition, row) < (?, ?, ?)
ORDER BY entry {0}, partition {0}, row {0} LIMIT ?
"""
_COUNT_ENTRIES: Final = """
SELECT count(*) FROM (
    SELECT 1 FROM index_entries
    WHERE (entry, partition, row) >= (?, ?, ?) AND (entry, partition, row) < (?, ?, ?) LIMIT ?
)
"""


class RowReader:
    """Reads through one connection, on the caller's thread."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._execute = connection.cursor().execute
        self._hinted = HintedReader(connection)
        self.hints_in_c = self._hinted.in_c

    def get(self, key: Key) -> bytes | None:
        try:
            value: bytes | None = self._execute(READ_POINT, key).get
        except apsw.Error as error:
            raise unavailable("read", error) from error
        return value

    def read(
        self,
        ranges: Sequence[KeyRange],
        rows_max: int,
        bytes_max: int,
        hint: Hint | None = None,
        walks: Walks = FORWARDS,
    ) -> Rows:
        """The values in the ranges, at one moment. A hint may leave out rows of a snapshot."""
        try:
            if len(ranges) == 1:
                if hint is not None and not ranges[0].is_point:
                    return self._hinted.read(ranges[0], rows_max, bytes_max, hint, walks)
                return self._read_range(ranges[0], rows_max, bytes_max, walks)
            if self._connection.in_transaction:
                return self._read_ranges(ranges, rows_max, bytes_max, walks)
            self.begin()
            try:
                return self._read_ranges(ranges, rows_max, bytes_max, walks)
            finally:
                self.end()
        except apsw.Error as error:
            raise unavailable("read", error) from error

    def scan(self, key_range: KeyRange, rows_max: int) -> list[StoredRow]:
        rows: list[StoredRow] = []
        size = 0
        try:
            # The end of this call frees the cursor, as in `_read_range`.
            cursor = self._connection.cursor()
            for stored in cursor.execute(SCAN, (*key_range.start, *key_range.end, rows_max)):
                rows.append(StoredRow(*stored))
                size += len(rows[-1].value)
                if size >= SCAN_BYTES:
                    break
        except apsw.Error as error:
            raise unavailable("read", error) from error
        return rows

    def entries(self, start: Entry, end: Entry, entries_max: int, *, reverse: bool) -> list[Entry]:
        direction = "DESC" if reverse else "ASC"
        if start.entry == end.entry:
            statement = _OF_ONE_VALUE.format(direction)
            found = self._of_entries(statement, (*start, *end[1:], entries_max))
        else:
            found = self._of_entries(_ENTRIES.format(direction), (*start, *end, entries_max))
        return [Entry(*each) for each in found]

    def count_entries(self, start: Entry, end: Entry, entries_max: int) -> int:
        for (count,) in self._of_entries(_COUNT_ENTRIES, (*start, *end, entries_max)):
            return int(count)
        return 0

    def _of_entries(self, statement: str, given: tuple[bytes | int, ...]) -> list[Any]:
        try:
            return list(self._connection.execute(statement, given))
        except apsw.Error as error:
            is_made = self._connection.pragma("user_version") >= INDEXED_FORMAT_VERSION
            if isinstance(error, apsw.SQLError) and not is_made:
                return []  # there is no such table
            raise unavailable("read", error) from error

    def begin(self) -> None:
        """Begin a snapshot: all reads see the moment of the first."""
        self._hinted.begin()
        self._execute("BEGIN")

    def end(self) -> None:
        """End the snapshot: later reads see later commits."""
        self._execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()

    def _read_ranges(
        self, ranges: Sequence[KeyRange], rows_max: int, bytes_max: int, walks: Walks
    ) -> Rows:
        """The ranges need several statements; a transaction lets them see one moment."""
        values: list[bytes] = []
        bytes_read = 0
        for key_range in ranges if walks is FORWARDS else reversed(ranges):
            if len(values) >= rows_max or (values and bytes_read >= bytes_max):
                # The page is full at the end of a range: look for the next row.
                walk, bounds = walk_of(key_range, walks)
                if (unread := self._execute(walk.key, (*bounds, 0)).get) is not None:
                    return Rows(values, Key(*unread))
                continue
            found, next_key, _ = self._read_range(
                key_range, rows_max - len(values), bytes_max - bytes_read, walks
            )
            values += found
            bytes_read += sum(map(len, found))
            if next_key is not None:
                return Rows(values, next_key)
        return Rows(values, None)

    def _read_range(self, key_range: KeyRange, rows_max: int, bytes_max: int, walks: Walks) -> Rows:
        if key_range.is_point:
            value = self._execute(READ_POINT, key_range.start).get
            return Rows([] if value is None else [value], None)
        walk, bounds = walk_of(key_range, walks)
        cursor = self._connection.cursor()
        found: Iterator[Any] = cursor.execute(walk.values, (*bounds, rows_max + 1))
        values: list[bytes] = []
        bytes_read = 0
        for (value,) in islice(found, rows_max):
            values.append(value)
            bytes_read += len(value)
            if bytes_read >= bytes_max:
                break
        if next(found, None) is None:
            return Rows(values, None)
        # While the first statement is unfinished, the second one sees the same moment. The end of this call frees the
        # cursor of the first; a closed cursor would never be freed (`hinted_read.HintedReader`).
        next_key = self._execute(walk.key, (*bounds, len(values))).get
        return Rows(values, Key(*next_key))


def unavailable(what: str, error: apsw.Error | OSError) -> EngineUnavailable:
    """The contract's error for an error of SQLite."""
    damaged = isinstance(error, apsw.CorruptError | apsw.NotADBError)
    if damaged:
        return EngineDamaged(f"The stored data is damaged ({error}): run tablestone check.")
    return EngineUnavailable(f"Storage cannot {what} now: {error}.")


COUNT: Final = """
SELECT partition, count(*), sum(size) FROM (
    SELECT partition, length(partition) + length(row) + length(value) AS size FROM stored_rows
    WHERE (partition, row) >= (?, ?) AND (partition, row) < (?, ?) ORDER BY partition, row LIMIT ?
) GROUP BY partition ORDER BY partition
"""


def counted_rows(connection: apsw.Connection, key_range: KeyRange, rows_max: int) -> RowsCounted:
    """Count the first `rows_max` rows of a range; raises `apsw.Error`."""
    start, end = key_range
    walk, bounds = walk_of(key_range)
    found: Any = connection.execute(walk.key, (*bounds, rows_max)).get
    next_key = None if found is None else Key(*found)
    rows: Any = connection.execute(COUNT, (*start, *(next_key or end), rows_max))
    return RowsCounted([PartitionRows(*row) for row in rows], next_key)
