"""The directory: every partition that may have rows, in order, in a tree of three levels that splits as it grows.

A node of the tree is a Cassandra partition of entries, known by its level and its lowest possible entry, `low`; it ends
before its `high`. Entries are plain writes with their own timestamps: to add one again, or late, does no harm. Bounds
change by conditional writes. Large nodes are split; an empty leaf is joined to its left neighbour. For the reasons why
this is safe beside other servers see docs/decisions/0010-cassandra-directory.md.
"""

from bisect import bisect_right, insort
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from tablestone.clock import UNIX_EPOCH_TICKS, Clock
from tablestone.engines.cassandra.connection import (
    CALLS_MAX,
    Connection,
    OutcomeInDoubt,
    Statement,
    pieces,
)
from tablestone.engines.cassandra.layout import DIRECTORY, DIRECTORY_NODES
from tablestone.engines.cassandra.session import Answer
from tablestone.engines.contract import EngineBusy, EngineDamaged, EngineUnavailable

LEAF: Final = 0
ROOT_LEVEL: Final = 2
"""Its only node is never split: with 4,000 entries a node the tree holds 6 * 10^10 partitions."""
FIRST: Final = b""
"""The lowest low."""
LAST_TIMESTAMP: Final = 1 << 62
"""No write may show after a deletion with this timestamp."""


class Node(NamedTuple):
    """Where a node of the directory ends, and what is happening to it."""

    high: bytes | None
    """None at the right edge; the node's own low if it was taken over."""
    split: bytes | None
    """The low of the new node, while this one is being split."""
    cleared: int
    """No entry beyond the bound was deleted with a later timestamp."""
    epoch_min: int | None = None
    """The lowest epoch of new entries: earlier deletions beyond the bound would hide lower ones."""
    takes: int | None = None
    """The number of a join under way, in which this node takes over the one on its right."""
    taken: int | None = None
    """The number of a join under way, in which the node on the left takes over this one."""


class NodeStatements:
    """A node has bounds in one table and entries in another. It keeps its row for ever: no low is used again."""

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
    """Make the nodes of an empty directory, unless they exist."""
    statements = NodeStatements(connection)
    for level in range(LEAF, ROOT_LEVEL + 1):
        await connection.ensure(statements.make_node, (level, FIRST, None))
        if level > LEAF:
            await connection.write([(statements.add, (level, FIRST, FIRST, 1, 1))])


ENTRIES_MAX: Final = 4096
"""A node with more entries is split: to read a whole node takes some ms."""
NODE_BYTES_MAX: Final = 1 << 20
"""A node with more bytes of entries is split too."""
COUNT_EVERY: Final = 256
"""One in so many additions counts the entries of its node."""
LOWS_KEPT_MAX: Final = 100_000
"""Lows of leaves that an engine knows. Above this, it forgets all and learns them again."""
ENTRIES_PER_READ: Final = 1000
EMPTY_KEPT_MAX: Final = 10_000
"""Leaves that may be empty. Further ones are not noted: later reads find them again."""
JOIN_NUMBERS: Final = 1 << 62
"""Joins have numbers below this."""


class Directory:
    """The directory, with what one engine knows of its leaves."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._chance = connection.chance
        self._entries_max = ENTRIES_MAX
        self._count_every = COUNT_EVERY
        self._calls_max = CALLS_MAX
        self._statements = NodeStatements(connection)
        self._lows: list[bytes] = [FIRST]
        self._is_cold = True
        self._may_be_empty: dict[bytes, None] = {}

    async def enlist(self, partition: bytes, listed: int) -> int:
        """Add a partition; returns the epoch that replaces its state's `listed`, which is not positive.

        Epochs order the changes of an entry: a late removal has an earlier epoch and changes nothing.
        """
        epoch = max(self.epoch_now(), -listed + 1)
        return await self._add(LEAF, await self._leaf_of(partition), partition, epoch)

    def epoch_now(self) -> int:
        """Microseconds since 1970."""
        return (self._clock() - UNIX_EPOCH_TICKS) // 10

    async def remove(self, partition: bytes, epoch: int) -> None:
        """Remove an entry that was added before this epoch."""
        low = await self._leaf_of(partition)
        self._note_empty(await self._remove(LEAF, low, partition, epoch))

    async def join_empty(self) -> None:
        """Join the leaves that this engine has seen empty, if they still are."""
        noted, self._may_be_empty = self._may_be_empty, {}
        for low in noted:
            await self.join_if_empty(low)

    async def partitions(
        self, first: bytes, last: bytes | None, end: bytes | None
    ) -> AsyncIterator[list[bytes]]:
        """The partitions from `first` to `last` (inclusive) or before `end`, in order, in lists that may be empty.

        Reads the entries before the bounds. A split changes the bounds before it removes entries, so no entry within
        the bounds is missing.
        """
        if last is not None:
            end = last + b"\0"
        low = await self._leaf_of(first)
        while end is None or first < end:
            entries = await self._entries(LEAF, low, first, end, ENTRIES_PER_READ)
            node = await self.node(LEAF, low)
            high = node.high
            if node.taken is not None or (high is not None and first >= high):
                low = await self._find(LEAF, first)
                continue
            here = [row[0] for row in entries if high is None or row[0] < high]
            if not here and first == low and (end is None or (high is not None and high <= end)):
                self._note_empty(low)
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
                node = await self.node(level, low)
                if node.high == low:  # taken over meanwhile
                    _, node = await self._left_of(low)
                else:
                    yield level, low, node
                low = node.high

    async def holds(self, partition: bytes) -> bool:
        return any([found async for found in self.partitions(partition, partition, None)])

    # Finding the way.

    async def _leaf_of(self, partition: bytes) -> bytes:
        """The low of the partition's leaf, as far as this engine knows."""
        if self._is_cold or len(self._lows) > LOWS_KEPT_MAX:
            self._lows = [FIRST]
            self._is_cold = False
            return await self._find(LEAF, partition)
        return self._lows[bisect_right(self._lows, partition) - 1]

    async def _find(self, level: int, entry: bytes) -> bytes:
        """From the root down, the low of the node of a level to which an entry belongs now."""
        low = FIRST
        for above in range(ROOT_LEVEL, level, -1):
            low = await self._step_right(above, low, entry)
            # A node without a lower entry was split off at its own low.
            low = await self._last(self._statements.last_entry, above, low, entry) or low
        low = await self._step_right(level, low, entry)
        return self._remember(low) if level == LEAF else low

    async def _before(self, low: bytes) -> bytes:
        """From the root down, the low of a leaf on the left of this one."""
        found = FIRST
        for level in range(ROOT_LEVEL, LEAF, -1):
            while (high := (await self.node(level, found)).high) is not None and high < low:
                found = high
            found = await self._last(self._statements.last_before, level, found, low) or found
        return found

    async def _last(self, statement: Statement, level: int, low: bytes, entry: bytes) -> bytes:
        """The last entry of a node up to another one; FIRST if there is none."""
        answer = await self._connection.read(statement, (level, low, entry))
        found: bytes = answer[0][0] if answer else FIRST
        return found

    async def _step_right(self, level: int, low: bytes, entry: bytes) -> bytes:
        """Go right to the entry's node, by the bounds alone."""
        while True:
            node = await self.node(level, low)
            if node.taken is not None:
                await self._settle_join(low, node.taken)
            elif node.high == low:
                low = await self._before(low)
            elif node.high is None or entry < node.high:
                return low
            else:
                low = node.high
                if level < ROOT_LEVEL:
                    # The server that split the node may have died before it added the entry above.
                    await self._tell_parent(level, low)

    async def _left_of(self, low: bytes) -> tuple[bytes, Node]:
        """The leaf on the left of a leaf, and its bounds; if it was taken over, the leaf in its place."""
        found = await self._before(low)
        while True:
            node = await self.node(LEAF, found)
            if node.taken is not None:
                await self._settle_join(found, node.taken)
            elif node.high == found:
                found = await self._before(found)
            elif node.high is not None and node.high < low:
                found = node.high
            else:
                return found, node

    def _remember(self, low: bytes) -> bytes:
        place = bisect_right(self._lows, low)
        if self._lows[place - 1] != low:
            insort(self._lows, low)
        return low

    def _note_empty(self, low: bytes) -> None:
        if low != FIRST and len(self._may_be_empty) < EMPTY_KEPT_MAX:
            self._may_be_empty[low] = None

    async def node(self, level: int, low: bytes, *, exactly: bool = False) -> Node:
        """The bounds of a node after every acknowledged change; `exactly`: after every change that has begun.

        Later reads show them too: one replica may answer a read at SERIAL before a second one has the change, which a
        read at QUORUM would then still miss.
        """
        statements = self._statements
        statement = statements.node_exactly if exactly else statements.node
        node = await self._bounds(statement, level, low)
        attempts = self._connection.attempts()
        while exactly and await self._bounds(statements.node, level, low) != node:
            await attempts.pause(EngineBusy("The nodes do not agree on the directory in time."))
            node = await self._bounds(statements.node_exactly, level, low)
        if level == LEAF and node.high == low and low in self._lows:
            self._lows.remove(low)
        return node

    async def _bounds(self, statement: Statement, level: int, low: bytes) -> Node:
        answer = await self._connection.read(statement, (level, low))
        if not answer:
            raise EngineDamaged(f"The directory has no node {low.hex()!r} of level {level}.")
        return Node(*answer[0])

    async def _is_node(self, level: int, low: bytes) -> bool:
        """Whether there is, or was, such a node."""
        return bool(await self._connection.read(self._statements.node, (level, low)))

    async def is_empty(self, low: bytes, high: bytes | None) -> bool:
        return not await self._entries(LEAF, low, low, high, 1)

    async def _entries(
        self, level: int, low: bytes, first: bytes, end: bytes | None, limit: int
    ) -> Answer:
        statements = self._statements
        if end is None:
            return await self._connection.read(statements.entries_from, (level, low, first, limit))
        between = (level, low, first, end, limit)
        return await self._connection.read(statements.entries_between, between)

    async def _all_entries(
        self, level: int, low: bytes, first: bytes, end: bytes | None
    ) -> AsyncIterator[Answer]:
        """The entries with `first <= entry < end`, in pages that are not empty."""
        while page := await self._entries(level, low, first, end, ENTRIES_PER_READ):
            yield page
            if len(page) < ENTRIES_PER_READ:
                return
            first = page[-1][0] + b"\0"

    # Adding and removing.

    async def _add(self, level: int, low: bytes, entry: bytes, epoch: int) -> int:
        """Add an entry with this epoch, or a later one if a join demands it; returns the epoch."""
        while True:
            bound = (level, low, entry, epoch, epoch)
            await self._connection.write([(self._statements.add, bound)])
            place, node = await self._settled(level, low, entry)
            if place != low:
                low = place
            elif epoch < (node.epoch_min or 0):
                epoch = node.epoch_min or 0
            else:
                break
        if level < ROOT_LEVEL and self._chance() * self._count_every < 1:
            await self._split_if_large(level, low)
        return epoch

    async def _settled(self, level: int, low: bytes, entry: bytes) -> tuple[bytes, Node]:
        """After an entry was added to or removed from `low`: the node to which it belongs, and the bounds of `low`.

        A split that begins after the write copies it, and a join finds it. One that has begun is finished first.
        """
        while True:
            node = await self.node(level, low)
            if node.taken is not None:
                await self._settle_join(low, node.taken)
                continue
            if node.split is not None and entry >= node.split:
                await self._finish_split(level, low, node.split)
                return node.split, node
            if node.high is None or entry < node.high:
                return low, node
            place = await (
                self._find(LEAF, entry)
                if level == LEAF
                else self._step_right(level, node.high, entry)
            )
            if place != low:
                return place, node
            # A leaf on the right was joined to this one meanwhile: the bounds are others, and demand another epoch.

    async def _tell_parent(self, level: int, low: bytes) -> None:
        await self._add(level + 1, await self._find(level + 1, low), low, 1)

    async def _remove(self, level: int, low: bytes, entry: bytes, epoch: int) -> bytes:
        """Remove an entry that was added before this epoch; returns the low of the node to which it belongs now."""
        while True:
            bound = (epoch, level, low, entry)
            await self._connection.write([(self._statements.remove, bound)])
            place, _ = await self._settled(level, low, entry)
            if place == low:
                return low
            low = place

    # Splitting.

    async def _split_if_large(self, level: int, low: bytes) -> None:
        node = await self.node(level, low, exactly=True)
        entries = [
            entry
            async for page in self._all_entries(level, low, FIRST, node.high)
            for entry, _ in page
        ]
        if node.split is None:
            size = sum(map(len, entries))
            if len(entries) < 2 or (len(entries) <= self._entries_max and size <= NODE_BYTES_MAX):
                return
            for middle in entries[len(entries) // 2 :]:
                # The low of a node that was taken over is not used again.
                if not await self._is_node(level, middle):
                    break
            else:
                return
            # The node then shows whether this engine or another one has begun a split.
            with suppress(OutcomeInDoubt, EngineUnavailable):
                bound = (middle, level, low, node.high, node.cleared)
                await self._apply(self._statements.begin_split, bound)
            node = await self.node(level, low, exactly=True)
        if node.split is not None:
            await self._finish_split(level, low, node.split)

    async def _finish_split(self, level: int, low: bytes, split: bytes) -> None:
        """Carry out a split that has begun: several engines may do each step again."""
        node = await self.node(level, low, exactly=True)
        if node.split == split:
            latest = await self._copy(level, low, split, node.high)
            await self._connection.ensure(self._statements.make_node, (level, split, node.high))
            cleared = max(node.cleared + 1, latest)
            await self._connection.ensure(
                self._statements.end_split, (split, cleared, level, low, split)
            )
            node = await self.node(level, low, exactly=True)
        if node.high is not None:
            # Bound and timestamp are of one read: a later join demands later epochs than this timestamp.
            bound = (node.cleared, level, low, node.high)
            await self._connection.write([(self._statements.remove_from, bound)])
        await self._tell_parent(level, split)
        if level == LEAF:
            self._remember(split)

    async def _copy(self, level: int, low: bytes, split: bytes, high: bytes | None) -> int:
        """Copy what a split moves; returns its latest epoch."""
        latest = 0
        add = self._statements.add
        async for page in self._all_entries(level, low, split, high):
            latest = max(latest, *(epoch for _, epoch in page))
            calls = [(add, (level, split, entry, epoch, epoch)) for entry, epoch in page]
            for piece in pieces(calls, self._calls_max):
                await self._connection.write(piece)
        return latest

    # Joining.

    async def join_if_empty(self, low: bytes) -> bool:
        """Let the leaf on the left take over this one if it has no entries; True if it was taken over.

        A join announces its number in the left leaf and then in the right one, and reads the right one's entries. If
        there are none, a conditional write moves the left one's bound, if its announcement still stands. The first leaf
        of a node of the level above stays, so that each such node leads to a leaf.
        """
        if low == FIRST:
            return False
        node = await self.node(LEAF, low)
        if node.high == low:
            return False
        if node.taken is not None:
            return await self._settle_join(low, node.taken)
        if not await self.is_empty(low, node.high) or await self._is_node(LEAF + 1, low):
            return False
        left_low, left = await self._left_of(low)
        if left.high != low:
            return False
        if left.takes is not None:
            # Another server is joining it, or died meanwhile: either way, the next attempt finds the leaf free.
            await self._give_up_taking(left_low, left)
            return False
        number = int(self._chance() * JOIN_NUMBERS)
        statements = self._statements
        with suppress(OutcomeInDoubt):
            taking = (number, LEAF, left_low, low, left.cleared)
            if not await self._apply(statements.begin_taking, taking):
                return False
            leaving = (number, LEAF, low, node.high)
            if await self._apply(statements.begin_leaving, leaving) and await self.is_empty(
                low, node.high
            ):
                taken = (node.high, left.cleared + 1, LEAF, left_low, number)
                await self._apply(statements.take, taken)
        return await self._settle_join(low, number)

    async def _settle_join(self, low: bytes, number: int) -> bool:
        """End the join that the leaf `low` announces; True if the leaf was taken over.

        An engine that meets the announcement does this first. If the left leaf's bound has not moved, this join cannot
        move it afterwards.
        """
        connection, statements = self._connection, self._statements
        attempts = connection.attempts()
        while True:
            left_low, left = await self._left_of(low)
            if left.high == low:
                left = await self.node(LEAF, left_low, exactly=True)
            if left.high is None or left.high > low:
                # Close the leaf: no server finds it, and no read shows its entries.
                await self._remove(LEAF + 1, await self._find(LEAF + 1, low), low, 1)
                await connection.write([(statements.remove_from, (LAST_TIMESTAMP, LEAF, low, low))])
                await connection.ensure(statements.leave, (low, LEAF, low, number))
                return True
            if left.high == low:
                if left.takes != number:
                    await connection.ensure(statements.give_up_leaving, (LEAF, low, number))
                    return False
                with suppress(OutcomeInDoubt):
                    await self._give_up_taking(left_low, left)
            # Otherwise the left leaf was split or taken over between the two looks: another one is on the left now.
            await attempts.pause(EngineBusy("A join in the directory does not end in time."))

    async def _give_up_taking(self, left_low: bytes, left: Node) -> None:
        """Withdraw the announcement in a left leaf. `cleared` grows, so that a late announcement fails."""
        bound = (left.cleared + 1, LEAF, left_low, left.takes, left.cleared)
        await self._apply(self._statements.give_up_taking, bound)

    async def _apply(self, statement: Statement, parameters: Sequence[Any]) -> bool:
        """True if the conditional write was applied."""
        return await self._connection.write_if([(statement, parameters)]) is None
