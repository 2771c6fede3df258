"""The conditions of a filter by property: what a key could do with each of them.

A key can hold a property that the filter fixes to a value (`eq`), and at its end one that the filter bounds (`ge`,
`gt`, `le`, `lt`) if its text sorts as its values do. It can do nothing with `ne` and `not`. An `or` over one property
is several values of it; any other `or` is several queries. Knows the tree of a filter; does not know plans or tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
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
)
from tablestone.model.keys import PARTITION_KEY, ROW_KEY

BRANCHES_MAX: Final = 16
"""The number of queries that an `or` is divided into; an `or` of more is a condition that no key helps."""

_KEYS: Final = (PARTITION_KEY, ROW_KEY)


@dataclass(frozen=True)
class Conditions:
    """The properties of one query, each list in the order of the filter and without repetitions.

    `several` are those of `equal` for which the filter has several values. `unusable` are properties that occur only in
    conditions that no key helps.
    """

    equal: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()
    unusable: tuple[str, ...] = ()
    several: frozenset[str] = frozenset()
    types: Mapping[str, EdmType] = field(default_factory=dict, compare=False)
    """The types of the values, as far as they are known."""

    @property
    def names(self) -> tuple[str, ...]:
        """All properties of the filter."""
        return (*self.equal, *self.ranges, *self.unusable)


def conditions_of(node: FilterNode | None) -> tuple[Conditions, ...]:
    """The queries that the filter consists of: one, or one for each side of an `or` over different properties."""
    if node is None:
        return (Conditions(),)
    types = _types_of(node)
    return tuple(replace(each, types=types) for each in _of(node, negated=False))


def _types_of(node: FilterNode) -> dict[str, EdmType]:
    types = {}
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if isinstance(current, And | Or):
            waiting.extend(current.terms)
        elif isinstance(current, Not):
            waiting.append(current.term)
        elif isinstance(current, BooleanProperty):
            types[current.name] = EdmType.BOOLEAN
        elif isinstance(current, Comparison):
            types[current.name] = current.literal.type
    return types


def _of(node: FilterNode, *, negated: bool) -> tuple[Conditions, ...]:
    while isinstance(node, Not):
        node, negated = node.term, not negated
    if isinstance(node, Constant):
        return (Conditions(),)
    if isinstance(node, BooleanProperty):
        return (Conditions(unusable=(node.name,)) if negated else Conditions(equal=(node.name,)),)
    if isinstance(node, Comparison):
        return (_of_comparison(node, negated=negated),)
    found = []
    # A loop, because before Python 3.12 a comprehension is a second stack frame for each level of nesting.
    for term in node.terms:
        branches = _of(term, negated=negated)
        found.append(branches)
    is_and = isinstance(node, And) is not negated
    return _all_of(found) if is_and else _any_of(found)


def _of_comparison(node: Comparison, *, negated: bool) -> Conditions:
    operator = node.operator
    if negated:
        # Only keys exist in every entity and have one type: there the negation is the inverse comparison (wire 6.4).
        if node.name not in _KEYS:
            return Conditions(unusable=(node.name,))
        operator = INVERTED[operator]
    if operator is ComparisonOperator.EQUAL:
        return Conditions(equal=(node.name,))
    if operator is ComparisonOperator.NOT_EQUAL or not _sorts_as_text(node.literal):
        return Conditions(unusable=(node.name,))
    return Conditions(ranges=(node.name,))


def _sorts_as_text(bound: EdmValue) -> bool:
    """Whether a bound of values is a bound of their texts: of numbers only with zeros before them, and from 0 on."""
    if bound.type in (EdmType.STRING, EdmType.DATE_TIME):
        return True
    return bound.type in _NUMBERS and isinstance(bound.value, int | float) and bound.value >= 0


_NUMBERS: Final = (EdmType.INT32, EdmType.INT64, EdmType.DOUBLE)


def _all_of(parts: list[tuple[Conditions, ...]]) -> tuple[Conditions, ...]:
    """The queries of a conjunction: each combination of the queries of its parts."""
    combined: list[list[Conditions]] = [[]]
    for branches in parts:
        if len(combined) * len(branches) > BRANCHES_MAX:
            names = tuple(name for each in branches for name in each.names)
            branches = (Conditions(unusable=names),)  # noqa: PLW2901 - the same part, as what is left of it
        combined = [[*done, each] for done in combined for each in branches]
    return tuple(_joined(each) for each in combined)


def _joined(parts: list[Conditions]) -> Conditions:
    equal = _distinct(name for each in parts for name in each.equal)
    ranges = _distinct(name for each in parts for name in each.ranges)
    unusable = _distinct(name for each in parts for name in each.unusable)
    return Conditions(
        equal,
        tuple(name for name in ranges if name not in equal),
        tuple(name for name in unusable if name not in equal and name not in ranges),
        # A property that one part fixes to a single value has that value alone.
        frozenset(
            name
            for name in equal
            if all(name in each.several for each in parts if name in each.equal)
        ),
    )


def _any_of(parts: list[tuple[Conditions, ...]]) -> tuple[Conditions, ...]:
    """The queries of a disjunction; queries of the same properties are one, with several values."""
    found: dict[tuple[frozenset[str], ...], Conditions] = {}
    for branch in (each for branches in parts for each in branches):
        form = tuple(frozenset(names) for names in (branch.equal, branch.ranges, branch.unusable))
        earlier = found.get(form)
        if earlier is None:
            found[form] = branch
        elif earlier.equal:
            found[form] = Conditions(
                earlier.equal, earlier.ranges, earlier.unusable, frozenset(earlier.equal)
            )
    if len(found) > BRANCHES_MAX:
        return (Conditions(unusable=_distinct(n for each in found.values() for n in each.names)),)
    return tuple(found.values())


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
