"""A group of inserts as one SQL statement: several write sets whose rows must all be new, inserted together or not.

A statement is a transaction of its own. So a group needs neither BEGIN nor COMMIT, and is one call of SQLite. Knows
nothing of locks, threads and callers.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tablestone.engines.contract import ABSENT, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tablestone.engines.contract import WriteSet

ROWS_MAX: Final = 200
"""Rows of one statement at most. There is a statement for each number of rows; recently used ones stay prepared."""


def only_inserts(write_set: WriteSet) -> bool:
    """Whether the write set may be one of several in a statement. One that invalidates caches may not."""
    if write_set.invalidates_caches or len(write_set.changes) > ROWS_MAX:
        return False
    for _row, expectation, mutation in write_set.changes:
        if expectation != ABSENT or not isinstance(mutation, Put):
            return False
    return bool(write_set.changes)


def insert_together(
    execute: Callable[[str, Sequence[Any]], object], write_sets: Sequence[WriteSet], version: int
) -> None:
    """Insert and flush all rows, up to `ROWS_MAX`, with this version.

    Raises the errors of `execute`: `apsw.ConstraintError` if a row exists or is named twice. Then none was inserted.
    """
    given: list[bytes | int] = []
    rows = 0
    for partition, changes, _invalidates_caches in write_sets:
        for row, _expectation, put in changes:
            assert isinstance(put, Put)
            given += (partition, row, version, put.render(version))
        rows += len(changes)
    execute(_statement(rows), given)


@cache
def _statement(rows: int) -> str:
    given = ", ".join(["(?, ?, ?, ?)"] * rows)
    return f"INSERT INTO stored_rows (partition, row, version, value) VALUES {given}"  # noqa: S608 - no value in it
