"""Index entries in the database: one table, made with the first index.

Commits write entries in the transaction of their rows (`commit`); snapshots read them (`read`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from tablestone.engines.contract import EngineRefused
from tablestone.engines.sqlite.change_log import make_tables, raising_unavailable
from tablestone.engines.sqlite.data_directory import (
    INDEXED_FORMAT_VERSION,
    RULES_FORMAT_VERSION,
    is_locked,
    newest_known,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import apsw

    from tablestone.engines.sqlite.data_directory import DataDirectory

SCHEMA: Final = """
CREATE TABLE index_entries (
    entry BLOB NOT NULL,
    partition BLOB NOT NULL,
    row BLOB NOT NULL,
    PRIMARY KEY (entry, partition, row)
) STRICT, WITHOUT ROWID
"""

_DELETE: Final = "DELETE FROM index_entries WHERE entry = ? AND partition = ? AND row = ?"

STATEMENTS_KEPT: Final = 512
"""Kept texts of statements, of some KiB each."""


@lru_cache(maxsize=STATEMENTS_KEPT)
def insert_statement(entries: int) -> str:
    given = ", ".join(["(?, ?, ?)"] * entries)
    return f"INSERT OR IGNORE INTO index_entries (entry, partition, row) VALUES {given}"  # noqa: S608 - no value in it


def change_entries(
    execute: Callable[[str, Sequence[Any]], object],
    partition: bytes,
    row: bytes,
    old: Sequence[bytes],
    new: Sequence[bytes],
) -> None:
    for entry in old:
        if entry not in new:
            execute(_DELETE, (entry, partition, row))
    for entry in new:
        if entry not in old:
            execute(insert_statement(1), (entry, partition, row))


def make_table(writer: apsw.Connection) -> bool:
    """Make the table in the open transaction; False if it exists."""
    if writer.pragma("user_version") >= INDEXED_FORMAT_VERSION:
        return False
    make_tables(writer)
    writer.execute(SCHEMA)
    writer.pragma("user_version", INDEXED_FORMAT_VERSION)
    return True


def set_rules_format(writer: apsw.Connection) -> None:
    """In the open transaction. A format has all that the ones before it have, so the tables are made too."""
    make_table(writer)
    writer.pragma("user_version", RULES_FORMAT_VERSION)


def keep_rules(directory: DataDirectory, *, all_upgraded: bool) -> str | None:
    """As the engine's."""

    def require_upgraded() -> None:
        path = directory.path
        if all_upgraded or not is_locked(path) or newest_known(path) >= RULES_FORMAT_VERSION:
            return
        raise EngineRefused(
            f"A server of an earlier version uses {path}, and would not keep to rules of accounts: restart it with "
            "this version first, or say --all-servers-upgraded."
        )

    require_upgraded()
    with raising_unavailable("write"), directory.committing() as writer:
        if writer.pragma("user_version") >= RULES_FORMAT_VERSION:
            return None
        writer.execute("BEGIN IMMEDIATE")
        set_rules_format(writer)
        writer.execute("COMMIT")
    require_upgraded()  # one may have started before the commit
    return f"The data directory {directory.path} has format {RULES_FORMAT_VERSION} now"
