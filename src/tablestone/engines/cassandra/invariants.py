"""The invariants of a keyspace, checked on all of its rows, for `tablestone check` and the tests.

Reads every partition's state and the whole directory, a page at a time; the list of partitions is held in memory.
"""

from __future__ import annotations

from itertools import pairwise

from tablestone.engines.cassandra.connection import Connection
from tablestone.engines.cassandra.directory import Directory
from tablestone.engines.cassandra.schema import ROWS

PARTITIONS_PER_READ = 1000


async def broken_invariants(connection: Connection, directory: Directory) -> list[str]:
    """The invariants that do not hold, a sentence each.

    While servers write, a partition may be listed or taken out between the two readings: those that seem wrong are
    looked at again.
    """
    broken: list[str] = []
    async for level, low, node in directory.nodes():
        if node.high is not None and node.high <= low:
            broken.append(
                f"node {low.hex()!r} of level {level} of the directory ends before it begins"
            )
    entries: list[bytes] = []
    async for partitions in directory.partitions(b"", None, None):
        entries += partitions
    if any(later <= earlier for earlier, later in pairwise(entries)):
        broken.append("the directory is not in order")
    listed = set(entries)
    listed_now = connection.prepare(f"SELECT DISTINCT listed FROM {ROWS} WHERE partition = ?")
    for partition, mark, state in await _states(connection):
        if state > 0 and (mark is None or mark <= 0):
            broken.append(f"partition {partition.hex()!r} is listed and has no mark")
        if state > 0 and partition not in listed and not await directory.holds(partition):
            now = await connection.read(listed_now, (partition,))
            if now and now[0][0] == state:  # it was not taken out since
                broken.append(f"partition {partition.hex()!r} is not in the directory")
    return broken


async def _states(connection: Connection) -> list[tuple[bytes, int | None, int]]:
    select = f"SELECT DISTINCT partition, mark, listed, token(partition) FROM {ROWS}"
    first = connection.prepare(f"{select} LIMIT ?")
    following = connection.prepare(f"{select} WHERE token(partition) > ? LIMIT ?")
    found: list[tuple[bytes, int | None, int]] = []
    rows = await connection.read(first, (PARTITIONS_PER_READ,))
    while rows:
        found += [(partition, mark, listed or 0) for partition, mark, listed, _ in rows]
        rows = await connection.read(following, (rows[-1][3], PARTITIONS_PER_READ))
    return found
