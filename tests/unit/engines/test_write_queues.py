"""Writes to one place take turns in order, whatever happens to those before them."""

import asyncio

import pytest

from tablestone.engines.contract import EngineBusy
from tablestone.engines.request_time import WriteQueues

pytestmark = pytest.mark.asyncio
PATIENCE_SECONDS = 10.0


class Writes:
    """Writes that take their turns and record when; each ends when `ends` says so."""

    def __init__(self) -> None:
        self.queues = WriteQueues[bytes]("partition")
        self.began: list[str] = []

    def begin(
        self, name: str, ends: asyncio.Event, seconds_max: float = PATIENCE_SECONDS
    ) -> asyncio.Task[None]:
        async def write() -> None:
            await self.queues.begin(b"p", seconds_max)
            self.began.append(name)
            await ends.wait()
            self.queues.end(b"p")

        return asyncio.ensure_future(write())


async def test_each_one_waits_for_those_before_it() -> None:
    writes = Writes()
    ends = [asyncio.Event() for _ in range(3)]
    tasks = [writes.begin(str(number), end) for number, end in enumerate(ends)]
    for number, end in enumerate(ends):
        await asyncio.sleep(0.01)
        assert writes.began == [str(each) for each in range(number + 1)]
        end.set()
    await asyncio.gather(*tasks)


async def test_one_that_waits_too_long_is_refused_and_the_next_one_still_waits() -> None:
    writes = Writes()
    first, last = asyncio.Event(), asyncio.Event()
    under_way = writes.begin("first", first)
    refused = writes.begin("refused", last, seconds_max=0.02)
    waits = writes.begin("waits", last)
    with pytest.raises(EngineBusy, match="Earlier writes to the same partition take too long"):
        await refused
    assert writes.began == ["first"]
    first.set()
    last.set()
    await asyncio.gather(under_way, waits)
    assert writes.began == ["first", "waits"]


@pytest.mark.parametrize("was_handed_over", [False, True])
async def test_one_that_is_cancelled_leaves_its_place(*, was_handed_over: bool) -> None:
    writes = Writes()
    first, last = asyncio.Event(), asyncio.Event()
    under_way = writes.begin("first", first)
    cancelled = writes.begin("cancelled", last)
    waits = writes.begin("waits", last)
    await asyncio.sleep(0.01)
    end = writes.queues.end

    def end_and_cancel(place: bytes) -> None:
        writes.queues.end = end  # type: ignore[method-assign]
        end(place)
        cancelled.cancel()  # its turn has come, and it has not run since

    if was_handed_over:
        writes.queues.end = end_and_cancel  # type: ignore[method-assign]
    else:
        cancelled.cancel()
    first.set()
    last.set()
    await asyncio.wait_for(asyncio.gather(under_way, waits), PATIENCE_SECONDS)
    assert writes.began == ["first", "waits"]


async def test_a_place_without_writes_needs_no_memory() -> None:
    writes = Writes()
    end = asyncio.Event()
    end.set()
    await asyncio.gather(*(writes.begin(str(number), end) for number in range(3)))
    assert not writes.queues._waiting
