"""Writes of one process that wait for each other, in the order in which they were asked for.

A queue is named by a place in storage: a partition, or an entity. Knows no rows and no statements.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from math import inf
from typing import Generic, TypeVar

from tablestone.engines.contract import EngineBusy

_Place = TypeVar("_Place", bound=Hashable)


class _Queue:
    """The queue of one place, and how many hold or want the turn."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.wanted = 0


class WriteQueues(Generic[_Place]):
    """The queues of those places at which a write is under way. `what` names such a place in an error."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._queues: dict[_Place, _Queue] = {}

    def __contains__(self, place: _Place) -> bool:
        """Whether a write has its turn there, or waits for it."""
        return place in self._queues

    async def begin(self, place: _Place, seconds_max: float) -> None:
        """Wait until every earlier write of the place has ended; `EngineBusy` if that takes longer than this.

        After a return, `end` has to be called.
        """
        queue = self._queues.get(place)
        if queue is None:
            queue = self._queues[place] = _Queue()
        queue.wanted += 1
        try:
            if queue.wanted == 1:
                await queue.lock.acquire()  # at once
            else:
                async with asyncio.timeout(None if seconds_max == inf else seconds_max):
                    await queue.lock.acquire()
        except BaseException as error:
            self._leave(place, queue)
            if isinstance(error, TimeoutError):
                raise EngineBusy(
                    f"Earlier writes to the same {self._what} take too long."
                ) from error
            raise

    def end(self, place: _Place) -> None:
        """Let the next write of the place have its turn."""
        queue = self._queues[place]
        queue.lock.release()
        self._leave(place, queue)

    def _leave(self, place: _Place, queue: _Queue) -> None:
        queue.wanted -= 1
        if not queue.wanted:
            del self._queues[place]
