"""Reads with a hint: the hint as a condition in SQL, and the order of the statements that examine rows.

The condition calls the C function of `row_hints` if the connection has it, and is SQL alone if it has not. Values are
bound and never part of the text, so filters of one shape share a prepared statement. A hint may have a range of rows in
each of many partitions. The read then seeks to that range in large partitions and walks through small ones, because a
seek costs as much as some dozens of rows; it learns on its way which ones are large. For the measurements see
docs/decisions/0006-filters-in-the-engine.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from string import Formatter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, assert_never

from tablestone.engines.contract import (
    HINTS_KEPT,
    AllOf,
    AnyOf,
    Contains,
    Hint,
    Key,
    KeyRange,
    NumberAfter,
    RowBetween,
    Rows,
    TextAfter,
)
from tablestone.engines.sqlite.row_hints import gives_function, program_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import apsw

LARGE_VALUE_BYTES: Final = 4096
"""A larger value goes to the caller unexamined, so a statement reads few bytes of rows that it leaves out."""
VALUES_LOOKED_INTO: Final = 1000
"""Values examined in one statement, at most: with `LARGE_VALUE_BYTES`, a few milliseconds."""
LOOKS_IN_C: Final = 4
"""So many looks of the C function take no more time than one in SQL."""
_NUMBER_BYTES: Final = 26
"""The longest number of JSON (-1.7976931348623157E+308), a quotation mark before it, and the byte after it."""


Binding = bytes | int | float


class Sql(NamedTuple):
    text: str
    bindings: tuple[Binding, ...] = ()
    """Of the question marks, in order."""
    looks: int = 0
    """How often it examines the value of a row; 0 if the key alone decides."""

    @property
    def rows_max(self) -> int:
        """The rows that one statement may examine with this condition."""
        return max(1, VALUES_LOOKED_INTO // max(1, self.looks))


def _filled(template: str, **parts: Sql | Binding) -> Sql:
    """Replace each name in the template by a piece of SQL, or by a question mark and its binding."""
    text: list[str] = []
    bindings: list[Binding] = []
    looks = 0
    for between, name, _, _ in Formatter().parse(template):
        text.append(between)
        if name is None:
            continue
        part = parts[name]
        sql = part if isinstance(part, Sql) else Sql("?", (part,))
        text.append(sql.text)
        bindings += sql.bindings
        looks += sql.looks
    return Sql("".join(text), tuple(bindings), looks)


def _joined(word: str, parts: Iterable[Sql]) -> Sql:
    texts, bindings, looks = zip(*parts, strict=True)
    return Sql(f" {word} ".join(texts), tuple(chain.from_iterable(bindings)), sum(looks))


# `t` is the text after the marker; NULL without a marker. SQLite does not merge a subquery with a limit into the query
# around it, so it searches once, even if the condition names `t` several times.
_AFTER: Final = """EXISTS (SELECT 1 FROM (
    SELECT substr(v.value, nullif(instr(v.value, {marker}), 0) + {length}, {bytes}) AS t LIMIT 1
) WHERE {condition})"""
# A text that begins with `-` or a digit is between x'2d', which is `-`, and x'3a', the first byte after `9`: bytes
# compare from the first on, so x'2d' <= `-7,"b":1` <= `15.5}` < x'3a', while `"15"`, `true` and `x` are outside. `.`
# and `/` are between too, but no value of JSON begins with them.
_NO_NUMBER: Final = "{of} NOT BETWEEN x'2d' AND x'3a'"
_IN_BOUNDS: Final = "CAST({of} AS REAL) BETWEEN {least} AND {greatest}"
_INTEGER: Final = Sql(
    "instr(t, CAST(t AS INTEGER) || ',') = 1 OR instr(t, CAST(t AS INTEGER) || '}') = 1"
)
_ABSENT: Final = Sql("t IS NULL")


class Conditions(NamedTuple):
    everywhere: Sql
    """The whole hint."""
    rows: RowBetween | None
    """The hint holds for no row outside this range."""
    among_rows: Sql
    """The rest of the hint, for rows in this range."""


@functools.lru_cache(maxsize=HINTS_KEPT)
def conditions_of(hint: Hint, *, in_c: bool) -> Conditions:
    """Cached, because a scan needs them for every piece. `in_c`: by the C function."""
    rows, rest = _rows_and_rest(hint)
    return Conditions(_condition(hint, in_c=in_c), rows, _condition(rest, in_c=in_c))


def _condition(hint: Hint, *, in_c: bool) -> Sql:
    asked = _sql(hint)
    if not asked.looks:
        return asked
    # Conditions on the key come first, then the length, which SQLite knows without reading the value.
    looks = asked.looks
    found = _filled(f"(length(v.value) > {LARGE_VALUE_BYTES} OR {{asked}})", asked=asked)
    if in_c:
        looks = -(-looks // LOOKS_IN_C)
        row = "v.row" if "v.row" in asked.text else "NULL"  # to read it takes time for every row
        program = program_of(hint, LARGE_VALUE_BYTES)
        found = _filled(f"row_may_match({{program}}, v.value, {row})", program=program)
    if isinstance(hint, AllOf):
        keys = tuple(part for part in hint.all_of if not _sql(part).looks)
        if keys:
            found = _filled("{keys} AND {found}", keys=_sql(AllOf(keys)), found=found)
    return found._replace(looks=looks)


def _rows_and_rest(hint: Hint) -> tuple[RowBetween | None, Hint]:
    """A range of rows outside which the hint does not hold, or None, and the hint for the rows in it."""
    match hint:
        case RowBetween():
            return _unless_whole(hint), AllOf(())
        case AllOf(parts):
            ranges = [found for part in parts if (found := _rows_and_rest(part)[0]) is not None]
            rest = tuple(part for part in parts if not isinstance(part, RowBetween))
            if not ranges:
                return None, hint
            ends = [each.end for each in ranges if each.end is not None]
            start = max(each.start for each in ranges)
            return RowBetween(start, min(ends) if ends else None), AllOf(rest)
        case AnyOf(parts):
            ranges = [found for part in parts if (found := _rows_and_rest(part)[0]) is not None]
            if not ranges or len(ranges) < len(parts):
                return None, hint
            ends = [each.end for each in ranges if each.end is not None]
            end = max(ends) if len(ends) == len(ranges) else None
            return _unless_whole(RowBetween(min(each.start for each in ranges), end)), hint
        case _:
            return None, hint


def _unless_whole(rows: RowBetween) -> RowBetween | None:
    return None if not rows.start and rows.end is None else rows


def _sql(hint: Hint) -> Sql:
    match hint:
        case Contains(text):
            return _filled("instr(v.value, {text}) > 0", text=text)._replace(looks=1)
        case NumberAfter():
            return _number_after(hint)
        case TextAfter(marker, least, greatest, or_absent):
            inside = _filled("t BETWEEN {least} AND {greatest}", least=least, greatest=greatest)
            alternatives = [inside, _ABSENT] if or_absent else [inside]
            return _after(marker, len(least), alternatives)
        case RowBetween(start, None):
            return _filled("+v.row >= {start}", start=start)
        case RowBetween(start, end):
            assert end is not None  # the case before
            return _filled("(+v.row >= {start} AND +v.row < {end})", start=start, end=end)
        case AllOf(parts):
            joined = _joined("AND", map(_sql, parts)) if parts else Sql("TRUE")
            return _filled("({all})", all=joined)
        case AnyOf(parts):
            return _filled("({any})", any=_joined("OR", map(_sql, parts)))
        case _:
            assert_never(hint)


def _after(marker: bytes, length: int, alternatives: Iterable[Sql]) -> Sql:
    """A condition on `t`, the first `length` bytes after the marker: at least one of `alternatives` holds."""
    return _filled(
        _AFTER,
        marker=marker,
        length=len(marker),
        bytes=length,
        condition=_joined("OR", alternatives),
    )._replace(looks=1)


def _number_after(hint: NumberAfter) -> Sql:
    alternatives = [_in_bounds("t", hint)]  # first, because nearly all matching values are numbers
    if hint.quoted:
        # The number may be after a quotation mark, x'22': an Int64 is written as "15".
        no_number = f"{_NO_NUMBER} AND (substr(t, 1, 1) <> x'22' OR {{quoted}})"
        inside = "substr(t, 2)"
        quoted = _joined("OR", (_in_bounds(inside, hint), _filled(_NO_NUMBER, of=Sql(inside))))
        alternatives.append(_filled(no_number, of=Sql("t"), quoted=quoted))
    else:
        alternatives.append(_filled(_NO_NUMBER, of=Sql("t")))
    if not hint.integers:
        alternatives.append(_INTEGER)
    if hint.or_absent:
        alternatives.append(_ABSENT)
    return _after(hint.marker, _NUMBER_BYTES, alternatives)


def _in_bounds(of: str, hint: NumberAfter) -> Sql:
    return _filled(_IN_BOUNDS, of=Sql(of), least=hint.least, greatest=hint.greatest)


class Walk(NamedTuple):
    """The statements for one kind of range."""

    values: str
    """The values, up to a limit."""
    key: str
    """The key at an offset from the start, from the index alone: a page needs at most one key."""
    some: str
    """The values and rowids of all rows that meet a condition, which is to be filled in."""
    number: str
    """The number of rows, up to a limit."""

    @classmethod
    def over(cls, bounds: str, direction: str = "ASC") -> Walk:
        order = f"ORDER BY partition {direction}, row {direction}"
        named = f"FROM stored_rows AS v WHERE {bounds}"
        tail = f"FROM stored_rows WHERE {bounds} {order}"
        return cls(
            f"SELECT value {tail} LIMIT ?",
            f"SELECT partition, row {tail} LIMIT 1 OFFSET ?",
            f"SELECT v.value, v.rowid {named} AND {{}} {order}",
            f"SELECT count(*) FROM (SELECT 1 {tail} LIMIT ?)",  # noqa: S608 - of constants
        )


class Walks(NamedTuple):
    """The statements for every kind of range, in one direction."""

    row_range: Walk
    partition: Walk
    partitions: Walk

    @classmethod
    def towards(cls, direction: str) -> Walks:
        return cls(
            Walk.over("partition = ? AND row >= ? AND row < ?", direction),
            Walk.over("partition = ? AND row >= ?", direction),
            Walk.over("(partition, row) >= (?, ?) AND (partition, row) < (?, ?)", direction),
        )


FORWARDS: Final = Walks.towards("ASC")
BACKWARDS: Final = Walks.towards("DESC")
Bindings = tuple[bytes | int, ...]


def walk_of(key_range: KeyRange, walks: Walks = FORWARDS) -> tuple[Walk, Bindings]:
    """The narrowest statements for the range, and the bindings before their limit."""
    start, end = key_range
    if start.partition == end.partition:
        return walks.row_range, (*start, end.row)
    if end == (start.partition + b"\0", b""):
        return walks.partition, (*start,)
    return walks.partitions, (*start, *end)


PLACE: Final = "SELECT partition, row FROM stored_rows WHERE rowid = ?"

ROWS_TO_BEGIN: Final = 400
"""Seek in a partition with more remaining rows than this: to walk through them would cost more."""
FIRST_STRIDE: Final = 256
"""Rows to walk through before the next check of the size of their partition; doubled each time."""
ROWS_TO_GO_ON: Final = 64
"""Stop seeking at a partition with at most this many rows."""
SEEK_ROWS: Final = 4
"""A seek in a partition counts as this many rows, so one read passes a limited number of partitions."""

# One row for each partition, made only when it is fetched: its name, the number of its wanted rows (up to a limit), and
# whether it is large. The index alone answers this.
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
    """The hinted reads of one connection, each in a snapshot that has begun.

    It makes its cursors once. apsw 3.54 never frees a cursor that was closed, or that outlives a later cursor of its
    connection.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self.execute: Execute = connection.execute
        self.ask: Execute = connection.cursor().execute
        """For statements with one row as the answer."""
        self.look_at: Execute = connection.cursor().execute
        """For the statement of `_Reading.look`, which fetches its rows one by one."""
        self.in_c: Final = gives_function(connection)
        """Whether the C function decides hints on this connection."""
        self.begin()

    def begin(self) -> None:
        """Begin a snapshot, and forget what earlier reads have shown."""
        self.stride = FIRST_STRIDE
        """Rows to walk through before the next check of the size of their partition."""

    def read(
        self,
        key_range: KeyRange,
        rows_max: int,
        bytes_max: int,
        hint: Hint,
        walks: Walks = FORWARDS,
    ) -> Rows:
        """Examine at most `rows_max` rows, and return the values for which the hint may hold."""
        everywhere, rows, among_rows = conditions_of(hint, in_c=self.in_c)
        start, end = key_range
        rows_left = min(rows_max, everywhere.rows_max)
        reading = _Reading(self, key_range, walks, rows_left, bytes_max)
        if rows is None or start.partition == end.partition or walks is BACKWARDS:
            next_key = reading.look(start, end, reading.rows_left, everywhere)
        else:
            next_key = reading.walk_and_seek(start, rows, everywhere, among_rows)
        return Rows(reading.values, next_key, max(0, reading.examined - len(reading.values)))


@dataclass(slots=True)
class _Reading:
    """One read, with the rows and bytes that it may still read."""

    reader: HintedReader
    whole: KeyRange
    walks: Walks
    rows_left: int
    bytes_left: int
    values: list[bytes] = field(default_factory=list)
    examined: int = 0
    """The examined rows; a few too many if the read ended early by its bytes."""

    def walk_and_seek(
        self, start: Key, rows: RowBetween, everywhere: Sql, among_rows: Sql
    ) -> Key | None:
        """Examine the wanted rows, and all rows of small partitions; returns the first row that was not examined."""
        # A key with a row is where the last read ended: begin there, even if that row no longer exists.
        at = start if start.row else self._first_key(start)
        while at is not None and self.rows_left > 0 and self.bytes_left > 0:
            if self._has_rows(at, ROWS_TO_BEGIN):
                self.reader.stride = FIRST_STRIDE
                at = self._seek(at, rows, among_rows)
                continue
            stride = min(self.reader.stride, self.rows_left)
            # Longer each time, so a read of small partitions alone becomes one walk.
            self.reader.stride = min(2 * self.reader.stride, everywhere.rows_max)
            self.rows_left -= stride
            at = self.look(at, self.whole.end, stride, everywhere)
        return at

    def _seek(self, at: Key, rows: RowBetween, among_rows: Sql) -> Key | None:
        """Examine the wanted rows from a key on, in its partition and in the large partitions after it."""
        after = self.whole.end.partition + b"\0" if self.whole.end.row else self.whole.end.partition
        bounds = (rows.start,) if rows.end is None else (rows.start, rows.end)
        statement = PARTITIONS_FROM if rows.end is None else PARTITIONS_BETWEEN
        bindings = (at.partition, after, *bounds, self.rows_left + 1, ROWS_TO_GO_ON)
        # The end of this call frees the cursor of this statement.
        for partition, count, is_large in self.reader.execute(statement, bindings):
            if not is_large and partition != at.partition:
                return self._first_key(Key(partition, b""))
            limit = self.rows_left if count > self.rows_left else None
            self.rows_left -= count + SEEK_ROWS
            whole = KeyRange.of_partition(partition)
            start = max(at, Key(partition, rows.start))
            end = whole.end if rows.end is None else Key(partition, rows.end)
            end = min(end, self.whole.end)
            if count and start < end:
                if limit is None:
                    self.examined += count
                next_key = self.look(start, end, limit, among_rows)
                if next_key is not None or self.bytes_left <= 0:
                    return next_key
            if self.rows_left <= 0:
                return self._first_key(whole.end)
        return None

    def look(self, start: Key, end: Key, rows: int | None, condition: Sql) -> Key | None:
        """Take the matching values of the first `rows` rows (None: all, being few); returns the key after them."""
        next_key: Key | None = None
        walk, bounds = walk_of(KeyRange(start, end), self.walks)
        if rows is not None:
            # The index alone finds the key at which to stop. It limits the next statement, even one that takes no row.
            begins = start if self.walks is FORWARDS else end
            key, number = self._end_of(walk, bounds, rows, is_first=not begins.row)
            self.examined += number
            if key is not None:
                next_key = key
                before = (
                    KeyRange(start, key) if self.walks is FORWARDS else KeyRange(_next(key), end)
                )
                walk, bounds = walk_of(before, self.walks)
        bindings = (*bounds, *condition.bindings)
        found = self.reader.look_at(walk.some.format(condition.text), bindings)
        for value, place in found:
            self.values.append(value)
            self.bytes_left -= len(value)
            if self.bytes_left <= 0:
                # This statement ends the one before it.
                last = Key(*self.reader.look_at(PLACE, (place,)).get)
                return (
                    self._first_key(_next(last)) if self.walks is FORWARDS else self._before(last)
                )
        return next_key

    def _end_of(
        self, walk: Walk, bounds: Bindings, rows: int, *, is_first: bool
    ) -> tuple[Key | None, int]:
        """The key after the first `rows` rows, if there are more, and the number of rows before it.

        Each of the two questions walks through the index, so ask first the one that is likely to answer both: a read at
        the start of a partition often reaches its end, and a read that goes on rarely does.
        """
        execute = self.reader.ask
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
        return self.reader.ask(walk.key, (*bounds, rows)).get is not None

    def _first_key(self, start: Key) -> Key | None:
        """The first key from `start` on in the range."""
        if start >= self.whole.end:
            return None
        walk, bounds = walk_of(KeyRange(start, self.whole.end))
        found: Any = self.reader.ask(walk.key, (*bounds, 0)).get
        return None if found is None else Key(*found)

    def _before(self, end: Key) -> Key | None:
        """The last key before `end` in the range."""
        if end <= self.whole.start:
            return None
        walk, bounds = walk_of(KeyRange(self.whole.start, end), BACKWARDS)
        found: Any = self.reader.ask(walk.key, (*bounds, 0)).get
        return None if found is None else Key(*found)


def _next(key: Key) -> Key:
    return Key(key.partition, key.row + b"\0")
