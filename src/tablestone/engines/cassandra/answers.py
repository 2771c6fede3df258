"""Answers of the nodes, on their way from the driver's thread to the event loop that waits for them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeAlias

Row: TypeAlias = tuple[Any, ...]


class Answer(list[Row]):
    """The rows of an answer, with the names of their columns."""

    names: Sequence[str] = ()

    @classmethod
    def of(cls, names: Sequence[str], rows: Sequence[Row]) -> Answer:
        """The driver's `row_factory`."""
        answer = cls(rows)
        answer.names = names
        return answer


class Arrivals:
    """Hands answers over to one event loop. Those that arrive together wake it once.

    A command may use several event loops, one after the other. Each has its own arrivals, so a loop that has ended, or
    waits, holds up no other.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._arrived: deque[tuple[asyncio.Future[Answer], Answer | Exception]] = deque()
        self._is_woken = False

    def put(self, future: asyncio.Future[Answer], outcome: Answer | Exception) -> None:
        """Let the future, which belongs to the event loop, have its answer or error; on whichever thread."""
        self._arrived.append((future, outcome))
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # the loop is closed: nothing waits any more
                self.loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        self._is_woken = False  # before the last look: what arrives behind it wakes the loop again
        while self._arrived:
            future, outcome = self._arrived.popleft()
            if future.done():  # cancelled
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
