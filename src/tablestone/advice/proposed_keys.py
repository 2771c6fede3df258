"""The keys that would suit a query: templates, as `tablestone import` reads them.

A key can hold the properties that the filter fixes to a value (`eq`) and, after them, one that it bounds (`ge`, `gt`,
`le`, `lt`) if its text sorts as its values do. No key helps `ne` and `not`. An `or` over one property means several
values of it; any other `or` means several queries. The present keys at the end keep the RowKey unique.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from tablestone.advice.filter_shape import NUMBERS, shape_of
from tablestone.advice.workload import QueryUse, TableUse
from tablestone.model import filter_tree
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import TIMESTAMP
from tablestone.model.keys import PARTITION_KEY, ROW_KEY

BRANCHES_MAX: Final = 16
"""The most queries into which an `or` is divided. A longer one counts as conditions that no key helps."""
_KEYS: Final = (PARTITION_KEY, ROW_KEY)


@dataclass(frozen=True)
class Conditions:
    """The properties of one query, in the order of the filter and without repetitions.

    `equal` are fixed to a value, the `several` of them to one of several; `ranges` are bounded; `unusable` are those
    that occur only in conditions that no key helps.
    """

    equal: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()
    unusable: tuple[str, ...] = ()
    several: frozenset[str] = frozenset()
    types: Mapping[str, EdmType] = field(default_factory=dict, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.equal, *self.ranges, *self.unusable)


def conditions_of(node: filter_tree.FilterNode | None) -> tuple[Conditions, ...]:
    """The queries in a filter: one, or one for each side of an `or` over different properties."""
    if node is None:
        return (Conditions(),)
    types: dict[str, EdmType] = {}
    for leaf in filter_tree.leaves(node):
        kind = leaf.literal.type if isinstance(leaf, filter_tree.Comparison) else EdmType.BOOLEAN
        types.setdefault(leaf.name, kind)
    return tuple(replace(each, types=types) for each in _of(node, negated=False))


def _of(node: filter_tree.FilterNode, *, negated: bool) -> tuple[Conditions, ...]:
    while isinstance(node, filter_tree.Not):
        node, negated = node.term, not negated
    if isinstance(node, filter_tree.Constant):
        return (Conditions(),)
    if isinstance(node, filter_tree.BooleanProperty):
        return (Conditions(unusable=(node.name,)) if negated else Conditions(equal=(node.name,)),)
    if isinstance(node, filter_tree.Comparison):
        return (_of_comparison(node, negated=negated),)
    found = []
    # A loop, because before Python 3.12 a comprehension is a second stack frame for each level of nesting.
    for term in node.terms:
        branches = _of(term, negated=negated)
        found.append(branches)
    is_and = isinstance(node, filter_tree.And) is not negated
    return _all_of(found) if is_and else _any_of(found)


def _of_comparison(node: filter_tree.Comparison, *, negated: bool) -> Conditions:
    operator = node.operator
    if negated:
        # Only keys exist in every entity, with one type: `not` inverts their comparison (wire 6.4).
        if node.name not in _KEYS or operator in filter_tree.TEXT_FUNCTIONS:
            return Conditions(unusable=(node.name,))
        operator = filter_tree.INVERTED[operator]
    if operator is filter_tree.ComparisonOperator.EQUAL:
        return Conditions(equal=(node.name,))
    if operator in _UNUSABLE or not _sorts_as_text(node.literal):
        return Conditions(unusable=(node.name,))
    return Conditions(ranges=(node.name,))


_UNUSABLE: Final = (filter_tree.ComparisonOperator.NOT_EQUAL, *filter_tree.UNORDERED)


def _sorts_as_text(bound: EdmValue) -> bool:
    """Whether a bound on the values is one on their texts. For numbers, padded with zeros: only from 0 on."""
    if bound.type in (EdmType.STRING, EdmType.DATE_TIME):
        return True
    return bound.type in NUMBERS and isinstance(bound.value, int | float) and bound.value >= 0


def _all_of(parts: list[tuple[Conditions, ...]]) -> tuple[Conditions, ...]:
    """The queries of an `and`: each combination of the queries of its terms."""
    combined: list[list[Conditions]] = [[]]
    for branches in parts:
        if len(combined) * len(branches) > BRANCHES_MAX:
            names = tuple(name for each in branches for name in each.names)
            branches = (Conditions(unusable=names),)  # noqa: PLW2901 - the same term, without what keys could do
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
        # If any term fixes a property to a single value, that is its only value.
        frozenset(
            name
            for name in equal
            if all(name in each.several for each in parts if name in each.equal)
        ),
    )


def _any_of(parts: list[tuple[Conditions, ...]]) -> tuple[Conditions, ...]:
    """The queries of an `or`. Those over the same properties are one, with several values."""
    found: dict[tuple[frozenset[str], ...], Conditions] = {}
    for branch in (each for branches in parts for each in branches):
        form = tuple(frozenset(names) for names in (branch.equal, branch.ranges, branch.unusable))
        earlier = found.get(form)
        if earlier is None:
            found[form] = branch
        elif earlier.equal:
            found[form] = replace(earlier, several=frozenset(earlier.equal))
    if len(found) > BRANCHES_MAX:
        return (Conditions(unusable=_distinct(n for each in found.values() for n in each.names)),)
    return tuple(found.values())


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


SYSTEM_PROPERTIES: Final = (PARTITION_KEY, ROW_KEY, TIMESTAMP)
PADDED: Final = {EdmType.INT32: ":010", EdmType.INT64: ":019", EdmType.DOUBLE: ":020.6f"}
"""Formats in which the texts of numbers sort as the numbers do, if none is negative."""


class AskedQuery(NamedTuple):
    """A query, or one side of its `or`."""

    use: QueryUse
    conditions: Conditions

    @property
    def equal(self) -> tuple[str, ...]:
        """The fixed properties, without keys and Timestamp."""
        return tuple(name for name in self.conditions.equal if name not in SYSTEM_PROPERTIES)

    @property
    def ranges(self) -> tuple[str, ...]:
        """The bounded properties, without keys and Timestamp."""
        return tuple(name for name in self.conditions.ranges if name not in SYSTEM_PROPERTIES)

    @property
    def fixes_partition(self) -> bool:
        return PARTITION_KEY in self.conditions.equal

    @property
    def fixes_row_key(self) -> bool:
        return ROW_KEY in self.conditions.equal

    @property
    def has_key_to_gain(self) -> bool:
        """Whether a key of other properties would narrow it."""
        return bool(self.equal or self.ranges)


class _Family(NamedTuple):
    """Queries that fix the same properties: their `names` in one order, and the property that they bound, if any."""

    names: tuple[str, ...]
    bounded: tuple[str, ...]
    types: Mapping[str, EdmType]
    served: tuple[AskedQuery, ...]
    """The other queries that the same keys serve."""


def _form(query: AskedQuery) -> tuple[frozenset[str], bool, bool]:
    """Queries of one form can share a PartitionKey. One with conditions on the RowKey is alone with its keys."""
    names = query.conditions.names
    is_alone = ROW_KEY in names or PARTITION_KEY in query.conditions.ranges
    return frozenset(query.equal), query.fixes_partition, is_alone


def _family(query: AskedQuery, others: Sequence[AskedQuery]) -> _Family:
    form = _form(query)
    found = [query] if form[2] else [each for each in others if _form(each) == form] or [query]
    ranges = next((each.ranges[:1] for each in found if each.ranges), ())
    bounded = query.ranges[:1] or ranges
    types = {name: kind for each in found for name, kind in each.conditions.types.items()}
    others = [each for each in found if each is not query]
    served = tuple(each for each in others if (each.ranges[:1] or ranges) == bounded)
    return _Family(found[0].equal, bounded, types, served)


def new_keys(query: AskedQuery, others: Sequence[AskedQuery] = ()) -> dict[str, object]:
    """Keys of the filter's properties, then the present keys; `others` that fix the same properties share them."""
    conditions = query.conditions
    family = _family(query, others)
    named = (*conditions.ranges, *conditions.equal)
    rest = [PARTITION_KEY, ROW_KEY]
    if PARTITION_KEY not in conditions.ranges and ROW_KEY in named:
        rest.reverse()
    is_range = bool(query.ranges) or rest[0] in named
    row = _distinct((*family.bounded, *rest))
    return {
        "partition_key": template(family.names, family.types),
        "row_key": template(row, family.types),
        "gain": "a row range of one partition" if is_range else "one partition",
        "several": several(conditions) + _also(family),
    }


def keys_inside(query: AskedQuery, others: Sequence[AskedQuery] = ()) -> dict[str, object]:
    """A RowKey of the filter's properties. It begins with their names, so that copies stay apart from entities."""
    family = _family(query, others)
    names = (*family.names, *family.bounded)
    return {
        "partition_key": "{PartitionKey}",
        "row_key": f"{'_'.join(names)}_{template((*names, ROW_KEY), family.types)}",
        "gain": "a row range",
        "several": several(query.conditions) + _also(family),
    }


def divided_key(table: TableUse) -> str:
    """A PartitionKey to try for a hot partition; empty if none divides it: RowKeys that follow time begin alike."""
    fixed = [
        (PARTITION_KEY not in each.equal, name)
        for use in table.queries
        for each in conditions_of(use.filter)
        for name in each.equal
        if name not in SYSTEM_PROPERTIES and each.types.get(name) is not EdmType.BOOLEAN
    ]
    if fixed:
        return f"{{PartitionKey}}_{{{min(fixed, key=lambda each: each[0])[1]}}}"
    return "" if table.row_form.is_time else "{PartitionKey}_{RowKey:.2}"


def template(names: tuple[str, ...], types: Mapping[str, EdmType]) -> str:
    """A key of these properties, each in a format that sorts."""
    return "_".join(
        f"{{{name}{PADDED.get(types.get(name, EdmType.STRING), '')}}}" for name in names
    )


def several(conditions: Conditions) -> str:
    """What to add for a filter with several values of a property."""
    return " Send one query for each value." if conditions.several else ""


def _also(family: _Family) -> str:
    """What to add about other queries that the keys serve, and about negative numbers."""
    shapes = _distinct(shape_of(each.use.filter) for each in family.served)
    words = "" if not shapes else f" The same keys serve the query `{shapes[0]}` too."
    if len(shapes) > 1:
        words = f" The same keys serve {len(shapes):,} other queries too, such as `{shapes[0]}`."
    name = family.bounded[0] if family.bounded else ""
    if family.types.get(name) in PADDED:
        words += f" A range of {name} is a range of these keys only if no {name} is negative."
    return words
