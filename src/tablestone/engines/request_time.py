"""The time that storage may take for one request, however many reads and writes the request needs.

A context variable, so that no call between the server and an engine has to pass it on. Work that is for no request,
such as a sweep, has no such limit. Knows neither requests nor storage.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from math import inf
from typing import Final

from tablestone import limits
from tablestone.clock import monotonic_seconds
from tablestone.engines.contract import EngineBusy

_until: Final[ContextVar[float]] = ContextVar("until", default=inf)


def begin() -> None:
    """A request begins here: this task, and those that it starts, have `limits.STORAGE_SECONDS_MAX` from now on."""
    _until.set(monotonic_seconds() + limits.STORAGE_SECONDS_MAX)


def extend(seconds: float) -> None:
    """The request waited so long for its client."""
    _until.set(_until.get() + seconds)


def forget() -> None:
    """This task works for others too: it has no limit."""
    _until.set(inf)


def left() -> float:
    """The seconds that are left; infinite if there is no limit, and not positive when the time is over."""
    until = _until.get()
    return until if until == inf else until - monotonic_seconds()


async def wait_for(event: asyncio.Event) -> None:
    """Wait for work that another task does; `EngineBusy` if the time of this request ends first."""
    seconds = left()
    try:
        async with asyncio.timeout(None if seconds == inf else seconds):
            await event.wait()
    except TimeoutError as error:
        raise EngineBusy("Storage does not answer in the time of a request.") from error
