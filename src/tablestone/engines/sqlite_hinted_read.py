"""Reading with a hint: which rows are looked at, and in what order of statements.

Without a range of rows in the hint every row of the range of keys is looked at. With one, and several partitions, rows
outside are passed by: in each large partition a seek to the first row asked for, and from the last to the next
partition. Small partitions are walked through, since a seek costs as much as some dozens of rows; what a partition is
shows when it is met. The numbers are in docs/decisions/0006-filters-in-the-engine.md.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
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
MARKERS_MAX: Final = 1000
"""Markers whose place is remembered. They are as many as clients like; for one more all are forgotten."""

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
    """Reads of one reader, each within a moment that has begun."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._experience = Experience(connection)

    def read(self, key_range: KeyRange, rows_max: int, bytes_max: int, hint: Hint) -> Rows:
        """Values of which the hint may hold, of at most `rows_max` rows that are looked at."""
        everywhere, rows, among_rows = conditions_of(hint)
        start, end = key_range
        reading = _Reading(
            self._connection, self._experience, end, min(rows_max, everywhere.rows_max), bytes_max
        )
        if rows is None or start.partition == end.partition:
            next_key = reading.look(start, end, reading.rows_left, everywhere)
        else:
            next_key = reading.walk_and_seek(start, rows, everywhere, among_rows)
        return Rows(reading.values, next_key)


class Experience:
    """What reads have shown so far, for those that follow. Where it misleads it costs time and changes nothing."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.stride = FIRST_STRIDE
        """How many rows to walk through before the next look at what their partition is."""
        self._skipped: dict[bytes, int] = {}

    def skipped(self, key_range: KeyRange, marker: bytes) -> int:
        """How many bytes stand before a marker in the first values that were met, less a few; 0 if it was in none."""
        skipped = self._skipped.get(marker)
        if skipped is None:
            if len(self._skipped) == MARKERS_MAX:
                self._skipped.clear()
            bindings = (marker, *key_range.start, *key_range.end, SAMPLE_ROWS)
            found: Any = self._connection.execute(MARKER, bindings).get
            # `instr` counts from 1.
            skipped = 0 if found is None else max(0, found - 1 - SAMPLE_MARGIN)
            self._skipped[marker] = skipped
        return skipped


@dataclass(slots=True)
class _Reading:
    """One read: what it has found, and how much more it may look at and take."""

    connection: apsw.Connection
    experience: Experience
    end: Key
    """Of the range that is read."""
    rows_left: int
    bytes_left: int
    values: list[bytes] = field(default_factory=list)

    def walk_and_seek(
        self, start: Key, rows: RowBetween, everywhere: Condition, among_rows: Condition
    ) -> Key | None:
        """Looks at the rows asked for, and at all of small partitions; the first row that is left for another read."""
        # A key with a row is one where the last read ended, or is walked from as well if it is not there.
        at = start if start.row else self._first_key(start)
        while at is not None and self.rows_left > 0 and self.bytes_left > 0:
            if self._has_rows(at, ROWS_TO_BEGIN):
                self.experience.stride = FIRST_STRIDE
                at = self._seek(at, rows, among_rows)
                continue
            stride = min(self.experience.stride, self.rows_left)
            # Longer each time, so that where all partitions are small there is one walk in a read.
            self.experience.stride = min(2 * self.experience.stride, everywhere.rows_max)
            self.rows_left -= stride
            at = self.look(at, self.end, stride, everywhere)
        return at

    def _seek(self, at: Key, rows: RowBetween, among_rows: Condition) -> Key | None:
        """Looks at the rows asked for from a key on, in its own partition and in the large ones that follow it."""
        behind = self.end.partition + b"\0" if self.end.row else self.end.partition
        bounds = (rows.start,) if rows.end is None else (rows.start, rows.end)
        statement = PARTITIONS_FROM if rows.end is None else PARTITIONS_BETWEEN
        bindings = (at.partition, behind, *bounds, self.rows_left + 1, ROWS_TO_GO_ON)
        with closing(self.connection.execute(statement, bindings)) as partitions:
            for partition, count, is_large in partitions:
                if not is_large and partition != at.partition:
                    return self._first_key(Key(partition, b""))
                limit = self.rows_left if count > self.rows_left else None
                self.rows_left -= count + SEEK_ROWS
                whole = KeyRange.of_partition(partition)
                start = max(at, Key(partition, rows.start))
                end = whole.end if rows.end is None else Key(partition, rows.end)
                end = min(end, self.end)
                if count and start < end:
                    next_key = self.look(start, end, limit, among_rows)
                    if next_key is not None or self.bytes_left <= 0:
                        return next_key
                if self.rows_left <= 0:
                    return self._first_key(whole.end)
        return None

    def look(self, start: Key, end: Key, rows: int | None, condition: Condition) -> Key | None:
        """Takes what the condition holds of among the first `rows` from `start` on; the first row not looked at.

        Without a number of rows they are known to be few enough.
        """
        next_key: Key | None = None
        walk, bounds = walk_of(KeyRange(start, end))
        if rows is not None:
            # First where to stop, which the index alone finds: then what follows is bounded whatever it leaves out.
            key: Any = self.connection.execute(walk.key, (*bounds, rows)).get
            if key is not None:
                next_key = Key(*key)
                walk, bounds = walk_of(KeyRange(start, next_key))
        found = self.connection.execute(
            walk.some.format(condition.sql),
            (
                *bounds,
                *bound(condition, partial(self.experience.skipped, KeyRange(start, self.end))),
            ),
        )
        for value, place in found:
            self.values.append(value)
            self.bytes_left -= len(value)
            if self.bytes_left <= 0:
                found.close()
                partition, row = self.connection.execute(PLACE, (place,)).get
                return self._first_key(Key(partition, row + b"\0"))
        return next_key

    def _has_rows(self, at: Key, rows: int) -> bool:
        """Whether the key's partition has more than so many rows from it on."""
        walk, bounds = walk_of(KeyRange(at, KeyRange.of_partition(at.partition).end))
        return self.connection.execute(walk.key, (*bounds, rows)).get is not None

    def _first_key(self, start: Key) -> Key | None:
        """Of the first row from here to the end of the range, if there is one."""
        if start >= self.end:
            return None
        walk, bounds = walk_of(KeyRange(start, self.end))
        found: Any = self.connection.execute(walk.key, (*bounds, 0)).get
        return None if found is None else Key(*found)
