"""Turns on the event loop: long work runs in pieces, and other requests are served between two pieces.

A scan, a large batch or the writing of a page waits in the queue of its kind. It gives way when its time is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from tablestone import limits

Seconds = Callable[[], float]
"""A clock that never steps back, in seconds."""


class Turns:
    """The queue of one kind of long work. One piece of work at a time has its turn.

    Requests that have arrived run between two turns. So a point read waits for at most one turn of each kind, however
    much work is under way.
    """

    def __init__(self, seconds: Seconds) -> None:
        self._seconds = seconds
        self._lock = asyncio.Lock()

    def turn(self) -> Turn:
        return Turn(self._lock, self._seconds)


class Turn:
    """The turn of one piece of work. It holds the lock from start to end, except while it gives way."""

    def __init__(self, lock: asyncio.Lock, seconds: Seconds) -> None:
        self._lock = lock
        self._seconds = seconds
        self._is_ours = False
        self.ends = 0.0
        """When the work gives way, by the clock."""

    @property
    def is_over(self) -> bool:
        return self._seconds() > self.ends

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end()

    async def begin(self) -> None:
        """Wait for the turn. Compiled code calls `end` in a `finally`: it may not await `__aexit__` (decision 7)."""
        await self._lock.acquire()
        self._is_ours = True
        self.ends = self._seconds() + limits.TURN_SECONDS

    def end(self) -> None:
        if self._is_ours:  # a task that is cancelled while it waits does not hold the lock
            self._lock.release()

    async def give_way(self) -> None:
        """Let others run: first the requests that have arrived, then the work that waits in the queue."""
        # After the first sleep the loop reads the sockets. Their callbacks run before the second sleep ends.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self._is_ours = False
        self._lock.release()
        await self.begin()
