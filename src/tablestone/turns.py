"""Turns: long work on an event loop is done in pieces, and between two of them others are served.

A scan, a large batch, a page that has to be written anew: whoever has much to do takes a place in the line of its kind
and gives way when its time is over. Knows neither what is done in a turn nor who else is served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from tablestone import limits

Seconds = Callable[[], float]
"""A clock that never steps back, in seconds."""


class Turns:
    """Whose turn it is among the long works of one kind.

    Between two turns, of one work or of many, other requests that have arrived are carried out: a point read waits for
    one turn of each kind at most, however much is under way.
    """

    def __init__(self, seconds: Seconds) -> None:
        self._seconds = seconds
        self._lock = asyncio.Lock()

    def turn(self) -> Turn:
        """A place in the line."""
        return Turn(self._lock, self._seconds)


class Turn:
    """Has the lock from its beginning to its end, but while it gives way."""

    def __init__(self, lock: asyncio.Lock, seconds: Seconds) -> None:
        self._lock = lock
        self._seconds = seconds
        self._is_ours = False
        self.ends = 0.0
        """When to give way, by the clock."""

    @property
    def is_over(self) -> bool:
        """Whether it is time to give way."""
        return self._seconds() > self.ends

    async def __aenter__(self) -> Self:
        await self._take()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._is_ours:  # who is cancelled while it waits has none
            self._lock.release()

    async def give_way(self) -> None:
        """Others have their turn: the requests that have arrived, then those of the line who wait."""
        # The loop reads the sockets after the first, and what it read there runs before the second comes back.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self._is_ours = False
        self._lock.release()
        await self._take()

    async def _take(self) -> None:
        await self._lock.acquire()
        self._is_ours = True
        self.ends = self._seconds() + limits.TURN_SECONDS
