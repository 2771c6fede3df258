"""The plan of a query: the key ranges to read, and the residual filter for what the keys cannot express.

The ranges contain every entity that matches. For an entity inside the ranges, `residual` is true exactly if the filter
is. Knows keys as bytes and the two key properties; does not read anything.

Both keys of an entity always exist and are strings. So the negation of a comparison of keys is the inverse comparison;
for any other property it is not (wire 6.4). Therefore negations are first moved to the leaves of the tree.
"""

from __future__ import annotations

import enum
import functools
from typing import Final, NamedTuple

from tablestone import limits
from tablestone.model.edm import EdmType
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
)
from tablestone.model.keys import PARTITION_KEY, ROW_KEY, encode_key
from tablestone.query import key_set
from tablestone.query.key_set import (
    ALL_ROWS,
    END,
    EVERYTHING,
    NOTHING,
    Bounds,
    KeySet,
    Rows,
    Slab,
    after,
    is_one_partition,
)


class PlanKind(enum.Enum):
    """The kinds of plans, by name."""

    NOTHING = "nothing"
    """No key: the filter contradicts itself."""
    POINT = "point"
    """One key."""
    POINTS = "points"
    """Several single keys."""
    ROW_RANGE = "row range"
    """A range of rows of one partition."""
    PARTITION = "partition"
    """One whole partition."""
    PARTITION_RANGE = "partition range"
    """A range of partitions."""
    RANGES = "ranges"
    """Several ranges of any kind."""
    TABLE = "table"
    """The whole table."""


class KeyInterval(NamedTuple):
    """All keys with `start <= (partition, row) < end`, as bytes of `encode_key`. Without `end`, to the table's end."""

    start: tuple[bytes, bytes]
    end: tuple[bytes, bytes] | None


class Plan(NamedTuple):
    """Key ranges, ascending and disjoint, and the residual filter; None if the ranges alone express the filter."""

    kind: PlanKind
    ranges: tuple[KeyInterval, ...]
    residual: FilterNode | None


SIMPLIFY_STEPS_MAX: Final = 50_000
"""The steps that simplifying a filter may take. Terms that are not reached stay: correct, but slower to evaluate."""


class _Node(NamedTuple):
    """A filter with negations at its leaves only, and the keys for which it can be true."""

    filter: FilterNode
    bounds: Bounds
    children: tuple[_Node, ...]


_ANYTHING: Final = Bounds(EVERYTHING, exact=False)


def _intervals(operator: ComparisonOperator, key: bytes) -> Rows:
    """The keys for which the comparison is true."""
    match operator:
        case ComparisonOperator.EQUAL:
            return ((key, after(key)),)
        case ComparisonOperator.GREATER_THAN:
            return ((after(key), END),)
        case ComparisonOperator.GREATER_THAN_OR_EQUAL:
            return ((key, END),) if key else ALL_ROWS
        case ComparisonOperator.LESS_THAN:
            return ((b"", key),) if key else ()
        case ComparisonOperator.LESS_THAN_OR_EQUAL:
            return ((b"", after(key)),)
        case ComparisonOperator.NOT_EQUAL:
            return ((b"", key), (after(key), END)) if key else ((after(key), END),)


def _of_keys(node: Comparison) -> KeySet:
    assert isinstance(node.literal.value, str)  # the caller has checked the type
    intervals = _intervals(node.operator, encode_key(node.literal.value))
    if node.name == PARTITION_KEY:
        return tuple(Slab(start, end, ALL_ROWS) for start, end in intervals)
    return (Slab(b"", END, intervals),) if intervals else NOTHING


def _analyse(node: FilterNode, *, negated: bool) -> _Node:
    """The node, or its negation, with negations moved to the leaves."""
    while isinstance(node, Not):
        node, negated = node.term, not negated
    if isinstance(node, Comparison):
        if node.name in (PARTITION_KEY, ROW_KEY) and node.literal.type is EdmType.STRING:
            if negated:
                node = Comparison(node.name, INVERTED[node.operator], node.literal)
            return _Node(node, Bounds(_of_keys(node), exact=True), ())
        return _Node(Not(node) if negated else node, _ANYTHING, ())
    if isinstance(node, BooleanProperty):
        return _Node(Not(node) if negated else node, _ANYTHING, ())
    if isinstance(node, Constant):
        constant = Constant(node.value is not negated)
        return _Node(constant, Bounds(EVERYTHING if constant.value else NOTHING, exact=True), ())
    children: list[_Node] = []
    # A loop, because before Python 3.12 a comprehension is a second stack frame for each level of nesting.
    for term in node.terms:
        child = _analyse(term, negated=negated)
        children.append(child)
    parts = tuple([child.filter for child in children])
    bounds = [child.bounds for child in children]
    if isinstance(node, And) is not negated:
        return _Node(And(parts), key_set.intersection(bounds), tuple(children))
    return _Node(Or(parts), key_set.union(bounds), tuple(children))


def _linear(keys: KeySet) -> tuple[list[KeyInterval], KeySet]:
    """The set as ranges over (partition, row), and the set that those ranges cover.

    Ranges of rows in each of several partitions are not one range over (partition, row): the partitions are read whole.
    """
    found: list[KeyInterval] = []
    covered: list[Slab] = []
    for slab in keys:
        parts: Rows
        if is_one_partition(slab):
            parts = slab.rows
            starts = [(slab.start, start) for start, _ in parts]
            ends = [(slab.end, b"") if end == END else (slab.start, end) for _, end in parts]
            covered.append(slab)
        else:
            starts, ends = [(slab.start, b"")], [(slab.end, b"")]
            covered.append(Slab(slab.start, slab.end, ALL_ROWS))
        for start, end in zip(starts, ends, strict=True):
            if found and found[-1].end == start:
                found[-1] = KeyInterval(found[-1].start, end)
            else:
                found.append(KeyInterval(start, end))
    return found, tuple(covered)


def _hull(ranges: list[KeyInterval]) -> tuple[list[KeyInterval], KeySet]:
    """One range from the first key to the last, and the set that it covers."""
    start, end = ranges[0].start, ranges[-1].end
    assert end is not None  # the end of the table is END until the plan is complete
    slabs = []
    inner = start[0]
    if start[1]:
        inner = after(start[0])
        last = end[1] if end[0] == start[0] else END
        slabs.append(Slab(start[0], inner, ((start[1], last),)))
    if inner < end[0]:
        slabs.append(Slab(inner, end[0], ALL_ROWS))
    if end[1] and inner <= end[0]:
        slabs.append(Slab(end[0], after(end[0]), ((b"", end[1]),)))
    return [KeyInterval(start, end)], tuple(slabs)


def _ranges(keys: KeySet) -> tuple[list[KeyInterval], KeySet]:
    """At most as many ranges as a plan may have: if necessary, with more rows of each partition, or more partitions."""
    ranges, covered = _linear(keys)
    if len(ranges) > limits.FILTER_KEY_RANGES_MAX:
        ranges, covered = _linear(key_set.with_hull_of_rows(keys))
    if len(ranges) > limits.FILTER_KEY_RANGES_MAX:
        ranges, covered = _hull(ranges)
    return ranges, covered


class _Simplifier:
    """Removes the terms of a filter that are the same for every key in the ranges."""

    def __init__(self, covered: KeySet) -> None:
        self._covered = covered
        self._size = key_set.size(covered)
        self._steps = 0

    def simplify(self, node: _Node) -> FilterNode:
        keys, exact = node.bounds
        if keys is not EVERYTHING:
            self._steps += self._size + key_set.size(keys)
            if self._steps > SIMPLIFY_STEPS_MAX:
                return node.filter
            common = key_set.common(self._covered, keys)
            if not common and common is not None:
                return Constant(value=False)
            if exact and common == self._covered:
                return Constant(value=True)
        if not node.children:
            return node.filter
        decided_by = isinstance(node.filter, Or)
        terms: list[FilterNode] = []
        for child in node.children:
            term = self.simplify(child)
            if isinstance(term, Constant):
                if term.value is decided_by:
                    return term
            elif isinstance(term, type(node.filter)):
                assert isinstance(term, And | Or)  # a node with children
                terms.extend(term.terms)
            else:
                terms.append(term)
        if not terms:
            return Constant(not decided_by)
        if len(terms) == 1:
            return terms[0]
        return Or(tuple(terms)) if decided_by else And(tuple(terms))


def _kind(ranges: list[KeyInterval]) -> PlanKind:
    if not ranges:
        return PlanKind.NOTHING
    points = all(end == (start[0], after(start[1])) for start, end in ranges)
    if len(ranges) > 1:
        return PlanKind.POINTS if points else PlanKind.RANGES
    if points:
        return PlanKind.POINT
    start, end = ranges[0]
    assert end is not None  # as in _hull
    if end == (after(start[0]), b""):
        return PlanKind.ROW_RANGE if start[1] else PlanKind.PARTITION
    if end[0] == start[0]:
        return PlanKind.ROW_RANGE
    return PlanKind.TABLE if start == (b"", b"") and end[0] == END else PlanKind.PARTITION_RANGE


EVERY_KEY: Final = (KeyInterval((b"", b""), None),)
_EVERYTHING: Final = Plan(PlanKind.TABLE, EVERY_KEY, None)
_NOTHING: Final = Plan(PlanKind.NOTHING, (), None)


def _key_of(node: FilterNode, name: str) -> bytes | None:
    if (
        isinstance(node, Comparison)
        and node.name == name
        and node.operator is ComparisonOperator.EQUAL
        and node.literal.type is EdmType.STRING
    ):
        return encode_key(str(node.literal.value))
    return None


def _plan_of_point(node: FilterNode) -> Plan | None:
    """The plan of `PartitionKey eq 'x' and RowKey eq 'y'`, a shortcut for the most common query."""
    if not isinstance(node, And) or len(node.terms) != 2:
        return None
    partition, row = _key_of(node.terms[0], PARTITION_KEY), _key_of(node.terms[1], ROW_KEY)
    if partition is None or row is None:
        return None
    interval = KeyInterval((partition, row), (partition, after(row)))
    return Plan(PlanKind.POINT, (interval,), None)


def _plan(node: FilterNode) -> Plan:
    analysed = _analyse(node, negated=False)
    ranges, covered = _ranges(analysed.bounds.keys)
    if not ranges:
        return _NOTHING
    residual = _Simplifier(covered).simplify(analysed)
    if isinstance(residual, Constant) and not residual.value:
        return _NOTHING
    kind = _kind(ranges)
    last = ranges[-1]
    if last.end is not None and last.end[0] == END:
        ranges[-1] = KeyInterval(last.start, None)
    return Plan(kind, tuple(ranges), None if isinstance(residual, Constant) else residual)


_plan_small = functools.lru_cache(maxsize=512)(_plan)
_SHORT: Final = 512
"""The length of a constant (characters or bytes) up to which its plan is cached, so that the cache stays small."""


def _is_small(node: FilterNode) -> bool:
    """Whether the plan is cached: few conditions, none nested, none long, so that the lookup is fast."""
    terms = node.terms if isinstance(node, And | Or) else (node,)
    return len(terms) <= 8 and all(map(_is_short, terms))


def _is_short(term: FilterNode) -> bool:
    if isinstance(term, Comparison):
        value = term.literal.value
        return len(term.name) <= _SHORT and (
            not isinstance(value, str | bytes) or len(value) <= _SHORT
        )
    return isinstance(term, Constant) or (
        isinstance(term, BooleanProperty) and len(term.name) <= _SHORT
    )


def plan_query(node: FilterNode | None) -> Plan:
    """The plan of a filter; without a filter, the whole table."""
    if node is None:
        return _EVERYTHING
    return _plan_of_point(node) or (_plan_small(node) if _is_small(node) else _plan(node))
