"""Reading the body of a request: up to its limit, within its time, whole or not at all.

Knows ASGI's `receive`; does not know what a body means. A body that is refused unread is still taken from the
connection where that is cheap, because a client that is cut off while it sends may never see the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tablestone import limits
from tablestone.clock import monotonic_seconds
from tablestone.errors import StorageError
from tablestone.wire.messages import Headers

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]


class Patience:
    """Ends the reading of bodies that do not come.

    Looked at once a second for all of them together: a timer for each would cost more than reading most bodies.
    """

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Task[Any], float] = {}
        self._ended: set[asyncio.Task[Any]] = set()

    async def watch(self) -> None:
        """Runs for as long as the server does."""
        while True:
            await asyncio.sleep(1)
            now = monotonic_seconds()
            for task in [task for task, until in self._waiting.items() if until < now]:
                del self._waiting[task]
                self._ended.add(task)
                task.cancel()

    def begin(self, task: asyncio.Task[Any]) -> None:
        """The task starts to wait for a body."""
        self._waiting[task] = monotonic_seconds() + limits.BODY_READ_SECONDS_MAX

    def end(self, task: asyncio.Task[Any]) -> bool:
        """The task waits no more; True if it was this watch that ended it."""
        self._waiting.pop(task, None)
        if task in self._ended:
            self._ended.remove(task)
            return True
        return False


class RequestBody:
    """The body of one request. `is_read` tells whether it was asked for at all."""

    __slots__ = ("_headers", "_length", "_patience", "_receive", "is_read")

    def __init__(self, receive: Receive, headers: Headers, patience: Patience) -> None:
        self._receive = receive
        self._headers = headers
        self._length: int | None = None
        self._patience = patience
        self.is_read = False

    async def read(self) -> bytes:
        """The whole body.

        Raises `MissingContentLengthHeader` for one that comes neither with its length nor in chunks (wire 2.1);
        `RequestBodyTooLarge` for one over the limit, after reading on for a while so that its sender hears the
        answer; `OperationTimedOut` when it does not come; `InvalidInput` when the client stopped in the middle.
        """
        self.is_read = True
        self._length = _announced_length(self._headers)
        if self._length is not None and self._length > limits.BODY_BYTES_MAX:
            self.is_read = False  # it need not be waited for, only taken away
            raise StorageError("RequestBodyTooLarge")
        task = asyncio.current_task()
        assert task is not None
        self._patience.begin(task)
        try:
            body = await self._collect(limits.BODY_BYTES_MAX, limits.BODY_BYTES_DISCARDED_MAX)
        except asyncio.CancelledError as error:
            if not self._patience.end(task):
                raise
            task.uncancel()
            raise StorageError("OperationTimedOut", early=True) from error
        finally:
            self._patience.end(task)
        if body is None:
            raise StorageError("RequestBodyTooLarge")
        return body

    async def discard(self) -> None:
        """Take what is sent off the connection, if it comes soon and is not too much."""
        try:
            async with asyncio.timeout(limits.BODY_DISCARD_SECONDS_MAX):
                await self._collect(0, limits.BODY_BYTES_DISCARDED_MAX)
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
            # All that was announced is here: the empty message that would say so need not be waited for.
            if size == self._length or size > read_max or not message.get("more_body", False):
                return b"".join(pieces) if size <= kept_max else None


def _announced_length(headers: Headers) -> int | None:
    """The length a request says its body has; None for a chunked one."""
    if b"transfer-encoding" in headers:
        return None
    text = headers.get(b"content-length")
    if text is None:
        raise StorageError("MissingContentLengthHeader")
    return int(text)


def is_worth_discarding(headers: Headers) -> bool:
    """True for a request that has a body and did not ask first whether to send it."""
    if b"expect" in headers:
        return False
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
