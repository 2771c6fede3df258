"""The order of requests while more have arrived than one turn of the event loop can serve: one of each address in turn.

A request begins at once while no other waits and the present turn of the loop is young. Otherwise it waits in the queue
of its client's address, and the addresses have their turns round robin. So a client with many connections gets the same
number of turns as one with a single connection. Without a load there is no queue, and the check costs two readings of a
clock. Knows no HTTP.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from typing import Final

from tablestone import limits
from tablestone.clock import monotonic_seconds

LATE_SECONDS: Final = 0.002
"""Age of a turn of the loop at which requests begin to wait. The loop rounds the start of a turn down by up to 1 ms."""
TASK_SECONDS: Final = limits.TURN_SECONDS / 16
"""The time that the start of a task counts for: most of its work is done in a later turn."""

Begin = Callable[[], bool]
"""Begins a request; True if the rest of it is a task."""


class Rounds:
    """The waiting requests of one process, by address."""

    def __init__(self, seconds: Callable[[], float] = monotonic_seconds) -> None:
        self._seconds = seconds
        self._waiting: dict[str, deque[Begin]] = {}
        """The addresses in the order of their turns."""
        self.is_busy = False
        """Whether requests wait."""

    def is_late(self, loop: AbstractEventLoop) -> bool:
        """Whether another request has to wait. A loop whose clock never stands still is never late."""
        return self.is_busy or self._seconds() - loop.time() > LATE_SECONDS

    def wait(self, address: str, begin: Begin, loop: AbstractEventLoop) -> None:
        """Call `begin` in one of the next turns of the loop."""
        queue = self._waiting.get(address)
        if queue is None:
            self._waiting[address] = queue = deque()
        queue.append(begin)
        if not self.is_busy:
            self.is_busy = True
            loop.call_soon(self._serve, loop)

    def _serve(self, loop: AbstractEventLoop) -> None:
        """Begin one request of each address in turn until the time of this turn is over."""
        ends = self._seconds() + limits.TURN_SECONDS
        while self._waiting:
            address, queue = next(iter(self._waiting.items()))
            begin = queue.popleft()
            del self._waiting[address]
            if queue:
                self._waiting[address] = queue  # behind the others
            if begin():
                ends -= TASK_SECONDS
            if self._seconds() > ends:
                break
        self.is_busy = bool(self._waiting)
        if self.is_busy:
            loop.call_soon(self._serve, loop)
