"""The shape of a filter: its text with `?` in place of each value; and back, a filter whose plan is that of a shape.

Queries that differ only in their values have the same shape, so insight counts them together.
"""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from tablestone.model.edm import DATE_TIME_MIN, EdmType, EdmValue, GeographyPoint, Scalar
from tablestone.model.entity import TIMESTAMP
from tablestone.model.errors import StorageError
from tablestone.model.filter_tree import (
    TEXT_FUNCTIONS,
    And,
    BooleanProperty,
    Comparison,
    ComparisonOperator,
    Constant,
    FilterNode,
    Not,
    Or,
    leaves,
    map_comparisons,
)
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
from tablestone.query.filter_parser import parse_filter

VALUE: Final = "?"
ShapeKey = tuple[object, ...]
"""Equal for filters of one shape: (name, operator, type) for a comparison, (kind, ...) for any other node."""
TERMS_MAX: Final = 16
"""The most different terms of an `and` or `or` in a shape; `...` stands for the rest."""
TEXT_LENGTH_MAX: Final = 400
"""Characters of the text of a shape, which is cut there."""
_AND: Final = "and"
_OR: Final = "or"
_NOT: Final = "not"
_MORE: Final = "..."


def shape_key(node: FilterNode | None) -> ShapeKey:
    """The key of a filter's shape; empty without a filter."""
    if node is None:
        return ()
    if isinstance(node, Comparison):
        return (node.name, node.operator, node.literal.type)
    if isinstance(node, And):
        return _key_of_terms(_AND, node.terms)
    if isinstance(node, Or):
        return _key_of_terms(_OR, node.terms)
    if isinstance(node, Not):
        return (_NOT, shape_key(node.term))
    if isinstance(node, BooleanProperty):
        return ("boolean", node.name)
    assert isinstance(node, Constant)
    return ("constant", node.value)


def _key_of_terms(word: str, terms: tuple[FilterNode, ...]) -> ShapeKey:
    if len(terms) == 2:
        return (word, shape_key(terms[0]), shape_key(terms[1]))
    keys: list[ShapeKey] = []
    for term in terms:
        key = shape_key(term)
        if keys.count(key) < 2:
            if len(keys) == TERMS_MAX:
                keys.append((_MORE,))
                break
            keys.append(key)
    return (word, *keys)


def shape_text(node: FilterNode | None) -> str:
    """The text of the shape, cut to `TEXT_LENGTH_MAX`; empty without a filter."""
    text = "" if node is None else _text(node, TERMS_MAX)
    return text if len(text) <= TEXT_LENGTH_MAX else f"{text[:TEXT_LENGTH_MAX]}{_MORE}"


def shape_of(node: FilterNode | None) -> str:
    """The text of the shape, however long."""
    return "" if node is None else _text(node, sys.maxsize)


def _text(node: FilterNode, terms_max: int) -> str:
    if isinstance(node, Comparison):
        return node.written(VALUE)
    if isinstance(node, BooleanProperty):
        return node.name
    if isinstance(node, Constant):
        return "true" if node.value else "false"
    if isinstance(node, Not):
        return f"not ({_text(node.term, terms_max)})"
    parts: list[str] = []
    for term in node.terms:
        text = _text(term, terms_max)
        part = f"({text})" if isinstance(term, And | Or) else text
        # Two equal terms show that there are several values; more would add nothing.
        if parts.count(part) < 2:
            if len(parts) == terms_max:
                parts.append(_MORE)
                break
            parts.append(part)
    return (" and " if isinstance(node, And) else " or ").join(parts)


def shape_terms(node: FilterNode | None) -> tuple[list[list[str]], str]:
    """The different comparisons (property, operator, EDM type), joined by "and", "or", "" (at most one) or "mixed"."""
    terms: dict[tuple[str, str, str], None] = {}
    words: set[str] = set()
    if node is not None:
        _collect(node, terms, words)
    joined = words.pop() if len(words) == 1 else "mixed" if words else ""
    return [list(term) for term in terms][: 2 * TERMS_MAX], "mixed" if joined == _NOT else joined


def _collect(node: FilterNode, terms: dict[tuple[str, str, str], None], words: set[str]) -> None:
    if isinstance(node, Comparison):
        terms[node.name, node.operator.value, node.literal.type.value] = None
    elif isinstance(node, BooleanProperty):
        terms[node.name, "eq", EdmType.BOOLEAN.value] = None
    elif isinstance(node, Not):
        words.add(_NOT)
        _collect(node.term, terms, words)
    elif isinstance(node, And | Or):
        words.add(_AND if isinstance(node, And) else _OR)
        most = len(terms) + TERMS_MAX
        for term in node.terms:
            if len(terms) < most:
                _collect(term, terms, words)


def partition_of(node: FilterNode | None) -> str | None:
    """The one PartitionKey that the filter fixes by `eq`; None if it fixes none."""
    if isinstance(node, Comparison):
        if node.name == PARTITION_KEY and node.operator is ComparisonOperator.EQUAL:
            value = node.literal.value
            return value if isinstance(value, str) and node.literal.type is EdmType.STRING else None
        return None
    if isinstance(node, And):
        for term in node.terms:
            if isinstance(term, Comparison):
                found = partition_of(term)
                if found is not None:
                    return found
    return None


def fixed_values(node: FilterNode | None) -> tuple[Scalar, ...]:
    """The values that the filter fixes by `eq` in properties other than the keys."""
    if isinstance(node, Comparison):
        is_fixed = node.operator is ComparisonOperator.EQUAL and node.name not in _KEYS
        return (node.literal.value,) if is_fixed else ()
    if isinstance(node, And):
        return tuple(value for term in node.terms for value in fixed_values(term))
    return ()


_KEYS: Final = (PARTITION_KEY, ROW_KEY)


class NoShape(ValueError):
    """A text that is not the shape of a filter. The error says why."""


_QUESTION: Final = re.compile(r"'(?:[^']|'')*'|\?")
_FURTHER: Final = re.compile(r" (?:and|or) \.\.\.")
"""Further terms of the same form."""


def read_shape(text: str, types: Mapping[str, EdmType] | None = None) -> FilterNode | None:
    """The tree of a shape, with values of known `types`, or of a filter; None for an empty text. Raises `NoShape`."""
    if not text.strip():
        return None
    text = _FURTHER.sub("", text)
    marked = _QUESTION.sub(lambda found: f"'{VALUE}'" if found[0] == VALUE else found[0], text)
    marked = _TIMESTAMP.sub(r"\1datetime'2000-01-01T00:00:00Z'", marked)
    try:
        tree = parse_filter(marked, extended=True)
    except StorageError as error:
        raise NoShape(error.text) from None
    return None if tree is None else _with_values(tree, types or {})


_TIMESTAMP: Final = re.compile(rf"\b({TIMESTAMP} (?:eq|ne|gt|ge|lt|le) )'\?'")


def _with_values(tree: FilterNode, types: Mapping[str, EdmType]) -> FilterNode:
    """The tree with a value for each mark: single values that differ, and bounds with a range between them."""
    count = 0

    def value(node: Comparison) -> Comparison:
        nonlocal count
        if node.literal != _MARK or node.operator in TEXT_FUNCTIONS:
            return node
        count += 1
        return replace(node, literal=_example(types.get(node.name), node.operator, count))

    return map_comparisons(tree, value)


_MARK: Final = EdmValue(EdmType.STRING, VALUE)
_FIRST: Final = {
    ComparisonOperator.GREATER_THAN: 1_000_000,
    ComparisonOperator.GREATER_THAN_OR_EQUAL: 1_000_000,
    ComparisonOperator.LESS_THAN: 9_000_000,
    ComparisonOperator.LESS_THAN_OR_EQUAL: 9_000_000,
}
"""Lower bounds sort before upper bounds, and single values (`eq`, `ne`) between them."""
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
    """A value of the type; a String if the type is unknown."""
    number = _FIRST.get(operator, 5_000_000) + count
    make = _MAKERS.get(kind)
    if kind is None or make is None:
        return EdmValue(EdmType.STRING, f"{number:07}")
    return EdmValue(kind, make(number))


NUMBERS: Final = (EdmType.INT32, EdmType.INT64, EdmType.DOUBLE)
"""The types of numbers, the narrowest first."""


def with_stored_types(tree: FilterNode, types: Mapping[str, EdmType]) -> FilterNode:
    """The filter with each number in the type of its property, where that is known."""

    def stored(node: Comparison) -> Comparison:
        kind, literal = types.get(node.name), node.literal
        value = literal.value
        if kind not in NUMBERS or literal.type not in NUMBERS or kind is literal.type:
            return node
        assert isinstance(value, int | float)
        if kind is EdmType.DOUBLE:
            return replace(node, literal=EdmValue(kind, float(value)))
        if isinstance(value, float) and not value.is_integer():
            return node  # it equals no value of the property
        return replace(node, literal=EdmValue(kind, int(value)))

    return map_comparisons(tree, stored)


def number_names(tree: FilterNode | None) -> tuple[str, ...]:
    """The properties that the filter compares with a number, once each."""
    return tuple(
        dict.fromkeys(
            each.name
            for each in leaves(tree)
            if isinstance(each, Comparison) and each.literal.type in NUMBERS
        )
    )
