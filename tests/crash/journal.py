"""The answers that a writer got, and whether a server that was killed kept the acknowledged data.

Knows: states of entities before and after a write, values only. A journal belongs to one writer and
one partition, and no other writer touches that partition: so at any moment at most one operation is
without its answer, and that one may have happened or not, but never in part. Must not know HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Properties = dict[str, str | int]


@dataclass(frozen=True)
class Stored:
    properties: Properties
    etag: str


@dataclass(frozen=True)
class Change:
    """The result of an operation for one entity; `properties` is None for a deletion.

    Every change that writes contains a number that was never used before, so before and after always differ.
    """

    row_key: str
    properties: Properties | None


@dataclass
class Journal:
    partition_key: str
    acknowledged: dict[str, Stored] = field(default_factory=dict)
    in_flight: tuple[Change, ...] = ()
    operations_acknowledged: int = 0

    def begin(self, changes: Sequence[Change]) -> None:
        self.in_flight = tuple(changes)

    def acknowledge(self, etags: Sequence[str | None]) -> None:
        """The answer came: one ETag for each change, None for a deletion."""
        for change, etag in zip(self.in_flight, etags, strict=True):
            if change.properties is None:
                del self.acknowledged[change.row_key]
            else:
                assert etag is not None, f"no ETag for {change}"
                self.acknowledged[change.row_key] = Stored(change.properties, etag)
        self.in_flight = ()
        self.operations_acknowledged += 1

    def complaints(self, found: Mapping[str, Stored]) -> Iterator[str]:
        """The contradictions between the journal and the partition after the restart, in words."""
        in_flight = {change.row_key for change in self.in_flight}
        for row_key in sorted((self.acknowledged.keys() | found.keys()) - in_flight):
            if found.get(row_key) != self.acknowledged.get(row_key):
                yield self.differs(row_key, found)
        applied = 0
        for change in self.in_flight:
            entity = found.get(change.row_key)
            if (entity.properties if entity else None) == change.properties:
                applied += 1
            elif entity != self.acknowledged.get(change.row_key):
                yield self.differs(change.row_key, found)
        if 0 < applied < len(self.in_flight):
            yield (
                f"{self.partition_key}: {applied} of the {len(self.in_flight)} operations of a"
                " transaction without an answer were applied"
            )

    def differs(self, row_key: str, found: Mapping[str, Stored]) -> str:
        return (
            f"{self.partition_key}/{row_key}: acknowledged {shown(self.acknowledged.get(row_key))},"
            f" found {shown(found.get(row_key))}"
        )

    def settle(self, found: Mapping[str, Stored]) -> None:
        """Continue from the data that was found: the operation without an answer has its outcome now."""
        self.acknowledged = dict(found)
        self.in_flight = ()


Rows = frozenset[str]


@dataclass
class TableJournal:
    """The tables of one writer, each with the RowKeys it holds; at most one operation unanswered."""

    acknowledged: dict[str, Rows] = field(default_factory=dict)
    in_flight: tuple[str, Rows | None] | None = None
    """The table that is being changed and its content after that; None if it is deleted."""
    operations_acknowledged: int = 0

    def begin(self, table: str, rows: Rows | None) -> None:
        self.in_flight = (table, rows)

    def acknowledge(self) -> None:
        assert self.in_flight is not None
        table, rows = self.in_flight
        self.in_flight = None
        if rows is None:
            del self.acknowledged[table]
        else:
            self.acknowledged[table] = rows
        self.operations_acknowledged += 1

    def complaints(self, found: Mapping[str, Rows]) -> Iterator[str]:
        for table in sorted(self.acknowledged.keys() | found.keys()):
            allowed = [self.acknowledged.get(table)]
            if self.in_flight is not None and self.in_flight[0] == table:
                allowed.append(self.in_flight[1])
            if found.get(table) not in allowed:
                yield f"table {table}: allowed {allowed}, found {found.get(table)}"

    def settle(self, found: Mapping[str, Rows]) -> None:
        self.acknowledged = dict(found)
        self.in_flight = None


def shown(entity: Stored | None) -> str:
    if entity is None:
        return "nothing"
    values = {name: value for name, value in entity.properties.items() if name != "padding"}
    return f"{values} {entity.etag}"
