"""The directory: every partition that may have rows, in order, in a tree of three levels that splits as it grows.

A node of the tree is a Cassandra partition of entries, known by its level and its lowest possible entry, `low`. It
holds what is below its `high`, where the node on its right begins. The entries of a leaf are partitions of rows, those
of the levels above are the lows of the nodes below. Entries are plain writes with timestamps of their own, so that one
that is added again, or late, does no harm. Bounds change by conditional writes. Nodes are split and never joined: a low
stays a low. docs/decisions/0010-cassandra-directory.md says why this is safe beside other servers.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final, NamedTuple

from tablestone.clock import UNIX_EPOCH_TICKS, Clock
from tablestone.engines.cassandra.connection import Answer, Connection, OutcomeInDoubt
from tablestone.engines.cassandra.schema import DIRECTORY, DIRECTORY_NODES
from tablestone.engines.contract import EngineDamaged, EngineUnavailable

LEAF: Final = 0
ROOT_LEVEL: Final = 2
"""The one node of this level is never split: with 4,000 entries a node the tree holds 6 * 10^10 partitions."""
FIRST: Final = b""
"""The lowest low."""
ENTRIES_MAX: Final = 4096
"""A node with more entries is split: reading a whole node takes some ms."""
NODE_BYTES_MAX: Final = 1 << 20
"""So is one whose entries together are longer."""
COUNT_EVERY: Final = 256
"""A node is counted at one in so many entries that are added."""
LOWS_KEPT_MAX: Final = 100_000
"""Lows of leaves that an engine remembers to find the way; then it forgets all and learns them again."""
ENTRIES_PER_READ: Final = 1000

_LAST_TIMESTAMP: Final = 1 << 62
"""Of the deletion of what a split has moved away: no later write can matter there."""


class Node(NamedTuple):
    """The bounds of a node: `high` is None at the right edge; `split` is where it is being split."""

    high: bytes | None
    split: bytes | None


class _Statements:
    def __init__(self, connection: Connection) -> None:
        prepare = connection.prepare
        of_node = "WHERE level = ? AND low = ?"
        entries = f"SELECT entry, epoch FROM {DIRECTORY} {of_node} AND entry >= ?"
        self.add = prepare(
            f"INSERT INTO {DIRECTORY} (level, low, entry, epoch) VALUES (?, ?, ?, ?) USING TIMESTAMP ?"
        )
        self.remove = prepare(f"DELETE FROM {DIRECTORY} USING TIMESTAMP ? {of_node} AND entry = ?")
        self.remove_from = prepare(
            f"DELETE FROM {DIRECTORY} USING TIMESTAMP ? {of_node} AND entry >= ?"
        )
        self.entries_from = prepare(f"{entries} LIMIT ?")
        self.entries_between = prepare(f"{entries} AND entry < ? LIMIT ?")
        self.last_entry = prepare(
            f"SELECT entry FROM {DIRECTORY} {of_node} AND entry <= ? ORDER BY entry DESC LIMIT 1"
        )
        self.node = prepare(f"SELECT high, split FROM {DIRECTORY_NODES} {of_node}")
        self.node_exactly = connection.prepare(
            f"SELECT high, split FROM {DIRECTORY_NODES} {of_node}", serial=True
        )
        self.make_node = prepare(
            f"INSERT INTO {DIRECTORY_NODES} (level, low, high) VALUES (?, ?, ?) IF NOT EXISTS"
        )
        self.begin_split = prepare(
            f"UPDATE {DIRECTORY_NODES} SET split = ? {of_node} IF split = null AND high = ?"
        )
        self.end_split = prepare(
            f"UPDATE {DIRECTORY_NODES} SET high = ?, split = null {of_node} IF split = ?"
        )


class Directory:
    """The directory as one engine sees it. `chance` gives numbers from 0 to 1."""

    def __init__(
        self,
        connection: Connection,
        clock: Clock,
        chance: Callable[[], float],
        *,
        entries_max: int = ENTRIES_MAX,
        count_every: int = COUNT_EVERY,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._chance = chance
        self._entries_max = entries_max
        self._count_every = count_every
        self._statements = _Statements(connection)
        self._lows: list[bytes] = [FIRST]
        self._is_cold = True

    async def enlist(self, partition: bytes, listed: int) -> int:
        """Add a partition whose state has `listed` (not positive); the epoch that is to stand there from then on.

        The epoch orders what is done to the entry: a removal that comes late has an earlier one and changes nothing.
        """
        epoch = max(self.epoch_now(), -listed + 1)
        await self._add(LEAF, await self._leaf_of(partition), partition, epoch)
        return epoch

    def epoch_now(self) -> int:
        """The epoch of what is listed for the first time now: microseconds since 1970."""
        return (self._clock() - UNIX_EPOCH_TICKS) // 10

    async def remove(self, partition: bytes, epoch: int) -> None:
        """Remove the entry that was added before this epoch."""
        low = await self._leaf_of(partition)
        while True:
            await self._connection.repeatable(
                self._statements.remove, (epoch, LEAF, low, partition)
            )
            following = await self._settled(LEAF, low, partition)
            if following is None:
                return
            low = following

    async def partitions(
        self, first: bytes, last: bytes | None, end: bytes | None
    ) -> AsyncIterator[list[bytes]]:
        """The partitions from `first` to `last` (inclusive) or before `end`, in order, in lists that may be empty.

        The entries are read before the bounds: a split that came between has not taken anything away that the bounds
        still say is here, since it removes entries only after it has changed the bounds.
        """
        if last is not None:
            end = last + b"\0"
        low = await self._leaf_of(first)
        while end is None or first < end:
            entries = await self._entries(LEAF, low, first, end, ENTRIES_PER_READ)
            high, _ = await self._node(LEAF, low)
            if high is not None and first >= high:
                low = await self._descend(first)
                continue
            here = [row[0] for row in entries if high is None or row[0] < high]
            yield here
            if len(entries) == ENTRIES_PER_READ == len(here):
                first = here[-1] + b"\0"
            elif high is None:
                return
            else:
                low = first = self._remember(high)

    async def nodes(self) -> AsyncIterator[tuple[int, bytes, Node]]:
        """Every node of the tree, level by level, from left to right."""
        for level in range(ROOT_LEVEL, LEAF - 1, -1):
            low: bytes | None = FIRST
            while low is not None:
                node = await self._node(level, low)
                yield level, low, node
                low = node.high

    async def holds(self, partition: bytes) -> bool:
        """Whether there is an entry of this partition."""
        async for found in self.partitions(partition, partition, None):
            if found:
                return True
        return False

    # Finding the way.

    async def _leaf_of(self, partition: bytes) -> bytes:
        """The low of the leaf that has the partition's place, or had it when this engine last looked."""
        if self._is_cold or len(self._lows) > LOWS_KEPT_MAX:
            self._lows = [FIRST]
            self._is_cold = False
            return await self._descend(partition)
        return self._lows[bisect_right(self._lows, partition) - 1]

    async def _descend(self, partition: bytes) -> bytes:
        """The low of the leaf that has the partition's place now, from the root down."""
        low = FIRST
        for level in range(ROOT_LEVEL, LEAF, -1):
            low = await self._step_right(level, low, partition)
            parameters = (level, low, partition)
            answer = await self._connection.read(self._statements.last_entry, parameters)
            low = answer[0][0] if answer else FIRST
        return self._remember(await self._step_right(LEAF, low, partition))

    async def _step_right(self, level: int, low: bytes, entry: bytes) -> bytes:
        """From a node to the one that holds the place of the entry, by the bounds alone."""
        while True:
            high, _ = await self._node(level, low)
            if high is None or entry < high:
                return low
            low = high
            if (
                level < ROOT_LEVEL
            ):  # the server that split it may have died before it told the parent
                await self._tell_parent(level, low)

    def _remember(self, low: bytes) -> bytes:
        place = bisect_right(self._lows, low)
        if self._lows[place - 1] != low:
            insort(self._lows, low)
        return low

    async def _node(self, level: int, low: bytes, *, exactly: bool = False) -> Node:
        statement = self._statements.node_exactly if exactly else self._statements.node
        answer = await self._connection.read(statement, (level, low))
        if not answer:
            raise EngineDamaged(f"The directory has no node {low.hex()!r} of level {level}.")
        return Node(*answer[0])

    async def _entries(
        self, level: int, low: bytes, first: bytes, end: bytes | None, limit: int
    ) -> Answer:
        statements = self._statements
        if end is None:
            return await self._connection.read(statements.entries_from, (level, low, first, limit))
        return await self._connection.read(
            statements.entries_between, (level, low, first, end, limit)
        )

    # Adding.

    async def _add(self, level: int, low: bytes, entry: bytes, epoch: int) -> None:
        while True:
            await self._connection.repeatable(
                self._statements.add, (level, low, entry, epoch, epoch)
            )
            following = await self._settled(level, low, entry)
            if following is None:
                break
            low = following
        if level < ROOT_LEVEL and self._chance() * self._count_every < 1:
            await self._split_if_large(level, low)

    async def _settled(self, level: int, low: bytes, entry: bytes) -> bytes | None:
        """None if what was just written in a node is where it belongs, and stays so; else the node to write it in.

        Asked after the write: a split that begins later copies what was written; one that had begun is helped to end.
        """
        node = await self._node(level, low)
        if node.split is not None and entry >= node.split:
            await self._finish_split(level, low, node.split)
            return node.split
        if node.high is not None and entry >= node.high:
            if level == LEAF:
                return await self._descend(entry)
            return await self._step_right(level, node.high, entry)
        return None

    async def _tell_parent(self, level: int, low: bytes) -> None:
        parent = FIRST
        for above in range(ROOT_LEVEL, level, -1):
            parent = await self._step_right(above, parent, low)
            if above > level + 1:
                parameters = (above, parent, low)
                answer = await self._connection.read(self._statements.last_entry, parameters)
                parent = answer[0][0] if answer else FIRST
        await self._add(level + 1, parent, low, 1)

    # Splitting.

    async def _split_if_large(self, level: int, low: bytes) -> None:
        entries: list[bytes] = []
        size = 0
        first = FIRST
        node = await self._node(level, low, exactly=True)
        while True:
            read = await self._entries(level, low, first, node.high, ENTRIES_PER_READ)
            entries += [row[0] for row in read]
            size += sum(len(row[0]) for row in read)
            if len(read) < ENTRIES_PER_READ:
                break
            first = entries[-1] + b"\0"
        if node.split is None:
            if len(entries) < 2 or (len(entries) <= self._entries_max and size <= NODE_BYTES_MAX):
                return
            middle = entries[len(entries) // 2]
            # Whether this engine began it or another one: the node says it.
            with suppress(OutcomeInDoubt, EngineUnavailable):
                await self._connection.write_if(
                    [(self._statements.begin_split, (middle, level, low, node.high))]
                )
            node = await self._node(level, low, exactly=True)
        if node.split is not None:
            await self._finish_split(level, low, node.split)

    async def _finish_split(self, level: int, low: bytes, split: bytes) -> None:
        """Carry out a split that has begun, from the beginning: each step may be done twice, and by several engines."""
        node = await self._node(level, low, exactly=True)
        if node.split == split:
            await self._copy(level, low, split, node.high)
            await self._apply(self._statements.make_node, (level, split, node.high))
            await self._apply(self._statements.end_split, (split, level, low, split))
        await self._connection.repeatable(
            self._statements.remove_from, (_LAST_TIMESTAMP, level, low, split)
        )
        await self._tell_parent(level, split)
        if level == LEAF:
            self._remember(split)

    async def _copy(self, level: int, low: bytes, split: bytes, high: bytes | None) -> None:
        first = split
        while True:
            entries = await self._entries(level, low, first, high, ENTRIES_PER_READ)
            for entry, epoch in entries:
                await self._connection.repeatable(
                    self._statements.add, (level, split, entry, epoch, epoch)
                )
            if len(entries) < ENTRIES_PER_READ:
                return
            first = entries[-1][0] + b"\0"

    async def _apply(self, statement: object, parameters: tuple[object, ...]) -> None:
        """A conditional write that is to have happened, by this engine or another one."""
        while True:
            with suppress(OutcomeInDoubt):
                await self._connection.write_if([(statement, parameters)])
                return


async def make_root(connection: Connection) -> None:
    """The three nodes of an empty directory; nothing happens where they are."""
    statements = _Statements(connection)
    for level in range(LEAF, ROOT_LEVEL + 1):
        while True:
            with suppress(OutcomeInDoubt):
                await connection.write_if([(statements.make_node, (level, FIRST, None))])
                break
        if level > LEAF:
            await connection.repeatable(statements.add, (level, FIRST, FIRST, 1, 1))
