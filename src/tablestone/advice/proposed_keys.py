"""The keys that a query would like: templates, as `tablestone import` reads them.

The properties that a filter fixes make a PartitionKey, one that it bounds makes the RowKey, and the present keys behind
them keep the RowKey unique. Queries that fix the same properties share keys. Knows the conditions of a filter; does not
know which query deserves other keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tablestone.advice.conditions import Conditions, conditions_of
from tablestone.advice.filter_shape import shape_of
from tablestone.advice.workload import QueryUse, TableUse
from tablestone.model.edm import EdmType
from tablestone.model.entity import TIMESTAMP
from tablestone.model.keys import PARTITION_KEY, ROW_KEY

_SYSTEM: Final = (PARTITION_KEY, ROW_KEY, TIMESTAMP)
PADDED: Final = {EdmType.INT32: ":010", EdmType.INT64: ":019", EdmType.DOUBLE: ":020.6f"}
"""Formats of numbers whose text sorts as the numbers do, if none is negative."""


class AskedQuery(NamedTuple):
    """A query of one branch, with the parts of its filter that are no keys."""

    use: QueryUse
    conditions: Conditions
    equal: tuple[str, ...]
    ranges: tuple[str, ...]

    @property
    def fixes_partition(self) -> bool:
        """Whether it reads inside one partition."""
        return PARTITION_KEY in self.conditions.equal

    @property
    def has_key_to_gain(self) -> bool:
        """Whether a key of other properties would narrow the query."""
        return bool(self.equal or self.ranges)


class _Family(NamedTuple):
    """Queries that fix the same properties: `names` in one order, the property of their range, and types."""

    names: tuple[str, ...]
    bounded: tuple[str, ...]
    types: Mapping[str, EdmType]
    served: tuple[AskedQuery, ...]
    """The other queries that the same keys serve."""


def _form(query: AskedQuery) -> tuple[frozenset[str], bool, bool]:
    """Queries of one form can have the same PartitionKey. One with conditions on RowKeys keeps keys of its own."""
    names = query.conditions.names
    is_alone = ROW_KEY in names or PARTITION_KEY in (*query.conditions.ranges,)
    return frozenset(query.equal), query.fixes_partition, is_alone


def _family(query: AskedQuery, others: Sequence[AskedQuery]) -> _Family:
    form = _form(query)
    found = [query] if form[2] else [each for each in others if _form(each) == form] or [query]
    ranges = list(dict.fromkeys(each.ranges[0] for each in found if each.ranges))
    bounded = query.ranges[:1] or tuple(ranges[:1])
    types = {name: kind for each in found for name, kind in each.conditions.types.items()}
    served = tuple(
        each
        for each in found
        if each is not query and (each.ranges[:1] or tuple(ranges[:1])) == bounded
    )
    return _Family(found[0].equal, bounded, types, served)


def new_keys(query: AskedQuery, others: Sequence[AskedQuery] = ()) -> dict[str, object]:
    """Keys of the filter's own properties, as facts of advice, with the present keys behind them.

    Of `others`, those that fix the same properties get the same keys. A query without a range takes that of another.
    """
    conditions = query.conditions
    family = _family(query, others)
    rest = [PARTITION_KEY, ROW_KEY]
    if PARTITION_KEY not in conditions.ranges and ROW_KEY in (
        *conditions.ranges,
        *conditions.equal,
    ):
        rest.reverse()
    is_range = bool(query.ranges) or rest[0] in (*conditions.ranges, *conditions.equal)
    row = tuple(dict.fromkeys((*family.bounded, *rest)))
    return {
        "partition_key": template(family.names, family.types),
        "row_key": template(row, family.types),
        "gain": "a row range of one partition" if is_range else "one partition",
        "several": several(conditions) + _also(family),
    }


def keys_inside(query: AskedQuery, others: Sequence[AskedQuery] = ()) -> dict[str, object]:
    """A RowKey of the filter's properties, behind their names, so that the copies stand apart from the entities."""
    family = _family(query, others)
    names = (*family.names, *family.bounded)
    return {
        "partition_key": "{PartitionKey}",
        "row_key": f"{'_'.join(names)}_{template((*names, ROW_KEY), family.types)}",
        "gain": "a row range",
        "several": several(query.conditions) + _also(family),
    }


def divided_key(table: TableUse) -> str:
    """A PartitionKey to try for a hot partition: with a property that a query fixes, or else a part of the RowKey.

    Empty if neither would divide the partition: RowKeys that follow time begin alike.
    """
    fixed = [
        (PARTITION_KEY not in each.equal, name)
        for use in table.queries
        for each in conditions_of(use.filter)
        for name in each.equal
        if name not in _SYSTEM and each.types.get(name) is not EdmType.BOOLEAN
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
    """A further sentence for a filter that has several values of a property."""
    return " Send one query for each value." if conditions.several else ""


def _also(family: _Family) -> str:
    """Further sentences: the other queries that the keys serve, and the sign that a shape does not tell."""
    shapes = list(dict.fromkeys(shape_of(each.use.filter) for each in family.served))
    words = "" if not shapes else f" The same keys serve the query `{shapes[0]}` too."
    if len(shapes) > 1:
        words = f" The same keys serve {len(shapes):,} other queries too, such as `{shapes[0]}`."
    name = family.bounded[0] if family.bounded else ""
    if family.types.get(name) in PADDED:
        words += f" A range of {name} is a range of these keys only if no {name} is negative."
    return words
