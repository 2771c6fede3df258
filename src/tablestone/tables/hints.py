"""What a filter says of the stored text of an entity: a hint, by which an engine leaves out what cannot match.

A hint may be true of entities that do not match, never false of one that does: each that is read is still evaluated.
So only what is sure and common becomes one; of `and` the sure terms stay, of `or` all must be sure. Knows how
`entity_json` writes values; does not know how an engine looks for them.
"""

from __future__ import annotations

import functools
import math
import re
from typing import Final, assert_never

from tablestone import limits
from tablestone.edm import DATE_TIME_MAX, DATE_TIME_MIN, EdmType, format_date_time
from tablestone.engines.contract import (
    AllOf,
    AnyOf,
    Contains,
    Hint,
    NumberAfter,
    RowBetween,
    TextAfter,
)
from tablestone.entity import ROW_KEY, encode_key
from tablestone.entity_json import annotated_name_part, name_part, quote
from tablestone.query.filter_tree import (
    And,
    BooleanProperty,
    Comparison,
    ComparisonOperator,
    Constant,
    FilterNode,
    Not,
    Or,
)

COMPARISONS_MAX: Final = 8
"""More than so many comparisons side by side cost the engine about as much as they spare."""
DEPTH_MAX: Final = 4
"""Levels of `and` and `or` that are looked into."""

# A comma and a quote begin a member of the entity, or one of a point, whose members have the names below. Other names
# than these plain ones are legal too, and not worth the thought.
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAMES_IN_POINTS: Final = frozenset(("type", "coordinates"))

_UPWARD: Final = (ComparisonOperator.GREATER_THAN, ComparisonOperator.GREATER_THAN_OR_EQUAL)
_DOWNWARD: Final = (ComparisonOperator.LESS_THAN, ComparisonOperator.LESS_THAN_OR_EQUAL)
_SECOND_LENGTH: Final = len("2017-01-05T03:25:45")
_AS_WRITTEN: Final = (EdmType.STRING, EdmType.GUID, EdmType.DATE_TIME, EdmType.BOOLEAN)


def hint_of(node: FilterNode) -> Hint | None:
    """The hint, of `COMPARISONS_MAX` comparisons at most; None if nothing is sure enough to be of use."""
    hint, _ = _hint(node, DEPTH_MAX)
    return hint


def _hint(node: FilterNode, depth: int) -> tuple[Hint | None, int]:
    """The hint and its number of comparisons."""
    if isinstance(node, And):
        return _of_all(node.terms, depth - 1) if depth else (None, 0)
    if isinstance(node, Or):
        return _of_any(node.terms, depth - 1) if depth else (None, 0)
    if isinstance(node, Comparison):
        return _of_comparison(node), 1
    if isinstance(node, BooleanProperty):
        return Contains(_marker(node.name) + b"true") if _is_plain(node.name) else None, 1
    if isinstance(node, Not | Constant):
        return None, 0
    assert_never(node)


def _of_all(terms: tuple[FilterNode, ...], depth: int) -> tuple[Hint | None, int]:
    sure: list[Hint] = []
    total = 0
    for term in terms:
        hint, comparisons = _hint(term, depth)
        if hint is not None and total + comparisons <= COMPARISONS_MAX:
            sure.append(hint)
            total += comparisons
    return (AllOf(tuple(sure)) if sure else None), total


def _of_any(terms: tuple[FilterNode, ...], depth: int) -> tuple[Hint | None, int]:
    sure: list[Hint] = []
    total = 0
    for term in terms:
        hint, comparisons = _hint(term, depth)
        total += comparisons
        if hint is None or total > COMPARISONS_MAX:
            return None, 0
        sure.append(hint)
    return AnyOf(tuple(sure)), total


def _is_plain(name: str) -> bool:
    """Whether the name may be looked for in a stored text; a longer one no property has, and it is not kept here."""
    return (
        len(name) <= limits.PROPERTY_NAME_LENGTH_MAX
        and _PLAIN_NAME.fullmatch(name) is not None
        and name not in _NAMES_IN_POINTS
    )


@functools.lru_cache(maxsize=256)
def _marker(name: str) -> bytes:
    """What stands before the value of a property, and nowhere else."""
    return f",{name_part(name)}".encode("ascii")


def _of_comparison(node: Comparison) -> Hint | None:
    if node.operator is ComparisonOperator.NOT_EQUAL or not _is_plain(node.name):
        return None
    kind, value = node.literal
    if node.name == ROW_KEY and kind is EdmType.STRING:
        return _of_row_key(node.operator, str(value))
    if isinstance(value, int | float) and not isinstance(value, bool) and kind in _NUMBERS:
        return _of_number(node, value)
    if node.operator is ComparisonOperator.EQUAL and kind in _AS_WRITTEN:
        return Contains(_marker(node.name) + _written(kind, value).encode("ascii"))
    if kind is EdmType.DATE_TIME and isinstance(value, int):
        return _of_date_time(node, value)
    return None


_NUMBERS: Final = (EdmType.INT32, EdmType.INT64, EdmType.DOUBLE)


def _written(kind: EdmType, value: object) -> str:
    """The one text in which a value of these types is stored; a value of another type is never equal (wire 6.4)."""
    if kind is EdmType.BOOLEAN:
        return "true" if value else "false"
    if isinstance(value, int):
        return f'"{format_date_time(value)}"'
    return quote(str(value))


def _of_row_key(operator: ComparisonOperator, row_key: str) -> Hint:
    row = encode_key(row_key)
    match operator:
        case ComparisonOperator.EQUAL:
            return RowBetween(row, row + b"\0")
        case ComparisonOperator.GREATER_THAN:
            return RowBetween(row + b"\0", None)
        case ComparisonOperator.GREATER_THAN_OR_EQUAL:
            return RowBetween(row, None)
        case ComparisonOperator.LESS_THAN:
            return RowBetween(b"", row)
        case _:
            return RowBetween(b"", row + b"\0")


def _of_number(node: Comparison, value: float) -> Hint | None:
    """A number near enough, wherever the stored type may fit, and what is written as no number: it is evaluated.

    Of another type are, for a comparison that is true of those (wire 6.4): texts of any kind for every literal, and
    an Int32, which has no fraction, for an Int64 or a Double. An Int64 is a text too, which its annotation tells apart.
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
    """Order by whole seconds: below those the text is trimmed, and does not order as the moments do."""
    if not DATE_TIME_MIN <= ticks <= DATE_TIME_MAX:
        return None
    second = format_date_time(ticks)[:_SECOND_LENGTH].encode("ascii")
    if node.name == "Timestamp":
        marker, or_absent = _marker(node.name) + b'"', False
    else:
        marker = f',{annotated_name_part(node.name, EdmType.DATE_TIME)}"'.encode("ascii")
        or_absent = node.operator in _DOWNWARD  # true of what is there with another type (wire 6.4)
    if node.operator in _UPWARD:
        return TextAfter(marker, second, b"9" * _SECOND_LENGTH)
    return TextAfter(marker, b"0" * _SECOND_LENGTH, second, or_absent)
