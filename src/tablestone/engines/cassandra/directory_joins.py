"""Takes empty leaves out of the directory's tree: the leaf on the left takes over the place of an empty one.

A join has a number. It is announced in the left leaf and then in the right one, and the entries of the right one are
read. If there are none, one conditional write moves the bound of the left one, if its announcement still stands. A
server that meets the announcement in the right leaf ends the join first: it takes that in the left one back, or finds
that the bound has moved. docs/decisions/0010-cassandra-directory.md says why no entry can be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from tablestone.engines.cassandra.connection import Call, Connection, OutcomeInDoubt, Statement
from tablestone.engines.cassandra.directory_nodes import (
    FIRST,
    LAST_TIMESTAMP,
    LEAF,
    Node,
    NodeStatements,
)
from tablestone.engines.contract import EngineBusy

NUMBERS: Final = 1 << 62
"""The numbers of joins are below this."""


class Tree(Protocol):
    """The directory, as far as a join needs it."""

    async def node(self, level: int, low: bytes, *, exactly: bool = False) -> Node:
        """The bounds of a node."""

    async def left_of(self, low: bytes) -> tuple[bytes, Node]:
        """The leaf on the left of a leaf; if that was taken over, the leaf that has its place."""

    async def is_node(self, level: int, low: bytes) -> bool:
        """Whether there is, or was, a node of this low."""

    async def is_empty(self, low: bytes, high: bytes | None) -> bool:
        """Whether a leaf has no entries below its bound."""

    async def forget_in_parent(self, low: bytes) -> None:
        """Remove the entry of a leaf from the level above."""


class Joins:
    """The joins that one engine begins and ends. `chance` gives numbers from 0 to 1."""

    def __init__(
        self,
        connection: Connection,
        statements: NodeStatements,
        tree: Tree,
        chance: Callable[[], float],
    ) -> None:
        self._connection = connection
        self._statements = statements
        self._tree = tree
        self._chance = chance

    async def join_if_empty(self, low: bytes) -> bool:
        """Let the leaf on the left take over this one if it has no entries; whether it was taken over.

        The first leaf of a node of the level above stays, so that each such node leads to a leaf.
        """
        if low == FIRST:
            return False
        node = await self._tree.node(LEAF, low)
        if node.high == low:
            return False
        if node.taken is not None:
            return await self.settle(low, node.taken)
        if not await self._tree.is_empty(low, node.high) or await self._tree.is_node(LEAF + 1, low):
            return False
        left_low, left = await self._tree.left_of(low)
        if left.high != low or left.cleared is None:
            return False
        if left.takes is not None:
            # Another server is at it now, or died at it: whichever it was, the next attempt finds the leaf free.
            await self._write(*self._giving_up(left_low, left))
            return False
        number = int(self._chance() * NUMBERS)
        statements = self._statements
        with suppress(OutcomeInDoubt):
            taking = (number, LEAF, left_low, low, left.cleared)
            if not await self._write(statements.begin_taking, taking):
                return False
            leaving = (number, LEAF, low, node.high)
            if await self._write(statements.begin_leaving, leaving) and await self._tree.is_empty(
                low, node.high
            ):
                taken = (node.high, left.cleared + 1, LEAF, left_low, number)
                await self._write(statements.take, taken)
        return await self.settle(low, number)

    async def settle(self, low: bytes, number: int) -> bool:
        """End the join of this number that the leaf `low` announces; whether the leaf was taken over.

        If the bound of the left leaf has not moved, it cannot move any more in this join afterwards.
        """
        attempts = self._connection.attempts()
        while True:
            left_low, left = await self._tree.left_of(low)
            if left.high == low:
                left = await self._tree.node(LEAF, left_low, exactly=True)
            if left.high is None or left.high > low:
                await self._end(low, number)
                return True
            if left.high == low:
                if left.takes != number:
                    await self._connection.ensure(
                        self._statements.give_up_leaving, (LEAF, low, number)
                    )
                    return False
                with suppress(OutcomeInDoubt):
                    await self._write(*self._giving_up(left_low, left))
            # Otherwise the left leaf was split, or taken over, between the two looks: another one is on the left now.
            if attempts.are_over:
                raise EngineBusy("A join in the directory does not end in time.")
            await attempts.pause()

    def _giving_up(self, left_low: bytes, left: Node) -> Call:
        """Takes the announcement in a left leaf back. `cleared` grows, so that no late announcement of it fits."""
        assert left.cleared is not None
        parameters = (left.cleared + 1, LEAF, left_low, left.takes, left.cleared)
        return self._statements.give_up_taking, parameters

    async def _end(self, low: bytes, number: int) -> None:
        """Close the leaf that was taken over: no server is led there, and no entry there is seen."""
        await self._tree.forget_in_parent(low)
        await self._connection.repeatable(
            self._statements.remove_from, (LAST_TIMESTAMP, LEAF, low, low)
        )
        await self._connection.ensure(self._statements.leave, (low, LEAF, low, number))

    async def _write(self, statement: Statement, parameters: Sequence[Any]) -> bool:
        """A conditional write; whether it was applied."""
        return await self._connection.write_if([(statement, parameters)]) is None
