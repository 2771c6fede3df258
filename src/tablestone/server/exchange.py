"""One request over a connection, and its answer: the body as it arrives, and the bytes that go back.

The application reads the body from the `Exchange`. The answer is written through it: head and body in one call, which
is one system call and one packet.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Coroutine
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol

from tablestone import limits
from tablestone.model.errors import RETRY_AFTER, StorageError
from tablestone.server.admission import Admission, Limit
from tablestone.wire.messages import RawRequest, RawResponse

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle
    from collections.abc import Sequence

    from tablestone.server.trusted_proxies import TrustedProxies

logger = logging.getLogger(__name__)

Fields = list[tuple[bytes, bytes]]
Response = Coroutine[Any, Any, RawResponse | None]
"""The answer to come; None once it is written already."""
BODY_WAITING_BYTES_MAX: Final = 65_536
"""Bytes of a body that wait for the application; then the connection is not read any more."""
_JOINED_BYTES_MAX: Final = 16_384
"""Bytes of the largest body that is copied after the head: up to here a copy costs less than a list of the two."""
_STATUS_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus
}
_FAILED: Final = b"Internal Server Error"
KEEP_ALIVE_SECONDS: Final = 120
"""Seconds until an idle connection is closed: more than in the SDKs' pools, so that the client closes first."""
_PLAIN_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
_CLOSES: Final = b"\r\nconnection: close\r\n"


class Answering(Protocol):
    """What answers requests; `refuse` those beyond a limit. If it `waits`, each request needs a task of its own."""

    @property
    def waits(self) -> bool: ...
    def answer(self, request: RawRequest, exchange: Exchange, /) -> Response: ...
    def refuse(self, request: RawRequest, exchange: Exchange, limit: Limit, /) -> Response: ...


@dataclass(eq=False)
class Serving:
    """What the connections of one server share: the application, its limits, and the date of the answers."""

    application: Answering
    admission: Admission
    proxies: TrustedProxies | None = None
    idle_seconds: float = KEEP_ALIVE_SECONDS
    connections: set[Any] = field(default_factory=set)
    """The open connections, and those of TLS that are being opened."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    """The requests under way that need a task."""
    date_line: bytes = b""

    def set_date(self, date: str) -> None:
        """Set the date of the next answers."""
        self.date_line = b"date: %b\r\n" % date.encode("ascii")


class ClientChannel:
    """The bytes of one connection in both directions, and those that wait in memory for the client.

    It has the methods of `asyncio.Protocol` and does not inherit it: a compiled class that does ends the process with
    its first object that is referred to weakly.

    A client that does not read its answers is cut off. `admission` counts what arrived of requests that are not whole,
    and what is unsent of answers.
    """

    transport: asyncio.Transport

    def __init__(self, serving: Serving, loop: AbstractEventLoop) -> None:
        self.serving = serving
        self.admission = serving.admission
        self.loop = loop
        self.address = ""
        """The IP address of the client, or of a proxy."""
        self.is_lost = False
        self._held_arrived = 0
        """Bytes of a request that has not arrived whole, which `admission` counts."""
        self._held_unsent = 0
        """Bytes of an answer that waits for its reader, which `admission` counts."""
        self._is_reading_paused = False
        self._writable: asyncio.Event | None = None
        """Set when the client has read enough of the answers; None if it has."""
        self._reader_timer: TimerHandle | None = None

    def on_response_complete(self) -> None:
        """The answer to the request under way is written whole."""
        raise NotImplementedError

    def pause_reading(self) -> None:
        if not self._is_reading_paused:
            self._is_reading_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_reading_paused:
            self._is_reading_paused = False
            self.transport.resume_reading()

    def hold(self, number: int) -> bool:
        """Count bytes that have arrived; False if there is no room for them."""
        admission = self.admission
        if admission.held_bytes + number > admission.held_bytes_max:
            admission.count_refused(Limit.BUFFERS, self.address)
            return False
        admission.held_bytes += number
        self._held_arrived += number
        return True

    def require_room(self, number: int) -> None:
        """Count bytes of a body. Raises `ServerBusy` if there is no room for them."""
        if number and not self.hold(number):
            raise StorageError("ServerBusy", reason=Limit.BUFFERS.value, headers=RETRY_AFTER)

    def release_arrived(self) -> None:
        """Stop counting what has arrived: it is answered."""
        self.admission.held_bytes -= self._held_arrived
        self._held_arrived = 0

    def write(self, data: bytes) -> None:
        if not self.is_lost:
            self.transport.write(data)

    def pause_writing(self) -> None:
        """Count the rest of an answer that its client reads too slowly, and watch the client."""
        self.end_unsent()
        self._writable = asyncio.Event()
        self._held_unsent = self.transport.get_write_buffer_size()
        self.admission.held_bytes += self._held_unsent  # whether there is room or not
        self._watch_reader(math.inf)

    def resume_writing(self) -> None:
        self.end_unsent()
        if self.transport.is_closing():
            self.close()

    def close(self) -> None:
        """Close the connection once the client has read the rest, for which it has as long as for any answer."""
        self.transport.close()
        if self._reader_timer is None and self.transport.get_write_buffer_size():
            self._watch_reader(math.inf)

    async def until_writable(self) -> None:
        """Return when the client has read enough of the answers before, or is gone."""
        while self._writable is not None:
            await self._writable.wait()

    def end_unsent(self) -> None:
        self.admission.held_bytes -= self._held_unsent
        self._held_unsent = 0
        writable, self._writable = self._writable, None
        if writable is not None:
            writable.set()
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None

    def _watch_reader(self, before: float) -> None:
        """End the connection unless its client reads `ANSWER_READ_BYTES_MIN` in each `answer_read_seconds`."""
        unsent = self.transport.get_write_buffer_size()
        if before - unsent < limits.ANSWER_READ_BYTES_MIN:
            self.admission.count_refused(Limit.SLOW_READER, self.address)
            self.transport.abort()
        else:
            self._reader_timer = self.loop.call_later(
                self.admission.answer_read_seconds, self._watch_reader, unsent
            )


class Exchange:
    """One request and its answer."""

    def __init__(
        self,
        connection: ClientChannel,
        request: RawRequest,
        fields: Fields,
        version: str = "1.1",
        *,
        keep_alive: bool,
    ) -> None:
        headers = request.headers
        self.connection = connection
        self.request = request
        self.fields = fields
        """The headers in their order, each as often as it was sent."""
        self.keep_alive = keep_alive
        self.has_more = (
            headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
        )
        """Whether a part of the body has not arrived."""
        self.is_read = request.method == "GET" and not self.has_more
        """Whether there is no body to wait for: only a task can wait."""
        self.is_http_1_0 = version == "1.0"
        """Its client knows neither chunks nor `100 Continue` (RFC 9110 10.1.1)."""
        expected = headers.get(b"expect", b"").lower()
        self.expects_continue = expected == b"100-continue" and not self.is_http_1_0
        self.limit: Limit | None = None
        """The limit that this request exceeds, if it is refused before its turn has come."""
        self.is_begun = False
        """Whether a part of the answer is written."""
        self.is_complete = False
        self._has_ended = False
        self._arrived: bytes | bytearray = b""
        self._news: asyncio.Event | None = None

    # The request, as it arrives.

    def take(self, piece: bytes) -> None:
        """A piece of the body has arrived."""
        if isinstance(self._arrived, bytearray):
            self._arrived += piece
        else:  # bytes would be copied for each of many small pieces
            self._arrived = bytearray(self._arrived + piece) if self._arrived else piece
        if len(self._arrived) > BODY_WAITING_BYTES_MAX:
            self.connection.pause_reading()
        self.tell()

    def take_end(self) -> None:
        """The request is whole."""
        self.has_more = False
        self.tell()

    def end_sending(self) -> None:
        """The client has closed its side, after a whole request: this answer is the last one."""
        self._has_ended, self.keep_alive = True, False
        self.tell()

    def tell(self) -> None:
        """Wake what waits for the client."""
        if self._news is not None:
            self._news.set()

    async def next_piece(self) -> bytes | None:
        """What has arrived of the body since the last call; None if the client is gone.

        Waits for some unless the body has arrived whole. Raises `ServerBusy` if there is no room for a piece.
        """
        connection = self.connection
        if self.expects_continue:
            self.expects_continue = False
            connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while self.has_more and not self._arrived and not connection.is_lost:
            await self._wait()
        if connection.is_lost:
            return None
        piece, self._arrived = self._arrived, b""
        if self.has_more:
            connection.require_room(len(piece))
        return bytes(piece)

    async def until_ended(self) -> None:
        """Return when the client has closed the connection, or its side of it after the whole request."""
        while not (self._has_ended or self.is_complete or self.connection.is_lost):
            self._arrived = b""
            await self._wait()

    async def until_lost(self) -> None:
        """Return when the connection is closed or the answer is complete."""
        while not (self.is_complete or self.connection.is_lost):
            await self._wait()

    async def _wait(self) -> None:
        self.connection.resume_reading()
        if self._news is None:
            self._news = asyncio.Event()
        self._news.clear()
        await self._news.wait()

    # The answer.

    def finish(self, response: RawResponse | None) -> None:
        """Write a whole answer, unless the client is gone; None: it is written already."""
        if response is None or self.connection.is_lost:
            return
        try:
            head = self.head(response.status, response.sized_headers(), response.reason)
            self.write(head, b"" if self.request.method == "HEAD" else response.body)
        except Exception as error:  # noqa: BLE001 - every request gets an answer
            self.fail(error)
        else:
            self.end()

    def head(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], reason: str | None
    ) -> bytes:
        """The head of an answer, which may say that it is the last one."""
        lines = b"\r\n".join(map(b": ".join, headers))
        ends = max(len(headers) - 1, 0)
        if lines.count(b"\n") != ends or lines.count(b"\r") != ends:
            raise ValueError("There is a line end inside a header.")
        status_line = _STATUS_LINES.get(status)
        if reason is not None or status_line is None:
            phrase = " ".join((reason or "").split()).encode("latin-1", "replace")
            status_line = b"HTTP/1.1 %d %b\r\n" % (status, phrase)
        head = b"".join(
            (status_line, self.connection.serving.date_line, lines, b"\r\n" if lines else b"")
        )
        if _CLOSES in head:
            self.keep_alive = False
        elif not self.keep_alive:
            return head + b"connection: close\r\n\r\n"
        return head + b"\r\n"

    def write(self, head: bytes, body: bytes) -> None:
        """Write the head of the answer, or nothing, and a piece of its body."""
        self.is_begun, self.expects_continue = True, False
        if head and len(body) > _JOINED_BYTES_MAX:
            self.connection.transport.writelines((head, body))
        else:
            self.connection.write(head + body)

    def end(self) -> None:
        """The answer is written whole."""
        self.is_complete = True
        self.tell()
        self.connection.on_response_complete()

    def fail(self, error: Exception) -> None:
        """The application has failed: answer so if nothing is written yet, and end the connection."""
        logger.error("A request has no answer.", exc_info=error)
        self.keep_alive = False
        if self.is_begun or self.connection.is_lost:
            self.connection.close()
        else:
            self.finish(RawResponse(500, [_PLAIN_TEXT], _FAILED))
