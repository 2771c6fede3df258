"""A stopping HTTP server waits for requests, and for nothing else. Time here is virtual: the loop's own."""

import asyncio
import selectors
import socket
from typing import Any

from tablestone.configuration import Configuration
from tablestone.server.http_server import LOOK_SECONDS_MAX, HttpServer
from tablestone.server.start import listen
from tablestone.wire.messages import RawResponse

ANSWER_SECONDS = 3.0
REQUEST = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n"


class VirtualTime(selectors.DefaultSelector):
    """A selector that does not wait; it advances the clock of its loop instead."""

    seconds = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0.005)  # what the kernel passes on at once
        if not ready and timeout is not None:
            self.seconds += timeout
        return ready


class SlowApplication:
    """Answers after a fixed time."""

    waits = True

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()

    async def answer(self, *_: Any) -> RawResponse:
        self.is_asked.set()
        await asyncio.sleep(ANSWER_SECONDS)
        return RawResponse(204, [])

    refuse = answer


async def stop_took(*, with_request: bool) -> float:
    """Seconds from the request to stop until the end."""
    loop = asyncio.get_running_loop()
    application = SlowApplication()
    configuration = Configuration("127.0.0.1", 0, None, "memory:", (), "error")
    ready = asyncio.Event()
    listener = listen("127.0.0.1", 0)
    server = HttpServer(configuration, application, listener, ready.set)
    serving = asyncio.ensure_future(server.serve())
    await ready.wait()
    client = socket.create_connection(listener.getsockname())
    with client:
        if with_request:
            client.sendall(REQUEST)
            await application.is_asked.wait()
        await asyncio.sleep(0.01)  # the connection is accepted
        started = loop.time()
        server.stop()
        await serving
        took = loop.time() - started
        await asyncio.sleep(0.01)  # the loop closes the connection
        return took


def run(*, with_request: bool) -> float:
    selector = VirtualTime()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.seconds  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(stop_took(with_request=with_request))


def test_a_stop_waits_for_nothing_when_nothing_is_under_way() -> None:
    assert run(with_request=False) <= LOOK_SECONDS_MAX


def test_a_stop_waits_for_the_request_under_way() -> None:
    assert ANSWER_SECONDS - 0.01 <= run(with_request=True) <= ANSWER_SECONDS + 2 * LOOK_SECONDS_MAX
