"""The nodes of the directory's tree: their names, their bounds, and every statement about them; the first nodes.

A node is a Cassandra partition of entries, known by its level and its lowest possible entry, `low`. Its bounds are a
row of another table. A low is used for one node only, and for ever: a node that was taken over keeps its row.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tablestone.engines.cassandra.connection import Connection
from tablestone.engines.cassandra.schema import DIRECTORY, DIRECTORY_NODES

LEAF: Final = 0
ROOT_LEVEL: Final = 2
"""The one node of this level is never split: with 4,000 entries a node the tree holds 6 * 10^10 partitions."""
FIRST: Final = b""
"""The lowest low."""
LAST_TIMESTAMP: Final = 1 << 62
"""Of the deletion of entries where no later write can matter."""


class Node(NamedTuple):
    """The bounds of a node: `high` is None at the right edge, and equals the low of a node that was taken over."""

    high: bytes | None
    split: bytes | None = None
    """Where it is being split."""
    cleared: int | None = None
    """No entry beyond the bound was deleted with a later timestamp. None: made by layout 1, which knew no limit."""
    epoch_min: int | None = None
    """Entries need at least this epoch: what was deleted beyond an earlier bound cannot hide them then."""
    takes: int | None = None
    """The number of a join that has begun, in which it takes over the node on its right."""
    taken: int | None = None
    """The number of a join that has begun, in which it is taken over by the node on its left."""

    def ends_before(self, entry: bytes) -> bool:
        return self.high is not None and entry >= self.high


class NodeStatements:
    """Everything the directory sends."""

    def __init__(self, connection: Connection) -> None:
        prepare = connection.prepare
        of_node = "WHERE level = ? AND low = ?"
        entries = f"SELECT entry, epoch FROM {DIRECTORY} {of_node} AND entry >= ?"
        bounds = (
            f"SELECT high, split, cleared, epoch_min, takes, taken FROM {DIRECTORY_NODES} {of_node}"
        )
        last = f"SELECT entry FROM {DIRECTORY} {of_node} AND entry"
        update = f"UPDATE {DIRECTORY_NODES} SET"
        self.add = prepare(
            f"INSERT INTO {DIRECTORY} (level, low, entry, epoch) VALUES (?, ?, ?, ?) USING TIMESTAMP ?"
        )
        self.remove = prepare(f"DELETE FROM {DIRECTORY} USING TIMESTAMP ? {of_node} AND entry = ?")
        self.remove_from = prepare(
            f"DELETE FROM {DIRECTORY} USING TIMESTAMP ? {of_node} AND entry >= ?"
        )
        self.entries_from = prepare(f"{entries} LIMIT ?")
        self.entries_between = prepare(f"{entries} AND entry < ? LIMIT ?")
        self.last_entry = prepare(f"{last} <= ? ORDER BY entry DESC LIMIT 1")
        self.last_before = prepare(f"{last} < ? ORDER BY entry DESC LIMIT 1")
        self.node = prepare(bounds)
        self.node_exactly = connection.prepare(bounds, serial=True)
        self.make_node = prepare(
            f"INSERT INTO {DIRECTORY_NODES} (level, low, high, cleared) VALUES (?, ?, ?, 0) IF NOT EXISTS"
        )
        self.begin_split = prepare(
            f"{update} split = ?, takes = null {of_node} "
            "IF split = null AND taken = null AND high = ? AND cleared = ?"
        )
        self.end_split = prepare(
            f"{update} high = ?, split = null, cleared = ? {of_node} IF split = ?"
        )
        alone = "split = null AND takes = null AND taken = null"
        self.begin_taking = prepare(
            f"{update} takes = ? {of_node} IF high = ? AND cleared = ? AND {alone}"
        )
        self.begin_leaving = prepare(f"{update} taken = ? {of_node} IF high = ? AND {alone}")
        self.take = prepare(
            f"{update} high = ?, epoch_min = ?, takes = null {of_node} IF takes = ?"
        )
        self.give_up_taking = prepare(
            f"{update} takes = null, cleared = ? {of_node} IF takes = ? AND cleared = ?"
        )
        self.give_up_leaving = prepare(f"{update} taken = null {of_node} IF taken = ?")
        self.leave = prepare(f"{update} high = ?, taken = null {of_node} IF taken = ?")


async def make_root(connection: Connection) -> None:
    """The three nodes of an empty directory; nothing happens where they are."""
    statements = NodeStatements(connection)
    for level in range(LEAF, ROOT_LEVEL + 1):
        await connection.ensure(statements.make_node, (level, FIRST, None))
        if level > LEAF:
            await connection.repeatable(statements.add, (level, FIRST, FIRST, 1, 1))
