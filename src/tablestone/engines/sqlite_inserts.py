"""Write sets that only insert, several in one statement: rows that must not be there yet, all of them or none.

A statement is a transaction of its own, so that a group of these needs neither BEGIN nor COMMIT, and whoever carries it
out asks SQLite once. Knows nothing of locks, threads, and who waits.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tablestone.engines.contract import ABSENT, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tablestone.engines.contract import WriteSet

ROWS_MAX: Final = 200
"""A statement is prepared for each number of rows, and the last ones that were used stay prepared."""


def only_inserts(write_set: WriteSet) -> bool:
    """Whether the write set may be one of several in a statement. What is announced needs more than a commit."""
    if write_set.announced or len(write_set.changes) > ROWS_MAX:
        return False
    for _row, expectation, mutation in write_set.changes:
        if expectation != ABSENT or not isinstance(mutation, Put):
            return False
    return bool(write_set.changes)


def insert_together(
    execute: Callable[[str, Sequence[Any]], object], write_sets: Sequence[WriteSet], version: int
) -> None:
    """Insert and flush all rows, up to `ROWS_MAX`, with this version.

    Raises what `execute` does, `apsw.ConstraintError` where a row is there or named twice; then none was inserted.
    """
    given: list[bytes | int] = []
    rows = 0
    for partition, changes, _announced in write_sets:
        for row, _expectation, put in changes:
            assert isinstance(put, Put)
            given += (partition, row, version, put.render(version))
        rows += len(changes)
    execute(_statement(rows), given)


@cache
def _statement(rows: int) -> str:
    given = ", ".join(["(?, ?, ?, ?)"] * rows)
    return f"INSERT INTO stored_rows (partition, row, version, value) VALUES {given}"  # noqa: S608 - no value in it
