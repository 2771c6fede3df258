"""The embedded engine: rows in one SQLite table, ordered by key, in write-ahead-log mode.

Reads run where they are asked, on the event loop's thread, on a connection that cannot write: they never wait for a
flush and never see what is not committed. Commits are `sqlite_commit`'s, the directory is `sqlite_directory`'s.
Every statement is a constant, so that each is prepared once; each range of keys is one seek and one walk
that stops at the range's end (tests look at the query plans).
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import apsw

from tablestone.engines.contract import EngineUnavailable, Key, Rows, StoredRow
from tablestone.engines.sqlite_commit import GroupCommit
from tablestone.engines.sqlite_directory import DataDirectory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tablestone.clock import Clock
    from tablestone.engines.contract import Committed, Conflict, KeyRange, WriteSet

READ_POINT: Final = "SELECT value FROM stored_rows WHERE partition = ? AND row = ?"


class _Walk(NamedTuple):
    """The two statements of a kind of range: its values up to a limit, and the key so many rows from its start.

    A page almost never needs a key, so it does not read them; the index alone finds the one it needs.
    """

    values: str
    key: str

    @classmethod
    def over(cls, bounds: str) -> _Walk:
        tail = f"FROM stored_rows WHERE {bounds} ORDER BY partition, row"
        return cls(f"SELECT value {tail} LIMIT ?", f"SELECT partition, row {tail} LIMIT 1 OFFSET ?")


ROW_RANGE: Final = _Walk.over("partition = ? AND row >= ? AND row < ?")
PARTITION: Final = _Walk.over("partition = ? AND row >= ?")
PARTITIONS: Final = _Walk.over("(partition, row) >= (?, ?) AND (partition, row) < (?, ?)")
SCAN: Final = """
SELECT partition, row, version, value FROM stored_rows
WHERE (partition, row) >= (?, ?) AND (partition, row) < (?, ?) ORDER BY partition, row LIMIT ?
"""
WRONG_VERSIONS: Final = """
SELECT partition, row, version FROM stored_rows WHERE version < 1 LIMIT 100
"""

Bindings = tuple[bytes | int, ...]


class SqliteEngine:
    """An `Engine` in a data directory."""

    def __init__(self, path: Path, clock: Clock, *, read_only: bool = False) -> None:
        self._directory = DataDirectory(path, read_only=read_only)
        self._reader = self._directory.connect_reader()
        self._execute = self._reader.cursor().execute
        self._commits = None if read_only else GroupCommit(self._directory.connect_writer(), clock)
        self._is_open = True
        # The directory's lock keeps every other writer out; one who only looks has no lock.
        self.is_exclusive = not read_only

    async def get(self, key: Key) -> bytes | None:
        self._require_open()
        try:
            value: bytes | None = self._execute(READ_POINT, key).get
        except apsw.Error as error:
            raise EngineUnavailable(f"Storage cannot read now: {error}.") from error
        return value

    async def read(self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        self._require_open()
        try:
            if len(ranges) == 1:
                return self._read_range(ranges[0], rows_max, bytes_max)
            return self._read_ranges(ranges, rows_max, bytes_max)
        except apsw.Error as error:
            raise EngineUnavailable(f"Storage cannot read now: {error}.") from error

    async def scan(self, key_range: KeyRange, *, rows_max: int) -> list[StoredRow]:
        self._require_open()
        try:
            return self._scan(key_range, rows_max)
        except apsw.Error as error:
            raise EngineUnavailable(f"Storage cannot read now: {error}.") from error

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        self._require_open()
        if self._commits is None:
            raise EngineUnavailable("The engine was opened for reading only.")
        return await self._commits.commit(write_set)

    async def check(self) -> list[str]:
        self._require_open()
        # In a thread: this reads the whole database, and others may want to be served meanwhile.
        return await asyncio.to_thread(self._check)

    async def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._reader.close()  # before the writer: who closes last empties and removes the log
        if self._commits is not None:
            await self._commits.close()
        self._directory.release()

    def _require_open(self) -> None:
        if not self._is_open:
            raise EngineUnavailable("The engine is closed.")

    def _read_ranges(self, ranges: Sequence[KeyRange], rows_max: int, bytes_max: int) -> Rows:
        """Several ranges, and therefore several statements, of one moment: in one transaction."""
        values: list[bytes] = []
        bytes_read = 0
        self._execute("BEGIN")
        try:
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
        finally:
            self._execute("ROLLBACK")

    def _read_range(self, key_range: KeyRange, rows_max: int, bytes_max: int) -> Rows:
        if key_range.is_point:
            value = self._execute(READ_POINT, key_range.start).get
            return Rows([] if value is None else [value], None)
        walk, bounds = _walk(key_range)
        cursor = self._reader.cursor()
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

    def _scan(self, key_range: KeyRange, rows_max: int) -> list[StoredRow]:
        found: Iterable[Any] = self._execute(SCAN, (*key_range.start, *key_range.end, rows_max))
        return [StoredRow(*stored) for stored in found]

    def _check(self) -> list[str]:
        connection = self._directory.connect_reader()
        try:
            answer = [text for (text,) in connection.execute("PRAGMA integrity_check")]
            if answer != ["ok"]:
                lines = "\n".join(answer).splitlines()
                return [line for line in lines if not line.startswith("*** in database")]
            return [
                f"the row {row!r} of partition {partition!r} has version {version}"
                for partition, row, version in connection.execute(WRONG_VERSIONS)
            ]
        except apsw.Error as error:
            return [f"the database cannot be read: {error}"]
        finally:
            connection.close()


def _walk(key_range: KeyRange) -> tuple[_Walk, Bindings]:
    """The narrowest statements that walk the range, with what to bind before their limit."""
    start, end = key_range
    if start.partition == end.partition:
        return ROW_RANGE, (*start, end.row)
    if end == (start.partition + b"\0", b""):
        return PARTITION, (*start,)
    return PARTITIONS, (*start, *end)
