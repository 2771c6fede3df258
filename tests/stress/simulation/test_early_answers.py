"""One replica answers a read at SERIAL before a second one has the commit: the server must not conclude too much.

Cassandra answers such a read early (`acceptEarlyReadPermission` of its `PaxosPrepare`). A read at QUORUM from the two
other replicas, such as that of a partition's mark, does not show the commit yet.
"""

import asyncio

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

from stress.simulation.story import PARTITION, begun, told
from tablestone.engines.cassandra.directory import FIRST, LEAF, Node
from tablestone.engines.cassandra.session import REQUEST_SECONDS_MAX


async def marks_around_a_write_in_doubt() -> tuple[bool, bool]:
    """Whether the mark changed while the write was in doubt, and whether it had changed when that was over."""
    story = await begun(is_early=True)
    reader = story.servers[1]
    before = await reader.start(reader.engine._commits._outcomes.mark_of(PARTITION))
    story.reached, story.asked = {0}, [1, 2]
    writing = asyncio.ensure_future(story.write(b"new"))
    await asyncio.sleep(REQUEST_SECONDS_MAX / 2)
    in_doubt = await reader.start(reader.engine._commits._outcomes.mark_of(PARTITION))
    await writing
    after = await reader.start(reader.engine._commits._outcomes.mark_of(PARTITION))
    await story.end()
    return in_doubt != before, after != before


def test_a_write_in_doubt_is_acknowledged_when_every_mark_shows_it() -> None:
    assert told(marks_around_a_write_in_doubt()) == (False, True)


async def bounds_of_a_split() -> tuple[bool, Node]:
    """Whether a server uses a split that others do not see yet, and the bounds that it uses in the end."""
    story = await begun(is_early=True)
    first, second = (server.engine.directory for server in story.servers[:2])
    story.reached, story.asked = {0}, [1, 2]
    splitting = story.servers[0].start(
        first._connection.write_if([(first._statements.begin_split, (b"m", LEAF, FIRST, None, 0))])
    )
    await asyncio.sleep(REQUEST_SECONDS_MAX / 2)
    acting = story.servers[1].start(second.node(LEAF, FIRST, exactly=True))
    await asyncio.sleep(REQUEST_SECONDS_MAX / 4)
    acts_early = acting.done()
    story.reached = {0, 1}
    story.cluster.replicate_everything()
    bounds = await acting
    await splitting
    await story.end()
    return acts_early, bounds


def test_a_server_acts_on_bounds_that_every_server_sees() -> None:
    acts_early, bounds = told(bounds_of_a_split())
    assert not acts_early
    assert bounds.split == b"m"
