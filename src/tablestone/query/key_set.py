"""Sets of entity keys, and their union and intersection: the arithmetic behind a plan.

A set is an ascending, disjoint sequence of slabs. A slab has all partition keys in `start <= key < end`, each with the
same set of row keys, which is an ascending, disjoint sequence of intervals. Keys are the bytes of `keys.encode_key`, so
the order is the service's. Knows no filter and no engine.

Every set has one form only: adjacent slabs with equal rows are merged. Sets can grow as products (partitions times
rows), so a union or intersection larger than `SIZE_MAX` is replaced by a larger, simpler set that is not `exact`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from operator import itemgetter
from typing import Final, NamedTuple

from tablestone import limits

END: Final = b"\xff"
"""A byte string after every key: no encoded key contains this byte."""

SIZE_MAX: Final = 16 * limits.FILTER_KEY_RANGES_MAX
"""The number of intervals in one set, over all slabs. A plan may have fewer: an enclosing `and` can reduce a set."""

Interval = tuple[bytes, bytes]
Rows = tuple[Interval, ...]

PAIRWISE_MAX: Final = 2 * limits.FILTER_KEY_RANGES_MAX
"""The number of sets that are combined exactly; of more sets, only their hulls are combined."""


class Slab(NamedTuple):
    """The partitions from `start` up to and excluding `end`, each with the same rows."""

    start: bytes
    end: bytes
    rows: Rows


KeySet = tuple[Slab, ...]

ALL_ROWS: Final[Rows] = ((b"", END),)
EVERYTHING: Final[KeySet] = (Slab(b"", END, ALL_ROWS),)
NOTHING: Final[KeySet] = ()


class Bounds(NamedTuple):
    """A set that contains all keys for which a filter can be true; if `exact`, it contains no other key."""

    keys: KeySet
    exact: bool


def after(key: bytes) -> bytes:
    """The smallest key after this one."""
    return key + b"\0"


def is_one_partition(slab: Slab) -> bool:
    """Whether the slab has exactly one partition key."""
    return slab.end == slab.start + b"\0"


def size(keys: KeySet) -> int:
    """The number of intervals of rows in the set."""
    return sum(len(slab.rows) for slab in keys)


def _intersect_rows(first: Rows, second: Rows) -> Rows:
    if first is ALL_ROWS or first is second:
        return second
    if second is ALL_ROWS:
        return first
    if len(first) > len(second):
        first, second = second, first
    found: list[Interval] = []
    # Each interval of the shorter list is looked up in the longer by bisection: fast if the lengths differ much.
    for start, end in first:
        index = max(0, bisect_right(second, start, key=itemgetter(0)) - 1)
        while index < len(second) and second[index][0] < end:
            lower, upper = max(start, second[index][0]), min(end, second[index][1])
            if lower < upper:
                found.append((lower, upper))
            index += 1
    return _rows(found)


def _union_rows(first: Rows, second: Rows) -> Rows:
    if first is second or not second or first is ALL_ROWS:
        return first
    if not first or second is ALL_ROWS:
        return second
    return _merged([*first, *second])


def _merged(intervals: list[Interval]) -> Rows:
    """Intervals that may overlap as an ascending, disjoint sequence."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            if end > found[-1][1]:
                found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return _rows(found)


def _rows(intervals: list[Interval]) -> Rows:
    """The intervals as a tuple. The set of all rows is always the same object, which makes the common case fast."""
    if len(intervals) == 1 and intervals[0] == ALL_ROWS[0]:
        return ALL_ROWS
    return tuple(intervals)


def _append(slabs: list[Slab], start: bytes, end: bytes, rows: Rows) -> None:
    if not rows:
        return
    if slabs:
        last = slabs[-1]
        if last.end == start and last.rows == rows:
            slabs[-1] = Slab(last.start, end, last.rows)
            return
    slabs.append(Slab(start, end, rows))


def _intersect(first: KeySet, second: KeySet) -> KeySet | None:
    """The keys in both sets; None if the result is too large."""
    slabs: list[Slab] = []
    intervals = i = j = 0
    while i < len(first) and j < len(second):
        a, b = first[i], second[j]
        start, end = max(a.start, b.start), min(a.end, b.end)
        if start < end:
            rows = _intersect_rows(a.rows, b.rows)
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
        a = first[i] if i < len(first) else None
        b = second[j] if j < len(second) else None
        in_first = a is not None and a.start <= position
        in_second = b is not None and b.start <= position
        bounds = [END]
        if a is not None:
            bounds.append(a.end if in_first else a.start)
        if b is not None:
            bounds.append(b.end if in_second else b.start)
        end = min(bounds)
        rows = _union_rows(
            a.rows if a is not None and in_first else (),
            b.rows if b is not None and in_second else (),
        )
        intervals += len(rows)
        if intervals > SIZE_MAX:
            return None
        _append(slabs, position, end, rows)
        position = end
        if a is not None and a.end <= position:
            i += 1
        if b is not None and b.end <= position:
            j += 1
    return tuple(slabs)


def with_hull_of_rows(keys: KeySet) -> KeySet:
    """The set, enlarged: each slab has all rows between its first and its last row."""
    slabs: list[Slab] = []
    for slab in keys:
        rows = _rows([(slab.rows[0][0], slab.rows[-1][1])])
        _append(slabs, slab.start, slab.end, rows)
    return tuple(slabs)


def _hull(keys: KeySet) -> KeySet:
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
        keys = combine(_hull(first.keys), _hull(second.keys))
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
    """The bounds of a conjunction: the keys in all of these bounds."""
    if len(bounds) <= PAIRWISE_MAX:
        return _reduce(_intersect, bounds)
    around = EVERYTHING
    for keys, _ in bounds:
        narrower = _intersect(around, _hull(keys))
        assert narrower is not None  # two slabs never give a large set
        around = narrower
    return Bounds(around, exact=False)


def _union_of_equal_or_apart(bounds: list[Bounds]) -> Bounds | None:
    """The union if any two slabs have the same partitions or no partition in common, as points do; else None."""
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
    """The bounds of a disjunction: the keys in at least one of these bounds."""
    if len(bounds) > 2:
        found = _union_of_equal_or_apart(bounds)
        if found is not None:
            return found
    if len(bounds) <= PAIRWISE_MAX:
        return _reduce(_union, bounds)
    partitions = _merged([(slab.start, slab.end) for keys, _ in bounds for slab in _hull(keys)])
    return Bounds(tuple([Slab(start, end, ALL_ROWS) for start, end in partitions]), exact=False)


def common(first: KeySet, second: KeySet) -> KeySet | None:
    """The keys in both sets; None if the result is too large."""
    return _intersect(first, second)
