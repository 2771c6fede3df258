"""Evaluates filters: compiles the tree once into a function, which is then called for every entity.

The rules of comparison are the service's, and some are surprising (wire 6.3, 6.4): every comparison with an absent
property is false, a value of another type counts as less than any literal, and only a literal is widened. Does not know
where values come from: a `PropertyLookup` returns them.
"""

import operator
from collections.abc import Callable
from typing import Any, Final

from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.filter_tree import (
    And,
    BooleanProperty,
    Comparison,
    ComparisonOperator,
    FilterNode,
    Not,
    Or,
)
from tablestone.model.keys import encode_key

PropertyLookup = Callable[[str], EdmValue | None]
"""The value of a property of one entity (keys and Timestamp too); None if it is absent."""
Predicate = Callable[[PropertyLookup], bool]
"""Whether the entity of the lookup matches."""

_Test = Callable[[Any, Any], bool]

_TESTS: Final[dict[ComparisonOperator, _Test]] = {
    ComparisonOperator.EQUAL: operator.eq,
    ComparisonOperator.NOT_EQUAL: operator.ne,
    ComparisonOperator.GREATER_THAN: operator.gt,
    ComparisonOperator.GREATER_THAN_OR_EQUAL: operator.ge,
    ComparisonOperator.LESS_THAN: operator.lt,
    ComparisonOperator.LESS_THAN_OR_EQUAL: operator.le,
    # Of texts, and of bytes in their place.
    ComparisonOperator.STARTS_WITH: lambda stored, wanted: stored.startswith(wanted),
    ComparisonOperator.ENDS_WITH: lambda stored, wanted: stored.endswith(wanted),
    ComparisonOperator.CONTAINS: operator.contains,
}
_EQUALITY: Final = (ComparisonOperator.EQUAL, ComparisonOperator.NOT_EQUAL)
TRUE_OF_MISMATCH: Final = (
    ComparisonOperator.NOT_EQUAL,
    ComparisonOperator.LESS_THAN,
    ComparisonOperator.LESS_THAN_OR_EQUAL,
)
"""The comparisons that are true for a value of another type, because it counts as less (wire 6.4)."""
WIDENS_TO: Final = {
    EdmType.INT32: (EdmType.INT32, EdmType.INT64, EdmType.DOUBLE),
    EdmType.INT64: (EdmType.INT64, EdmType.DOUBLE),
}
"""The types that a literal is widened to. Any other literal compares only with values of its own type (wire 6.4)."""

# Below this character, Python's order and its search, by code point, are those by UTF-16 unit (wire 6.10).
_FIRST_SURROGATE: Final = "\ud800"
_MEMBERSHIP_MIN: Final = 4


def _compile_comparison(node: Comparison) -> Predicate:
    literal = node.literal
    test = _TESTS[node.operator]
    of_mismatch = node.operator in TRUE_OF_MISMATCH
    if literal.type in WIDENS_TO:
        return _compare_number(node.name, test, literal, of_mismatch=of_mismatch)
    wanted: Any = literal.value
    if node.operator not in _EQUALITY:
        if isinstance(wanted, str) and not wanted.isascii() and max(wanted) >= _FIRST_SURROGATE:
            wanted, test = encode_key(wanted), _by_utf16_unit(test)
        elif literal.type is EdmType.GEOGRAPHY_POINT:
            test = _unordered
    return _compare(node.name, test, literal.type, wanted, of_mismatch=of_mismatch)


def _compare(name: str, test: _Test, kind: EdmType, wanted: Any, *, of_mismatch: bool) -> Predicate:
    def matches(lookup: PropertyLookup) -> bool:
        stored = lookup(name)
        if stored is None:
            return False
        if stored[0] is kind:
            return test(stored[1], wanted)
        return of_mismatch

    return matches


def _compare_number(name: str, test: _Test, literal: EdmValue, *, of_mismatch: bool) -> Predicate:
    assert isinstance(literal.value, int)  # the value of an Int32 or Int64
    widened: dict[EdmType, int | float] = {
        kind: float(literal.value) if kind is EdmType.DOUBLE else literal.value
        for kind in WIDENS_TO[literal.type]
    }

    def matches(lookup: PropertyLookup) -> bool:
        stored = lookup(name)
        if stored is None:
            return False
        wanted = widened.get(stored[0])
        return of_mismatch if wanted is None else test(stored[1], wanted)

    return matches


def _by_utf16_unit(test: _Test) -> _Test:
    return lambda stored, wanted: test(encode_key(stored), wanted)


def _unordered(_stored: Any, _wanted: Any) -> bool:
    """Points have no order. The parser refuses such comparisons."""
    return False


def _compile_membership(name: str, wanted: frozenset[str]) -> Predicate:
    """`name eq 'a' or name eq 'b' or ...`, with one lookup in a set."""

    def matches(lookup: PropertyLookup) -> bool:
        stored = lookup(name)
        return stored is not None and stored[0] is EdmType.STRING and stored[1] in wanted

    return matches


def _memberships(terms: tuple[FilterNode, ...]) -> tuple[list[Predicate], list[FilterNode]]:
    """One function for each property that is compared with many strings, and all other terms."""
    texts: dict[str, list[str]] = {}
    others: list[FilterNode] = []
    equalities: list[Comparison] = []
    for term in terms:
        if (
            isinstance(term, Comparison)
            and term.operator is ComparisonOperator.EQUAL
            and term.literal.type is EdmType.STRING
        ):
            texts.setdefault(term.name, []).append(str(term.literal.value))
            equalities.append(term)
        else:
            others.append(term)
    others += [term for term in equalities if len(texts[term.name]) < _MEMBERSHIP_MIN]
    return [
        _compile_membership(name, frozenset(found))
        for name, found in texts.items()
        if len(found) >= _MEMBERSHIP_MIN
    ], others


def _all_of(predicates: list[Predicate]) -> Predicate:
    if len(predicates) == 2:
        first, second = predicates
        return lambda lookup: first(lookup) and second(lookup)

    def matches(lookup: PropertyLookup) -> bool:
        # Not all(), which would add a generator for every entity.
        for predicate in predicates:  # noqa: SIM110
            if not predicate(lookup):
                return False
        return True

    return matches


def _any_of(predicates: list[Predicate]) -> Predicate:
    if len(predicates) == 1:
        return predicates[0]
    if len(predicates) == 2:
        first, second = predicates
        return lambda lookup: first(lookup) or second(lookup)

    def matches(lookup: PropertyLookup) -> bool:
        # Not any(), for the same reason.
        for predicate in predicates:  # noqa: SIM110
            if predicate(lookup):
                return True
        return False

    return matches


def compile_filter(node: FilterNode) -> Predicate:
    """The filter as a function. Each level of nesting takes a stack frame: `FILTER_STEPS_MAX` allows hundreds."""
    if isinstance(node, Comparison):
        return _compile_comparison(node)
    if isinstance(node, And | Or):
        predicates: list[Predicate] = []
        terms = list(node.terms)
        if isinstance(node, Or) and len(terms) >= _MEMBERSHIP_MIN:
            predicates, terms = _memberships(node.terms)
        for term in terms:
            predicates.append(compile_filter(term))
        return _all_of(predicates) if isinstance(node, And) else _any_of(predicates)
    if isinstance(node, Not):
        inner = compile_filter(node.term)
        return lambda lookup: not inner(lookup)
    if isinstance(node, BooleanProperty):
        return _compare(node.name, operator.is_, EdmType.BOOLEAN, True, of_mismatch=False)
    value = node.value
    return lambda _lookup: value
