"""The end of a connection that a fault asks for: the answer is lost, or cut in the middle.

Knows the connection of uvicorn behind an ASGI `send`. Without a socket the client gets `ConnectionLost`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, Final

from tablestone.server.asgi import Message, Send
from tablestone.testing.last_requests import Ending, RecordedRequest

_LINGER_NOT: Final = struct.pack("ii", 1, 0)
"""A socket that is closed with this option sends RST, and drops the bytes that it has not sent yet."""


class ConnectionLost(Exception):
    """A fault ended the connection, before the answer or within it (`began`)."""

    def __init__(self, *, began: bool) -> None:
        super().__init__("The connection was reset.")
        self.began = began


class AnswerSender:
    """An ASGI `send` that notes the answer in the request's record, and ends the connection where a fault says so."""

    def __init__(self, record: RecordedRequest, send: Send) -> None:
        self._record = record
        self._send = send
        self._start: Message = {}

    async def __call__(self, message: Message) -> None:
        """Send a message, unless a fault ends the connection."""
        record = self._record
        if message["type"] == "http.response.start":
            if record.retry_after is not None:
                message["headers"].append((b"retry-after", b"%d" % record.retry_after))
            if record.ending is None:
                note_answer(record, message)
                await self._send(message)
            self._start = message
        elif record.ending is None:
            await self._send(message)
        else:
            await self._end(record.ending, message["body"])

    async def _end(self, ending: Ending, body: bytes) -> None:
        # uvicorn's `send` is a method of the request's cycle, which has the transport. Another `send` has no socket.
        cycle: Any = getattr(self._send, "__self__", None)
        transport: asyncio.Transport | None = getattr(cycle, "transport", None)
        if ending.sent is None:
            sent = None
        else:
            sent = body[: int(len(body) * ending.sent) if ending.is_reset else int(ending.sent)]
        if transport is None:
            raise ConnectionLost(began=sent is not None)
        if sent is not None:
            await self._send(self._start)
            await self._send({"type": "http.response.body", "body": sent, "more_body": True})
            await asyncio.sleep(0.001)  # the bytes leave before the reset
        if ending.is_reset:
            transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT
            )
            transport.abort()
        else:
            transport.close()
        while not cycle.disconnected:  # noqa: ASYNC110 - uvicorn has no event for it
            # The loop has to tell uvicorn first, which would answer 500 otherwise.
            await asyncio.sleep(0)


def note_answer(record: RecordedRequest, start: Message) -> None:
    """Write status and error of an answer into the record."""
    record.status = start["status"]
    if record.status >= 400 and not record.error:
        for name, value in start["headers"]:
            if name == b"x-ms-error-code":
                record.error = value.decode("ascii")
