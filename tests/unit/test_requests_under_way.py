"""The requests to the nodes that have no answer yet: several event loops, one after the other, use one session.

A loop may end while an answer is on its way to it, such as that of a lease that is renewed ahead.
"""

from __future__ import annotations

import asyncio
from threading import Timer

from tablestone.clock import monotonic_seconds
from tablestone.engines.cassandra.requests_under_way import Answer, RequestsUnderWay, UnderWay
from tablestone.engines.cassandra.serving_loop import ServingLoop
from tablestone.engines.figures import Distribution

PATIENCE_SECONDS = 5.0


def requests_of_a_session() -> RequestsUnderWay:
    return RequestsUnderWay(
        ServingLoop(), monotonic_seconds, Distribution((0.1, 1.0)), lambda _: None
    )


def test_an_answer_reaches_its_loop_after_another_loop_has_ended_with_one_on_its_way() -> None:
    requests = requests_of_a_session()

    async def begin() -> UnderWay:
        return requests.begin(asyncio.get_running_loop())

    async def ask() -> Answer:
        request = await begin()
        Timer(0.01, request.answered, ([(7,)], ["number"])).start()
        return await asyncio.wait_for(request.future, PATIENCE_SECONDS)

    ended = asyncio.new_event_loop()
    request = ended.run_until_complete(begin())
    request.answered([(1,)], ["number"])
    ended.close()
    with asyncio.Runner() as following:
        for _ in range(2):
            assert following.run(ask()) == [(7,)]


def test_a_request_times_out_after_another_loop_has_ended_with_one_under_way() -> None:
    requests = requests_of_a_session()

    async def send() -> bool:
        timed_out = asyncio.Event()
        request = requests.begin(asyncio.get_running_loop())
        requests.end_after(0.01, request, timed_out.set)
        await asyncio.wait_for(timed_out.wait(), PATIENCE_SECONDS)
        return True

    async def leave() -> None:
        request = requests.begin(asyncio.get_running_loop())
        requests.end_after(0.01, request, lambda: None)

    with asyncio.Runner() as ended:
        ended.run(leave())
    with asyncio.Runner() as following:
        for _ in range(2):
            assert following.run(send())
