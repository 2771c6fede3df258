"""The shape of a filter: its comparisons without their values, so that queries of one kind are counted together.

Two filters have one shape if they differ only in values, or in whether a term of an `and` or `or` is repeated once or
more often. A key is made for each query, so that has to be quick; text and terms are made once for each shape. The
text is that of `advice.filter_shape`. Knows the tree of a filter and no query.
"""

from __future__ import annotations

from typing import Final

from tablestone.model.edm import EdmType
from tablestone.model.filter_tree import (
    And,
    BooleanProperty,
    Comparison,
    ComparisonOperator,
    Constant,
    FilterNode,
    Not,
    Or,
)
from tablestone.model.keys import PARTITION_KEY

ShapeKey = tuple[object, ...]
"""Equal for filters of one shape: (name, operator, type) of a comparison, (kind, ...) of any other node."""

TERMS_MAX: Final = 16
"""Different terms of an `and` or `or` that are told apart; further ones are `...`."""
TEXT_LENGTH_MAX: Final = 400
"""Characters of the text of a shape; a longer one is cut."""
_AND: Final = "and"
_OR: Final = "or"
_NOT: Final = "not"
_CONSTANT: Final = "constant"
_BOOLEAN: Final = "boolean"
_MORE: Final = "..."
_MORE_KEY: Final[ShapeKey] = (_MORE,)


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
        return (_BOOLEAN, node.name)
    assert isinstance(node, Constant)
    return (_CONSTANT, node.value)


def _key_of_terms(word: str, terms: tuple[FilterNode, ...]) -> ShapeKey:
    if len(terms) == 2:
        return (word, shape_key(terms[0]), shape_key(terms[1]))
    keys: list[ShapeKey] = []
    for term in terms:
        key = shape_key(term)
        if keys.count(key) < 2:
            if len(keys) == TERMS_MAX:
                keys.append(_MORE_KEY)
                break
            keys.append(key)
    return (word, *keys)


def shape_text(key: ShapeKey) -> str:
    """The filter with `?` for each value; empty without a filter."""
    text = _text(key)
    return text if len(text) <= TEXT_LENGTH_MAX else f"{text[:TEXT_LENGTH_MAX]}{_MORE}"


def _text(key: ShapeKey) -> str:
    if not key:
        return ""
    kind = key[0]
    if len(key) < 2:
        return _MORE
    operator = key[1]
    if isinstance(operator, ComparisonOperator):  # first, because a property may have any name
        return f"{kind} {operator.value} ?"
    if kind == _CONSTANT:
        return "true" if operator else "false"
    if kind == _BOOLEAN:
        return str(operator)
    if kind == _NOT:
        return f"not ({_text(_inner(operator))})"
    parts = []
    for each in key[1:]:
        inner = _inner(each)
        text = _text(inner)
        parts.append(f"({text})" if _is_joined(inner) else text)
    return f" {kind} ".join(parts)


def shape_terms(key: ShapeKey) -> tuple[list[list[str]], str]:
    """The comparisons of a shape, each once, as property, operator and EDM type; and how they are joined.

    That is "and", "or", "" for one comparison or none, or "mixed" for anything else.
    """
    terms: dict[tuple[str, str, str], None] = {}
    words: set[str] = set()
    _collect(key, terms, words)
    joined = words.pop() if len(words) == 1 else "mixed" if words else ""
    shown = [list(term) for term in terms][: 2 * TERMS_MAX]
    return shown, "mixed" if joined == _NOT else joined


def _collect(key: ShapeKey, terms: dict[tuple[str, str, str], None], words: set[str]) -> None:
    if len(key) < 2:  # no filter, or more of it
        return
    operator = key[1]
    if isinstance(operator, ComparisonOperator):
        kind = key[2]
        assert isinstance(kind, EdmType)
        terms[(str(key[0]), str(operator.value), str(kind.value))] = None
        return
    if isinstance(operator, str):
        terms[(operator, "eq", "Edm.Boolean")] = None
        return
    if isinstance(operator, bool):
        return
    words.add(str(key[0]))
    for each in key[1:]:
        _collect(_inner(each), terms, words)


def _inner(value: object) -> ShapeKey:
    assert isinstance(value, tuple)
    return value


def _is_joined(key: ShapeKey) -> bool:
    """Whether it is an `and` or `or`, and no comparison of a property of that name."""
    return key[0] in (_AND, _OR) and not isinstance(key[1], ComparisonOperator)


def partition_of(node: FilterNode | None) -> str | None:
    """The one PartitionKey that the filter demands by `eq`; None if there is no such comparison."""
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
