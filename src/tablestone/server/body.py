"""Reading the body of a request: up to its limit, within its time, whole or not at all.

Knows ASGI's `receive`; does not know what a body means. A body that is refused unread is still taken from the
connection where that is cheap, because a client that is cut off while it sends may never see the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tablestone import limits
from tablestone.errors import StorageError
from tablestone.wire.messages import Headers

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]


class RequestBody:
    """The body of one request. `is_read` tells whether it was asked for at all."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.is_read = False

    async def read(self) -> bytes:
        """The whole body.

        Raises `RequestBodyTooLarge` for one over the limit, after reading on for a while so that its sender hears the
        answer; `OperationTimedOut` when it does not come; `InvalidInput` when the client stopped in the middle.
        """
        self.is_read = True
        try:
            async with asyncio.timeout(limits.BODY_READ_SECONDS_MAX):
                body = await self._collect(limits.BODY_BYTES_MAX, limits.BODY_BYTES_DISCARDED_MAX)
        except TimeoutError as error:
            raise StorageError("OperationTimedOut", early=True) from error
        if body is None:
            raise StorageError("RequestBodyTooLarge")
        return body

    async def discard(self) -> None:
        """Take what is sent off the connection, if it comes soon and is not too much."""
        try:
            async with asyncio.timeout(limits.BODY_DISCARD_SECONDS_MAX):
                await self._collect(0, limits.BODY_BYTES_MAX)
        except (TimeoutError, StorageError):
            return  # the connection will be closed instead

    async def _collect(self, kept_max: int, read_max: int) -> bytes | None:
        """The body, or None if it is longer than `kept_max`; stops reading at `read_max`."""
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                raise StorageError("InvalidInput", early=True)
            piece = message["body"]
            size += len(piece)
            if size <= kept_max:
                pieces.append(piece)
            if size > read_max or not message.get("more_body", False):
                return b"".join(pieces) if size <= kept_max else None


def is_worth_discarding(headers: Headers) -> bool:
    """True for a request that has a body and did not ask first whether to send it."""
    if b"expect" in headers:
        return False
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
