"""Parses the statements that the Cassandra engine prepares: the part of CQL that they use, and no more.

A statement that it does not understand is an error.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

KEYS: Final[dict[str, tuple[tuple[str, ...], str | None]]] = {
    "rows": (("partition",), "row"),
    "directory": (("level", "low"), "entry"),
    "directory_nodes": (("level", "low"), None),
}
"""The columns of the partition key of each table, and its clustering column."""
STATIC_COLUMNS: Final = {"mark", "floor", "listed", "widest", "writers"}
ONLY_ROW: Final = b""
"""Stands for the clustering key of the only row of a partition without a clustering column."""

STATES: Final = "STATES"
"""The verb of the statement that reads the static columns of all partitions: the check of invariants sends it."""

Column = str | tuple[str, Any]
"""A column, or an entry of a map."""


class Term(NamedTuple):
    """A value in a statement: a parameter by its number, or a constant."""

    parameter: int | None
    constant: Any = None

    def value(self, parameters: Sequence[Any]) -> Any:
        return self.constant if self.parameter is None else parameters[self.parameter]


class Relation(NamedTuple):
    """A column, an operator and a value: of WHERE, of IF, or an assignment."""

    column: str
    operator: str
    term: Term
    entry: Term | None = None
    """The key of the map's entry, if the column is a map."""


@dataclass
class Statement:
    """A prepared statement. `is_serial` is the consistency that the engine wants for a read."""

    text: str
    verb: str
    table: str
    columns: list[tuple[str, Term | None]] = field(default_factory=list)
    assignments: list[Relation] = field(default_factory=list)
    where: list[Relation] = field(default_factory=list)
    conditions: list[Relation] = field(default_factory=list)
    is_insert_if_missing: bool = False
    is_distinct: bool = False
    is_descending: bool = False
    limit: Term | None = None
    timestamp: Term | None = None
    ttl: Term | None = None
    is_serial: bool = False
    asks_one: bool = False

    is_conditional: bool = False
    asks_static: bool = False
    key_terms: list[Term] = field(default_factory=list)
    row: Term | None = None
    """The clustering key, if the statement names one row."""
    clustering: list[Relation] = field(default_factory=list)
    """The relations of WHERE that restrict the clustering column."""
    values: list[Relation] = field(default_factory=list)
    """The assignments to columns outside the key."""

    def copied(self, *, is_serial: bool) -> Statement:
        """A server's own copy, which shares everything that does not change."""
        copy = object.__new__(Statement)
        copy.__dict__.update(self.__dict__, is_serial=is_serial)
        return copy

    def key(self, parameters: Sequence[Any]) -> tuple[Any, ...]:
        """The table and the partition key."""
        return (self.table, *[term.value(parameters) for term in self.key_terms])

    def understand(self) -> None:
        """Derive what every use of the statement needs."""
        partition, clustering = KEYS[self.table]
        given = [*self.where, *self.assignments]
        terms = {each.column: each.term for each in given}
        rows = [each.term for each in given if each.column == clustering and each.operator == "="]
        self.is_conditional = bool(self.conditions) or self.is_insert_if_missing
        self.asks_static = any(name in STATIC_COLUMNS for name, _ in self.columns)
        self.key_terms = [terms[name] for name in partition]
        self.row = rows[0] if rows else None
        self.clustering = [each for each in self.where if each.column == clustering]
        self.values = [
            each for each in self.assignments if each.column not in {*partition, clustering}
        ]


_CLAUSES: Final = re.compile(
    r"\s+(FROM|WHERE|SET|IF NOT EXISTS|IF|VALUES|LIMIT|ORDER BY|USING TTL|USING TIMESTAMP)\s+"
)
_RELATION: Final = re.compile(r"(\w+)(?:\[(\S+?)\])?\s*(IN|!=|>=|<=|=|<|>)\s*(\S+)")


@functools.cache
def parse(text: str) -> Statement:
    """Parse a statement. The result is shared."""
    if "token(" in text:
        return Statement(text, STATES, "rows")
    number = iter(range(text.count("?")))
    numbered = re.sub(r"\?", lambda _: f":{next(number)}", " ".join(text.split()))
    parts = _CLAUSES.split(numbered + " ")
    head, clauses = parts[0], dict(zip(parts[1::2], parts[2::2], strict=True))
    verb, _, rest = head.strip().partition(" ")
    made = Statement(text, verb, "")
    made.is_insert_if_missing = "IF NOT EXISTS" in clauses
    if verb == "SELECT":
        made.table = clauses["FROM"].strip()
        made.is_distinct = rest.startswith("DISTINCT ")
        made.columns = [_column(each) for each in rest.removeprefix("DISTINCT ").split(",")]
        made.is_descending = "DESC" in clauses.get("ORDER BY", "")
    elif verb == "UPDATE":
        made.table = rest.strip()
        made.assignments = _relations(clauses["SET"], ",")
    elif verb == "INSERT":
        found = re.fullmatch(r"INTO (\w+) \((.*)\)", rest.strip())
        assert found is not None, text
        made.table = found[1]
        values = clauses["VALUES"].split(")")[0].strip(" (").split(",")
        names = found[2].split(",")
        made.assignments = [
            Relation(name.strip(), "=", _term(value))
            for name, value in zip(names, values, strict=True)
        ]
    else:
        assert verb == "DELETE", text
        made.table = (clauses["FROM"] if "FROM" in clauses else rest.split()[-1]).strip()
    made.where = _relations(clauses.get("WHERE", ""), " AND ")
    made.conditions = _relations(clauses.get("IF", ""), " AND ")
    made.limit = _optional(clauses.get("LIMIT"))
    made.timestamp = _optional(clauses.get("USING TIMESTAMP"))
    made.ttl = _optional(clauses.get("USING TTL"))
    assert made.table in KEYS, text
    made.understand()
    return made


def _relations(text: str, separator: str) -> list[Relation]:
    found = []
    for part in filter(str.strip, text.split(separator)):
        match = _RELATION.fullmatch(part.strip())
        assert match is not None, part
        column, entry, operator, value = match.groups()
        found.append(Relation(column, operator, _term(value), _optional(entry)))
    return found


def _column(text: str) -> tuple[str, Term | None]:
    match = re.fullmatch(r"(\w+)(?:\[(\S+)\]|\(\w+\))?", text.strip())
    assert match is not None, text
    return match[1], _optional(match[2])


def _optional(text: str | None) -> Term | None:
    return None if text is None else _term(text)


def _term(text: str) -> Term:
    text = text.strip()
    if text.startswith(":"):
        return Term(int(text[1:]))
    return Term(None, None if text == "null" else int(text))
