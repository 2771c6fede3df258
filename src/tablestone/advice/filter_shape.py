"""The shape of a filter: its text with `?` in the place of each value; and a filter that has the plan of a shape.

Queries that differ in their values only have one shape. Knows the tree of a filter; does not know what a filter reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from tablestone.model.edm import DATE_TIME_MIN, EdmType, EdmValue, GeographyPoint, Scalar
from tablestone.model.entity import TIMESTAMP
from tablestone.model.errors import StorageError
from tablestone.model.filter_tree import (
    And,
    BooleanProperty,
    Comparison,
    ComparisonOperator,
    Constant,
    FilterNode,
    Not,
    Or,
    map_comparisons,
)
from tablestone.query.filter_parser import parse_filter

VALUE: Final = "?"


class NoShape(ValueError):
    """A text that is no shape of a filter; the text says why."""


def shape_of(node: FilterNode | None) -> str:
    """The shape of a filter; empty without a filter. Equal terms of an `or` or `and` are written once."""
    return "" if node is None else _print(node)


def _print(node: FilterNode) -> str:
    if isinstance(node, Comparison):
        return f"{node.name} {node.operator.value} {VALUE}"
    if isinstance(node, BooleanProperty):
        return node.name
    if isinstance(node, Constant):
        return "true" if node.value else "false"
    if isinstance(node, Not):
        return f"not ({_print(node.term)})"
    is_and = isinstance(node, And)
    parts = []
    for term in node.terms:
        text = _print(term)
        parts.append(f"({text})" if isinstance(term, And | Or) else text)
    # Two equal terms say that there are several values; more of them say nothing new.
    kept = [part for place, part in enumerate(parts) if parts[:place].count(part) < 2]
    return (" and " if is_and else " or ").join(kept)


_QUESTION: Final = re.compile(r"'(?:[^']|'')*'|\?")
_MORE: Final = re.compile(r" (?:and|or) \.\.\.")
"""Further terms of the same form, which a shape may leave out."""


def is_shape(text: str) -> bool:
    """Whether a text has a `?` in the place of a value."""
    return any(found[0] == VALUE for found in _QUESTION.finditer(text))


def read_shape(text: str, types: Mapping[str, EdmType] | None = None) -> FilterNode | None:
    """The tree of a shape, with a value in the place of each `?`; None for an empty text, `NoShape` for no shape.

    A filter with values of its own is a shape too. `types` are those of the values of properties, where they are known.
    """
    if not text.strip():
        return None
    text = _MORE.sub("", text)
    marked = _QUESTION.sub(lambda found: f"'{VALUE}'" if found[0] == VALUE else found[0], text)
    marked = _TIMESTAMP.sub(r"\1datetime'2000-01-01T00:00:00Z'", marked)
    try:
        tree = parse_filter(marked)
    except StorageError as error:
        raise NoShape(error.text) from None
    return None if tree is None else _with_values(tree, types or {})


_TIMESTAMP: Final = re.compile(rf"\b({TIMESTAMP} (?:eq|ne|gt|ge|lt|le) )'\?'")


def _with_values(tree: FilterNode, types: Mapping[str, EdmType]) -> FilterNode:
    """The tree with a value for each mark: bounds that leave a range open between them, and different single values."""
    count = 0

    def value(node: Comparison) -> Comparison:
        nonlocal count
        if node.literal != _MARK:
            return node
        count += 1
        return replace(node, literal=_example(types.get(node.name), node.operator, count))

    return map_comparisons(tree, value)


_MARK: Final = EdmValue(EdmType.STRING, VALUE)
_FIRST: Final = {
    ComparisonOperator.EQUAL: 5_000_000,
    ComparisonOperator.NOT_EQUAL: 5_000_000,
    ComparisonOperator.GREATER_THAN: 1_000_000,
    ComparisonOperator.GREATER_THAN_OR_EQUAL: 1_000_000,
    ComparisonOperator.LESS_THAN: 9_000_000,
    ComparisonOperator.LESS_THAN_OR_EQUAL: 9_000_000,
}
"""Lower bounds sort before upper bounds, and single values between them."""
_MAKERS: Final[Mapping[EdmType | None, Callable[[int], Scalar]]] = {
    EdmType.INT32: int,
    EdmType.INT64: int,
    EdmType.DOUBLE: float,
    EdmType.BOOLEAN: bool,
    EdmType.DATE_TIME: lambda number: DATE_TIME_MIN + number * 10_000_000,
    EdmType.GUID: lambda number: f"00000000-0000-0000-0000-{number:012}",
    EdmType.BINARY: lambda number: number.to_bytes(8, "big"),
    EdmType.GEOGRAPHY_POINT: lambda number: GeographyPoint(float(number % 180), 0.0),
}


def _example(kind: EdmType | None, operator: ComparisonOperator, count: int) -> EdmValue:
    """A value of the type, or a String if the type is not known."""
    number = _FIRST[operator] + count
    make = _MAKERS.get(kind)
    if kind is None or make is None:
        return EdmValue(EdmType.STRING, f"{number:07}")
    return EdmValue(kind, make(number))
