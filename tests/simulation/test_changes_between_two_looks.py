"""The bounds of a leaf change between two looks of one server: it goes by the later ones, and no entry is lost.

Both cases were bugs, found by the seeds 642 and 5276 of `python -m tests.simulation --directory`: an acknowledged row
was missing from range queries. In the first one, a server closed a leaf whose place no other one had taken. In the
second one, an entry had an epoch that an earlier deletion hides.
"""

from __future__ import annotations

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

from simulation.story import PARTITION, begun, told
from tablestone.engines.cassandra.directory import Directory
from tablestone.engines.cassandra.directory_nodes import FIRST, LEAF, Node

NUMBER = 7
"""Of the join."""
HOUR = 3_600_000_000
"""In microseconds, as epochs count."""


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
        for partition in (b"n", PARTITION):
            await splitting.remove(partition, splitting.epoch_now() + 1)
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


async def enlist_beside_a_join() -> bool:
    """Whether a reader finds a partition whose writer, with a clock that is behind, wrote beside a join."""
    story = await begun()
    writing, joining, reading = (server.engine.directory for server in story.servers)
    await story.servers[0].start(
        writing.enlist(b"a", 0)
    )  # from now on, it knows the first leaf alone

    async def split_and_empty() -> None:
        await joining.enlist(b"a", 0)
        latest = await joining.enlist(b"n", -(joining.epoch_now() + HOUR))
        await split(joining, b"m")
        for partition in (b"n", PARTITION):
            await joining.remove(partition, latest)

    await story.servers[1].start(split_and_empty())
    node = writing.node

    async def node_before_a_join(level: int, low: bytes, *, exactly: bool = False) -> Node:
        writing.node = node  # type: ignore[method-assign]
        before = await node(level, low, exactly=exactly)
        assert await story.servers[1].start(joining._joins.join_if_empty(b"m"))
        return before

    writing.node = node_before_a_join  # type: ignore[method-assign]
    await story.servers[0].start(writing.enlist(b"n", 0))
    is_found = await story.servers[2].start(reading.holds(b"n"))
    await story.end()
    return is_found


def test_a_writer_reads_the_bounds_again_after_a_join() -> None:
    assert told(enlist_beside_a_join())
