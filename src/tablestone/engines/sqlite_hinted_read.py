"""Reading with a hint: which rows are looked at, and in what order of statements.

Without a range of rows in the hint every row of the range of keys is looked at. With one, and several partitions, rows
outside are passed by: in each large partition a seek to the first row asked for, and from the last to the next
partition. Small partitions are walked through, since a seek costs as much as some dozens of rows; what a partition is
shows when it is met. The numbers are in docs/decisions/0006-filters-in-the-engine.md.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tablestone.engines.contract import Key, KeyRange, Rows
from tablestone.engines.sqlite_hint import bound, conditions_of
from tablestone.engines.sqlite_walk import walk_of

if TYPE_CHECKING:
    import apsw

    from tablestone.engines.contract import Hint, RowBetween
    from tablestone.engines.sqlite_hint import Condition

MARKER: Final = """
SELECT min(nullif(instr(value, ?), 0)) FROM (
    SELECT value FROM stored_rows WHERE (partition, row) >= (?, ?) AND (partition, row) < (?, ?)
    ORDER BY partition, row LIMIT ?
)
"""
PLACE: Final = "SELECT partition, row FROM stored_rows WHERE rowid = ?"

ROWS_TO_BEGIN: Final = 400
"""Where a partition has more rows yet, the walk ends and seeks begin: to walk through them costs more."""
FIRST_STRIDE: Final = 256
"""How many rows are walked through before the next look at what their partition is; doubled each time."""
ROWS_TO_GO_ON: Final = 64
"""Seeks end before a partition that has not more rows."""
SEEK_ROWS: Final = 4
"""A partition that is sought in counts as so many rows looked at, so that one read passes a bounded number."""
SAMPLE_ROWS: Final = 4
"""Values that say where a marker stands: those of one table are alike, and what is where is only a matter of time."""
SAMPLE_MARGIN: Final = 32
"""Bytes before it from which it is looked for."""

# One row for each partition from the first on, made only when it is fetched: its name, how many of the rows asked for
# it has (up to a limit), and whether it is large. The index alone knows.
_PARTITIONS: Final = """
WITH RECURSIVE partitions(name) AS (
    SELECT ?
    UNION ALL
    SELECT (
        SELECT partition FROM stored_rows WHERE partition > name AND partition < ?
        ORDER BY partition LIMIT 1
    ) FROM partitions WHERE name IS NOT NULL
)
SELECT
    name,
    (SELECT count(*) FROM (SELECT 1 FROM stored_rows WHERE partition = name AND {} LIMIT ?)),
    EXISTS (SELECT 1 FROM stored_rows WHERE partition = name LIMIT 1 OFFSET ?)
FROM partitions WHERE name IS NOT NULL
"""
PARTITIONS_BETWEEN: Final = _PARTITIONS.format("row >= ? AND row < ?")
PARTITIONS_FROM: Final = _PARTITIONS.format("row >= ?")


class HintedReader:
    """Reads of one reader, each within a moment that has begun. Remembers how large partitions were."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._end = Key(b"", b"")
        self._values: list[bytes] = []
        self._rows_left = self._bytes_left = 0
        self._stride = FIRST_STRIDE
        self._starts: dict[bytes, int] = {}

    def read(self, key_range: KeyRange, rows_max: int, bytes_max: int, hint: Hint) -> Rows:
        """Values of which the hint may hold, of at most `rows_max` rows that are looked at."""
        everywhere, rows, among_rows = conditions_of(hint)
        start, self._end = key_range
        self._values = []
        self._rows_left = min(rows_max, everywhere.rows_max)
        self._bytes_left = bytes_max
        if rows is None or start.partition == self._end.partition:
            next_key = self._look(start, self._end, self._rows_left, everywhere)
        else:
            next_key = self._walk_and_seek(start, rows, everywhere, among_rows)
        return Rows(self._values, next_key)

    def _walk_and_seek(
        self, start: Key, rows: RowBetween, everywhere: Condition, among_rows: Condition
    ) -> Key | None:
        """Looks at the rows asked for, and at all of small partitions; the first row that is left for another read."""
        # A key with a row is one where the last read ended, or is walked from as well if it is not there.
        at = start if start.row else self._first_key(start)
        while at is not None and self._rows_left > 0 and self._bytes_left > 0:
            if self._has_rows(at, ROWS_TO_BEGIN):
                self._stride = FIRST_STRIDE
                at = self._seek(at, rows, among_rows)
                continue
            stride = min(self._stride, self._rows_left)
            # Longer each time, so that where all partitions are small there is one walk in a read.
            self._stride = min(2 * self._stride, everywhere.rows_max)
            self._rows_left -= stride
            at = self._look(at, self._end, stride, everywhere)
        return at

    def _seek(self, at: Key, rows: RowBetween, among_rows: Condition) -> Key | None:
        """Looks at the rows asked for from a key on, in its own partition and in the large ones that follow it."""
        behind = self._end.partition + b"\0" if self._end.row else self._end.partition
        bounds = (rows.start,) if rows.end is None else (rows.start, rows.end)
        statement = PARTITIONS_FROM if rows.end is None else PARTITIONS_BETWEEN
        bindings = (at.partition, behind, *bounds, self._rows_left + 1, ROWS_TO_GO_ON)
        with closing(self._connection.execute(statement, bindings)) as partitions:
            for partition, count, is_large in partitions:
                if not is_large and partition != at.partition:
                    return self._first_key(Key(partition, b""))
                limit = self._rows_left if count > self._rows_left else None
                self._rows_left -= count + SEEK_ROWS
                whole = KeyRange.of_partition(partition)
                start = max(at, Key(partition, rows.start))
                end = whole.end if rows.end is None else Key(partition, rows.end)
                end = min(end, self._end)
                if count and start < end:
                    next_key = self._look(start, end, limit, among_rows)
                    if next_key is not None or self._bytes_left <= 0:
                        return next_key
                if self._rows_left <= 0:
                    return self._first_key(whole.end)
        return None

    def _look(self, start: Key, end: Key, rows: int | None, condition: Condition) -> Key | None:
        """Takes what the condition holds of among the first `rows` from `start` on; the first row not looked at.

        Without a number of rows they are known to be few enough.
        """
        next_key: Key | None = None
        walk, bounds = walk_of(KeyRange(start, end))
        if rows is not None:
            # First where to stop, which the index alone finds: then what follows is bounded whatever it leaves out.
            key: Any = self._connection.execute(walk.key, (*bounds, rows)).get
            if key is not None:
                next_key = Key(*key)
                walk, bounds = walk_of(KeyRange(start, next_key))
        found = self._connection.execute(
            walk.some.format(condition.sql),
            (*bounds, *bound(condition, partial(self._usual_start, start))),
        )
        for value, place in found:
            self._values.append(value)
            self._bytes_left -= len(value)
            if self._bytes_left <= 0:
                found.close()
                partition, row = self._connection.execute(PLACE, (place,)).get
                return self._first_key(Key(partition, row + b"\0"))
        return next_key

    def _usual_start(self, at: Key, marker: bytes) -> int:
        """A little before where the marker stands in the first few values from here; 1 where it is in none of them."""
        start = self._starts.get(marker)
        if start is None:
            found: Any = self._connection.execute(
                MARKER, (marker, *at, *self._end, SAMPLE_ROWS)
            ).get
            start = 1 if found is None else max(1, found - SAMPLE_MARGIN)
            self._starts[marker] = start
        return start

    def _has_rows(self, at: Key, rows: int) -> bool:
        """Whether the key's partition has more than so many rows from it on."""
        walk, bounds = walk_of(KeyRange(at, KeyRange.of_partition(at.partition).end))
        return self._connection.execute(walk.key, (*bounds, rows)).get is not None

    def _first_key(self, start: Key) -> Key | None:
        """Of the first row from here to the end of the range, if there is one."""
        if start >= self._end:
            return None
        walk, bounds = walk_of(KeyRange(start, self._end))
        found: Any = self._connection.execute(walk.key, (*bounds, 0)).get
        return None if found is None else Key(*found)
