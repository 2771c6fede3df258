"""A transaction has reached one replica and not yet the others: readers see all of it or nothing.

A read at QUORUM repairs only the rows that it has read. After a point read, a second replica would have one row of the
transaction, and a page from the two replicas that lack the rest would show half of it.
"""

import asyncio

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

from stress.simulation.story import ROWS, begun, told


async def half_of_it() -> tuple[bytes | None, list[bytes], bytes | None]:
    story = await begun()
    story.reached = {0}
    writing = asyncio.ensure_future(story.write(b"new"))
    await asyncio.sleep(0.1)
    seen = await story.get(story.servers[1], ROWS[0])
    story.asked = [1, 2]
    found = seen, await story.page(story.servers[2]), await story.get(story.servers[2], ROWS[1])
    story.reached = {0, 1, 2}
    writing.cancel()
    await story.end()
    return found


def test_a_point_read_tears_no_transaction_that_is_on_its_way() -> None:
    assert told(half_of_it()) in (
        (b"new", [b"new", b"new"], b"new"),
        (b"old", [b"old", b"old"], b"old"),
        (b"old", [b"new", b"new"], b"new"),
    )
