"""Queries on rows with other keys: the plan each would have, and the entities that it would read, counted on the data.

A query with values is counted. A shape, with `?` for its values, has a plan only, and at most the entities of a typical
partition. Knows filters, plans and rows; does not know where either comes from.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from tablestone.advice.filter_shape import NoShape, is_shape, read_shape
from tablestone.advice.stored_types import with_stored_types
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.errors import StorageError
from tablestone.model.filter_tree import FilterNode
from tablestone.model.keys import EntityKey, encode_key
from tablestone.query.evaluate import compile_filter
from tablestone.query.filter_parser import parse_filter
from tablestone.query.plan import KeyInterval, PlanKind, plan_query
from tablestone.transfer.refusals import TransferRefused
from tablestone.transfer.simulated_filters import KeyTemplates, map_filter, sign_notes
from tablestone.transfer.simulated_keys import KeyFigures

EncodedKey = tuple[bytes, bytes]


class GivenQuery(NamedTuple):
    """A filter or its shape, with the types of its values if they are known; `runs` of it were observed.

    `is_point_read`: the requests were no queries, but read one entity by the keys of the observed table.
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
    """One query, and what it would read of the rows so far."""

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
        """Count a row: its new key, its values with its keys, and the key that it has now."""
        if self._is_shape:
            return
        is_read = self._ranges.holds(key)
        self._read += is_read
        if self._matches(columns.get):
            self._returned += 1
            self._missed += not is_read
        if self._present is not None and present is not None:
            self._present_read += self._present.holds(present)

    def figures(self, keys: KeyFigures) -> QueryFigures:
        """The numbers after the last row."""
        at_most = _at_most(self._kind, keys)
        present = self._present_read if self._present is not None else None
        if self._is_shape:
            whole = keys.entities if self._present_kind is PlanKind.TABLE else None
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


def _at_most(kind: PlanKind, keys: KeyFigures) -> int | None:
    """Entities that a query of this kind reads at most, on average; None if that depends on its values."""
    if kind is PlanKind.POINT:
        return 1
    if kind in _ONE_PARTITION:
        return round(keys.typical)
    return keys.entities if kind is PlanKind.TABLE else None


def _tree_of(given: GivenQuery, types: Mapping[str, EdmType] | None) -> FilterNode:
    """The filter; `types` if it is a shape."""
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
    """The queries without repetitions, in their order."""
    return list({each.filter: each for each in reversed(queries)}.values())[::-1]
