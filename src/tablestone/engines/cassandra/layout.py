"""The keyspace: its tables with the reasons, whose it is, and whether it was ever written to.

A deletion hides what is written later with an earlier timestamp, and no read shows the deletion. So `cluster init`
notes that the keyspace is new, and each program that opens it to write withdraws the note first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tablestone.engines.contract import EngineRefused

if TYPE_CHECKING:
    from tablestone.engines.cassandra.connection import Connection

LAYOUT: Final = 2
"""The version of the layout, stored in `about`. The first release has it."""
STEPS: Final[Mapping[int, str]] = {}
"""For each older layout, the statement that turns it into the next one. It may be repeated."""

ROWS: Final = "rows"
DIRECTORY: Final = "directory"
DIRECTORY_NODES: Final = "directory_nodes"
ABOUT: Final = "about"
LOADING: Final = "loading"

# Unified compaction keeps the number of sstables that a read meets small, for many small partitions and few large ones.
# gc_grace_seconds is Cassandra's own ten days: a node that was away for longer has to be rebuilt, and a repair has to
# run at least that often. Blocking read repair is the default and is set here because the engine relies on it: every
# read sees what an earlier read at QUORUM has seen. Such a read asks two of three nodes, and one of them may hang.
# After at most 50 ms the third one is asked too; with the default, 99p, later and later, as the reads that wait count.
SPECULATIVE_RETRY: Final = "MIN(99p,50ms)"
COMPACTION: Final = "UnifiedCompactionStrategy"
GC_GRACE_SECONDS: Final = 864_000
_OPTIONS: Final = (
    f"compaction = {{'class': '{COMPACTION}'}} AND gc_grace_seconds = {GC_GRACE_SECONDS} "
    f"AND read_repair = 'BLOCKING' AND speculative_retry = '{SPECULATIVE_RETRY}'"
)

COLUMNS: Final[Mapping[str, str]] = {
    # A partition of the contract with all its rows. Conditions read its static columns:
    #   mark     a number that is greater after every commit in the partition, at least every version given in it
    #   floor    the greatest version of a row that was deleted: a row of the same key gets a later one
    #   listed   the epoch of its entry in the directory; not positive: it has none (`directory`)
    #   widest   the length of the longest value, rounded up to a power of two, if it is longer than 4 KiB (`read`)
    #   writers  the number of the last commit of each engine, for an hour, to find out whether it was applied
    ROWS: "partition blob, row blob, version bigint, value blob, mark bigint static, floor bigint static, "
    "listed bigint static, widest int static, writers map<bigint, bigint> static",
    # The partitions in order, as a tree of three levels (`directory`).
    DIRECTORY: "level tinyint, low blob, entry blob, epoch bigint",
    DIRECTORY_NODES: "level tinyint, low blob, high blob, split blob, cleared bigint, epoch_min bigint, takes bigint, "
    "taken bigint",
    # The version of this layout, and whether anything was ever written.
    ABOUT: "name text, number bigint",
    # An unfinished load.
    LOADING: "id tinyint, source blob, begun bigint, partition blob, row blob",
}
"""The columns of each table. By them `require_own` knows a keyspace of another program."""

TABLES: Final[Mapping[str, str]] = {
    table: f"CREATE TABLE IF NOT EXISTS {table} ({COLUMNS[table]}, PRIMARY KEY ({key})) "
    f"WITH comment = 'Tablestone: {comment}' AND {_OPTIONS}"
    for table, key, comment in (
        (ROWS, "partition, row", "rows in partitions"),
        (DIRECTORY, "(level, low), entry", "partitions in order"),
        (DIRECTORY_NODES, "(level, low)", "the bounds of the pieces of the directory"),
        (ABOUT, "name", "the version of the layout"),
    )
}
"""The statements that make the tables."""

LOADING_TABLE: Final = f"""
    CREATE TABLE IF NOT EXISTS {LOADING} ({COLUMNS[LOADING]}, PRIMARY KEY (id))
    WITH comment = 'Tablestone: an unfinished load'"""


def keyspace_statement(keyspace: str, copies_in: Mapping[str, int]) -> str:
    """The statement that makes a keyspace with so many copies of each row in each datacenter."""
    return f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH {replication(copies_in)} AND durable_writes = true"


def replication(copies_in: Mapping[str, int]) -> str:
    """The option of a keyspace that says how many copies of each row each datacenter holds."""
    copies = "".join(f", '{datacenter}': {number}" for datacenter, number in copies_in.items())
    return f"replication = {{'class': 'NetworkTopologyStrategy'{copies}}}"


def note_new(connection: Connection) -> None:
    """Note that the tables have just been made; nothing happens if that, or more, was noted before."""
    connection.execute(f"INSERT INTO {ABOUT} (name, number) VALUES ('used', 0) IF NOT EXISTS")


def note_use(connection: Connection) -> None:
    """Note that the keyspace is about to be written to."""
    if _is_new(connection):
        connection.execute(f"UPDATE {ABOUT} SET number = 1 WHERE name = 'used' IF number = 0")


def require_new(connection: Connection) -> None:
    """Refuse a keyspace that may have been written to."""
    if not _is_new(connection):
        raise EngineRefused(
            f"The keyspace {connection.keyspace} was used before, and its deletions could hide what is loaded: "
            "drop it, and make it again with `tablestone cluster init`."
        )


def _is_new(connection: Connection) -> bool:
    rows = connection.execute(f"SELECT number FROM {ABOUT} WHERE name = 'used'")
    return [tuple(row) for row in rows] == [(0,)]


_COLUMN: Final = re.compile(r"(\w+) (\w+(?:<[^>]*>)?(?: static)?)(?:, |$)")


def require_own(connection: Connection, keyspace: Any) -> int | None:
    """The layout of a keyspace, as the driver describes it, at most `LAYOUT`; None if it was not made to its end.

    `EngineRefused` if the keyspace is another program's, or of a newer version. One without tables is Tablestone's.
    """
    name, tables = connection.keyspace, keyspace.tables
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
    if theirs and (number is None or not TABLES.keys() <= tables.keys()):
        raise EngineRefused(_by_another(name, f"has the table {theirs[0]!r}"))
    for table, columns in COLUMNS.items():
        if table in tables and not _has_columns(tables[table], columns):
            raise EngineRefused(
                _by_another(name, f"has a table {table!r} with other columns than Tablestone's")
            )
    return number


def _by_another(name: str, why: str) -> str:
    return f"The keyspace {name} was made by another program: it {why}."


def _has_columns(table: Any, columns: str) -> bool:
    """Whether a table, as the driver describes it, has these columns at least."""
    there: Mapping[str, str] = {
        name: f"{column.cql_type}{' static' if column.is_static else ''}"
        for name, column in table.columns.items()
    }
    return there.items() >= dict(_COLUMN.findall(columns)).items()
