"""A filter on the properties of entities as a filter on the keys that templates would give them.

A value of a property fixes the part of the key that the template makes of it, and a bound of a property bounds the key
if the texts of its values sort as the values do. A key is narrowed from its beginning on only. The filter itself stays
as a condition, so the result finds nothing else. Knows filters and templates; does not know rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tablestone.advice.conditions import conditions_of
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
from tablestone.transfer.formats.rows import CUT, KeyTemplate, Piece, formatted
from tablestone.transfer.queries import after_prefix

PRESENT: Final = "present "
"""Before the name of a key that the entities have now, beside the keys that they would have."""

_EQUAL, _BOUNDS = (
    ComparisonOperator.EQUAL,
    {
        ComparisonOperator.GREATER_THAN,
        ComparisonOperator.GREATER_THAN_OR_EQUAL,
        ComparisonOperator.LESS_THAN,
        ComparisonOperator.LESS_THAN_OR_EQUAL,
    },
)
_LOWER: Final = {ComparisonOperator.GREATER_THAN, ComparisonOperator.GREATER_THAN_OR_EQUAL}
_UPPER: Final = {ComparisonOperator.LESS_THAN, ComparisonOperator.LESS_THAN_OR_EQUAL}
_PADDED_INTEGER: Final = re.compile(r"0\d+d?")
_PADDED_DOUBLE: Final = re.compile(r"0\d+\.\d+f")
_WIDTHS: Final = {EdmType.INT32: 10, EdmType.INT64: 19}


class KeyTemplates(NamedTuple):
    """The templates of both keys. `names_present_keys`: the rows have keys, and a filter means these."""

    partition_key: KeyTemplate
    row_key: KeyTemplate
    names_present_keys: bool


@dataclass(frozen=True)
class MappedFilter:
    """A filter on the new keys, and sentences about conditions that narrow no key although a key has the property."""

    filter: FilterNode
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Known:
    """The conditions that hold for every entity at a place of the filter."""

    equal: Mapping[str, EdmValue] = field(default_factory=dict)
    bounds: Mapping[str, tuple[Comparison, ...]] = field(default_factory=dict)

    def also(self, leaves: Iterator[FilterNode]) -> _Known:
        equal, bounds = dict(self.equal), dict(self.bounds)
        for leaf in leaves:
            if isinstance(leaf, BooleanProperty):
                equal.setdefault(leaf.name, EdmValue(EdmType.BOOLEAN, value=True))
            elif isinstance(leaf, Comparison) and leaf.operator is _EQUAL:
                equal.setdefault(leaf.name, leaf.literal)
            elif isinstance(leaf, Comparison) and leaf.operator in _BOUNDS:
                bounds[leaf.name] = (*bounds.get(leaf.name, ()), leaf)
        return _Known(equal, bounds)


def map_filter(tree: FilterNode, templates: KeyTemplates) -> MappedFilter:
    """The filter for entities with the new keys. Present keys are `PRESENT` properties there."""
    mapping = _Mapping(templates)
    mapped = mapping.rewrite(_negations_at_leaves(tree, negated=False), _Known())
    return MappedFilter(mapped, tuple(dict.fromkeys(mapping.notes)))


def sign_notes(tree: FilterNode, templates: KeyTemplates) -> tuple[str, ...]:
    """Sentences about the ranges of numbers of a shape, which does not tell whether its values are negative."""
    pieces = (*templates.partition_key.pieces, *templates.row_key.pieces)
    padded = {each.name for each in pieces if _is_padded(each.spec)}
    names = dict.fromkeys(name for each in conditions_of(tree) for name in each.ranges)
    return tuple(
        f"A range of {name} is a range of these keys only if no {name} is negative."
        for name in names
        if name in padded
    )


def _is_padded(spec: str) -> bool:
    return bool(_PADDED_INTEGER.fullmatch(spec) or _PADDED_DOUBLE.fullmatch(spec))


def _negations_at_leaves(node: FilterNode, *, negated: bool) -> FilterNode:
    """The same filter with `not` at its leaves only. Keys always exist, so their negation is the inverse comparison."""
    while isinstance(node, Not):
        node, negated = node.term, not negated
    if isinstance(node, And | Or):
        terms = []
        for term in node.terms:
            moved = _negations_at_leaves(term, negated=negated)
            terms.append(moved)
        return And(tuple(terms)) if isinstance(node, And) is not negated else Or(tuple(terms))
    if not negated:
        return node
    if isinstance(node, Constant):
        return Constant(not node.value)
    if isinstance(node, Comparison) and node.name in (PARTITION_KEY, ROW_KEY):
        return Comparison(node.name, INVERTED[node.operator], node.literal)
    return Not(node)


class _Mapping:
    def __init__(self, templates: KeyTemplates) -> None:
        self._templates = templates
        self.notes: list[str] = []

    def rewrite(self, node: FilterNode, known: _Known) -> FilterNode:
        """The node with conditions on the new keys, by what it says itself and what is known around it."""
        if isinstance(node, Or):
            terms = []
            for term in node.terms:
                rewritten = self.rewrite(term, known)
                terms.append(rewritten)
            return Or(tuple(terms))
        if isinstance(node, Constant | Not):
            return self._renamed(node)
        parts = node.terms if isinstance(node, And) else (node,)
        inner = known.also(part for part in parts if isinstance(part, Comparison | BooleanProperty))
        found: list[FilterNode] = [*self._keys(inner)]
        for part in parts:
            is_leaf = isinstance(part, Comparison | BooleanProperty)
            rewritten = self._renamed(part) if is_leaf else self.rewrite(part, inner)
            found.append(rewritten)
        return found[0] if len(found) == 1 else And(tuple(found))

    def _renamed(self, node: FilterNode) -> FilterNode:
        if not self._templates.names_present_keys:
            return node

        def rename(leaf: Comparison) -> Comparison:
            if leaf.name not in (PARTITION_KEY, ROW_KEY):
                return leaf
            return Comparison(PRESENT + leaf.name, leaf.operator, leaf.literal)

        return map_comparisons(node, rename)

    def _keys(self, known: _Known) -> Iterator[Comparison]:
        yield from self._key(PARTITION_KEY, self._templates.partition_key, known)
        yield from self._key(ROW_KEY, self._templates.row_key, known)

    def _key(self, name: str, template: KeyTemplate, known: _Known) -> Iterator[Comparison]:
        """The conditions on one key: a value, a range, or none."""
        prefix = ""
        for place, piece in enumerate(template.pieces):
            prefix += piece.text
            if piece.name is None:
                continue
            value = known.equal.get(piece.name)
            text = None if value is None else _text(piece, value)
            if text is None:
                bounds = known.bounds.get(piece.name, ())
                is_last = place == len(template.pieces) - 1
                yield from self._range(name, prefix, piece, bounds, is_last=is_last)
                return
            prefix += text
        yield _comparison(name, _EQUAL, prefix)

    def _range(
        self,
        name: str,
        prefix: str,
        piece: Piece,
        bounds: tuple[Comparison, ...],
        *,
        is_last: bool,
    ) -> Iterator[Comparison]:
        """The keys that begin with a text, narrowed by the bounds of the property behind it."""
        lower = upper = None
        for bound in bounds:
            if (reason := _why_unordered(piece, bound.literal)) is not None:
                self.notes.append(reason)
                continue
            text = _text(piece, bound.literal)
            if text is not None:
                is_exact = is_last and not CUT.fullmatch(piece.spec)
                condition = _bound(name, bound.operator, prefix + text, is_exact=is_exact)
                if bound.operator in _LOWER:
                    lower = condition
                else:
                    upper = condition
        if lower is None and prefix:
            lower = _comparison(name, ComparisonOperator.GREATER_THAN_OR_EQUAL, prefix)
        end = after_prefix(prefix) if prefix else None
        if upper is None and end is not None:
            upper = _comparison(name, ComparisonOperator.LESS_THAN, end)
        yield from (each for each in (lower, upper) if each is not None)


def _bound(name: str, operator: ComparisonOperator, text: str, *, is_exact: bool) -> Comparison:
    """The bound of a property as a bound of the key.

    Not exact: a key has more text behind a property that is not the last, or has only the beginning of the value.
    """
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
    assert piece.name is not None  # the caller has checked it
    try:
        return formatted(piece.name, value, piece.spec)
    except ValueError:
        return None


def _why_unordered(piece: Piece, value: EdmValue) -> str | None:
    """Why a bound of the property is no bound of the key; None if the texts sort as the values do."""
    kind, spec, name = value.type, piece.spec, piece.name
    if kind in (EdmType.STRING, EdmType.DATE_TIME) and (not spec or CUT.fullmatch(spec)):
        return None
    if isinstance(value.value, int | float) and not isinstance(value.value, bool):
        if value.value < 0:
            return f"A bound of {name} is negative, and texts of negative numbers do not sort as the numbers do."
        pattern = _PADDED_DOUBLE if kind is EdmType.DOUBLE else _PADDED_INTEGER
        if pattern.fullmatch(spec):
            return None
        better = (
            f"{{{name}:020.6f}}"
            if kind is EdmType.DOUBLE
            else f"{{{name}:0{_WIDTHS.get(kind, 10)}}}"
        )
        return (
            f"A range of {name} is no range of the key: numbers do not sort as text. {better} would, for numbers "
            "that are not negative."
        )
    return f"A range of {name} is no range of the key: its text does not sort as its values do."
