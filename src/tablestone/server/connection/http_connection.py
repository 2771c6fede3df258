"""One HTTP connection: uvicorn's, with limits on how long a client may make it wait. uvicorn has no such limits.

A connection ends if a request's head is too long, too slow or never begins, or if the connection is idle when the
connection limit is reached. A stop does not wait for TLS clients that never close their side. A client that has
closed its sending half still gets its answers. An answer of the usual kind leaves in one write. If the target of a
request names a host, that host is its Host (RFC 9112 3.2.2). A request that asks for another protocol is read with
its body and answered over HTTP/1.1. Versions of HTTP that are neither 1.0 nor 1.1 are refused. Nothing else differs
from uvicorn. Knows no ASGI application.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator, Iterable
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, cast

import httptools
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from tablestone import limits
from tablestone.server.connection.connection_limit import ConnectionLimit

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application, ASGISendEvent

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


_VERSIONS: Final = frozenset(("1.1", "1.0"))
"""The parser takes 0.9 and 2.0 too, and reads what follows as if it were HTTP/1.1 (RFC 9112 2.3)."""
TLS_CLOSE_SECONDS_MAX: Final = 2.0
"""Seconds that a stop waits for a TLS client to close its side. Idle clients never do; the loop would wait for 30 s."""


class HttpConnection(HttpToolsProtocol):
    """A connection whose request heads are limited in bytes and in time. `on_lost` is called at its end.

    `refuse` answers a request above the connection limit. An application that `waits` is only called inside a task.
    """

    def __init__(
        self,
        *arguments: Any,
        limit: ConnectionLimit,
        refuse: ASGI3Application,
        waits: bool,
        on_lost: Callable[[], None] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._limit = limit
        self._refuse = refuse
        self._waits = waits
        self._on_lost = on_lost
        self._under_way: RequestResponseCycle | None = None
        self._may_begin_at_once = False
        self._head_is_open = False
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._idle_since: float | None = None
        """Time at which the last answer was complete, on the loop's clock; None while a request is under way."""
        self._idle_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait_for_head()  # without this, a client that connects and sends nothing would stay for ever
        self._limit.make(cast("set[HttpConnection]", self.connections), self.loop)

    @property
    def idle_since(self) -> float | None:
        """Time, in the loop's seconds, since which no request is under way; None while one is. Half a head is none."""
        if self.transport.is_closing() or self.transport.get_write_buffer_size():
            return None
        if self.cycle is not None and not self.cycle.response_complete:  # type: ignore[redundant-expr]
            return None
        if self._head_timer is not None:
            return self._head_timer.when() - limits.REQUEST_HEAD_SECONDS_MAX
        return self._idle_since

    def end_idle(self) -> None:
        """Close it and stop counting it, without waiting for a TLS client to close its side."""
        self.connections.discard(self)
        if self.scheme == "https":
            self.transport.abort()
        else:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        self._may_begin_at_once = not self._waits
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._read_without_upgrade(memoryview(data)[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse_bytes()
        if not self._head_is_open:
            # The data belongs to an answered request, or is an empty line: it ended the wait for the next request.
            if self._idle_since is None and (
                self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]
            ):
                self._wait_for_head()
            return
        # Only a head that arrives in pieces gets here. Most heads arrive whole and cost nothing.
        self._head_bytes += len(data)
        if self._head_bytes > limits.REQUEST_HEAD_BYTES_MAX and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        self._wait_for_head()

    def _read_without_upgrade(self, rest: memoryview) -> None:
        """Read a request that asks for another protocol as if it did not ask, as RFC 9110 7.8 allows.

        A parser takes what follows the head for the other protocol, so another one gets the head again without
        `Upgrade`, and then the rest. Some HTTP clients ask for HTTP/2 like this with any request, Java's for one.
        """
        while self._should_upgrade():
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
            self.parser.feed_data(self._head_without_upgrade())
            try:
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
            except httptools.HttpParserError:
                self._refuse_bytes()
                return
            else:
                return

    def _should_upgrade(self) -> bool:
        """Whether uvicorn leaves the request that the parser has ended for; CONNECT is answered as it is."""
        return self.scope["method"] != "CONNECT"

    def _head_without_upgrade(self) -> bytes:
        version = self.scope["http_version"]
        lines = [f"{self.scope['method']} ".encode() + self.url + f" HTTP/{version}".encode()]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def _refuse_bytes(self) -> None:
        """Answer bytes that are not HTTP, as uvicorn does."""
        message = "Invalid HTTP request received."
        self.logger.warning(message)
        self.send_400_response(message)

    def on_response_complete(self) -> None:
        """As uvicorn does it, except for the time-out of idle connections: uvicorn makes a timer for each answer."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._may_begin_at_once = (
                False  # each request would be answered inside the call for the one before
            )
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._end_if_idle)

    def _unset_keepalive_if_required(self) -> None:
        """Data has arrived. The timer is not cancelled; it checks when it fires whether the connection is idle."""
        self._idle_since = None

    def _end_if_idle(self) -> None:
        self._idle_timer = None
        if self._idle_since is None:
            return  # the next answer starts the timer again
        rest = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if rest <= 0:
            self.timeout_keep_alive_handler()
        else:
            self._idle_timer = self.loop.call_later(rest, self._end_if_idle)

    def _wait_for_head(self) -> None:
        """Limit the time from the first call until a head is whole."""
        if self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(
                limits.REQUEST_HEAD_SECONDS_MAX, self.transport.close
            )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_is_open = True
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        self._end_head()
        if self.parser.get_http_version() not in _VERSIONS:
            raise httptools.HttpParserError("another version of HTTP")
        if not self.url.startswith(b"/"):
            self._take_host_of_target()
        super().on_headers_complete()

    def _take_host_of_target(self) -> None:
        target = httptools.parse_url(self.url)
        if target.host:
            host = b"[%b]" % target.host if b":" in target.host else target.host
            named = b"%b:%d" % (host, target.port) if target.port else host
            self.headers[:] = [
                (name, named if name == b"host" else value) for name, value in self.headers
            ]

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more: answer the requests that arrived whole, then close. True keeps the connection open.

        TLS as asyncio and uvloop have it ends both directions at once, so there is no answer left to send.
        """
        self._end_head()
        last = cast("RequestResponseCycle | None", self.cycle)  # uvicorn sets it late
        if self.scheme == "https" or last is None or last.response_complete or last.more_body:
            return False
        last.keep_alive = False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if (
            self._under_way is not None
        ):  # of several pipelined requests, uvicorn informs only the last
            self._under_way.disconnected = True
        super().connection_lost(exc)
        if self._on_lost is not None:
            self._on_lost()

    def shutdown(self) -> None:
        super().shutdown()
        if self.scheme == "https":
            self.loop.call_later(TLS_CLOSE_SECONDS_MAX, self._end_tls)

    def _end_tls(self) -> None:
        if self.transport.is_closing() and self.transport.get_write_buffer_size() == 0:
            self.transport.abort()
        else:
            self.loop.call_later(TLS_CLOSE_SECONDS_MAX, self._end_tls)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Run a read to its first wait at once. Most reads never wait and need no task; the rest of others is a task.

        Of several requests that arrived together, only the first is run like this: other clients have to be served
        between them. If the application waits for a network, no request is, because `asyncio.timeout` and task groups
        raise outside a task.
        """
        self._under_way = cycle
        cycle.__class__ = _Exchange
        if app is service_unavailable:
            app = self._refuse
        at_once, self._may_begin_at_once = self._may_begin_at_once, False
        if not at_once or cycle.scope["method"] != "GET" or _has_body(cycle.scope["headers"]):
            super()._start_asgi_task(cycle, app)
            return
        answering = cycle.run_asgi(app)
        try:
            awaited = answering.send(None)
        except StopIteration:
            return
        task = self.loop.create_task(_finish(answering, awaited))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def _end_head(self) -> None:
        self._head_is_open = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def _has_body(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether there may be a body to wait for; only a task can wait."""
    return not _BODY_HEADERS.isdisjoint(map(itemgetter(0), headers))


_BODY_HEADERS: Final = frozenset((b"content-length", b"transfer-encoding"))


async def _finish(coroutine: Coroutine[Any, Any, None], awaited: Any) -> None:
    """The rest of a coroutine that ran up to its first `await`, as a coroutine for a task."""
    await _rest_of(coroutine, awaited)


@types.coroutine
def _rest_of(coroutine: Coroutine[Any, Any, None], awaited: Any) -> Generator[Any, Any, None]:
    step: Callable[[], Any]
    while True:
        try:
            answer = yield awaited
        except BaseException as error:  # noqa: BLE001 - the coroutine gets a cancellation too
            step = partial(coroutine.throw, error)
        else:
            step = partial(coroutine.send, answer)
        try:
            awaited = step()
        except StopIteration:
            return


class _Exchange(RequestResponseCycle):
    """One request and its answer. An answer that is one body of known length leaves in one write.

    uvicorn writes the head and then the body, each in a system call and a packet of its own, and checks each header.
    """

    held_head: bytes | None = None
    """The head of the answer, until its body comes."""

    async def send(self, message: ASGISendEvent) -> None:
        if message["type"] == "http.response.start" and not self.response_started:
            self.held_head = self._usual_head(message["status"], message["headers"])
            if self.held_head is not None:
                return
        elif self.held_head is not None and message["type"] == "http.response.body":
            self.response_started, self.chunked_encoding = True, False
            head, self.held_head = self.held_head, None
            body = message["body"]
            if not self.disconnected:
                if len(body) == self.expected_content_length and not message.get("more_body"):
                    if len(body) <= _JOINED_BYTES_MAX:
                        self.transport.write(head + body)
                    else:
                        self.transport.writelines((head, body))
                    self._complete()
                    return
                self.transport.write(head)
        await super().send(message)

    def _complete(self) -> None:
        """Do what uvicorn does after the last part of an answer, on a connection that stays open."""
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:  # the server began to stop after the head was made
            self.transport.close()
        self.on_response()

    def _usual_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
        """The head of an answer of known length, if the connection stays open after it; None for any other answer."""
        if not self.keep_alive or self.flow.write_paused or self.scope["method"] == "HEAD":
            return None
        fields = [*self.default_headers, *headers]
        lines = b"\r\n".join(map(b": ".join, fields))
        if lines.count(b"\n") != len(fields) - 1 or lines.count(b"\r") != len(fields) - 1:
            return None  # there is a line end inside a header, which uvicorn refuses to send
        length = lines.find(_CONTENT_LENGTH)
        if length < 0 or b"\r\nconnection: " in lines or b"\r\ntransfer-encoding: " in lines:
            return None
        start = length + len(_CONTENT_LENGTH)
        end = lines.find(b"\r", start)
        self.expected_content_length = int(lines[start:] if end < 0 else lines[start:end])
        return b"".join((STATUS_LINE[status], lines, b"\r\n\r\n"))


_JOINED_BYTES_MAX: Final = 16_384
"""Bytes of the largest body that is copied behind the head: up to here a copy costs less than a list of the two."""
_CONTENT_LENGTH: Final = b"\r\ncontent-length: "
"""As any line of a head except the first, which is the date."""
