"""The whole application behind its real HTTP parser, in this process: bytes in over a socket, an answer out.

The engine is in memory and the clock is stopped, so a test can expect an exact answer. The parser gets exactly the
bytes of the test.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest
import uvloop

from tablestone.configuration import AccountKeys, Configuration
from tablestone.server.admission import MEBIBYTE, Admission, Limit
from tablestone.server.application import Application, Parts
from tablestone.server.asgi import AsgiAnswering
from tablestone.server.exchange import Answering, Exchange, Serving
from tablestone.server.http_connection import HttpConnection
from tablestone.server.worker_slot import WorkerSlot
from tablestone.wire.messages import RawRequest
from wire.service_under_test import ACCOUNT, KEY, Clock, Headers, Response, default_headers

ANSWER_SECONDS_MAX = 20
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
ServedApplication = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application."""


async def listen(
    served: Answering | ServedApplication,
    date: str,
    idle_seconds: int = ANSWER_SECONDS_MAX,
    *,
    waits: bool = False,
    refuse: ServedApplication | None = None,
) -> asyncio.Server:
    """Serve an application on a free port, with the server's own HTTP connection.

    An ASGI application that `waits` is called inside a task. `refuse` answers requests beyond a limit.
    """
    answering = AsgiAnswering(served, waits=waits) if callable(served) else served
    if refuse is not None:
        refusing = AsgiAnswering(refuse)

        async def refuse_it(request: RawRequest, exchange: Exchange, _: Limit) -> None:
            await refusing.answer(request, exchange)

        answering.refuse = refuse_it  # type: ignore[method-assign]
    admission = Admission(1000, 1000, 100 * MEBIBYTE)
    serving = Serving(answering, admission, idle_seconds=idle_seconds)
    serving.set_date(date)
    loop = asyncio.get_running_loop()
    create: Any = partial(HttpConnection, serving, loop)
    return await loop.create_server(create, "127.0.0.1", 0)


class ServedBytes:
    """A server with one account, empty at first, and one connection to it. Close it when done."""

    def __init__(self, clock: Clock, engine: str = "memory:") -> None:
        self.clock = clock
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        account = AccountKeys(ACCOUNT, (KEY,))
        configuration = Configuration("127.0.0.1", 0, None, engine, (account,), "error")
        self._application = Application(configuration, WorkerSlot(), Parts(clock.ticks))
        self._runner.run(self._open())

    async def _open(self) -> None:
        await self._application.startup()
        self._server = await listen(self._application, self.clock.http_date())
        address = self._server.sockets[0].getsockname()
        self._reader, self._writer = await asyncio.open_connection(*address)

    def close(self) -> None:
        self._runner.run(self._close())
        self._runner.close()

    async def _close(self) -> None:
        self._writer.close()
        self._server.close()
        await self._application.shutdown()

    def send(self, head: bytes, body: bytes) -> Response:
        """The answer to one request. A head that expects 100 (Continue) gets it before the body is sent."""
        return self._runner.run(self._exchange(head, body))

    def exchange(
        self, method: str, target: str, headers: Headers = (), body: bytes = b""
    ) -> Response:
        """Build, sign and send a request, as `ServiceUnderTest` does."""
        pairs = [*default_headers(method, target, self.clock.http_date(), headers, body)]
        if body or method != "GET":
            pairs.append(("Content-Length", str(len(body))))
        return self.send(head_of(f"{method} {target} HTTP/1.1", pairs), body)

    async def _exchange(self, head: bytes, body: bytes) -> Response:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            self._writer.write(head)
            if b"\r\nexpect: 100-continue\r\n" in head.lower():
                assert await self._reader.readexactly(len(CONTINUE)) == CONTINUE
            self._writer.write(body)
            answer = await self._reader.readuntil(b"\r\n\r\n")
            status_line, *lines = answer[:-4].decode("latin-1").split("\r\n")
            pairs = [line.partition(": ")[::2] for line in lines]
            headers = dict(pairs)
            assert len(headers) == len(pairs), "a header was sent twice"
            length = int(headers.get("content-length", "0"))
            content = await self._reader.readexactly(length)
        return Response(int(status_line.split(" ")[1]), headers, content)


def head_of(request_line: str, headers: Headers) -> bytes:
    """A request line and headers, unchanged, as the bytes before a body."""
    lines = [request_line, *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.fixture
def served() -> Iterator[ServedBytes]:
    """An empty server whose clock stands still."""
    server = ServedBytes(Clock())
    yield server
    server.close()
