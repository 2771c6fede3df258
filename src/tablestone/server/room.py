"""Room for one more connection where a process has as many as it serves: the one that is idle for longest ends.

Until its request has come nobody can tell a client from who only fills the server, and both keep old connections; what
is ended then was asked nothing, so nothing is lost. It costs a request nothing: who is idle is looked up when there is
no room, many at once. Knows no HTTP.
"""

from __future__ import annotations

import heapq
import logging
from asyncio import AbstractEventLoop
from collections.abc import Collection
from operator import itemgetter
from typing import Final, Protocol

logger = logging.getLogger(__name__)

IDLE_SECONDS_MIN: Final = 1.0
"""Who has connected just now, or was answered, may be about to ask: where all are like that, there is no room."""
SHARE: Final = 8
"""One of so many connections is noted to be ended next, when they are looked through."""
PAUSE_SECONDS: Final = 0.1
"""They are not looked through again for so long where nobody was found."""
TOLD_SECONDS: Final = 60.0
"""How often the operator is told, at most."""


class Idle(Protocol):
    """A connection as it is seen from here."""

    @property
    def idle_since(self) -> float | None:
        """Since when it is asked nothing, in seconds of a clock that never steps back; None while it is."""

    def end_idle(self) -> None:
        """End it now."""


class Room:
    """One process's connections, of which it serves fewer than `connections_max` at a time."""

    def __init__(self, connections_max: int) -> None:
        self._connections_max = connections_max
        self._noted: list[tuple[float, Idle]] = []
        """Who was idle for longest when they were looked through, that one last."""
        self._looks_at = 0.0
        self._tells_at = 0.0
        self._tries_again = False

    def make(self, connections: Collection[Idle], loop: AbstractEventLoop) -> None:
        """End idle connections until there is room, which they then no longer take; as far as there are any now.

        Where there are not, it is tried again later, for as long as there are too many connections.
        """
        while len(connections) >= self._connections_max:
            longest = self._longest_idle(connections, loop.time())
            if longest is None:
                if not self._tries_again:
                    self._tries_again = True
                    loop.call_later(IDLE_SECONDS_MIN, self._try_again, connections, loop)
                return
            longest.end_idle()

    def _try_again(self, connections: Collection[Idle], loop: AbstractEventLoop) -> None:
        self._tries_again = False
        self.make(connections, loop)

    def _longest_idle(self, connections: Collection[Idle], now: float) -> Idle | None:
        longest = self._next_noted()
        if longest is None and now >= self._looks_at:
            self._look_through(connections, now)
            longest = self._next_noted()
        return longest

    def _next_noted(self) -> Idle | None:
        while self._noted:
            since, noted = self._noted.pop()
            if noted.idle_since == since:
                return noted
        return None

    def _look_through(self, connections: Collection[Idle], now: float) -> None:
        latest = now - IDLE_SECONDS_MIN
        idle = [
            (since, each)
            for each in connections
            if (since := each.idle_since) is not None and since <= latest
        ]
        noted = max(1, len(connections) // SHARE)
        self._noted = heapq.nsmallest(noted, idle, key=itemgetter(0))[::-1]
        if not self._noted:
            self._looks_at = now + PAUSE_SECONDS
        if now >= self._tells_at:
            self._tells_at = now + TOLD_SECONDS
            logger.warning(
                "There are %d connections, as many as this process serves: for one more an idle one ends; where none "
                "is idle, requests are refused.",
                len(connections),
            )
