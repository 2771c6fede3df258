"""Reading rows from one SQLite connection: points, ranges, several ranges of one moment, and what is read when.

Every statement is a constant but for the condition of a hint, so that each is prepared once; each range of keys is one
seek and one walk that stops at the range's end (tests look at the query plans). Knows nothing of commits and
directories.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import apsw

from tablestone.engines.contract import (
    EngineDamaged,
    EngineUnavailable,
    Key,
    KeyRange,
    Rows,
    StoredRow,
)
from tablestone.engines.sqlite_hint import condition_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tablestone.engines.contract import Hint

READ_POINT: Final = "SELECT value FROM stored_rows WHERE partition = ? AND row = ?"


class _Walk(NamedTuple):
    """The two statements of a kind of range: its values up to a limit, and the key so many rows from its start.

    A page almost never needs a key, so it does not read them; the index alone finds the one it needs.
    """

    values: str
    key: str
    some: str
    """The values and places of all rows for which a condition holds that is yet to be put in."""

    @classmethod
    def over(cls, bounds: str) -> _Walk:
        named = f"FROM stored_rows AS v WHERE {bounds}"
        tail = f"FROM stored_rows WHERE {bounds} ORDER BY partition, row"
        return cls(
            f"SELECT value {tail} LIMIT ?",
            f"SELECT partition, row {tail} LIMIT 1 OFFSET ?",
            f"SELECT v.value, v.rowid {named} AND {{}} ORDER BY partition, row",
        )


ROW_RANGE: Final = _Walk.over("partition = ? AND row >= ? AND row < ?")
PARTITION: Final = _Walk.over("partition = ? AND row >= ?")
PARTITIONS: Final = _Walk.over("(partition, row) >= (?, ?) AND (partition, row) < (?, ?)")
SCAN: Final = """
SELECT partition, row, version, value FROM stored_rows
WHERE (partition, row) >= (?, ?) AND (partition, row) < (?, ?) ORDER BY partition, row LIMIT ?
"""
PLACE: Final = "SELECT partition, row FROM stored_rows WHERE rowid = ?"
Bindings = tuple[bytes | int, ...]


class RowReader:
    """Reads through one connection, on the thread that asks."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._execute = connection.cursor().execute

    def get(self, key: Key) -> bytes | None:
        """The value of one row."""
        try:
            value: bytes | None = self._execute(READ_POINT, key).get
        except apsw.Error as error:
            raise unavailable("read", error) from error
        return value

    def read(self, ranges: Sequence[KeyRange], rows_max: int, bytes_max: int) -> Rows:
        """The values in the ranges, all of one moment."""
        try:
            if len(ranges) == 1:
                return self._read_range(ranges[0], rows_max, bytes_max)
            if self._connection.in_transaction:
                return self._read_ranges(ranges, rows_max, bytes_max)
            self.begin()
            try:
                return self._read_ranges(ranges, rows_max, bytes_max)
            finally:
                self.end()
        except apsw.Error as error:
            raise unavailable("read", error) from error

    def read_hinted(self, key_range: KeyRange, rows_max: int, bytes_max: int, hint: Hint) -> Rows:
        """As `read`, within a moment that has begun, without most of the rows that the hint leaves out."""
        try:
            return self._read_hinted(key_range, rows_max, bytes_max, hint)
        except apsw.Error as error:
            raise unavailable("read", error) from error

    def scan(self, key_range: KeyRange, rows_max: int) -> list[StoredRow]:
        """Rows with their keys and versions."""
        try:
            return self._scan(key_range, rows_max)
        except apsw.Error as error:
            raise unavailable("read", error) from error

    def begin(self) -> None:
        """From the next read on, all reads see the moment of that read."""
        self._execute("BEGIN")

    def end(self) -> None:
        """Reads see the present again."""
        self._execute("ROLLBACK")

    def _read_ranges(self, ranges: Sequence[KeyRange], rows_max: int, bytes_max: int) -> Rows:
        """Several ranges, and therefore several statements, which a transaction makes one moment."""
        values: list[bytes] = []
        bytes_read = 0
        for key_range in ranges:
            if len(values) >= rows_max or (values and bytes_read >= bytes_max):
                # Full at the end of a range: is there anything left to go on with?
                for unread in self._scan(key_range, 1):
                    return Rows(values, Key(unread.partition, unread.row))
                continue
            found, next_key = self._read_range(
                key_range, rows_max - len(values), bytes_max - bytes_read
            )
            values += found
            bytes_read += sum(map(len, found))
            if next_key is not None:
                return Rows(values, next_key)
        return Rows(values, None)

    def _read_range(self, key_range: KeyRange, rows_max: int, bytes_max: int) -> Rows:
        if key_range.is_point:
            value = self._execute(READ_POINT, key_range.start).get
            return Rows([] if value is None else [value], None)
        walk, bounds = _walk(key_range)
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
        # While the first statement is unfinished the second sees the same moment.
        next_key = self._execute(walk.key, (*bounds, len(values))).get
        cursor.close()  # an unfinished read would keep the log from being started anew
        return Rows(values, Key(*next_key))

    def _read_hinted(self, key_range: KeyRange, rows_max: int, bytes_max: int, hint: Hint) -> Rows:
        condition = condition_of(hint)
        walk, bounds = _walk(key_range)
        # First where to stop, which the index alone finds: what follows is then bounded whatever it leaves out.
        offset = min(rows_max, condition.rows_max)
        next_key = self._execute(walk.key, (*bounds, offset)).get
        if next_key is not None:
            next_key = Key(*next_key)
            walk, bounds = _walk(KeyRange(key_range.start, next_key))
        cursor = self._connection.cursor()
        found: Iterable[Any] = cursor.execute(
            walk.some.format(condition.sql), (*bounds, *condition.bindings)
        )
        values: list[bytes] = []
        bytes_read = 0
        for value, place in found:
            values.append(value)
            bytes_read += len(value)
            if bytes_read >= bytes_max:
                cursor.close()
                partition, row = self._execute(PLACE, (place,)).get
                rest = self._scan(KeyRange(Key(partition, row + b"\0"), key_range.end), 1)
                return Rows(values, Key(rest[0].partition, rest[0].row) if rest else None)
        return Rows(values, next_key)

    def _scan(self, key_range: KeyRange, rows_max: int) -> list[StoredRow]:
        found: Iterable[Any] = self._execute(SCAN, (*key_range.start, *key_range.end, rows_max))
        return [StoredRow(*stored) for stored in found]


def _walk(key_range: KeyRange) -> tuple[_Walk, Bindings]:
    """The narrowest statements that walk the range, with what to bind before their limit."""
    start, end = key_range
    if start.partition == end.partition:
        return ROW_RANGE, (*start, end.row)
    if end == (start.partition + b"\0", b""):
        return PARTITION, (*start,)
    return PARTITIONS, (*start, *end)


def unavailable(what: str, error: apsw.Error) -> EngineUnavailable:
    """What SQLite's refusal means to the caller: try again, or that what is stored is damaged."""
    damaged = isinstance(error, apsw.CorruptError | apsw.NotADBError)
    kind = EngineDamaged if damaged else EngineUnavailable
    return kind(f"Storage cannot {what} now: {error}.")
