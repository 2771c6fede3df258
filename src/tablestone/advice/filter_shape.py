"""The shape of a filter: its text with `?` in the place of each value, and back to a tree that has the same plan.

Queries that differ in their values only have one shape. Knows the tree of a filter; does not know what a filter reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tablestone.model.edm import DATE_TIME_MIN, EdmType, EdmValue, GeographyPoint
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
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
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
        if node.name not in (PARTITION_KEY, ROW_KEY) and node.name in types:
            return replace(node, literal=_EXAMPLES[types[node.name]])
        prefix = _PREFIXES[node.operator]
        return Comparison(node.name, node.operator, EdmValue(EdmType.STRING, f"{prefix}{count:06}"))

    return map_comparisons(tree, value)


_EXAMPLES: Final = {
    kind: EdmValue(kind, value)
    for kind, value in (
        (EdmType.STRING, ""),
        (EdmType.INT32, 0),
        (EdmType.INT64, 0),
        (EdmType.DOUBLE, 0.0),
        (EdmType.BOOLEAN, True),
        (EdmType.DATE_TIME, DATE_TIME_MIN),
        (EdmType.GUID, "00000000-0000-0000-0000-000000000000"),
        (EdmType.BINARY, b""),
        (EdmType.GEOGRAPHY_POINT, GeographyPoint(0.0, 0.0)),
    )
}
"""A value of each type: no plan depends on the value of a property that is no key."""
_MARK: Final = EdmValue(EdmType.STRING, VALUE)
_PREFIXES: Final = {
    ComparisonOperator.EQUAL: "m",
    ComparisonOperator.NOT_EQUAL: "n",
    ComparisonOperator.GREATER_THAN: "b",
    ComparisonOperator.GREATER_THAN_OR_EQUAL: "b",
    ComparisonOperator.LESS_THAN: "y",
    ComparisonOperator.LESS_THAN_OR_EQUAL: "y",
}
"""Lower bounds sort before upper bounds, and single values between them."""
