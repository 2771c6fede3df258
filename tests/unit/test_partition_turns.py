"""Commits of one partition have their turns in order, whatever becomes of those before them."""

from __future__ import annotations

import asyncio

import pytest

from tablestone.engines.cassandra.partition_turns import PartitionTurns
from tablestone.engines.contract import EngineBusy

pytestmark = pytest.mark.asyncio
PATIENCE_SECONDS = 10.0


class Commits:
    """Commits that take their turns and note when they have one; each ends when `ends` says so."""

    def __init__(self) -> None:
        self.turns = PartitionTurns()
        self.began: list[str] = []

    def begin(
        self, name: str, ends: asyncio.Event, seconds_max: float = PATIENCE_SECONDS
    ) -> asyncio.Task[None]:
        async def commit() -> None:
            await self.turns.begin(b"p", seconds_max)
            self.began.append(name)
            await ends.wait()
            self.turns.end(b"p")

        return asyncio.ensure_future(commit())


async def test_each_one_waits_for_those_before_it() -> None:
    commits = Commits()
    ends = [asyncio.Event() for _ in range(3)]
    tasks = [commits.begin(str(number), end) for number, end in enumerate(ends)]
    for number, end in enumerate(ends):
        await asyncio.sleep(0.01)
        assert commits.began == [str(each) for each in range(number + 1)]
        end.set()
    await asyncio.gather(*tasks)


async def test_one_that_waits_too_long_is_refused_and_the_next_one_still_waits() -> None:
    commits = Commits()
    first, last = asyncio.Event(), asyncio.Event()
    under_way = commits.begin("first", first)
    refused = commits.begin("refused", last, seconds_max=0.02)
    waits = commits.begin("waits", last)
    with pytest.raises(EngineBusy, match="Earlier writes to the same partition take too long"):
        await refused
    assert commits.began == ["first"]
    first.set()
    last.set()
    await asyncio.gather(under_way, waits)
    assert commits.began == ["first", "waits"]


@pytest.mark.parametrize("was_handed_over", [False, True])
async def test_one_that_is_cancelled_leaves_its_place(*, was_handed_over: bool) -> None:
    commits = Commits()
    first, last = asyncio.Event(), asyncio.Event()
    under_way = commits.begin("first", first)
    cancelled = commits.begin("cancelled", last)
    waits = commits.begin("waits", last)
    await asyncio.sleep(0.01)
    end = commits.turns.end

    def end_and_cancel(partition: bytes) -> None:
        commits.turns.end = end  # type: ignore[method-assign]
        end(partition)
        cancelled.cancel()  # its turn has come, and it has not run since

    if was_handed_over:
        commits.turns.end = end_and_cancel  # type: ignore[method-assign]
    else:
        cancelled.cancel()
    first.set()
    last.set()
    await asyncio.wait_for(asyncio.gather(under_way, waits), PATIENCE_SECONDS)
    assert commits.began == ["first", "waits"]


async def test_a_partition_without_commits_needs_no_memory() -> None:
    commits = Commits()
    end = asyncio.Event()
    end.set()
    await asyncio.gather(*(commits.begin(str(number), end) for number in range(3)))
    assert not commits.turns._turns
