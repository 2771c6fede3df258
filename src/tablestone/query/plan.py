"""The plan of a query: the key ranges to read, and a residual filter for what keys cannot express.

The ranges contain every entity that matches. For an entity inside the ranges, `residual` is true exactly if the filter
is. Each term of the filter gives a set of keys, `and` and `or` combine the sets, and the result becomes ranges. Then
terms that the ranges already express are removed. Keys are bytes of `encode_key`, whose order is the service's.
"""

from __future__ import annotations

import enum
import functools
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter
from typing import Final, NamedTuple

from tablestone import limits
from tablestone.model.edm import EdmType
from tablestone.model.filter_tree import (
    INVERTED,
    UNORDERED,
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


class PlanKind(enum.Enum):
    """What a plan reads."""

    NOTHING = "nothing"
    """The filter contradicts itself."""
    POINT = "point"
    POINTS = "points"
    ROW_RANGE = "row range"
    """Part of one partition."""
    PARTITION = "partition"
    PARTITION_RANGE = "partition range"
    RANGES = "ranges"
    """Several ranges of any kind."""
    TABLE = "table"
    INDEX = "index"
    """Rows that an index finds in the ranges of a plan of another kind (`index_plan`)."""


class KeyInterval(NamedTuple):
    """All keys with `start <= (partition, row) < end`, as bytes of `encode_key`. Without `end`, to the table's end."""

    start: tuple[bytes, bytes]
    end: tuple[bytes, bytes] | None


class Plan(NamedTuple):
    kind: PlanKind
    ranges: tuple[KeyInterval, ...]
    """Ascending and disjoint."""
    residual: FilterNode | None
    """None: the ranges alone express the filter."""


# Sets of keys, and their union and intersection. A set is an ascending, disjoint sequence of slabs. Adjacent slabs with
# equal rows are merged, so equal sets have equal slabs.

END: Final = b"\xff"
"""Sorts after every key: no encoded key contains this byte."""
SIZE_MAX: Final = 16 * limits.FILTER_KEY_RANGES_MAX
"""Intervals in one set, over all slabs. Sets can grow as products (partitions times rows); a simpler set with more keys
replaces a larger one. More than a plan may have, because an enclosing `and` can reduce a set."""
PAIRWISE_MAX: Final = 2 * limits.FILTER_KEY_RANGES_MAX
"""Sets that are combined exactly. Of more sets, only the hulls are combined."""

Interval = tuple[bytes, bytes]
Rows = tuple[Interval, ...]
"""Ascending, disjoint intervals of row keys."""


class Slab(NamedTuple):
    """The partitions from `start` to `end`, exclusive, each with the same rows."""

    start: bytes
    end: bytes
    rows: Rows


KeySet = tuple[Slab, ...]

ALL_ROWS: Final[Rows] = ((b"", END),)
EVERYTHING: Final[KeySet] = (Slab(b"", END, ALL_ROWS),)
NOTHING: Final[KeySet] = ()
_END_OF_SLABS: Final = Slab(END, END, ())


class Bounds(NamedTuple):
    keys: KeySet
    """All keys for which a filter may be true."""
    exact: bool
    """Whether the set contains no other key."""


def after(key: bytes) -> bytes:
    return key + b"\0"


def size(keys: KeySet) -> int:
    return sum(len(slab.rows) for slab in keys)


def intersect_rows(first: Rows, second: Rows) -> Rows:
    if first is ALL_ROWS or first is second:
        return second
    if second is ALL_ROWS:
        return first
    if len(first) > len(second):
        first, second = second, first
    found: list[Interval] = []
    # Bisection finds each interval of the shorter list in the longer one: fast if the lengths differ much.
    for start, end in first:
        index = max(0, bisect_right(second, start, key=itemgetter(0)) - 1)
        while index < len(second) and second[index][0] < end:
            lower, upper = max(start, second[index][0]), min(end, second[index][1])
            if lower < upper:
                found.append((lower, upper))
            index += 1
    return _rows(found)


def union_rows(first: Rows, second: Rows) -> Rows:
    if first is second or not second or first is ALL_ROWS:
        return first
    if not first or second is ALL_ROWS:
        return second
    return _merged([*first, *second])


def _merged(intervals: list[Interval]) -> Rows:
    """Intervals, which may overlap, as an ascending, disjoint sequence."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            if end > found[-1][1]:
                found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return _rows(found)


def _rows(intervals: list[Interval]) -> Rows:
    """The intervals as a tuple. All rows are always the same object, which makes the common case fast."""
    if len(intervals) == 1 and intervals[0] == ALL_ROWS[0]:
        return ALL_ROWS
    return tuple(intervals)


def _append(slabs: list[Slab], start: bytes, end: bytes, rows: Rows) -> None:
    if not rows:
        return
    if slabs and slabs[-1].end == start and slabs[-1].rows == rows:
        slabs[-1] = Slab(slabs[-1].start, end, rows)
    else:
        slabs.append(Slab(start, end, rows))


def _intersect(first: KeySet, second: KeySet) -> KeySet | None:
    """The keys in both sets; None if the result is too large."""
    slabs: list[Slab] = []
    intervals = i = j = 0
    while i < len(first) and j < len(second):
        a, b = first[i], second[j]
        start, end = max(a.start, b.start), min(a.end, b.end)
        if start < end:
            rows = intersect_rows(a.rows, b.rows)
            intervals += len(rows)
            if intervals > SIZE_MAX:
                return None
            _append(slabs, start, end, rows)
        if a.end <= b.end:
            i += 1
        else:
            j += 1
    return tuple(slabs)


def _union(first: KeySet, second: KeySet) -> KeySet | None:
    """The keys in at least one of the sets; None if the result is too large."""
    slabs: list[Slab] = []
    intervals = i = j = 0
    position = b""
    while i < len(first) or j < len(second):
        a = first[i] if i < len(first) else _END_OF_SLABS
        b = second[j] if j < len(second) else _END_OF_SLABS
        in_first, in_second = a.start <= position, b.start <= position
        end = min(a.end if in_first else a.start, b.end if in_second else b.start)
        rows = union_rows(a.rows if in_first else (), b.rows if in_second else ())
        intervals += len(rows)
        if intervals > SIZE_MAX:
            return None
        _append(slabs, position, end, rows)
        position = end
        if a.end <= position:
            i += 1
        if b.end <= position:
            j += 1
    return tuple(slabs)


def with_hull_of_rows(keys: KeySet) -> KeySet:
    """A larger set: each slab has all rows between its first and its last row."""
    slabs: list[Slab] = []
    for slab in keys:
        _append(slabs, slab.start, slab.end, _rows([(slab.rows[0][0], slab.rows[-1][1])]))
    return tuple(slabs)


def _slab_around(keys: KeySet) -> KeySet:
    """The smallest single slab that contains the set."""
    if len(keys) < 2 and (not keys or len(keys[0].rows) == 1):
        return keys
    first = min(slab.rows[0][0] for slab in keys)
    last = max(slab.rows[-1][1] for slab in keys)
    return (Slab(keys[0].start, keys[-1].end, _rows([(first, last)])),)


_Combine = Callable[[KeySet, KeySet], KeySet | None]


def _combined(combine: _Combine, first: Bounds, second: Bounds) -> Bounds:
    keys = combine(first.keys, second.keys)
    if keys is not None:
        return Bounds(keys, first.exact and second.exact)
    keys = combine(with_hull_of_rows(first.keys), with_hull_of_rows(second.keys))
    if keys is None:
        keys = combine(_slab_around(first.keys), _slab_around(second.keys))
        assert keys is not None  # two slabs never give a large set
    return Bounds(keys, exact=False)


def _reduce(combine: _Combine, bounds: list[Bounds]) -> Bounds:
    """Combines pairs, then pairs of the results: n log n steps for n sets."""
    while len(bounds) > 1:
        paired = [
            _combined(combine, bounds[i], bounds[i + 1]) for i in range(0, len(bounds) - 1, 2)
        ]
        bounds = paired + bounds[len(paired) * 2 :]
    return bounds[0]


def intersection(bounds: list[Bounds]) -> Bounds:
    if len(bounds) <= PAIRWISE_MAX:
        return _reduce(_intersect, bounds)
    around = EVERYTHING
    for keys, _ in bounds:
        narrower = _intersect(around, _slab_around(keys))
        assert narrower is not None  # two slabs never give a large set
        around = narrower
    return Bounds(around, exact=False)


def _union_of_equal_or_apart(bounds: list[Bounds]) -> Bounds | None:
    """The union if any two slabs have the same partitions or no common partition, as points do; else None."""
    rows_of: dict[Interval, list[Rows]] = {}
    exact = True
    for keys, each_exact in bounds:
        exact = exact and each_exact
        for start, end, rows in keys:
            rows_of.setdefault((start, end), []).append(rows)
    slabs: list[Slab] = []
    intervals = 0
    for (start, end), parts in sorted(rows_of.items()):
        if slabs and start < slabs[-1].end:
            return None
        rows = parts[0] if len(parts) == 1 else _merged([x for part in parts for x in part])
        intervals += len(rows)
        _append(slabs, start, end, rows)
    return Bounds(tuple(slabs), exact) if intervals <= SIZE_MAX else None


def union(bounds: list[Bounds]) -> Bounds:
    if len(bounds) > 2:
        found = _union_of_equal_or_apart(bounds)
        if found is not None:
            return found
    if len(bounds) <= PAIRWISE_MAX:
        return _reduce(_union, bounds)
    around = _merged([(slab.start, slab.end) for keys, _ in bounds for slab in _slab_around(keys)])
    return Bounds(tuple([Slab(start, end, ALL_ROWS) for start, end in around]), exact=False)


# From a filter to its set of keys.

SIMPLIFY_STEPS_MAX: Final = 50_000
"""Steps that simplifying a filter may take. Terms beyond them stay: correct, but slower to evaluate."""


class _Node(NamedTuple):
    """A filter with negations at its leaves only, and the keys for which it may be true."""

    filter: FilterNode
    bounds: Bounds
    children: tuple[_Node, ...]


_ANYTHING: Final = Bounds(EVERYTHING, exact=False)


def after_prefix(key: bytes) -> bytes:
    """Sorts after every key that begins with this one, and before all others after it."""
    return key[:-1] + bytes((key[-1] + 1,)) if key else END


def rows_where(operator: ComparisonOperator, key: bytes) -> Rows:
    """The keys of which a comparison is true that is not `UNORDERED`."""
    match operator:
        case ComparisonOperator.STARTS_WITH:
            return ((key, after_prefix(key)),) if key else ALL_ROWS
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
    raise AssertionError(operator)


def _of_keys(node: Comparison, *, negated: bool) -> KeySet:
    assert isinstance(node.literal.value, str)  # the caller has checked the type
    key = encode_key(node.literal.value)
    if not negated:
        found = rows_where(node.operator, key)
    elif node.operator is ComparisonOperator.STARTS_WITH:
        found = ((b"", key), (after_prefix(key), END)) if key else ()
    else:
        found = rows_where(INVERTED[node.operator], key)
    if node.name == PARTITION_KEY:
        return tuple(Slab(start, end, ALL_ROWS) for start, end in found)
    return (Slab(b"", END, found),) if found else NOTHING


def _analyse(node: FilterNode, *, negated: bool) -> _Node:
    """The node, or its negation, with negations moved to the leaves.

    The negation of a comparison of a key is the inverse comparison, because every entity has both keys, as strings. Of
    any other property it is not (wire 6.4).
    """
    while isinstance(node, Not):
        node, negated = node.term, not negated
    if (
        isinstance(node, Comparison)
        and node.name in (PARTITION_KEY, ROW_KEY)
        and node.literal.type is EdmType.STRING
        and node.operator not in UNORDERED
    ):
        keys = _of_keys(node, negated=negated)
        if negated:
            inverted = INVERTED.get(node.operator)
            node = Not(node) if inverted is None else replace(node, operator=inverted)
        return _Node(node, Bounds(keys, exact=True), ())
    if isinstance(node, Comparison | BooleanProperty):
        return _Node(Not(node) if negated else node, _ANYTHING, ())
    if isinstance(node, Constant):
        constant = Constant(node.value is not negated)
        return _Node(constant, Bounds(EVERYTHING if constant.value else NOTHING, exact=True), ())
    children: list[_Node] = []
    # A loop, because before Python 3.12 a comprehension is a second stack frame for each level of nesting.
    for term in node.terms:
        children.append(_analyse(term, negated=negated))  # noqa: PERF401
    parts = tuple([child.filter for child in children])
    bounds = [child.bounds for child in children]
    if isinstance(node, And) is not negated:
        return _Node(And(parts), intersection(bounds), tuple(children))
    return _Node(Or(parts), union(bounds), tuple(children))


# From the set to ranges.


def _linear(keys: KeySet) -> tuple[list[KeyInterval], KeySet]:
    """The set as ranges, and what they cover. Rows of several partitions are not one range: these are read whole."""
    found: list[KeyInterval] = []
    covered: list[Slab] = []
    for slab in keys:
        if slab.end == after(slab.start):
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
    slabs: list[Slab] = []
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
    """As many ranges as a plan may have. If there are too many, they cover more rows, or more partitions."""
    ranges, covered = _linear(keys)
    if len(ranges) > limits.FILTER_KEY_RANGES_MAX:
        ranges, covered = _linear(with_hull_of_rows(keys))
    if len(ranges) > limits.FILTER_KEY_RANGES_MAX:
        ranges, covered = _hull(ranges)
    return ranges, covered


# The residual filter, and the plan.


class _Simplifier:
    """Removes terms that are true, or false, for every key in the ranges."""

    def __init__(self, covered: KeySet) -> None:
        self._covered = covered
        self._size = size(covered)
        self._steps = 0

    def simplify(self, node: _Node) -> FilterNode:
        keys, exact = node.bounds
        if keys is not EVERYTHING:
            self._steps += self._size + size(keys)
            if self._steps > SIMPLIFY_STEPS_MAX:
                return node.filter
            shared = _intersect(self._covered, keys)
            if not shared and shared is not None:
                return Constant(value=False)
            if exact and shared == self._covered:
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
    """The plan of `PartitionKey eq 'x' and RowKey eq 'y'`: a shortcut for the most common query."""
    if isinstance(node, And) and len(node.terms) == 2:
        partition, row = _key_of(node.terms[0], PARTITION_KEY), _key_of(node.terms[1], ROW_KEY)
        if partition is not None and row is not None:
            interval = KeyInterval((partition, row), (partition, after(row)))
            return Plan(PlanKind.POINT, (interval,), None)
    return None


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
"""Characters or bytes of the longest constant whose plan is cached, so that the cache stays small."""


def _is_small(node: FilterNode) -> bool:
    """Whether the plan is cached: few conditions, none nested, none long, so that a lookup is fast."""
    terms = node.terms if isinstance(node, And | Or) else (node,)
    return len(terms) <= 8 and all(map(_is_short, terms))


def _is_short(term: FilterNode) -> bool:
    if isinstance(term, Comparison):
        value = term.literal.value
        if isinstance(value, str | bytes) and len(value) > _SHORT:
            return False
    elif not isinstance(term, BooleanProperty):
        return isinstance(term, Constant)
    return len(term.name) <= _SHORT


def plan_query(node: FilterNode | None) -> Plan:
    if node is None:
        return _EVERYTHING
    return _plan_of_point(node) or (_plan_small(node) if _is_small(node) else _plan(node))
