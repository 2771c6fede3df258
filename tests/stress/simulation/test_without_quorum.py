"""A cluster that answers nothing: every client gets an error within the service's own limit, and all work ends."""

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final
from unittest import mock

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

from stress.simulation.simulated_cluster import Trouble
from stress.simulation.story import PARTITION, begun, told
from tablestone.engines import request_time
from tablestone.engines.cassandra.connection import READ_SECONDS_MAX, OutcomeInDoubt
from tablestone.engines.cassandra.directory import FIRST, LEAF
from tablestone.engines.cassandra.session import REQUEST_SECONDS_MAX
from tablestone.engines.contract import (
    ANY,
    Change,
    Committed,
    EngineBusy,
    EngineUnavailable,
    Key,
    OutcomeUnknown,
    Put,
    WriteSet,
)
from tablestone.limits import STORAGE_SECONDS_MAX

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

WRITERS: Final = 16
REQUEST_SECONDS: Final = 30.0
"""The service's time limit for a request."""


async def writers_of_one_partition(*, is_back: bool) -> tuple[Counter[str], float]:
    """The answers to the writers of one partition on one server, and the time of the last one."""
    story = await begun()
    server = story.servers[0]
    loop = asyncio.get_running_loop()
    story.cluster.trouble = Trouble(lost=1.0)
    story.cluster.random.random = lambda: 0.5  # type: ignore[method-assign]
    asked = loop.time()

    async def write(number: int) -> str:
        changes = [Change(b"row", ANY, Put(lambda _: str(number).encode()))]
        try:
            await server.start(server.engine.commit(WriteSet(PARTITION, changes)))
        except (EngineUnavailable, OutcomeUnknown) as error:
            return type(error).__name__
        return Committed.__name__

    writing = asyncio.gather(*(write(number) for number in range(WRITERS)))
    if is_back:
        await asyncio.sleep(2 * REQUEST_SECONDS_MAX)
        story.cluster.trouble = Trouble()
    answers = Counter(await writing)
    seconds = loop.time() - asked
    await story.end()
    return answers, seconds


def test_each_writer_of_a_busy_partition_hears_of_it_in_time() -> None:
    """Each used to wait for those before it, and only then as long as one commit may take: minutes in total."""
    answers, seconds = told(writers_of_one_partition(is_back=False))
    assert answers == {"OutcomeUnknown": 1, "EngineBusy": WRITERS - 1}
    assert seconds < REQUEST_SECONDS


def test_each_writer_is_served_when_the_cluster_is_back() -> None:
    answers, seconds = told(writers_of_one_partition(is_back=True))
    assert answers == {"Committed": WRITERS}
    assert seconds < REQUEST_SECONDS


async def ended(what: str) -> float:
    """How long the directory takes to give up on something that it has to do."""
    story = await begun()
    directory = story.servers[0].engine.directory
    works: dict[str, Coroutine[Any, Any, object]] = {
        "a write that is to have happened": directory._connection.ensure(
            directory._statements.end_split, (b"m", None, LEAF, FIRST, b"m")
        ),
        "the end of a join": directory._settle_join(b"m", 1),
        "the exact bounds of a node": directory.node(LEAF, FIRST, exactly=True),
    }
    loop = asyncio.get_running_loop()
    story.cluster.trouble = Trouble(lost=1.0)
    story.cluster.random.random = lambda: 0.5  # type: ignore[method-assign]
    began = loop.time()
    for name, work in works.items():
        if name != what:
            work.close()
    with pytest.raises(EngineBusy):
        await story.servers[0].start(works[what])
    seconds = loop.time() - began
    await story.end()
    return seconds


@pytest.mark.parametrize(
    "what", ["a write that is to have happened", "the end of a join", "the exact bounds of a node"]
)
def test_the_directory_gives_up_in_time(what: str) -> None:
    assert told(ended(what)) < READ_SECONDS_MAX + 2 * REQUEST_SECONDS_MAX


async def repeats_of_a_refused_fence() -> tuple[int, float]:
    """How often a server asks, and for how long, while reads are answered and conditional writes are not."""
    story = await begun()
    server = story.servers[0]
    connection = server.engine.connection
    asked = 0

    async def in_doubt(_calls: object) -> None:
        nonlocal asked
        asked += 1
        raise OutcomeInDoubt("no answer")

    connection.write_if = in_doubt  # type: ignore[assignment,method-assign]
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(OutcomeUnknown, match="does not say so in time"):
        await story.write(b"new")
    seconds = loop.time() - began
    await story.end()
    return asked, seconds


def test_a_doubt_that_cannot_be_ended_is_given_up_and_asks_seldom() -> None:
    """It used to ask again at once, forever."""
    asked, seconds = told(repeats_of_a_refused_fence())
    assert asked < 40
    assert seconds < REQUEST_SECONDS


async def request_with_a_commit(seconds_before: float, *, is_read: bool) -> tuple[float, str]:
    """How long a request takes, and how it ends, if its storage answers for so long and then stops."""
    story = await begun()
    server = story.servers[0]
    loop = asyncio.get_running_loop()
    story.cluster.random.random = lambda: 0.5  # type: ignore[method-assign]
    write_set = WriteSet(PARTITION, [Change(b"row", ANY, Put(lambda _: b"v"))])

    async def request() -> str:
        request_time.begin()
        await asyncio.sleep(seconds_before)
        story.cluster.trouble = Trouble(lost=1.0)
        try:
            if is_read:
                await server.engine.get(Key(PARTITION, b"row"))
            await server.engine.commit(write_set)
        except (EngineUnavailable, OutcomeUnknown) as error:
            return type(error).__name__
        return Committed.__name__

    began = loop.time()
    with mock.patch.object(request_time, "monotonic_seconds", loop.time):
        outcome = await server.start(request())
    seconds = loop.time() - began
    await story.end()
    return seconds, outcome


@pytest.mark.parametrize(
    ("seconds_before", "is_read", "outcome"),
    [
        (0.0, False, "OutcomeUnknown"),
        (STORAGE_SECONDS_MAX - 0.1, False, "OutcomeUnknown"),
        (STORAGE_SECONDS_MAX - 0.1, True, "EngineBusy"),
        (STORAGE_SECONDS_MAX, False, "EngineBusy"),
        (STORAGE_SECONDS_MAX, True, "EngineBusy"),
    ],
)
def test_a_request_is_answered_in_time_whatever_it_did_before(
    seconds_before: float,
    is_read: bool,  # noqa: FBT001 - a column of the table
    outcome: str,
) -> None:
    seconds, ended_with = told(request_with_a_commit(seconds_before, is_read=is_read))
    assert ended_with == outcome
    assert seconds < REQUEST_SECONDS
