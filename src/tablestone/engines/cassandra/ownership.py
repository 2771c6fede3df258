"""Whose keyspace one is: made by Tablestone, in which layout, or by another program. It is read, and never changed.

The driver's picture of the schema and the number in `about` decide. Nothing is made or used in a keyspace before this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tablestone.engines.cassandra.schema import (
    ABOUT,
    COLUMNS,
    DIRECTORY_NODES,
    LAYOUT,
    NODE_COLUMNS,
    TABLES,
)
from tablestone.engines.contract import EngineRefused

if TYPE_CHECKING:
    from tablestone.engines.cassandra.connection import Connection

_COLUMN: Final = re.compile(r"(\w+) (\w+(?:<[^>]*>)?(?: static)?)(?:, |$)")


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of a keyspace of Tablestone that are there."""

    missing: tuple[str, ...]
    """Tables that are not there."""
    number: int | None
    """The layout, at most `LAYOUT`; None if the keyspace was not made to its end."""


def require_own(connection: Connection, keyspace: Any) -> Layout:
    """The layout of a keyspace, as the driver describes that; `EngineRefused` if it is not one of this version.

    A keyspace without tables is one that was not made to its end.
    """
    name, tables = connection.keyspace, keyspace.tables
    missing = tuple(table for table in TABLES if table not in tables)
    number = None
    if ABOUT in tables and _has_columns(tables[ABOUT], COLUMNS[ABOUT]):
        rows = connection.execute(f"SELECT number FROM {name}.{ABOUT} WHERE name = 'layout'")
        number = rows[0][0] if rows else None
    if number is not None and number > LAYOUT:
        raise EngineRefused(
            f"The keyspace {name} has layout {number}, and this version of Tablestone knows layout {LAYOUT}: "
            f"use the version that made it, or a newer one."
        )
    theirs = sorted(set(tables) - set(COLUMNS))
    if theirs and (missing or number is None):
        raise EngineRefused(_by_another(name, f"has the table {theirs[0]!r}"))
    for table, columns in COLUMNS.items():
        if table == DIRECTORY_NODES and number == 1:
            columns = columns.removesuffix(f", {NODE_COLUMNS}")  # noqa: PLW2901 - of the first layout
        if table in tables and not _has_columns(tables[table], columns):
            raise EngineRefused(
                _by_another(name, f"has a table {table!r} with other columns than Tablestone's")
            )
    return Layout(missing, number)


def _by_another(name: str, why: str) -> str:
    return f"The keyspace {name} was made by another program: it {why}."


def _has_columns(table: Any, columns: str) -> bool:
    """Whether a table, as the driver describes it, has these columns at least."""
    there: Mapping[str, str] = {
        name: f"{column.cql_type}{' static' if column.is_static else ''}"
        for name, column in table.columns.items()
    }
    return there.items() >= dict(_COLUMN.findall(columns)).items()
