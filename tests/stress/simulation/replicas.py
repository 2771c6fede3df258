"""One node's copy of the data: cells with timestamps, of which the latest wins, whatever the order of their arrival.

Has the tables, rows, static columns, tombstones and times to live of Cassandra, and no messages.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from stress.simulation.statements import KEYS, ONLY_ROW, STATIC_COLUMNS, Column, Statement

Key = tuple[Any, ...]
"""The table and the partition key."""
Wanted = Callable[[bytes | None], bool]
"""Whether a row is requested, or the static columns."""
DELETED: Final = "deleted"
"""Stands in place of a column: the row was deleted at this time."""
MARKER: Final = "marker"
"""Stands in place of a column: the row was inserted, so it exists even without a value."""
STATIC: Final = None
"""Stands in place of a clustering key: the static columns."""
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "IN": lambda found, asked: found in asked,
}


class Cell(NamedTuple):
    """A value, None if it was removed. `at` is the timestamp, `expires` the end of its life."""

    at: int
    value: Any
    expires: float = float("inf")

    def beats(self, other: Cell) -> bool:
        """The later cell wins; at the same time a removal wins, then the greater value."""
        if self.at != other.at:
            return self.at > other.at
        if self.value is None or other.value is None:
            return self.value is None and other.value is not None
        return bool(self.value > other.value)


class Part(NamedTuple):
    """A cell and its place. Without a column, `row` and all rows after it were deleted."""

    row: bytes | None
    column: Column | None
    cell: Cell


class Line(NamedTuple):
    """A row as a query sees it: the clustering key, and the values that it has."""

    row: bytes
    values: dict[Column, Any]


class Partition:
    """The cells of one partition."""

    def __init__(self) -> None:
        self.rows: dict[bytes | None, dict[Column, Cell]] = {}
        self.ranges: dict[bytes, int] = {}

    def put(self, part: Part) -> None:
        row, column, cell = part
        if column is None:
            assert row is not None
            self.ranges[row] = max(cell.at, self.ranges.get(row, cell.at))
            return
        cells = self.rows.setdefault(row, {})
        if column not in cells or cell.beats(cells[column]):
            cells[column] = cell

    def merge(self, other: Partition, wanted: Wanted | None = None) -> None:
        """Take what is later in another copy: the cells of the wanted rows, and the deletions of ranges."""
        for row, cells in other.rows.items():
            if wanted is not None and not wanted(row):
                continue
            mine = self.rows.get(row)
            if mine is None:
                self.rows[row] = dict(cells)
                continue
            for column, cell in cells.items():
                known = mine.get(column)
                if known is None or (known is not cell and cell.beats(known)):
                    mine[column] = cell
        for start, at in other.ranges.items():
            self.ranges[start] = max(at, self.ranges.get(start, at))

    def values(self, row: bytes | None, now: float) -> dict[Column, Any]:
        """The values of a row, or of the static columns."""
        cells = self.rows.get(row)
        if cells is None:
            return {}
        gone = cells[DELETED].at if DELETED in cells else -1
        if row is not None and self.ranges:
            gone = max([gone, *(at for start, at in self.ranges.items() if start <= row)])
        return {
            column: cell.value
            for column, cell in cells.items()
            if column != DELETED
            and cell.value is not None
            and cell.at > gone
            and cell.expires > now
        }

    def lines(self, now: float, wanted: Wanted | None = None) -> list[Line]:
        """The wanted rows that exist, in order."""
        rows = sorted(
            row for row in self.rows if row is not None and (wanted is None or wanted(row))
        )
        return [Line(row, values) for row in rows if (values := self.values(row, now))]


class Replica:
    """The partitions of one node."""

    def __init__(self) -> None:
        self.partitions: dict[Key, Partition] = {}

    def partition(self, key: Key) -> Partition:
        partition = self.partitions.get(key)
        if partition is None:
            partition = self.partitions[key] = Partition()
        return partition

    def apply(self, key: Key, parts: Sequence[Part]) -> None:
        partition = self.partition(key)
        for part in parts:
            partition.put(part)


def written(statement: Statement, parameters: Sequence[Any], at: int, now: float) -> list[Part]:
    """The cells that a statement writes, with its own timestamp if it has one."""
    if statement.timestamp is not None:
        at = statement.timestamp.value(parameters)
    ttl = statement.ttl.value(parameters) if statement.ttl is not None else 0
    expires = now + ttl if ttl else float("inf")
    if statement.verb == "DELETE":
        (relation,) = statement.clustering
        row = relation.term.value(parameters)
        return [Part(row, DELETED if relation.operator == "=" else None, Cell(at, None))]
    row = _row_of(statement, parameters)
    parts = []
    for name, _, term, entry in statement.values:
        column: Column = name if entry is None else (name, entry.value(parameters))
        place = STATIC if name in STATIC_COLUMNS else row
        parts.append(Part(place, column, Cell(at, term.value(parameters), expires)))
    if statement.verb == "INSERT":
        parts.append(Part(row, MARKER, Cell(at, 1)))
    return parts


def holds(
    statement: Statement, parameters: Sequence[Any], partition: Partition, now: float
) -> bool:
    """Whether the conditions of a statement hold."""
    row = _row_of(statement, parameters)
    if statement.is_insert_if_missing:
        return not partition.values(row, now)
    static = partition.values(STATIC, now)
    here = {} if row is None else partition.values(row, now)
    for column, sign, term, _ in statement.conditions:
        found = (static if column in STATIC_COLUMNS else here).get(column)
        asked = term.value(parameters)
        if sign == "=":
            fits = found == asked
        elif sign == "!=":
            fits = found != asked
        else:
            fits = found is not None and _COMPARE[sign](found, asked)
        if not fits:
            return False
    return True


def wanted_rows(statement: Statement, parameters: Sequence[Any]) -> Wanted:
    """Which rows of a partition a query concerns; the static columns if it asks for one."""
    asks_static = statement.asks_static
    relations = [
        (_COMPARE[each.operator], each.term.value(parameters)) for each in statement.clustering
    ]

    def wanted(row: bytes | None) -> bool:
        if row is STATIC:
            return asks_static
        for holds_for, value in relations:  # noqa: SIM110 - all() takes twice as long here
            if not holds_for(row, value):
                return False
        return True

    return wanted


def select(
    statement: Statement, parameters: Sequence[Any], partition: Partition, now: float
) -> list[tuple[Any, ...]]:
    """The answer to a query on these cells."""
    wanted = wanted_rows(statement, parameters)
    lines = partition.lines(now, wanted)
    if statement.is_descending:
        lines.reverse()
    if statement.limit is not None:
        lines = lines[: statement.limit.value(parameters)]
    static = partition.values(STATIC, now)
    if not lines and static and not statement.clustering:
        return [_told(statement, parameters, None, {}, static)]
    return [_told(statement, parameters, row, values, static) for row, values in lines]


def _told(
    statement: Statement,
    parameters: Sequence[Any],
    row: bytes | None,
    values: dict[Column, Any],
    static: dict[Column, Any],
) -> tuple[Any, ...]:
    told: list[Any] = []
    for name, entry in statement.columns:
        column: Column = name if entry is None else (name, entry.value(parameters))
        if name == KEYS[statement.table][1]:
            told.append(row)
        else:
            told.append((static if name in STATIC_COLUMNS else values).get(column))
    return tuple(told)


def _row_of(statement: Statement, parameters: Sequence[Any]) -> bytes | None:
    """The clustering key of a statement about one row; None if it only concerns static columns."""
    if KEYS[statement.table][1] is None:
        return ONLY_ROW
    row: bytes | None = None if statement.row is None else statement.row.value(parameters)
    return row
