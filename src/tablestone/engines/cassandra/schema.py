"""The tables of a keyspace, as `tablestone cluster init` creates them, with the reasons. Texts, no I/O.

`rows`: a partition of the contract with all its rows. Conditions read its static columns:
  mark     a number that is greater after every commit in the partition, at least every version given in it
  floor    the greatest version of a row that was deleted: a row of the same key gets a later one
  listed   positive: the partition is in the directory, under this epoch; otherwise it is not (`directory`)
  widest   the length of the longest value, rounded up to a power of two, where it is longer than 4 KiB (`widths`)
  writers  the number of the last commit of each engine, for an hour: whether a commit that timed out was applied
`directory`, `directory_nodes`: the partitions in order, as a tree of three levels (`directory`).
`about`: the version of this layout, and whether there was a write ever (`first_use`). `loading`: an unfinished load.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LAYOUT: Final = 2
"""The version of the layout, in `about`. Layout 1 had no `NODE_COLUMNS`: its directory grew, and its leaves stayed."""

ROWS: Final = "rows"
DIRECTORY: Final = "directory"
DIRECTORY_NODES: Final = "directory_nodes"
ABOUT: Final = "about"
LOADING: Final = "loading"

# Unified compaction keeps the number of sstables that a read meets small and needs no tuning for either many small
# partitions or few large ones. gc_grace_seconds is Cassandra's own ten days: a node that was away for longer has to be
# rebuilt, and a repair has to run at least that often. Blocking read repair is the default and is said here because the
# engine relies on it: every read sees what an earlier read at QUORUM has seen. Such a read asks two of three nodes, and
# one that hangs may be among them. After 50 ms at most the third one is asked too. As delivered, at 99p, that
# comes later and later, as the reads that wait count.
SPECULATIVE_RETRY: Final = "MIN(99p,50ms)"
COMPACTION: Final = "UnifiedCompactionStrategy"
GC_GRACE_SECONDS: Final = 864_000
_OPTIONS: Final = (
    f"compaction = {{'class': '{COMPACTION}'}} AND gc_grace_seconds = {GC_GRACE_SECONDS} "
    f"AND read_repair = 'BLOCKING' AND speculative_retry = '{SPECULATIVE_RETRY}'"
)

NODE_COLUMNS: Final = "cleared bigint, epoch_min bigint, takes bigint, taken bigint"
"""The columns that a join of two leaves needs (`directory_joins`)."""

COLUMNS: Final[Mapping[str, str]] = {
    ROWS: "partition blob, row blob, version bigint, value blob, mark bigint static, floor bigint static, "
    "listed bigint static, widest int static, writers map<bigint, bigint> static",
    DIRECTORY: "level tinyint, low blob, entry blob, epoch bigint",
    DIRECTORY_NODES: f"level tinyint, low blob, high blob, split blob, {NODE_COLUMNS}",
    ABOUT: "name text, number bigint",
    LOADING: "id tinyint, source blob, begun bigint, partition blob, row blob",
}
"""The columns of each table, by which a keyspace of another program is told apart (`ownership`)."""

TABLES: Final[Mapping[str, str]] = {
    ROWS: f"""
        CREATE TABLE IF NOT EXISTS {ROWS} ({COLUMNS[ROWS]}, PRIMARY KEY (partition, row))
        WITH comment = 'Tablestone: rows in partitions' AND {_OPTIONS}""",
    DIRECTORY: f"""
        CREATE TABLE IF NOT EXISTS {DIRECTORY} ({COLUMNS[DIRECTORY]}, PRIMARY KEY ((level, low), entry))
        WITH comment = 'Tablestone: partitions in order' AND {_OPTIONS}""",
    DIRECTORY_NODES: f"""
        CREATE TABLE IF NOT EXISTS {DIRECTORY_NODES} ({COLUMNS[DIRECTORY_NODES]}, PRIMARY KEY ((level, low)))
        WITH comment = 'Tablestone: the bounds of the pieces of the directory' AND {_OPTIONS}""",
    ABOUT: f"""
        CREATE TABLE IF NOT EXISTS {ABOUT} ({COLUMNS[ABOUT]}, PRIMARY KEY (name))
        WITH comment = 'Tablestone: the version of the layout' AND {_OPTIONS}""",
}


FROM_LAYOUT_1: Final = f"ALTER TABLE {DIRECTORY_NODES} ADD IF NOT EXISTS ({NODE_COLUMNS})"

LOADING_TABLE: Final = f"""
    CREATE TABLE IF NOT EXISTS {LOADING} ({COLUMNS[LOADING]}, PRIMARY KEY (id))
    WITH comment = 'Tablestone: an unfinished load'"""


def keyspace_statement(keyspace: str, copies_in: Mapping[str, int]) -> str:
    """Makes the keyspace with so many copies of each row in each datacenter."""
    return f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH {replication(copies_in)} AND durable_writes = true"


def replication(copies_in: Mapping[str, int]) -> str:
    """The part of a statement that says how many copies of each row each datacenter holds."""
    copies = "".join(f", '{datacenter}': {number}" for datacenter, number in copies_in.items())
    return f"replication = {{'class': 'NetworkTopologyStrategy'{copies}}}"
