"""Answers on their way to their event loops: several loops, one after the other, use one session.

A loop may end while it still waits for an answer, such as that of a lease renewal.
"""

import asyncio
from threading import Timer

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

from tablestone.engines.cassandra.session import Answer, Arrivals

PATIENCE_SECONDS = 5.0
SEVEN = Answer.of(["number"], [(7,)])


async def ask() -> Answer:
    """A request whose answer arrives on a thread of the driver."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Answer] = loop.create_future()
    Timer(0.01, Arrivals(loop).put, (future, SEVEN)).start()
    return await asyncio.wait_for(future, PATIENCE_SECONDS)


def test_an_answer_has_its_names() -> None:
    assert asyncio.run(ask()).names == ["number"]
    assert Answer().names == ()


@pytest.mark.parametrize("is_answered", ["before its end", "afterwards"])
def test_an_answer_to_a_loop_that_has_ended_holds_up_no_other(is_answered: str) -> None:
    ended = asyncio.new_event_loop()
    arrivals, future = Arrivals(ended), ended.create_future()
    if is_answered == "before its end":
        arrivals.put(future, SEVEN)
    ended.close()
    if is_answered == "afterwards":
        arrivals.put(future, SEVEN)
    assert asyncio.run(ask()) == [(7,)]


def test_an_answer_waits_for_its_own_loop() -> None:
    """A future belongs to its loop; another one, perhaps on another thread, must not touch it."""
    with asyncio.Runner() as waiting, asyncio.Runner() as other:
        loop = waiting.get_loop()
        future = loop.create_future()
        Arrivals(loop).put(future, SEVEN)
        assert other.run(ask()) == [(7,)]
        assert not future.done()

        async def take() -> Answer:
            return await asyncio.wait_for(future, PATIENCE_SECONDS)

        assert waiting.run(take()) == [(7,)]


def test_answers_that_arrive_together_wake_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def take() -> list[list[Answer]]:
        loop = asyncio.get_running_loop()
        wakes: list[None] = []
        wake = loop.call_soon_threadsafe

        def counted(*arguments: object) -> object:
            wakes.append(None)
            return wake(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        arrivals, found = Arrivals(loop), []
        for together in range(1, 3):  # the second time too
            futures = [loop.create_future() for _ in range(5)]
            for future in futures:
                arrivals.put(future, SEVEN)
            found.append(await asyncio.wait_for(asyncio.gather(*futures), PATIENCE_SECONDS))
            assert len(wakes) == together
        return found

    assert asyncio.run(take()) == [[SEVEN] * 5] * 2


@pytest.mark.parametrize("outcome", [SEVEN, ValueError("late")])
def test_what_becomes_of_a_request_that_was_given_up_is_dropped(
    outcome: Answer | Exception,
) -> None:
    wrong: list[object] = []

    async def send() -> Answer:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: wrong.append(context))
        arrivals = Arrivals(loop)
        given_up, following = loop.create_future(), loop.create_future()
        given_up.cancel()
        arrivals.put(given_up, outcome)
        arrivals.put(following, SEVEN)
        return await asyncio.wait_for(following, PATIENCE_SECONDS)

    assert asyncio.run(send()) == [(7,)]
    assert not wrong


def test_an_error_is_raised_where_the_answer_is_awaited() -> None:
    async def send() -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        Arrivals(loop).put(future, ValueError("refused"))
        with pytest.raises(ValueError, match="refused"):
            await asyncio.wait_for(future, PATIENCE_SECONDS)

    asyncio.run(send())
