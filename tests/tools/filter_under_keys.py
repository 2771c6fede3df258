"""A filter under other keys: the judge of keys that the advice names.

The keys are templates of present properties and keys. A condition narrows a key from its beginning, and a range only
if the texts sort as the values do.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.filter_tree import (
    INVERTED,
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
from tablestone.tools.formats.rows import CUT, KeyTemplate, Piece, formatted
from tablestone.tools.queries import after_prefix

_KEYS: Final = (PARTITION_KEY, ROW_KEY)
_EQUAL: Final = ComparisonOperator.EQUAL
_LOWER: Final = {ComparisonOperator.GREATER_THAN, ComparisonOperator.GREATER_THAN_OR_EQUAL}
_UPPER: Final = {ComparisonOperator.LESS_THAN, ComparisonOperator.LESS_THAN_OR_EQUAL}
_PADDED: Final = re.compile(r"0\d+(d?|\.\d+f)")


@dataclass(frozen=True)
class _Known:
    """The conditions that hold for every entity at some node of a filter."""

    equal: Mapping[str, EdmValue] = field(default_factory=dict)
    bounds: Mapping[str, tuple[Comparison, ...]] = field(default_factory=dict)

    def also(self, leaves: Iterable[FilterNode]) -> "_Known":
        equal, bounds = dict(self.equal), dict(self.bounds)
        for leaf in leaves:
            if isinstance(leaf, BooleanProperty):
                equal.setdefault(leaf.name, EdmValue(EdmType.BOOLEAN, value=True))
            elif isinstance(leaf, Comparison) and leaf.operator is _EQUAL:
                equal.setdefault(leaf.name, leaf.literal)
            elif isinstance(leaf, Comparison) and leaf.operator in _LOWER | _UPPER:
                bounds[leaf.name] = (*bounds.get(leaf.name, ()), leaf)
        return _Known(equal, bounds)


def filter_under_keys(tree: FilterNode, partition_key: str, row_key: str) -> FilterNode:
    """The filter as a client would write it, if entities had the keys of these templates."""
    templates = (KeyTemplate(partition_key, ""), KeyTemplate(row_key, ""))
    keys = dict(zip(_KEYS, templates, strict=True))
    return _rewritten(_negations_at_leaves(tree, negated=False), keys, _Known())


def _negations_at_leaves(node: FilterNode, *, negated: bool) -> FilterNode:
    """Push `not` down to the leaves. Keys always exist, so a negated comparison of a key is inverted."""
    while isinstance(node, Not):
        node, negated = node.term, not negated
    if isinstance(node, And | Or):
        terms = tuple(_negations_at_leaves(term, negated=negated) for term in node.terms)
        return And(terms) if isinstance(node, And) is not negated else Or(terms)
    if not negated:
        return node
    if isinstance(node, Constant):
        return Constant(not node.value)
    if isinstance(node, Comparison) and node.name in _KEYS:
        return Comparison(node.name, INVERTED[node.operator], node.literal)
    return Not(node)


def _rewritten(node: FilterNode, keys: Mapping[str, KeyTemplate], known: _Known) -> FilterNode:
    """The node with conditions on the keys added, by its own conditions and those known around it."""
    if isinstance(node, Or):
        return Or(tuple(_rewritten(term, keys, known) for term in node.terms))
    if isinstance(node, Constant | Not):
        return map_comparisons(node, _renamed)
    parts = node.terms if isinstance(node, And) else (node,)
    leaves = Comparison | BooleanProperty
    inner = known.also(part for part in parts if isinstance(part, leaves))
    found: list[FilterNode] = []
    for name, template in keys.items():
        found += _key(name, template, inner)
    for part in parts:
        is_leaf = isinstance(part, leaves)
        found.append(map_comparisons(part, _renamed) if is_leaf else _rewritten(part, keys, inner))
    return found[0] if len(found) == 1 else And(tuple(found))


def _renamed(leaf: Comparison) -> Comparison:
    name = f"present {leaf.name}" if leaf.name in _KEYS else leaf.name
    return Comparison(name, leaf.operator, leaf.literal)


def _key(name: str, template: KeyTemplate, known: _Known) -> Iterator[Comparison]:
    """The conditions on one key: equality, a range, or none."""
    prefix = ""
    for index, piece in enumerate(template.pieces):
        prefix += piece.text
        if piece.name is None:
            continue
        value = known.equal.get(piece.name)
        text = None if value is None else _text(piece, value)
        if text is None:
            is_last = index == len(template.pieces) - 1
            yield from _range(name, prefix, piece, known.bounds.get(piece.name, ()), is_last)
            return
        prefix += text
    yield _comparison(name, _EQUAL, prefix)


def _range(
    name: str,
    prefix: str,
    piece: Piece,
    bounds: tuple[Comparison, ...],
    is_last: bool,  # noqa: FBT001 - of one caller
) -> Iterator[Comparison]:
    """The range of keys with a prefix, narrowed by the bounds of the property after it."""
    lower = upper = None
    for bound in bounds:
        text = _text(piece, bound.literal) if _sorts(piece, bound.literal) else None
        if text is not None:
            is_exact = is_last and not CUT.fullmatch(piece.spec)
            condition = _bound(name, bound.operator, prefix + text, is_exact=is_exact)
            lower, upper = (condition, upper) if bound.operator in _LOWER else (lower, condition)
    if lower is None and prefix:
        lower = _comparison(name, ComparisonOperator.GREATER_THAN_OR_EQUAL, prefix)
    end = after_prefix(prefix) if prefix else None
    if upper is None and end is not None:
        upper = _comparison(name, ComparisonOperator.LESS_THAN, end)
    yield from (each for each in (lower, upper) if each is not None)


def _bound(name: str, operator: ComparisonOperator, text: str, *, is_exact: bool) -> Comparison:
    """The bound of a key. Not exact: the key goes on after the property, or has only the beginning of its value."""
    if not is_exact:
        if operator is ComparisonOperator.GREATER_THAN:
            operator = ComparisonOperator.GREATER_THAN_OR_EQUAL
        elif operator in _UPPER:
            end = after_prefix(text)
            if end is not None:
                return _comparison(name, ComparisonOperator.LESS_THAN, end)
    return _comparison(name, operator, text)


def _comparison(name: str, operator: ComparisonOperator, text: str) -> Comparison:
    return Comparison(name, operator, EdmValue(EdmType.STRING, text))


def _text(piece: Piece, value: EdmValue) -> str | None:
    assert piece.name is not None
    try:
        return formatted(piece.name, value, piece.spec)
    except ValueError:
        return None


def _sorts(piece: Piece, value: EdmValue) -> bool:
    """Whether the key's texts of such values sort as the values do."""
    if value.type in (EdmType.STRING, EdmType.DATE_TIME):
        return not piece.spec or bool(CUT.fullmatch(piece.spec))
    number = value.value
    if not isinstance(number, int | float) or isinstance(number, bool):
        return False
    return number >= 0 and bool(_PADDED.fullmatch(piece.spec))
