"""Reads the body of a request: up to its size limit, within its time limit, whole or not at all.

A body that is refused unread is still read from the connection if that is cheap, because a client that is cut off while
it sends may never see the answer.
"""

import asyncio
from typing import Any

from tablestone import limits
from tablestone.clock import monotonic_seconds
from tablestone.engines import request_time
from tablestone.model.errors import StorageError
from tablestone.server.asgi import Receive
from tablestone.wire.messages import Headers


class BodyTimeLimit:
    """Ends the reading of bodies that do not arrive. One check a second costs less than a timer for each body."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Task[Any], float] = {}
        self._ended: set[asyncio.Task[Any]] = set()

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(1)
            now = monotonic_seconds()
            for task in [task for task, until in self._waiting.items() if until < now]:
                del self._waiting[task]
                self._ended.add(task)
                task.cancel()

    def begin(self, task: asyncio.Task[Any]) -> None:
        """Note that the task starts to wait for a body."""
        self._waiting[task] = monotonic_seconds() + limits.BODY_READ_SECONDS_MAX

    def end(self, task: asyncio.Task[Any]) -> bool:
        """Note that the task waits no more; True if `watch` has cancelled it."""
        self._waiting.pop(task, None)
        if task in self._ended:
            self._ended.remove(task)
            return True
        return False


class RequestBody:
    """The body of one request, of `size` bytes; `is_read` once `read` has begun.

    Until it `is_whole`, it has not left the connection, and no other request can be read from there.
    """

    __slots__ = ("_headers", "_length", "_receive", "_time_limit", "is_read", "is_whole", "size")

    def __init__(self, receive: Receive, headers: Headers, time_limit: BodyTimeLimit) -> None:
        self._receive = receive
        self._headers = headers
        self._length: int | None = None
        self._time_limit = time_limit
        self.is_read = False
        self.is_whole = False
        self.size = 0

    async def read(self) -> bytes:
        """The whole body.

        Raises `MissingContentLengthHeader` for a body that has neither a length nor chunks (wire 2.1);
        `RequestBodyTooLarge` for one over the limit, after reading on for a while so that the client gets to the
        answer; `OperationTimedOut` if the body does not arrive; `InvalidInput` if the client stops in the middle.
        """
        self.is_read = True
        self._length = _content_length(self._headers)
        if self._length is not None and self._length > limits.BODY_BYTES_MAX:
            self.is_read = False  # it need not be waited for, only discarded
            raise StorageError("RequestBodyTooLarge", at_front_door=True)
        began = monotonic_seconds()
        task = asyncio.current_task()
        assert task is not None
        self._time_limit.begin(task)
        try:
            body = await self._collect(limits.BODY_BYTES_MAX, limits.BODY_BYTES_DISCARDED_MAX)
        except asyncio.CancelledError as error:
            if not self._time_limit.end(task):
                raise
            task.uncancel()
            raise StorageError("OperationTimedOut", early=True) from error
        finally:
            self._time_limit.end(task)
        request_time.extend(monotonic_seconds() - began)
        if body is None:
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
            message = await self._receive()
            if message["type"] != "http.request":
                raise StorageError("InvalidInput")
            piece = message["body"]
            size += len(piece)
            if size <= kept_max:
                pieces.append(piece)
            # The whole Content-Length is here, so the empty last message need not be waited for.
            self.is_whole = size == self._length or not message.get("more_body", False)
            if self.is_whole or size > read_max:
                return b"".join(pieces) if size <= kept_max else None


def _content_length(headers: Headers) -> int | None:
    """The length of the body by its header; None for a chunked one."""
    if b"transfer-encoding" in headers:
        return None
    text = headers.get(b"content-length")
    if text is None:
        raise StorageError("MissingContentLengthHeader")
    return int(text)


def is_worth_discarding(headers: Headers) -> bool:
    """True if there is a body, and the client does not ask first whether to send it (`Expect`)."""
    return b"expect" not in headers and has_body(headers)


def has_body(headers: Headers) -> bool:
    """True if the request has a body, whether it has arrived or not."""
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
