"""Reading key ranges with a hint or without: the rows that are examined, and the order of the statements.

If the hint has no range of rows, every row in the range of keys is examined. If it has one, and there are several
partitions, the rows outside are passed over: in each large partition, one seek leads to the first wanted row, and
another from the last one to the next partition. Small partitions are walked through, because a seek costs as much as
some dozens of rows. The read finds out on its way whether a partition is large. The measurements are in
docs/decisions/0006-filters-in-the-engine.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tablestone.engines.contract import Key, KeyRange, Rows
from tablestone.engines.sqlite.hints import bound, conditions_of

if TYPE_CHECKING:
    import apsw

    from tablestone.engines.contract import Hint, RowBetween
    from tablestone.engines.sqlite.hints import Condition


class Walk(NamedTuple):
    """The statements of a kind of range: its values up to a limit, and the key at an offset from its start.

    A page needs at most one key, so it does not read the keys; the index alone finds that one.
    """

    values: str
    key: str
    some: str
    """The values and rowids of all rows for which a condition holds; the condition has to be filled in."""
    number: str
    """The number of rows, up to a limit."""

    @classmethod
    def over(cls, bounds: str) -> Walk:
        named = f"FROM stored_rows AS v WHERE {bounds}"
        tail = f"FROM stored_rows WHERE {bounds} ORDER BY partition, row"
        return cls(
            f"SELECT value {tail} LIMIT ?",
            f"SELECT partition, row {tail} LIMIT 1 OFFSET ?",
            f"SELECT v.value, v.rowid {named} AND {{}} ORDER BY partition, row",
            f"SELECT count(*) FROM (SELECT 1 {tail} LIMIT ?)",  # noqa: S608 - of constants
        )


ROW_RANGE: Final = Walk.over("partition = ? AND row >= ? AND row < ?")
PARTITION: Final = Walk.over("partition = ? AND row >= ?")
PARTITIONS: Final = Walk.over("(partition, row) >= (?, ?) AND (partition, row) < (?, ?)")
Bindings = tuple[bytes | int, ...]


def walk_of(key_range: KeyRange) -> tuple[Walk, Bindings]:
    """The narrowest statements for the range, and the bindings that come before their limit."""
    start, end = key_range
    if start.partition == end.partition:
        return ROW_RANGE, (*start, end.row)
    if end == (start.partition + b"\0", b""):
        return PARTITION, (*start,)
    return PARTITIONS, (*start, *end)


MARKER: Final = """
SELECT min(nullif(instr(value, ?), 0)) FROM (
    SELECT value FROM stored_rows WHERE (partition, row) >= (?, ?) AND (partition, row) < (?, ?)
    ORDER BY partition, row LIMIT ?
)
"""
PLACE: Final = "SELECT partition, row FROM stored_rows WHERE rowid = ?"

ROWS_TO_BEGIN: Final = 400
"""Seeks begin if a partition has more remaining rows than this: walking through them would cost more."""
FIRST_STRIDE: Final = 256
"""Rows that are walked through before the next check of the size of their partition; doubled each time."""
ROWS_TO_GO_ON: Final = 64
"""Seeks end before a partition that has at most this many rows."""
SEEK_ROWS: Final = 4
"""Rows that a seek in a partition counts for, so that one read passes a limited number of partitions."""
SAMPLE_ROWS: Final = 4
"""Values that show the position of a marker. Values of one table are alike; a wrong position only costs time."""
SAMPLE_MARGIN: Final = 32
"""Bytes before the sampled position at which the search for a marker begins."""
MARKERS_MAX: Final = 1000
"""Markers whose positions are remembered. Clients determine their number; above it, all are forgotten."""

# One row for each partition from the first on, made only when it is fetched: its name, the number of its wanted rows
# (up to a limit), and whether it is large. The index alone answers this.
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


Execute = Callable[[str, Any], Any]
"""`Cursor.execute` of one cursor."""


class HintedReader:
    """The hinted reads of one reader, each in a snapshot that has begun.

    Its cursors are made once. With apsw 3.54, a cursor is never freed if a later one of the same connection is freed
    while it lives, or if it is closed.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._ask: Execute = connection.cursor().execute
        self._look: Execute = connection.cursor().execute
        self.begin()

    def begin(self) -> None:
        """Begin a snapshot, without experience."""
        self._experience = Experience(self._ask)

    def read(self, key_range: KeyRange, rows_max: int, bytes_max: int, hint: Hint) -> Rows:
        """The values for which the hint may hold, among at most `rows_max` rows that are examined."""
        everywhere, rows, among_rows = conditions_of(hint)
        start, end = key_range
        reading = _Reading(
            *(self._connection, self._ask, self._look, self._experience),
            *(end, min(rows_max, everywhere.rows_max), bytes_max),
        )
        if rows is None or start.partition == end.partition:
            next_key = reading.look(start, end, reading.rows_left, everywhere)
        else:
            next_key = reading.walk_and_seek(start, rows, everywhere, among_rows)
        return Rows(reading.values, next_key, max(0, reading.examined - len(reading.values)))


class Experience:
    """Experience from earlier reads, for later ones. A wrong guess costs time and changes no result."""

    def __init__(self, ask: Execute) -> None:
        self._ask = ask
        self.stride = FIRST_STRIDE
        """Rows to walk through before the next check of the size of their partition."""
        self._skipped: dict[bytes, int] = {}

    def skipped(self, key_range: KeyRange, marker: bytes) -> int:
        """The number of bytes before a marker in the first values that were read, less a few; 0 if none has it."""
        skipped = self._skipped.get(marker)
        if skipped is None:
            if len(self._skipped) == MARKERS_MAX:
                self._skipped.clear()
            bindings = (marker, *key_range.start, *key_range.end, SAMPLE_ROWS)
            found: Any = self._ask(MARKER, bindings).get
            # `instr` counts from 1.
            skipped = 0 if found is None else max(0, found - 1 - SAMPLE_MARGIN)
            self._skipped[marker] = skipped
        return skipped


@dataclass(slots=True)
class _Reading:
    """One read: the values that it has found, and the rows and bytes that it may still read."""

    connection: apsw.Connection
    ask: Execute
    """Executes a statement that answers with one row."""
    look_at: Execute
    """Executes the statement of `look`, whose rows are taken one by one."""
    experience: Experience
    end: Key
    """The end of the range that is read."""
    rows_left: int
    bytes_left: int
    values: list[bytes] = field(default_factory=list)
    examined: int = 0
    """The rows that were examined; a few too many if the read ended early by its bytes."""

    def walk_and_seek(
        self, start: Key, rows: RowBetween, everywhere: Condition, among_rows: Condition
    ) -> Key | None:
        """Examine the wanted rows, and all rows of small partitions. Returns the first row left for the next read."""
        # A key with a row is the end of the last read. The walk can begin at it even if that row no longer exists.
        at = start if start.row else self._first_key(start)
        while at is not None and self.rows_left > 0 and self.bytes_left > 0:
            if self._has_rows(at, ROWS_TO_BEGIN):
                self.experience.stride = FIRST_STRIDE
                at = self._seek(at, rows, among_rows)
                continue
            stride = min(self.experience.stride, self.rows_left)
            # Longer each time, so that a read of small partitions only becomes one walk.
            self.experience.stride = min(2 * self.experience.stride, everywhere.rows_max)
            self.rows_left -= stride
            at = self.look(at, self.end, stride, everywhere)
        return at

    def _seek(self, at: Key, rows: RowBetween, among_rows: Condition) -> Key | None:
        """Examine the wanted rows from a key on, in its own partition and in the large partitions after it."""
        behind = self.end.partition + b"\0" if self.end.row else self.end.partition
        bounds = (rows.start,) if rows.end is None else (rows.start, rows.end)
        statement = PARTITIONS_FROM if rows.end is None else PARTITIONS_BETWEEN
        bindings = (at.partition, behind, *bounds, self.rows_left + 1, ROWS_TO_GO_ON)
        # The cursor of this statement ends with the call, and its statement with it.
        for partition, count, is_large in self.connection.execute(statement, bindings):
            if not is_large and partition != at.partition:
                return self._first_key(Key(partition, b""))
            limit = self.rows_left if count > self.rows_left else None
            self.rows_left -= count + SEEK_ROWS
            whole = KeyRange.of_partition(partition)
            start = max(at, Key(partition, rows.start))
            end = whole.end if rows.end is None else Key(partition, rows.end)
            end = min(end, self.end)
            if count and start < end:
                if limit is None:
                    self.examined += count
                next_key = self.look(start, end, limit, among_rows)
                if next_key is not None or self.bytes_left <= 0:
                    return next_key
            if self.rows_left <= 0:
                return self._first_key(whole.end)
        return None

    def look(self, start: Key, end: Key, rows: int | None, condition: Condition) -> Key | None:
        """Take the values for which the condition holds, among the first `rows` rows from `start` on.

        Returns the first row that was not examined. With `rows` None, the rows are known to be few enough.
        """
        next_key: Key | None = None
        walk, bounds = walk_of(KeyRange(start, end))
        if rows is not None:
            # First the key at which to stop, which the index alone finds. It limits the next statement, even if that
            # leaves out every row.
            key, number = self._end_of(walk, bounds, rows, is_first=not start.row)
            self.examined += number
            if key is not None:
                next_key = key
                walk, bounds = walk_of(KeyRange(start, next_key))
        found = self.look_at(
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
                partition, row = self.look_at(
                    PLACE, (place,)
                ).get  # this ends the statement before it
                return self._first_key(Key(partition, row + b"\0"))
        return next_key

    def _end_of(
        self, walk: Walk, bounds: Bindings, rows: int, *, is_first: bool
    ) -> tuple[Key | None, int]:
        """The key after the first `rows` rows, if there are more, and the number of rows before it.

        Either question walks through the index. A read at the start of a partition is often the only one, and one
        that goes on is rarely the last: so the question is asked first that is then the only one.
        """
        execute = self.ask
        number: Any = rows + 1
        if is_first:
            number = execute(walk.number, (*bounds, rows + 1)).get
            if number <= rows:
                return None, number
        key: Any = execute(walk.key, (*bounds, rows)).get
        if key is not None:
            return Key(*key), rows
        if not is_first:
            number = execute(walk.number, (*bounds, rows)).get
        return None, min(number, rows)

    def _has_rows(self, at: Key, rows: int) -> bool:
        """Whether the key's partition has more than `rows` rows from the key on."""
        walk, bounds = walk_of(KeyRange(at, KeyRange.of_partition(at.partition).end))
        return self.ask(walk.key, (*bounds, rows)).get is not None

    def _first_key(self, start: Key) -> Key | None:
        """The key of the first row between `start` and the end of the range, if there is one."""
        if start >= self.end:
            return None
        walk, bounds = walk_of(KeyRange(start, self.end))
        found: Any = self.ask(walk.key, (*bounds, 0)).get
        return None if found is None else Key(*found)
