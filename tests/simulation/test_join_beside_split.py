"""A leaf that takes over an empty one is split between the two looks of a server that ends the join.

Found by seed 642 of `python -m tests.simulation --directory`: the server took the new bound for the end of the join,
and closed a leaf whose place no other one had taken. An acknowledged row there was missing from every range query.
"""

from __future__ import annotations

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

from simulation.story import begun, told
from tablestone.engines.cassandra.directory import Directory
from tablestone.engines.cassandra.directory_nodes import FIRST, LEAF, Node

NUMBER = 7
"""Of the join."""


async def split(directory: Directory, at: bytes) -> None:
    """Split the first leaf."""
    node = await directory.node(LEAF, FIRST)
    begin = (at, LEAF, FIRST, node.high, node.cleared)
    await directory._joins._write(directory._statements.begin_split, begin)
    await directory._finish_split(LEAF, FIRST, at)


async def end_a_join_beside_a_split() -> tuple[bool, bool]:
    """Whether the server finds that the empty leaf was taken over, and whether a reader finds an entry there then."""
    story = await begun()
    ending, splitting, reading = (server.engine.directory for server in story.servers)

    async def prepare() -> None:
        for partition in (b"a", b"c", b"n"):
            await splitting.enlist(partition, 0)
        await split(splitting, b"m")
        await splitting.remove(b"n", splitting.epoch_now() + 1)
        left = await splitting.node(LEAF, FIRST)
        statements, joins = splitting._statements, splitting._joins
        await joins._write(statements.begin_taking, (NUMBER, LEAF, FIRST, b"m", left.cleared))
        await joins._write(statements.begin_leaving, (NUMBER, LEAF, b"m", None))

    await story.servers[1].start(prepare())
    node = ending.node

    async def node_after_a_split(level: int, low: bytes, *, exactly: bool = False) -> Node:
        if exactly:
            ending.node = node  # type: ignore[method-assign]
            await story.servers[1].start(split(splitting, b"c"))
        return await node(level, low, exactly=exactly)

    ending.node = node_after_a_split  # type: ignore[method-assign]
    was_taken = await story.servers[0].start(ending._joins.settle(b"m", NUMBER))

    async def write_and_find() -> bool:
        await splitting.enlist(b"n", 0)
        return await reading.holds(b"n")

    is_found = await story.servers[2].start(write_and_find())
    await story.end()
    return was_taken, is_found


def test_a_split_of_the_left_leaf_is_not_taken_for_the_end_of_the_join() -> None:
    assert told(end_a_join_beside_a_split()) == (False, True)
