"""The shape of a filter: its comparisons without their values, so that queries of one kind are counted together.

Two filters have one shape if they differ only in values, or in how often a term of an `and` or `or` is repeated. A key
is made for each query, so that has to be quick; text and terms are made once for each shape. Knows the tree of a filter
and no query.
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
"""Equal for filters of one shape: a comparison is (name, operator, type), any other node (its kind, ...)."""

TERMS_MAX: Final = 16
"""Different terms of an `and` or `or` that are told apart; further ones are `...`."""
TEXT_LENGTH_MAX: Final = 400
"""Characters of the text of a shape; a longer one is cut."""
_AND: Final = "and"
_OR: Final = "or"
_NOT: Final = "not"
_CONSTANT: Final = "constant"
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
        return (node.name, ComparisonOperator.EQUAL, EdmType.BOOLEAN)
    assert isinstance(node, Constant)
    return (_CONSTANT, node.value)


def _key_of_terms(word: str, terms: tuple[FilterNode, ...]) -> ShapeKey:
    if len(terms) == 2:
        one, other = shape_key(terms[0]), shape_key(terms[1])
        return (word, one, other) if one != other else (word, one, _MORE_KEY)
    keys: dict[ShapeKey, None] = {}
    has_more = False
    for term in terms:
        key = shape_key(term)
        if key in keys:
            has_more = True
        elif len(keys) < TERMS_MAX:
            keys[key] = None
        else:
            has_more = True
            break
    return (word, *keys, _MORE_KEY) if has_more else (word, *keys)


def shape_text(key: ShapeKey) -> str:
    """The filter with `?` for each value; empty without a filter."""
    text = _text(key)
    return text if len(text) <= TEXT_LENGTH_MAX else f"{text[:TEXT_LENGTH_MAX]}{_MORE}"


def _text(key: ShapeKey) -> str:
    if not key:
        return ""
    kind = key[0]
    if kind == _MORE:
        return _MORE
    if kind == _CONSTANT and len(key) == 2:
        return "true" if key[1] else "false"
    if kind == _NOT and len(key) == 2:
        return f"not ({_text(_inner(key[1]))})"
    operator = key[1]
    if isinstance(operator, ComparisonOperator):
        return f"{kind} {operator.value} ?"
    parts = []
    for each in key[1:]:
        inner = _inner(each)
        text = _text(inner)
        is_joined = bool(inner) and inner[0] in (_AND, _OR) and _is_joined(inner)
        parts.append(f"({text})" if is_joined else text)
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
    if not key or (len(key) <= 2 and key[0] in (_MORE, _CONSTANT)):
        return
    operator = key[1]
    if isinstance(operator, ComparisonOperator):
        kind = key[2]
        assert isinstance(kind, EdmType)
        terms[(str(key[0]), str(operator.value), str(kind.value))] = None
        return
    words.add(str(key[0]))
    for each in key[1:]:
        _collect(_inner(each), terms, words)


def _inner(value: object) -> ShapeKey:
    assert isinstance(value, tuple)
    return value


def _is_joined(key: ShapeKey) -> bool:
    """Whether it is an `and` or `or`, and no comparison of a property of that name."""
    return len(key) < 2 or not isinstance(key[1], ComparisonOperator)


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
