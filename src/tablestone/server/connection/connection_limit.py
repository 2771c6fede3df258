"""The limit of connections of one process: above it, the connection that is idle for longest is closed.

An idle connection has no request under way, so closing it loses nothing. A request pays nothing for the limit: idle
connections are looked up only when the limit is reached, and several are noted in one pass. Knows no HTTP.
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
"""A connection that was opened or answered more recently than this is not idle: its next request may be on the way."""
SHARE: Final = 8
"""Each pass over the connections notes one in eight of them as the next to close."""
PAUSE_SECONDS: Final = 0.1
"""Seconds until the next pass, after a pass that found no idle connection."""
WARNING_SECONDS: Final = 60.0
"""Seconds between two warnings in the log, at least."""


class Idle(Protocol):
    """A connection, as the limit sees it."""

    @property
    def idle_since(self) -> float | None:
        """Time of its last answer, in seconds of a monotonic clock; None while a request is under way."""

    def end_idle(self) -> None:
        """Close it now."""


class ConnectionLimit:
    """Keeps the connections of one process, or of one client of it, below `connections_max`."""

    def __init__(self, connections_max: int, *, of_one_client: bool = False) -> None:
        self._whose = "a client may have here" if of_one_client else "this process serves"
        self._connections_max = connections_max
        self._noted: list[tuple[float, Idle]] = []
        """The connections that were idle for longest at the last pass, the longest last."""
        self._next_look_at = 0.0
        self._next_warning_at = 0.0
        self._tries_again = False

    def make(self, connections: Collection[Idle], loop: AbstractEventLoop) -> None:
        """Close idle connections until one more fits below the limit.

        If too few are idle, it tries again later, until enough connections have ended.
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
        if longest is None and now >= self._next_look_at:
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
            self._next_look_at = now + PAUSE_SECONDS
        if now >= self._next_warning_at:
            self._next_warning_at = now + WARNING_SECONDS
            logger.warning(
                "There are %d connections, as many as %s: a new connection closes an idle one; if "
                "none is idle, requests are refused.",
                len(connections),
                self._whose,
            )
