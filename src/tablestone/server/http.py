"""One HTTP connection: uvicorn's, with bounds on what a peer may make it wait for, which it has none of itself.

A head that is too long, too slow or never begun ends its connection, and so does being idle where there is no `room`
for others; a stop does not wait for TLS peers that say no goodbye. A peer that has ended its own half is still
answered. An answer leaves with one write where it is of the usual kind. Where the target of a request names a host,
that is its Host (RFC 9112 3.2.2). Nothing else is changed. Knows no ASGI application.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, cast

import httptools
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from tablestone import limits
from tablestone.server.room import Room

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application, ASGISendEvent, HTTPResponseBodyEvent

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


TLS_CLOSE_SECONDS_MAX: Final = 2.0
"""How long a stop waits for a TLS peer to say goodbye, which idle ones never do; the loop would wait for 30 s."""


class HttpConnection(HttpToolsProtocol):
    """A connection whose request heads are bounded in bytes and in time. `on_lost` is told of its end.

    `refuse` answers a request for which there was no room.
    """

    def __init__(
        self,
        *arguments: Any,
        room: Room,
        refuse: ASGI3Application,
        on_lost: Callable[[], None] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._room = room
        self._refuse = refuse
        self._on_lost = on_lost
        self._head_is_open = False
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait_for_head()  # who connects and says nothing would be kept for ever
        self._room.make(cast("set[HttpConnection]", self.connections), self.loop)

    @property
    def idle_since(self) -> float | None:
        """Since when nothing is asked here, in the loop's seconds; half a head is nothing. None while something is."""
        if self.transport.is_closing() or self.transport.get_write_buffer_size():
            return None
        if self.cycle is not None and not self.cycle.response_complete:  # type: ignore[redundant-expr]
            return None
        if self._head_timer is not None:
            return self._head_timer.when() - limits.REQUEST_HEAD_SECONDS_MAX
        if self.timeout_keep_alive_task is not None:
            return self.timeout_keep_alive_task.when() - self.timeout_keep_alive
        return None

    def end_idle(self) -> None:
        """End it, and count it no longer; a TLS peer is not asked for a goodbye."""
        self.connections.discard(self)
        if self.scheme == "https":
            self.transport.abort()
        else:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._head_is_open:
            # What came is an answered request's, or an empty line: it ended uvicorn's own wait for the next request.
            if self.cycle is None or self.cycle.response_complete:  # type: ignore[redundant-expr]
                self._wait_for_head()
            return
        # Only a head that came in pieces gets here: most come whole, and cost nothing.
        self._head_bytes += len(data)
        if self._head_bytes > limits.REQUEST_HEAD_BYTES_MAX and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        self._wait_for_head()

    def _wait_for_head(self) -> None:
        """From the first time that this is called until a head is whole, so long may pass."""
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
        """The peer sends no more: answer what came whole, then end; True keeps the connection open for that.

        TLS ends both directions at once (asyncio's and uvloop's do), so there nothing is left to be answered.
        """
        self._end_head()
        last = cast("RequestResponseCycle | None", self.cycle)  # uvicorn sets it late
        if self.scheme == "https" or last is None or last.response_complete or last.more_body:
            return False
        last.keep_alive = False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
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
        cycle.__class__ = _Exchange
        super()._start_asgi_task(cycle, self._refuse if app is service_unavailable else app)

    def _end_head(self) -> None:
        self._head_is_open = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class _Exchange(RequestResponseCycle):
    """One request and its answer, which leaves with one write where it is one body of known length.

    uvicorn writes head and body one after the other, each a call of the system and a packet, and looks at each header.
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
            if not self.disconnected:
                message = self._write_with_head(self.held_head, message)
            self.held_head = None
        await super().send(message)

    def _write_with_head(
        self, head: bytes, message: HTTPResponseBodyEvent
    ) -> HTTPResponseBodyEvent:
        """Write the head and, if it is all of it, the body; gives back what is left to send."""
        body = message["body"]
        if len(body) != self.expected_content_length:
            self.transport.write(head)
            return message
        self.transport.writelines((head, body))
        self.expected_content_length = 0
        return _NOTHING_MORE

    def _usual_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
        """The head of an answer of known length after which the connection goes on; None for any other."""
        fields = [*self.default_headers, *headers]
        by_name = dict(fields)
        length = by_name.get(b"content-length")
        if length is None or b"connection" in by_name or b"transfer-encoding" in by_name:
            return None
        if not self.keep_alive or self.flow.write_paused or self.scope["method"] == "HEAD":
            return None
        lines = b"\r\n".join(map(b": ".join, fields))
        if lines.count(b"\n") != len(fields) - 1 or lines.count(b"\r") != len(fields) - 1:
            return None  # a line end inside a header: uvicorn refuses to send it
        self.expected_content_length = int(length)
        return b"".join((STATUS_LINE[status], lines, b"\r\n\r\n"))


_NOTHING_MORE: Final[HTTPResponseBodyEvent] = {
    "type": "http.response.body",
    "body": b"",
    "more_body": False,
}
