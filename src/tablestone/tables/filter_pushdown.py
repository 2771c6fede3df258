"""The hint of a filter: a condition on the stored text of an entity, by which an engine leaves out rows.

A hint may be true of entities that do not match, but is never false of an entity that does. Each entity that is read is
still evaluated. Only certain and common comparisons become hints: of `and`, the certain terms stay; of `or`, all terms
must be certain. Knows how `entity_json` writes values; does not know how an engine searches for them.
"""

import functools
import math
import re
from typing import Final, assert_never

from tablestone import limits
from tablestone.engines.contract import (
    AllOf,
    AnyOf,
    Contains,
    Hint,
    NumberAfter,
    RowBetween,
    TextAfter,
)
from tablestone.model.edm import DATE_TIME_MAX, DATE_TIME_MIN, EdmType, format_date_time
from tablestone.model.entity_json import annotated_name_part, name_part, value_text
from tablestone.model.filter_tree import (
    UNORDERED,
    And,
    BooleanProperty,
    Comparison,
    ComparisonOperator,
    Constant,
    FilterNode,
    Not,
    Or,
)
from tablestone.model.keys import ROW_KEY, encode_key
from tablestone.query.plan import END, rows_where

COMPARISONS_MAX: Final = 8
"""Comparisons of a hint at most: more of them cost the engine about as much as they save."""
DEPTH_MAX: Final = 4
"""Levels of `and` and `or` that become part of a hint."""

# A comma and a quote begin a member of the entity, or a member of a point, which has the names below. Other names than
# these plain ones are legal too, but rare; they get no hint.
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAMES_IN_POINTS: Final = frozenset(("type", "coordinates"))

_UPWARD: Final = (ComparisonOperator.GREATER_THAN, ComparisonOperator.GREATER_THAN_OR_EQUAL)
_DOWNWARD: Final = (ComparisonOperator.LESS_THAN, ComparisonOperator.LESS_THAN_OR_EQUAL)
_SECOND_LENGTH: Final = len("2017-01-05T03:25:45")
_AS_WRITTEN: Final = (EdmType.STRING, EdmType.GUID, EdmType.DATE_TIME, EdmType.BOOLEAN)


def hint_of(node: FilterNode) -> Hint | None:
    """The hint, with at most `COMPARISONS_MAX` comparisons; None if no part of the filter is certain."""
    return _hint(node, DEPTH_MAX)[0]


def _hint(node: FilterNode, depth: int) -> tuple[Hint | None, int]:
    if isinstance(node, And | Or):
        return _of_terms(node, depth - 1) if depth else (None, 0)
    if isinstance(node, Comparison):
        return _of_comparison(node), 1
    if isinstance(node, BooleanProperty):
        return Contains(_marker(node.name) + b"true") if _is_plain(node.name) else None, 1
    if isinstance(node, Not | Constant):
        return None, 0
    assert_never(node)


def _of_terms(node: And | Or, depth: int) -> tuple[Hint | None, int]:
    sure: list[Hint] = []
    total = 0
    for term in node.terms:
        hint, comparisons = _hint(term, depth)
        if hint is not None and total + comparisons <= COMPARISONS_MAX:
            sure.append(hint)
            total += comparisons
        elif isinstance(node, Or):
            return None, 0
    if not sure:
        return None, total
    return AllOf(tuple(sure)) if isinstance(node, And) else AnyOf(tuple(sure)), total


def _is_plain(name: str) -> bool:
    """Whether a hint may search for the name. No property has a longer name, so longer ones are not cached here."""
    return (
        len(name) <= limits.PROPERTY_NAME_LENGTH_MAX
        and _PLAIN_NAME.fullmatch(name) is not None
        and name not in _NAMES_IN_POINTS
    )


@functools.lru_cache(maxsize=256)
def _marker(name: str) -> bytes:
    """The text before the value of a property, which occurs nowhere else."""
    return f",{name_part(name)}".encode("ascii")


def _of_comparison(node: Comparison) -> Hint | None:
    kind, value = node.literal
    if node.operator in UNORDERED:
        part = value_text(kind, value)[1:-1].encode("ascii")
        is_end = node.operator is ComparisonOperator.ENDS_WITH
        return Contains(part + b'"' if is_end else part) if part else None
    if node.operator is ComparisonOperator.NOT_EQUAL or not _is_plain(node.name):
        return None
    if node.name == ROW_KEY and kind is EdmType.STRING:
        for start, end in rows_where(node.operator, encode_key(str(value))):
            return RowBetween(start, None if end == END else end)
        return RowBetween(b"", b"")  # no row key is less than the empty one
    if isinstance(value, int | float) and not isinstance(value, bool) and kind in _NUMBERS:
        return _of_number(node, value)
    if node.operator is ComparisonOperator.STARTS_WITH:
        return Contains(_marker(node.name) + value_text(kind, value)[:-1].encode("ascii"))
    if node.operator is ComparisonOperator.EQUAL and kind in _AS_WRITTEN:
        return Contains(_marker(node.name) + value_text(kind, value).encode("ascii"))
    if kind is EdmType.DATE_TIME and isinstance(value, int):
        return _of_date_time(node, value)
    return None


_NUMBERS: Final = (EdmType.INT32, EdmType.INT64, EdmType.DOUBLE)


def _of_number(node: Comparison, value: float) -> Hint | None:
    """A hint for a number that is near enough, of any type that may match. Other texts than numbers pass too.

    Some comparisons are true of values of another type (wire 6.4): of texts of any kind, for every literal, and of an
    Int32, which has no fraction, for an Int64 or a Double. An Int64 is written as a text too; its annotation shows it.
    """
    if not math.isfinite(value):
        return None
    # Engines may round, and an Int64 has more digits than a double.
    margin = abs(value) * 1e-9 + 1e-290
    least, greatest = value - margin, value + margin
    if node.operator in _DOWNWARD:
        integers = node.literal.type is EdmType.INT32
        number = NumberAfter(_marker(node.name), -math.inf, greatest, integers=integers)
        if node.literal.type is EdmType.DOUBLE:
            return number
        marker = f',{annotated_name_part(node.name, EdmType.INT64)}"'.encode("ascii")
        return AllOf((number, NumberAfter(marker, -math.inf, greatest, or_absent=True)))
    if node.operator in _UPWARD:
        greatest = math.inf
    return NumberAfter(_marker(node.name), least, greatest, quoted=True)


def _of_date_time(node: Comparison, ticks: int) -> Hint | None:
    """Compare whole seconds: the fraction is trimmed in the text, so the texts do not sort like the times."""
    if not DATE_TIME_MIN <= ticks <= DATE_TIME_MAX:
        return None
    second = format_date_time(ticks)[:_SECOND_LENGTH].encode("ascii")
    if node.name == "Timestamp":
        marker, or_absent = _marker(node.name) + b'"', False
    else:
        marker = f',{annotated_name_part(node.name, EdmType.DATE_TIME)}"'.encode("ascii")
        or_absent = node.operator in _DOWNWARD  # true of a value of another type (wire 6.4)
    if node.operator in _UPWARD:
        return TextAfter(marker, second, b"9" * _SECOND_LENGTH)
    return TextAfter(marker, b"0" * _SECOND_LENGTH, second, or_absent)
