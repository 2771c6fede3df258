"""The bytes of one connection: when they are read and written, and those that wait in memory for the client.

A client that does not read its answers is cut off. `admission` counts what arrived of requests that are not whole, and
what is unsent of answers.
"""

import asyncio
import math
from asyncio import AbstractEventLoop, TimerHandle

from tablestone import limits
from tablestone.model.errors import RETRY_AFTER, StorageError
from tablestone.server.admission import Admission, Limit


class AnswerDate:
    """The date of the answers, as the line of a head. A server sets it each second."""

    __slots__ = ("line",)

    def __init__(self) -> None:
        self.line = b""

    def set(self, date: str) -> None:
        self.line = b"date: %b\r\n" % date.encode("ascii")


class ClientChannel(asyncio.Protocol):
    """The two directions of a connection, and its share of the limits of `admission`."""

    __slots__ = (
        *("_held_arrived", "_held_unsent", "_is_reading_paused", "_reader_timer", "_writable"),
        *("address", "admission", "date", "is_lost", "loop", "transport"),
    )
    transport: asyncio.Transport

    def __init__(self, admission: Admission, date: AnswerDate, loop: AbstractEventLoop) -> None:
        self.admission = admission
        self.date = date
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
        """End the connection unless its client reads `ANSWER_READ_BYTES_MIN` in each `ANSWER_READ_SECONDS_MAX`."""
        unsent = self.transport.get_write_buffer_size()
        if before - unsent < limits.ANSWER_READ_BYTES_MIN:
            self.admission.count_refused(Limit.SLOW_READER, self.address)
            self.transport.abort()
        else:
            self._reader_timer = self.loop.call_later(
                limits.ANSWER_READ_SECONDS_MAX, self._watch_reader, unsent
            )
