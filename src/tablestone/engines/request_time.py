"""How long a request may wait for storage, and for earlier writes to the same place.

The limit is for all reads and writes of a request together. It is a context variable, so that no call between the
server and an engine has to pass it on. Work for no request, such as a sweep, has no limit.
"""

import asyncio
from collections import deque
from collections.abc import Hashable
from contextvars import ContextVar
from math import inf
from typing import Final, Generic, TypeVar

from tablestone import limits
from tablestone.clock import monotonic_seconds
from tablestone.engines.contract import EngineBusy

_until: Final[ContextVar[float]] = ContextVar("until", default=inf)


def begin(seconds: float = limits.STORAGE_SECONDS_MAX) -> None:
    """Begin a request: this task, and those that it starts, have so many seconds from now on."""
    _until.set(monotonic_seconds() + seconds)


def extend(seconds: float) -> None:
    """Do not count the time for which the request waited for its client."""
    _until.set(_until.get() + seconds)


def forget() -> None:
    """This task works for others too: it has no limit."""
    _until.set(inf)


def left() -> float:
    """Seconds: infinite if there is no limit, zero or less when the time is over."""
    until = _until.get()
    return until if until == inf else until - monotonic_seconds()


async def wait_for(event: asyncio.Event) -> None:
    """Wait for the work of another task; `EngineBusy` if this request's time ends first."""
    seconds = left()
    try:
        async with asyncio.timeout(None if seconds == inf else seconds):
            await event.wait()
    except TimeoutError as error:
        raise EngineBusy("Storage does not answer in the time of a request.") from error


_Place = TypeVar("_Place", bound=Hashable)


class WriteQueues(Generic[_Place]):
    """One queue for each place with a write under way. `what` names such a place in an error."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._waiting: dict[_Place, deque[asyncio.Future[None]]] = {}
        """The turns of the writes that wait for the one under way, in order."""

    def __contains__(self, place: _Place) -> bool:
        """Whether a write is under way there."""
        return place in self._waiting

    async def begin(self, place: _Place, seconds_max: float) -> None:
        """Wait for every earlier write of the place; `EngineBusy` after `seconds_max`. Then `end` must be called."""
        if place not in self._waiting:
            self._waiting[place] = deque()
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting[place].append(turn)
        try:
            async with asyncio.timeout(None if seconds_max == inf else seconds_max):
                await turn
        except BaseException as error:
            if not turn.cancelled():  # the turn came at the same time
                self.end(place)
            if isinstance(error, TimeoutError):
                raise EngineBusy(
                    f"Earlier writes to the same {self._what} take too long."
                ) from error
            raise

    def end(self, place: _Place) -> None:
        waiting = self._waiting[place]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():  # else its write was given up
                turn.set_result(None)
                return
        del self._waiting[place]
