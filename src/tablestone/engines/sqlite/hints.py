"""A hint as a condition in SQL: one expression over `v.row`, a row's key, and `v.value`, its value.

Compared values are bound and never part of the text, so filters of one shape share one prepared statement. The
connection limits the number of statements that stay prepared. docs/decisions/0006-filters-in-the-engine.md has the
measurements behind the forms chosen here. Knows nothing of the meaning of values.
"""

from __future__ import annotations

import functools
from string import Formatter
from typing import TYPE_CHECKING, Final, NamedTuple, assert_never

from tablestone.engines.contract import (
    AllOf,
    AnyOf,
    Contains,
    Hint,
    NumberAfter,
    RowBetween,
    TextAfter,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LARGE_VALUE_BYTES: Final = 4096
"""Bytes from which a value is not examined but returned to the caller, which counts it. So one statement reads a
limited number of bytes in rows that it leaves out."""
VALUES_LOOKED_INTO: Final = 1000
"""Examinations of a value in one statement, at most: with `LARGE_VALUE_BYTES`, a few milliseconds."""
_NUMBER_BYTES: Final = 26
"""Bytes of the longest number of JSON (-1.7976931348623157E+308), a quotation mark before it, and the byte after it."""


class Skipped(NamedTuple):
    """A binding that is computed when a statement runs: the number of first bytes of a value in which the marker is
    not searched, plus `more`.
    """

    marker: bytes
    more: int = 0


Binding = bytes | int | float | Skipped


class Sql(NamedTuple):
    """A piece of SQL, and the bindings of its question marks in their order."""

    text: str
    bindings: tuple[Binding, ...] = ()


def _filled(template: str, **parts: Sql | Binding) -> Sql:
    """The template with each name in it replaced: by a piece of SQL, or by a question mark and its binding."""
    text: list[str] = []
    bindings: list[Binding] = []
    for between, name, _, _ in Formatter().parse(template):
        text.append(between)
        if name is None:
            continue
        part = parts[name]
        sql = part if isinstance(part, Sql) else Sql("?", (part,))
        text.append(sql.text)
        bindings += sql.bindings
    return Sql("".join(text), tuple(bindings))


def _joined(word: str, parts: Iterable[Sql]) -> Sql:
    texts, bindings = zip(*parts, strict=True)
    return Sql(f" {word} ".join(texts), tuple(each for several in bindings for each in several))


# `t` is the text after the marker, and NULL if there is no marker. The marker is searched from `begin` on, after the
# skipped bytes, and from the beginning of the value if it is not found there. Either position is counted from `begin`,
# and `to_behind` leads from there to the first byte after the marker. Sums are bound, because SQLite would compute them
# for every row. SQLite does not merge a subquery with a limit into the query around it, so the marker is searched once,
# even if the condition names `t` several times.
_AFTER: Final = """EXISTS (SELECT 1 FROM (
    SELECT substr(v.value, coalesce(
        nullif(instr(substr(v.value, {begin}), {marker}), 0),
        nullif(instr(v.value, {marker}), 0) - {skipped}
    ) + {to_behind}, {bytes}) AS t LIMIT 1
) WHERE {condition})"""
# A text of any length that begins with `-` or a digit is between x'2d', which is `-`, and x'3a', the first byte after
# `9`: bytes compare from the first on, so x'2d' <= `-7,"b":1` <= `15.5}` < x'3a', while `"15"`, `true` and `x` are
# outside. `.` and `/` are between too, but no value of JSON begins with them.
_NO_NUMBER: Final = "{of} NOT BETWEEN x'2d' AND x'3a'"
_IN_BOUNDS: Final = "CAST({of} AS REAL) BETWEEN {least} AND {greatest}"
_INTEGER: Final = Sql(
    "instr(t, CAST(t AS INTEGER) || ',') = 1 OR instr(t, CAST(t AS INTEGER) || '}') = 1"
)
_ABSENT: Final = Sql("t IS NULL")


class Condition(NamedTuple):
    """An expression, its bindings, and the number of rows that one statement may examine with it."""

    sql: str
    bindings: tuple[Binding, ...]
    rows_max: int


KEPT_HINT_BYTES_MAX: Final = 1024
"""Bytes of the compared values up to which a condition is cached: they may be as long as a client's request."""


class Conditions(NamedTuple):
    """A hint as one condition (`everywhere`), and as two: a range of row keys, and a condition on the rows in it."""

    everywhere: Condition
    rows: RowBetween | None
    """The hint holds of no row outside this range."""
    among_rows: Condition


def conditions_of(hint: Hint) -> Conditions:
    """The conditions. Those of the usual length are cached, because a scan needs them for every piece."""
    is_short = _compared_bytes(hint) <= KEPT_HINT_BYTES_MAX
    return _short_conditions(hint) if is_short else _conditions(hint)


def bound(condition: Condition, skipped: Callable[[bytes], int]) -> list[bytes | int | float]:
    """The bindings, with the number of first bytes that each marker is behind in most values.

    A wrong number costs time and changes no result: the marker is then searched from the beginning.
    """
    return [
        skipped(each.marker) + each.more if isinstance(each, Skipped) else each
        for each in condition.bindings
    ]


def _compared_bytes(hint: Hint) -> int:
    match hint:
        case Contains(text):
            return len(text)
        case NumberAfter(marker):
            return len(marker)
        case TextAfter(marker, least, greatest):
            return len(marker) + len(least) + len(greatest)
        case RowBetween(start, end):
            return len(start) + len(end or b"")
        case AllOf(parts) | AnyOf(parts):
            return sum(map(_compared_bytes, parts))
        case _:
            assert_never(hint)


def _looks(hint: Hint) -> int:
    """The number of examinations of a value that the hint needs; 0 if the key alone decides."""
    match hint:
        case Contains() | NumberAfter() | TextAfter():
            return 1
        case RowBetween():
            return 0
        case AllOf(parts) | AnyOf(parts):
            return sum(map(_looks, parts))
        case _:
            assert_never(hint)


def _condition(hint: Hint) -> Condition:
    asked, looks = _sql(hint), _looks(hint)
    if looks:
        # First the conditions on the key, then the length, which is known without reading the value.
        asked = _filled(f"(length(v.value) > {LARGE_VALUE_BYTES} OR {{asked}})", asked=asked)
        if isinstance(hint, AllOf):
            keys = tuple(part for part in hint.all_of if not _looks(part))
            if keys:
                asked = _filled("{keys} AND {asked}", keys=_sql(AllOf(keys)), asked=asked)
    return Condition(*asked, max(1, VALUES_LOOKED_INTO // max(1, looks)))


def _conditions(hint: Hint) -> Conditions:
    rows, rest = _rows_and_rest(hint)
    return Conditions(_condition(hint), rows, _condition(rest))


_short_conditions = functools.lru_cache(maxsize=64)(_conditions)


def _rows_and_rest(hint: Hint) -> tuple[RowBetween | None, Hint]:
    """The range of rows outside which the hint does not hold, if there is one, and the hint for rows inside it."""
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
            return _filled("instr(v.value, {text}) > 0", text=text)
        case NumberAfter():
            return _number_after(hint)
        case TextAfter(marker, least, greatest, or_absent):
            inside = _filled("t BETWEEN {least} AND {greatest}", least=least, greatest=greatest)
            ways = [inside, _ABSENT] if or_absent else [inside]
            return _after(marker, len(least), ways)
        case RowBetween(start, None):
            return _filled("+v.row >= {start}", start=start)
        case RowBetween(start, end):
            assert end is not None  # the case before
            return _filled("(+v.row >= {start} AND +v.row < {end})", start=start, end=end)
        case AllOf(parts):
            return (
                _filled("({all})", all=_joined("AND", map(_sql, parts))) if parts else Sql("TRUE")
            )
        case AnyOf(parts):
            return _filled("({any})", any=_joined("OR", map(_sql, parts)))
        case _:
            assert_never(hint)


def _after(marker: bytes, length: int, ways: Iterable[Sql]) -> Sql:
    """A condition on `t`, the first `length` bytes after the marker: at least one of `ways` holds."""
    return _filled(
        _AFTER,
        marker=marker,
        begin=Skipped(marker, 1),  # `substr` and `instr` count from 1
        skipped=Skipped(marker),
        to_behind=Skipped(marker, len(marker)),
        bytes=length,
        condition=_joined("OR", ways),
    )


def _number_after(hint: NumberAfter) -> Sql:
    ways = [_in_bounds("t", hint)]  # first, because nearly all matching values are numbers
    if hint.quoted:
        # The number may be after a quotation mark, x'22': an Int64 is written as "15".
        no_number = f"{_NO_NUMBER} AND (substr(t, 1, 1) <> x'22' OR {{quoted}})"
        inside = "substr(t, 2)"
        quoted = _joined("OR", (_in_bounds(inside, hint), _filled(_NO_NUMBER, of=Sql(inside))))
        ways.append(_filled(no_number, of=Sql("t"), quoted=quoted))
    else:
        ways.append(_filled(_NO_NUMBER, of=Sql("t")))
    if not hint.integers:
        ways.append(_INTEGER)
    if hint.or_absent:
        ways.append(_ABSENT)
    return _after(hint.marker, _NUMBER_BYTES, ways)


def _in_bounds(of: str, hint: NumberAfter) -> Sql:
    return _filled(_IN_BOUNDS, of=Sql(of), least=hint.least, greatest=hint.greatest)
