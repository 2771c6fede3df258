"""One request and its answer on a connection: an answer of the usual kind in one write, and a body that is counted.

Knows the connection only as the function that counts the bytes of a body which arrives in pieces. Knows no ASGI
application.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveEvent, ASGISendEvent


class Exchange(RequestResponseCycle):
    """One request and its answer. An answer that is one body of known length leaves in one write.

    uvicorn writes the head and then the body, each in a system call and a packet of its own, and checks each header.
    """

    held_head: bytes | None = None
    """The head of the answer, until its body comes."""
    hold: Callable[[int], None] | None = None
    """Counts the bytes of a piece of the body. Raises `StorageError` if there is no room for them."""
    end_unread: Callable[[], None] | None = None
    """Ends the connection after an answer to a request whose body has not arrived whole."""

    async def receive(self) -> ASGIReceiveEvent:
        """As uvicorn has it, and a body that arrives in pieces is counted, which may raise `ServerBusy`."""
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        if not self.disconnected and not self.response_complete:
            self.flow.resume_reading()
            await self.message_event.wait()
            self.message_event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body = bytes(self.body), bytearray()
        if self.more_body and self.hold is not None:
            self.hold(len(body))
        return {"type": "http.request", "body": body, "more_body": self.more_body}

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
        is_unread = not self.keep_alive and self.more_body
        if is_unread and self.end_unread is not None and message["type"] == "http.response.body":
            self.keep_alive = True  # uvicorn would close at once
            self.end_unread()
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


def is_read(cycle: RequestResponseCycle) -> bool:
    """Whether the request is a read without a body to wait for; only a task can wait."""
    scope = cycle.scope
    return scope["method"] == "GET" and _BODY_HEADERS.isdisjoint(
        map(itemgetter(0), scope["headers"])
    )


_BODY_HEADERS: Final = frozenset((b"content-length", b"transfer-encoding"))
