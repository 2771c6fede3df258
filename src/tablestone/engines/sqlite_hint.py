"""A hint as a condition in SQL: one expression over `v.row`, a row's key, and `v.value`, its value.

What is compared is bound and never part of the text, so that filters of one shape share one prepared statement; how
many of those are kept is the connection's own limit. The numbers behind the forms chosen here are in
docs/decisions/0006-filters-in-the-engine.md. Knows nothing of what values mean.
"""

from __future__ import annotations

import functools
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
    from collections.abc import Callable

LARGE_VALUE_BYTES: Final = 4096
"""Values larger than this are not looked into but given to the caller, who counts them: one statement reads only a
bounded number of bytes that nobody sees."""
VALUES_LOOKED_INTO: Final = 1000
"""How often one statement looks into a value at most: with `LARGE_VALUE_BYTES` a few milliseconds."""
_NUMBER_BYTES: Final = 26
"""The longest number of JSON, a quotation mark before it and what ends it: -1.7976931348623157E+308."""

# A subquery with a limit is not merged into what is around it, so that the marker is looked for once: from where it is
# expected, and from the beginning if it is not there.
_AFTER: Final = """EXISTS (SELECT 1 FROM (
    SELECT substr(v.value, coalesce(
        nullif(instr(substr(v.value, ?), ?), 0), nullif(instr(v.value, ?), 0) - ?
    ) + ?, ?) AS t LIMIT 1
) WHERE {})"""
# `-` and the digits, with nothing else of JSON between them: no value begins with `.` or `/`.
_NO_NUMBER: Final = "{} NOT BETWEEN x'2d' AND x'3a'"
_BETWEEN: Final = "CAST({} AS REAL) BETWEEN ? AND ?"
_INTEGER: Final = (
    "instr(t, CAST(t AS INTEGER) || ',') = 1 OR instr(t, CAST(t AS INTEGER) || '}') = 1"
)


class Start(NamedTuple):
    """To be bound: where to begin to look for the marker, counted from 1, and something more."""

    marker: bytes
    more: int


Binding = bytes | int | float | Start


class Condition(NamedTuple):
    """An expression, what to bind to it, and how many rows it may be asked of in one statement."""

    sql: str
    bindings: tuple[Binding, ...]
    rows_max: int


KEPT_HINT_BYTES_MAX: Final = 1024
"""What is compared may be as long as a client's request; a condition is only kept where that is short."""


class Conditions(NamedTuple):
    """What a hint asks, in one condition, and in two: of a row's key, and of a value whose key is so."""

    everywhere: Condition
    rows: RowBetween | None
    """Of no row outside of these the hint holds."""
    among_rows: Condition


def conditions_of(hint: Hint) -> Conditions:
    """The conditions; those of the usual length are cached, since a scan asks for them for every piece."""
    is_short = _compared_bytes(hint) <= KEPT_HINT_BYTES_MAX
    return _short_conditions(hint) if is_short else _conditions(hint)


def bound(condition: Condition, start_of: Callable[[bytes], int]) -> list[bytes | int | float]:
    """What to bind, when it is known from which byte on (counted from 1) each marker is worth looking for first.

    A wrong start costs time and changes nothing: then the marker is looked for from the beginning.
    """
    return [
        start_of(each.marker) + each.more if isinstance(each, Start) else each
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


def _condition(hint: Hint) -> Condition:
    bindings: list[Binding] = []
    sql = _expression(hint, bindings)
    looks = sql.count("instr(v.value")
    if looks:
        # First what the key alone decides, then the length, which is known without reading the value.
        keys = _of_keys(hint)
        key_bindings: list[Binding] = []
        sql = f"(length(v.value) > {LARGE_VALUE_BYTES} OR {sql})"
        if keys is not None:
            sql = f"{_expression(keys, key_bindings)} AND {sql}"
        bindings = key_bindings + bindings
    return Condition(sql, tuple(bindings), max(1, VALUES_LOOKED_INTO // max(1, looks)))


def _conditions(hint: Hint) -> Conditions:
    rows, rest = _rows_and_rest(hint)
    return Conditions(_condition(hint), rows, _condition(rest))


_short_conditions = functools.lru_cache(maxsize=64)(_conditions)


def _of_keys(hint: Hint) -> Hint | None:
    """What a hint asks of keys alone, whatever the value."""
    if _is_of_keys(hint):
        return hint
    if isinstance(hint, AllOf):
        parts = tuple(part for part in hint.all_of if _is_of_keys(part))
        return AllOf(parts) if parts else None
    return None


def _is_of_keys(hint: Hint) -> bool:
    match hint:
        case AllOf(parts) | AnyOf(parts):
            return all(map(_is_of_keys, parts))
        case _:
            return isinstance(hint, RowBetween)


def _rows_and_rest(hint: Hint) -> tuple[RowBetween | None, Hint]:
    """The rows outside of which the hint does not hold, if there are such, and what it asks of the others."""
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


def _expression(hint: Hint, bindings: list[Binding]) -> str:
    match hint:
        case Contains(text):
            bindings.append(text)
            return "instr(v.value, ?) > 0"
        case NumberAfter():
            return _number_after(hint, bindings)
        case TextAfter(marker, least, greatest, or_absent):
            bindings += (*_position(marker), len(least), least, greatest)
            return _AFTER.format("t BETWEEN ? AND ?" + (" OR t IS NULL" if or_absent else ""))
        case RowBetween(start, None):
            bindings.append(start)
            return "+v.row >= ?"
        case RowBetween(start, end):
            assert end is not None  # the case before
            bindings += (start, end)
            return "(+v.row >= ? AND +v.row < ?)"
        case AllOf(parts):
            expressions = [_expression(part, bindings) for part in parts]
            return "(" + " AND ".join(expressions) + ")" if expressions else "TRUE"
        case AnyOf(parts):
            return "(" + " OR ".join([_expression(part, bindings) for part in parts]) + ")"
        case _:
            assert_never(hint)


def _position(marker: bytes) -> tuple[Binding, ...]:
    """What is bound to find the first byte after the marker."""
    begin, before = Start(marker, 0), Start(marker, -1)
    return begin, marker, marker, before, Start(marker, len(marker) - 1)


def _number_after(hint: NumberAfter, bindings: list[Binding]) -> str:
    bounds = (hint.least, hint.greatest)
    bindings += (*_position(hint.marker), _NUMBER_BYTES, *bounds)
    otherwise = _NO_NUMBER.format("t")
    if hint.quoted:
        bindings += bounds
        inner = _BETWEEN.format("substr(t, 2)")
        no_number = _NO_NUMBER.format("substr(t, 2)")
        otherwise += f" AND (substr(t, 1, 1) <> x'22' OR {inner} OR {no_number})"
    if not hint.integers:
        otherwise += f" OR {_INTEGER}"
    if hint.or_absent:
        otherwise += " OR t IS NULL"
    return _AFTER.format(f"{_BETWEEN.format('t')} OR {otherwise}")
