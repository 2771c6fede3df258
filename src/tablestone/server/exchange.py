"""One request over a connection, and its answer: the body as it arrives, and the bytes that go back.

A connection makes an `Exchange` when the head of a request is whole. The application reads the body from it, and the
connection writes the answer through it: head and body in one call, which is one system call and one packet.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol

from tablestone.wire.messages import RawResponse

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from tablestone.server.admission import Limit
    from tablestone.server.client_channel import ClientChannel
    from tablestone.wire.messages import RawRequest

logger = logging.getLogger(__name__)

Fields = list[tuple[bytes, bytes]]
BODY_WAITING_BYTES_MAX: Final = 65_536
"""Bytes of a body that wait for the application; then the connection is not read any more."""
_JOINED_BYTES_MAX: Final = 16_384
"""Bytes of the largest body that is copied after the head: up to here a copy costs less than a list of the two."""
_STATUS_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus
}
_FAILED: Final = b"Internal Server Error"
_PLAIN_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
_CLOSES: Final = b"\r\nconnection: close\r\n"


class Answering(Protocol):
    """What answers requests. If it `waits`, each request needs a task of its own.

    `refuse` answers a request beyond a limit, and may take its time. Both return None if they have written the answer.
    """

    @property
    def waits(self) -> bool: ...
    def answer(
        self, request: RawRequest, exchange: Exchange, /
    ) -> Coroutine[object, None, RawResponse | None]: ...
    def refuse(
        self, request: RawRequest, exchange: Exchange, limit: Limit, /
    ) -> Coroutine[object, None, RawResponse | None]: ...


class Exchange:
    """One request and its answer."""

    __slots__ = (
        *("_arrived", "_has_ended", "_news", "connection", "expects_continue", "fields"),
        *("has_more", "is_begun", "is_complete", "keep_alive", "limit", "request"),
    )

    def __init__(
        self, connection: ClientChannel, request: RawRequest, fields: Fields, *, keep_alive: bool
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
        self.expects_continue = headers.get(b"expect", b"").lower() == b"100-continue"
        self.limit: Limit | None = None
        """The limit that this request exceeds, if it is refused before its turn has come."""
        self.is_begun = False
        """Whether a part of the answer is written."""
        self.is_complete = False
        self._has_ended = False
        self._arrived = b""
        self._news: asyncio.Event | None = None

    @property
    def is_read(self) -> bool:
        """Whether the request is a read without a body to wait for; only a task can wait."""
        headers = self.request.headers
        return (
            self.request.method == "GET"
            and b"content-length" not in headers
            and b"transfer-encoding" not in headers
        )

    # The request, as it arrives.

    def take(self, piece: bytes) -> None:
        """A piece of the body has arrived."""
        self._arrived += piece
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
        return piece

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
        except ValueError as error:
            self.fail(error)
            return
        self.write(head, b"" if self.request.method == "HEAD" else response.body)
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
        head = b"".join((status_line, self.connection.date.line, lines, b"\r\n" if lines else b""))
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
            self.connection.transport.close()
        else:
            self.finish(RawResponse(500, [_PLAIN_TEXT], _FAILED))
