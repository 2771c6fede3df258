"""Reads the body of a request: up to its size limit, within its time limit, whole or not at all.

A body that is refused unread is still read from the connection if that is cheap, because a client that is cut off while
it sends may never see the answer.
"""

import asyncio
from typing import Protocol

from tablestone import limits
from tablestone.clock import monotonic_seconds
from tablestone.engines import request_time
from tablestone.model.errors import StorageError
from tablestone.wire.messages import Headers


class Arriving(Protocol):
    """What a client sends after the head of its request (`server.exchange.Exchange`)."""

    @property
    def has_more(self) -> bool:
        """Whether a part of the body has not arrived."""

    async def next_piece(self) -> bytes | None:
        """What has arrived of the body since the last call, or None if the client is gone. Waits for some."""

    async def until_ended(self) -> None:
        """Return when the client has closed the connection, or its side of it after the whole request."""


class RequestBody:
    """The body of one request, of `size` bytes; `is_read` once `read` has begun."""

    __slots__ = ("_arriving", "_headers", "is_read", "size")

    def __init__(self, arriving: Arriving, headers: Headers) -> None:
        self._arriving = arriving
        self._headers = headers
        self.is_read = False
        self.size = 0

    async def read(self, bytes_max: int) -> bytes:
        """The whole body.

        Raises `MissingContentLengthHeader` for a body that has neither a length nor chunks (wire 2.1);
        `RequestBodyTooLarge` for one over the limit, after reading on for a while so that the client gets to the
        answer; `OperationTimedOut` if the body does not arrive; `InvalidInput` if the client stops in the middle.
        """
        self.is_read = True
        length = self._headers.get(b"content-length")
        is_chunked = b"transfer-encoding" in self._headers
        if length is None and not is_chunked:
            raise StorageError("MissingContentLengthHeader")
        if length is not None and not is_chunked and int(length) > bytes_max:
            self.is_read = False  # it need not be waited for, only discarded
            raise StorageError("RequestBodyTooLarge", at_front_door=True)
        if self._arriving.has_more:
            began = monotonic_seconds()
            try:
                async with asyncio.timeout(limits.BODY_READ_SECONDS_MAX):
                    body = await self._collect(bytes_max, limits.BODY_BYTES_DISCARDED_MAX)
            except TimeoutError:
                raise StorageError("OperationTimedOut", early=True) from None
            request_time.extend(monotonic_seconds() - began)
        else:  # it is here: without a timer, which costs more than the rest
            body = await self._arriving.next_piece()
            if body is None:
                raise StorageError("InvalidInput")
        if body is None or len(body) > bytes_max:
            raise StorageError("RequestBodyTooLarge", at_front_door=True)
        self.size = len(body)
        return body

    async def discard(self) -> None:
        """Read the body from the connection and drop it, if it arrives soon and is not too large."""
        try:
            async with asyncio.timeout(limits.BODY_DISCARD_SECONDS_MAX):
                await self._collect(0, limits.BODY_BYTES_DISCARDED_MAX)
        except (TimeoutError, StorageError):
            return  # the connection is closed instead

    async def _collect(self, kept_max: int, read_max: int) -> bytes | None:
        """The body, or None if it is longer than `kept_max`; stops reading at `read_max`."""
        pieces: list[bytes] = []
        size = 0
        while True:
            piece = await self._arriving.next_piece()
            if piece is None:
                raise StorageError("InvalidInput")
            size += len(piece)
            if size <= kept_max:
                pieces.append(piece)
            if not self._arriving.has_more or size > read_max:
                return b"".join(pieces) if size <= kept_max else None


def is_worth_discarding(headers: Headers) -> bool:
    """True if there is a body, and the client does not ask first whether to send it (`Expect`)."""
    has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
    return has_body and b"expect" not in headers
