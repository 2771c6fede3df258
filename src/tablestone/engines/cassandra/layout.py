"""The keyspace: its tables, whether it is Tablestone's, and whether it was ever written to.

A deletion hides later writes with an earlier timestamp, and no read shows the deletion. So `cluster init` notes that
the keyspace is new, and each program that opens it to write withdraws the note first.
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
RULES_LAYOUT: Final = 3
"""The same tables, with rules of accounts, which servers that know only earlier layouts would ignore."""
STEPS: Final[Mapping[int, str]] = {}
"""For each older layout, the statement that makes the next one of it. It may be repeated."""

ROWS: Final = "rows"
DIRECTORY: Final = "directory"
DIRECTORY_NODES: Final = "directory_nodes"
ABOUT: Final = "about"
LOADING: Final = "loading"

# With unified compaction a read meets few sstables, in many small partitions and in a few large ones. A node that was
# away for longer than gc_grace_seconds, Cassandra's own ten days, must be rebuilt, and a repair must run that often.
# Read repair is blocking, as by default, because the engine relies on it: a read sees what earlier reads at QUORUM have
# seen. Such a read asks two of three nodes, and one may hang: then the third is asked after at most 50 ms. The default,
# 99p, would ask it later and later, because the reads that wait count too.
SPECULATIVE_RETRY: Final = "MIN(99p,50ms)"
COMPACTION: Final = "UnifiedCompactionStrategy"
GC_GRACE_SECONDS: Final = 864_000
_OPTIONS: Final = (
    f"compaction = {{'class': '{COMPACTION}'}} AND gc_grace_seconds = {GC_GRACE_SECONDS} "
    f"AND read_repair = 'BLOCKING' AND speculative_retry = '{SPECULATIVE_RETRY}'"
)

COLUMNS: Final[Mapping[str, str]] = {
    # A partition of the contract with all its rows. Conditions read its static columns:
    #   mark     grows with every commit in the partition, and is at least every version given in it
    #   floor    the greatest version of a deleted row: a row of the same key gets a later one
    #   listed   the epoch of its entry in the directory; not positive: it has none (`directory`)
    #   widest   the length of the longest value, rounded up to a power of two, if it is longer than 4 KiB (`read`)
    #   writers  the number of the last commit of each engine, for an hour, to find out whether it was applied
    ROWS: "partition blob, row blob, version bigint, value blob, mark bigint static, floor bigint static, "
    "listed bigint static, widest int static, writers map<bigint, bigint> static",
    # The partitions in order, as a tree of three levels (`directory`).
    DIRECTORY: "level tinyint, low blob, entry blob, epoch bigint",
    DIRECTORY_NODES: "level tinyint, low blob, high blob, split blob, cleared bigint, epoch_min bigint, takes bigint, "
    "taken bigint",
    # The version of the layout, and whether anything was ever written.
    ABOUT: "name text, number bigint",
    # An unfinished load.
    LOADING: "id tinyint, source blob, begun bigint, partition blob, row blob",
}
"""`require_own` knows another program's keyspace by its columns."""

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

LOADING_TABLE: Final = f"""
    CREATE TABLE IF NOT EXISTS {LOADING} ({COLUMNS[LOADING]}, PRIMARY KEY (id))
    WITH comment = 'Tablestone: an unfinished load'"""


def keyspace_statement(keyspace: str, copies_in: Mapping[str, int]) -> str:
    return f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH {replication(copies_in)} AND durable_writes = true"


def replication(copies_in: Mapping[str, int]) -> str:
    """The option for the number of copies of each row, by datacenter."""
    copies = "".join(f", '{datacenter}': {number}" for datacenter, number in copies_in.items())
    return f"replication = {{'class': 'NetworkTopologyStrategy'{copies}}}"


def note_new(connection: Connection) -> None:
    """Note that the tables have just been made, unless there is a note."""
    connection.execute(f"INSERT INTO {ABOUT} (name, number) VALUES ('used', 0) IF NOT EXISTS")


def note_use(connection: Connection) -> None:
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


def keep_rules(connection: Connection, *, all_upgraded: bool) -> str | None:
    """As the engine's. Nodes do not say which version of Tablestone a client has."""
    name = connection.keyspace
    asked = f"SELECT number FROM {ABOUT} WHERE name = 'layout'"
    if connection.execute(asked)[0][0] >= RULES_LAYOUT:
        return None

    def require_upgraded() -> None:
        if not all_upgraded and (users := connection.other_clients()):
            raise EngineRefused(
                f"The keyspace {name} is in use from {', '.join(users)}, and a server of an earlier version would not "
                "keep to rules of accounts: say --all-servers-upgraded if every server has this version."
            )

    require_upgraded()
    connection.execute(
        f"UPDATE {ABOUT} SET number = {RULES_LAYOUT} WHERE name = 'layout' IF number = {LAYOUT}"
    )
    require_upgraded()  # one may have started meanwhile
    return f"The keyspace {name} has layout {RULES_LAYOUT} now"


_COLUMN: Final = re.compile(r"(\w+) (\w+(?:<[^>]*>)?(?: static)?)(?:, |$)")


def require_own(connection: Connection, keyspace: Any) -> int | None:
    """The layout; None if the keyspace is unfinished or empty. `EngineRefused` if it is another program's or newer."""
    name, tables = connection.keyspace, keyspace.tables
    number = None
    if ABOUT in tables and _has_columns(tables[ABOUT], COLUMNS[ABOUT]):
        rows = connection.execute(f"SELECT number FROM {name}.{ABOUT} WHERE name = 'layout'")
        number = rows[0][0] if rows else None
    if number is not None and number > RULES_LAYOUT:
        raise EngineRefused(
            f"The keyspace {name} has layout {number}, and this version of Tablestone knows layout {RULES_LAYOUT}: "
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
    """Whether a table, as the driver describes it, has at least these columns."""
    there: Mapping[str, str] = {
        name: f"{column.cql_type}{' static' if column.is_static else ''}"
        for name, column in table.columns.items()
    }
    return there.items() >= dict(_COLUMN.findall(columns)).items()
