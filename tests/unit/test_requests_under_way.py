"""The requests to the nodes that have no answer yet: several event loops, one after the other, use one session.

A loop may end while an answer is on its way to it, such as that of a lease that is renewed ahead.
"""

from __future__ import annotations

import asyncio
from threading import Timer

import pytest

from tablestone.clock import monotonic_seconds
from tablestone.engines.cassandra.requests_under_way import Answer, RequestsUnderWay, UnderWay
from tablestone.engines.cassandra.serving_loop import ServingLoop
from tablestone.engines.figures import Distribution

PATIENCE_SECONDS = 5.0


def requests_of_a_session(serving: ServingLoop | None = None) -> RequestsUnderWay:
    return RequestsUnderWay(
        serving or ServingLoop(), monotonic_seconds, Distribution((0.1, 1.0)), lambda _: None
    )


async def begin(requests: RequestsUnderWay) -> UnderWay:
    return requests.begin(asyncio.get_running_loop())


async def ask(requests: RequestsUnderWay) -> Answer:
    """A request whose answer comes on a thread of the driver."""
    request = await begin(requests)
    Timer(0.01, request.answered, ([(7,)], ["number"])).start()
    return await asyncio.wait_for(request.future, PATIENCE_SECONDS)


@pytest.mark.parametrize("is_answered", ["before its end", "afterwards"])
@pytest.mark.parametrize("is_awaited", [False, True])
def test_an_answer_reaches_its_loop_after_another_loop_has_ended_with_one_on_its_way(
    is_answered: str, *, is_awaited: bool
) -> None:
    """The answer that nothing waits for any more is not in the way of those behind it."""
    requests = requests_of_a_session()
    ended = asyncio.new_event_loop()
    request = ended.run_until_complete(begin(requests))
    if is_awaited:
        request.future.add_done_callback(lambda _: None)
    if is_answered == "before its end":
        request.answered([(1,)], ["number"])
    ended.close()
    with asyncio.Runner() as following:
        if is_answered == "afterwards":
            request.answered([(1,)], ["number"])
        for _ in range(2):
            assert following.run(ask(requests)) == [(7,)]


def test_an_answer_waits_for_its_own_loop() -> None:
    """A future belongs to its loop: another one, perhaps on another thread, must not touch it."""
    requests = requests_of_a_session()
    with asyncio.Runner() as waiting, asyncio.Runner() as other:
        request = waiting.run(begin(requests))
        request.answered([(1,)], ["number"])
        assert other.run(ask(requests)) == [(7,)]
        assert not request.future.done()

        async def take() -> Answer:
            return await asyncio.wait_for(request.future, PATIENCE_SECONDS)

        assert waiting.run(take()) == [(1,)]
        assert waiting.run(ask(requests)) == [(7,)]


def test_the_loop_that_serves_the_sockets_hands_over_at_once() -> None:
    serving = ServingLoop()
    requests = requests_of_a_session(serving)

    async def serve() -> None:
        request = await begin(requests)
        with serving.here():
            request.answered([(1,)], ["number"])
            assert request.future.result() == [(1,)]

    asyncio.run(serve())


async def time_out(requests: RequestsUnderWay) -> None:
    """Send a request, and wait until it is told that its time is over."""
    timed_out = asyncio.Event()
    request = await begin(requests)
    requests.end_after(0.01, request, timed_out.set)
    await asyncio.wait_for(timed_out.wait(), PATIENCE_SECONDS)


def test_a_request_times_out_after_another_loop_has_ended_with_one_under_way() -> None:
    requests = requests_of_a_session()

    async def leave() -> None:
        requests.end_after(0.01, await begin(requests), lambda: None)

    with asyncio.Runner() as ended:
        ended.run(leave())
    with asyncio.Runner() as following:
        for _ in range(2):
            following.run(time_out(requests))


def test_a_request_that_cannot_be_ended_fails_and_the_others_are_ended() -> None:
    requests = requests_of_a_session()
    error = ValueError("not ended")

    def refuse() -> None:
        raise error

    async def fail() -> None:
        request = await begin(requests)
        requests.end_after(0.01, request, refuse)
        await time_out(requests)
        with pytest.raises(ValueError, match="not ended"):
            await asyncio.wait_for(request.future, PATIENCE_SECONDS)
        await time_out(requests)

    asyncio.run(fail())


def test_a_request_that_was_answered_after_its_loop_had_ended_does_not_time_out() -> None:
    """The driver has given its stream to another request, which would be ended instead."""
    requests = requests_of_a_session()
    told: list[str] = []

    async def leave() -> UnderWay:
        request = await begin(requests)
        requests.end_after(0.01, request, lambda: told.append("timed out"))
        return request

    with asyncio.Runner() as ended:
        request = ended.run(leave())
    request.answered([(1,)], ["number"])
    with asyncio.Runner() as following:
        following.run(time_out(requests))
    assert not told


def test_a_request_that_is_answered_while_its_loop_is_busy_does_not_time_out() -> None:
    requests = requests_of_a_session()

    async def answer() -> None:
        request = await begin(requests)
        told: list[str] = []
        requests.end_after(0.0, request, lambda: told.append("timed out"))
        request.answered([(1,)], ["number"])
        request.of_loop._look_for_late()
        assert not told
        assert await asyncio.wait_for(request.future, PATIENCE_SECONDS) == [(1,)]

    asyncio.run(answer())


def test_a_request_that_cannot_be_sent_again_fails_and_the_answers_behind_it_arrive() -> None:
    requests = requests_of_a_session()

    def refuse(_: UnderWay) -> None:
        raise ValueError("the session is closed")

    async def send() -> None:
        first, second = await begin(requests), await begin(requests)
        first.send_again = refuse
        first.forgotten()
        second.answered([(2,)], ["number"])
        assert await asyncio.wait_for(second.future, PATIENCE_SECONDS) == [(2,)]
        with pytest.raises(ValueError, match="closed"):
            await asyncio.wait_for(first.future, PATIENCE_SECONDS)

    asyncio.run(send())


def test_a_request_that_is_sent_again_has_a_new_time() -> None:
    requests = requests_of_a_session()

    async def send() -> None:
        again = asyncio.Event()

        def send_again(request: UnderWay) -> None:
            requests.end_after(0.01, request, again.set)

        request = await begin(requests)
        request.send_again = send_again
        requests.end_after(PATIENCE_SECONDS, request, lambda: None)
        request.forgotten()
        await asyncio.wait_for(again.wait(), PATIENCE_SECONDS)

    asyncio.run(send())


@pytest.mark.parametrize("outcome", ["answered", "failed", "forgotten"])
def test_what_becomes_of_a_request_that_was_given_up_is_dropped(outcome: str) -> None:
    requests = requests_of_a_session()
    wrong: list[object] = []

    async def send() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
        request = await begin(requests)
        request.send_again = wrong.append
        request.future.cancel()
        values = {"answered": ([(1,)], []), "failed": (ValueError(),), "forgotten": ()}[outcome]
        getattr(request, outcome)(*values)
        assert await ask(requests) == [(7,)]

    asyncio.run(send())
    assert not wrong


def test_a_request_that_another_one_takes_along_as_it_is_ended_is_not_ended_again() -> None:
    """The driver closes a connection on which too much is late, which is an error for all of its requests."""
    requests = requests_of_a_session()
    told: list[str] = []

    async def send() -> None:
        first, second = await begin(requests), await begin(requests)
        requests.end_after(0.01, first, lambda: second.failed(ConnectionError("closed")))
        requests.end_after(0.01, second, lambda: told.append("timed out"))
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(second.future, PATIENCE_SECONDS)
        await time_out(requests)

    asyncio.run(send())
    assert not told
