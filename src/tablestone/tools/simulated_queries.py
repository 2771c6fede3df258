"""Queries on rows with other keys: their plans, and the entities that they would read.

A query with values is counted on the data. A shape, with `?` for values, only has a plan, and an estimate by the size
of a typical partition.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tablestone.advice.filter_shape import NoShape, is_shape, read_shape, with_stored_types
from tablestone.advice.proposed_keys import conditions_of
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.errors import StorageError
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
from tablestone.model.keys import PARTITION_KEY, ROW_KEY, EntityKey, encode_key
from tablestone.query.evaluate import compile_filter
from tablestone.query.filter_parser import parse_filter
from tablestone.query.plan import KeyInterval, PlanKind, plan_query
from tablestone.tools.errors import TransferRefused
from tablestone.tools.formats.rows import CUT, KeyTemplate, Piece, formatted
from tablestone.tools.queries import after_prefix

PRESENT: Final = "present "
"""Prefix of a present key's name, beside the new keys."""

_EQUAL: Final = ComparisonOperator.EQUAL
_LOWER: Final = {ComparisonOperator.GREATER_THAN, ComparisonOperator.GREATER_THAN_OR_EQUAL}
_UPPER: Final = {ComparisonOperator.LESS_THAN, ComparisonOperator.LESS_THAN_OR_EQUAL}
_PADDED_INTEGER: Final = re.compile(r"0\d+d?")
_PADDED_DOUBLE: Final = re.compile(r"0\d+\.\d+f")
_WIDTHS: Final = {EdmType.INT32: 10, EdmType.INT64: 19}


class KeyTemplates(NamedTuple):
    """The templates of both keys. `names_present_keys`: the rows have keys, and filters mean those."""

    partition_key: KeyTemplate
    row_key: KeyTemplate
    names_present_keys: bool


@dataclass(frozen=True)
class MappedFilter:
    """A filter on the new keys, and notes on conditions that do not narrow a key made of their property."""

    filter: FilterNode
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Known:
    """The conditions that hold for every entity at some node of a filter."""

    equal: Mapping[str, EdmValue] = field(default_factory=dict)
    bounds: Mapping[str, tuple[Comparison, ...]] = field(default_factory=dict)

    def also(self, leaves: Iterator[FilterNode]) -> _Known:
        equal, bounds = dict(self.equal), dict(self.bounds)
        for leaf in leaves:
            if isinstance(leaf, BooleanProperty):
                equal.setdefault(leaf.name, EdmValue(EdmType.BOOLEAN, value=True))
            elif isinstance(leaf, Comparison) and leaf.operator is _EQUAL:
                equal.setdefault(leaf.name, leaf.literal)
            elif isinstance(leaf, Comparison) and leaf.operator in _LOWER | _UPPER:
                bounds[leaf.name] = (*bounds.get(leaf.name, ()), leaf)
        return _Known(equal, bounds)


def map_filter(tree: FilterNode, templates: KeyTemplates) -> MappedFilter:
    """Map a filter to the new keys. Present keys become properties with the prefix `PRESENT`."""
    mapping = _Mapping(templates)
    mapped = mapping.rewrite(_negations_at_leaves(tree, negated=False), _Known())
    return MappedFilter(mapped, tuple(dict.fromkeys(mapping.notes)))


def sign_notes(tree: FilterNode, templates: KeyTemplates) -> tuple[str, ...]:
    """Notes on ranges of numbers in a shape, whose values may be negative."""
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
    """Push `not` down to the leaves. Keys always exist, so a negated comparison of a key is inverted."""
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
        """The node with conditions on the new keys added, by its own conditions and those known around it."""
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
        """The conditions on one key: equality, a range, or none."""
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
        """The range of keys with a prefix, narrowed by the bounds of the property after it."""
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
    """Turn a bound of a property into a bound of the key.

    Not exact: the key goes on after the property, or has only the beginning of the value.
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
    """Why a bound of the property does not bound the key; None if the texts sort as the values do."""
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


EncodedKey = tuple[bytes, bytes]


class GivenQuery(NamedTuple):
    """A filter or its shape, with the types of its values if known, and the number of observed `runs`.

    `is_point_read`: the requests were point reads by the keys of the observed table, not queries.
    """

    filter: str
    types: Mapping[str, EdmType] = {}
    runs: int | None = None
    is_point_read: bool = False


@dataclass(frozen=True)
class QueryFigures:
    """A query with the new keys, and with the present keys where the rows have some.

    `entities_read` would be read for a run, `entities_returned` match. Of a shape they are not known, and
    `entities_read` is at most the entities of a typical partition, where the plan reads one. `missed` entities match
    and are outside of the keys: if there are some, the query cannot use the new keys.
    """

    filter: str
    plan: PlanKind
    present_plan: PlanKind | None
    is_shape: bool
    runs: int | None
    entities_read: int | None
    entities_returned: int | None
    present_entities_read: int | None
    missed: int
    notes: tuple[str, ...]
    is_point_read: bool


class _Ranges:
    """Ascending, disjoint ranges of keys."""

    def __init__(self, ranges: tuple[KeyInterval, ...]) -> None:
        self._starts = [start for start, _ in ranges]
        self._ends = [end for _, end in ranges]

    def holds(self, key: EncodedKey) -> bool:
        place = bisect_right(self._starts, key) - 1
        if place < 0:
            return False
        end = self._ends[place]
        return end is None or key < end


class SimulatedQuery:
    """One query and its counts for the rows so far."""

    def __init__(
        self, given: GivenQuery, templates: KeyTemplates, types: Mapping[str, EdmType]
    ) -> None:
        """`types` are those of the properties of the rows: of the values that a shape leaves out, and of numbers."""
        self._given = given
        self._is_shape = is_shape(given.filter)
        tree = _tree_of(given, types) if self._is_shape else _tree_of(given, None)
        mapped = map_filter(with_stored_types(tree, types), templates)
        plan = plan_query(mapped.filter)
        self._kind = plan.kind
        self._notes = mapped.notes + (sign_notes(tree, templates) if self._is_shape else ())
        self._ranges = _Ranges(plan.ranges)
        present = plan_query(tree) if templates.names_present_keys else None
        self._present_kind = present.kind if present else None
        self._present = _Ranges(present.ranges) if present else None
        self._matches = compile_filter(tree)
        self._read = self._returned = self._missed = self._present_read = 0

    def add(
        self, key: EncodedKey, columns: Mapping[str, EdmValue], present: EncodedKey | None
    ) -> None:
        """Count a row by its new key, its values with its keys, and its present key."""
        if self._is_shape:
            return
        is_read = self._ranges.holds(key)
        self._read += is_read
        if self._matches(columns.get):
            self._returned += 1
            self._missed += not is_read
        if self._present is not None and present is not None:
            self._present_read += self._present.holds(present)

    def figures(self, entities: int, typical: float) -> QueryFigures:
        """The figures after the last row. `typical` is the size of a typical partition in entities."""
        at_most = _at_most(self._kind, entities, typical)
        present = self._present_read if self._present is not None else None
        if self._is_shape:
            whole = entities if self._present_kind is PlanKind.TABLE else None
            present = 1 if self._present_kind is PlanKind.POINT else whole
        return QueryFigures(
            filter=self._given.filter,
            plan=self._kind,
            present_plan=self._present_kind,
            is_shape=self._is_shape,
            runs=self._given.runs,
            entities_read=at_most if self._is_shape else self._read,
            entities_returned=None if self._is_shape else self._returned,
            present_entities_read=present,
            missed=self._missed,
            notes=self._notes,
            is_point_read=self._given.is_point_read,
        )


_ONE_PARTITION: Final = (PlanKind.PARTITION, PlanKind.ROW_RANGE)


def _at_most(kind: PlanKind, entities: int, typical: float) -> int | None:
    """An upper bound of the entities that a query of this kind reads; None if that depends on its values."""
    if kind is PlanKind.POINT:
        return 1
    if kind in _ONE_PARTITION:
        return round(typical)
    return entities if kind is PlanKind.TABLE else None


def _tree_of(given: GivenQuery, types: Mapping[str, EdmType] | None) -> FilterNode:
    """Parse the filter; a shape needs `types`."""
    try:
        tree = (
            parse_filter(given.filter)
            if types is None
            else read_shape(given.filter, {**given.types, **types})
        )
    except (NoShape, StorageError) as error:
        text = error.text if isinstance(error, StorageError) else str(error)
        raise TransferRefused(f"The query {given.filter!r} cannot be read: {text}") from None
    if tree is None:
        raise TransferRefused("A query without a filter reads the whole table with any keys.")
    return tree


def encoded(key: EntityKey) -> EncodedKey:
    """A key in the order of keys."""
    return encode_key(key.partition_key), encode_key(key.row_key)


def distinct(queries: list[GivenQuery]) -> list[GivenQuery]:
    """The queries without duplicates, in order."""
    return list({each.filter: each for each in reversed(queries)}.values())[::-1]
