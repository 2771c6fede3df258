"""The keyspace: its tables with the reasons, the copies of each row, whose it is, and whether it was ever written to.

`rows`: a partition of the contract with all its rows. Conditions read its static columns:
  mark     a number that is greater after every commit in the partition, at least every version given in it
  floor    the greatest version of a row that was deleted: a row of the same key gets a later one
  listed   positive: the partition is in the directory, under this epoch; otherwise it is not (`directory`)
  widest   the length of the longest value, rounded up to a power of two, where it is longer than 4 KiB (`read`)
  writers  the number of the last commit of each engine, for an hour: whether a commit that timed out was applied
`directory`, `directory_nodes`: the partitions in order, as a tree of three levels (`directory`).
`about`: the version of this layout, and whether there was a write ever. A deletion hides what is written after it with
an earlier timestamp, and no read shows that there was one. So `cluster init` notes that the keyspace is new, and each
program that opens it to write takes the note back first. `loading`: an unfinished load.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tablestone.engines.cassandra.cluster_url import ClusterAddress
from tablestone.engines.contract import EngineRefused

if TYPE_CHECKING:
    from tablestone.engines.cassandra.connection import Connection

LAYOUT: Final = 2
"""The version of the layout, in `about`. It is the first that a release has."""
STEPS: Final[Mapping[int, str]] = {}
"""For each older layout, the statement that makes the next one of it. It may be repeated."""

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

COLUMNS: Final[Mapping[str, str]] = {
    ROWS: "partition blob, row blob, version bigint, value blob, mark bigint static, floor bigint static, "
    "listed bigint static, widest int static, writers map<bigint, bigint> static",
    DIRECTORY: "level tinyint, low blob, entry blob, epoch bigint",
    DIRECTORY_NODES: "level tinyint, low blob, high blob, split blob, cleared bigint, epoch_min bigint, takes bigint, "
    "taken bigint",
    ABOUT: "name text, number bigint",
    LOADING: "id tinyint, source blob, begun bigint, partition blob, row blob",
}
"""The columns of each table, by which a keyspace of another program is told apart (`require_own`)."""

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


COPIES_ADVISED: Final = 3
BY_DATACENTER: Final = "NetworkTopologyStrategy"


def wanted_copies(address: ClusterAddress, connection: Connection) -> dict[str, int]:
    """How many copies each datacenter is to have: as the URL says, else 3."""
    if isinstance(address.replication, Mapping):
        return dict(address.replication)
    datacenters = _datacenters(connection)
    if address.datacenter is None and len(datacenters) > 1:
        raise EngineRefused(
            f"The cluster has the datacenters {', '.join(datacenters)}: say replication="
            f"{','.join(f'{name}:{COPIES_ADVISED}' for name in datacenters)} or another number of copies in each."
        )
    copies = address.replication if isinstance(address.replication, int) else COPIES_ADVISED
    return {address.datacenter or datacenters[0]: copies}


def held_copies(connection: Connection, keyspace: Any) -> dict[str, int]:
    """How many copies each datacenter holds; `EngineRefused` if the keyspace does not say it by datacenter."""
    options = keyspace.replication_strategy.export_for_schema()
    if isinstance(options, str):  # as CQL writes a map
        options = dict(re.findall(r"'([^']*)': '([^']*)'", options))
    strategy = options.pop("class", "").rpartition(".")[2]
    if strategy != BY_DATACENTER:
        there = _datacenters(connection)
        example = replication(dict.fromkeys(there[:1], COPIES_ADVISED))
        raise EngineRefused(
            f"The keyspace {connection.keyspace} has the replication {strategy}, and needs {BY_DATACENTER}: "
            f"ALTER KEYSPACE {connection.keyspace} WITH {example}, or the number of copies that it is to have."
        )
    return {name: int(str(copies).partition("/")[0]) for name, copies in options.items()}


def too_many_copies(
    connection: Connection, copies_in: Mapping[str, int], *, is_made: bool
) -> list[str]:
    """A sentence for each datacenter that has fewer nodes than copies. `is_made`: the keyspace exists."""
    there = {name: connection.nodes_in(name, number) for name, number in copies_in.items()}
    fitting = {name: min(number, there[name]) for name, number in copies_in.items() if there[name]}
    if is_made:
        fewer = f"ALTER KEYSPACE {connection.keyspace} WITH {replication(fitting)}"
    else:
        fewer = f"make the keyspace with replication={_as_option(fitting)}"
    found = []
    for name, number in copies_in.items():
        if not there[name]:
            found.append(
                f"The cluster has no datacenter {name!r}, which is to hold {_copies(number)} of each row: there is "
                f"{', '.join(_datacenters(connection))}."
            )
        elif number > there[name]:
            nodes = "1 node" if there[name] == 1 else f"{there[name]} nodes"
            found.append(
                f"Datacenter {name} has {nodes}, and is to hold {_copies(number)} of each row: start more nodes, or "
                f"{fewer}."
            )
    return found


def nodes_that_may_stop(copies_in: Mapping[str, int]) -> int:
    """How many of the nodes that hold a row may stop, whichever they are, and the row can still be read and written.

    QUORUM and SERIAL need a majority of the copies of all datacenters together (Cassandra's documentation: Dynamo,
    Tunable Consistency).
    """
    return max(sum(copies_in.values()) - 1, 0) // 2


def few_copies(copies_in: Mapping[str, int]) -> list[str]:
    """A sentence if there are so few copies that no node may stop."""
    if nodes_that_may_stop(copies_in) > 0:
        return []
    return [
        f"Each row has {_in_words(copies_in)}: with fewer than {COPIES_ADVISED} in all datacenters together, every "
        "node that stops takes rows out of service."
    ]


def other_copies(
    address: ClusterAddress, connection: Connection, copies_in: Mapping[str, int]
) -> list[str]:
    """A sentence if the URL asks for other copies than the keyspace has; `EngineRefused` if it asks for none."""
    if address.replication is None:
        return []
    wanted = wanted_copies(address, connection)
    if wanted == copies_in:
        return []
    return [
        f"The keyspace {connection.keyspace} has {_in_words(copies_in)}, and not {_in_words(wanted)}: replication= "
        "only counts when a keyspace is made, and ALTER KEYSPACE changes it afterwards."
    ]


def _datacenters(connection: Connection) -> list[str]:
    return sorted({str(host.datacenter) for host in connection.cluster.metadata.all_hosts()})


def _as_option(copies_in: Mapping[str, int]) -> str:
    return ",".join(f"{name}:{number}" for name, number in copies_in.items())


def _in_words(copies_in: Mapping[str, int]) -> str:
    words = [f"{_copies(number)} in {name}" for name, number in copies_in.items()]
    return " and ".join(words) or "no copies"


def _copies(number: int) -> str:
    return "1 copy" if number == 1 else f"{number} copies"


_NAME: Final = "used"
_NO: Final = 0
_YES: Final = 1


def note_new(connection: Connection) -> None:
    """The tables have just been made; nothing happens if that, or more, was noted before."""
    connection.execute(
        f"INSERT INTO {ABOUT} (name, number) VALUES (%s, %s) IF NOT EXISTS", (_NAME, _NO)
    )


def note_use(connection: Connection) -> None:
    """The keyspace is about to be written to."""
    if _is_new(connection):
        connection.execute(
            f"UPDATE {ABOUT} SET number = %s WHERE name = %s IF number = %s", (_YES, _NAME, _NO)
        )


def require_new(connection: Connection) -> None:
    """Refuse a keyspace that may have been written to."""
    if not _is_new(connection):
        raise EngineRefused(
            f"The keyspace {connection.keyspace} was used before, and its deletions could hide what is loaded: "
            "drop it, and make it again with `tablestone cluster init`."
        )


def _is_new(connection: Connection) -> bool:
    rows = connection.execute(f"SELECT number FROM {ABOUT} WHERE name = %s", (_NAME,))
    return [tuple(row) for row in rows] == [(_NO,)]


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
