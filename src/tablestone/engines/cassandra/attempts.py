"""The time for something that is tried again, and the pauses in between. Knows neither statements nor errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

PAUSE_SECONDS: Final = 0.02
"""The first pause before a statement is sent again; each one is twice as long, up to `PAUSE_SECONDS_MAX`."""
PAUSE_SECONDS_MAX: Final = 1.0


class Attempts:
    """A number of attempts that ends with a time. `seconds` never steps back; `chance` gives numbers from 0 to 1."""

    def __init__(
        self, seconds: Callable[[], float], chance: Callable[[], float], seconds_max: float
    ) -> None:
        self._seconds = seconds
        self._chance = chance
        self._until = seconds() + seconds_max
        self._next = PAUSE_SECONDS

    @property
    def left(self) -> float:
        """The seconds that are left; negative when the time is over."""
        return self._until - self._seconds()

    @property
    def are_over(self) -> bool:
        """Whether there is no time for another attempt after a pause."""
        return self._next > self.left

    async def pause(self, longest: float = PAUSE_SECONDS_MAX) -> None:
        """Wait before the next attempt, each time about twice as long: servers that met must not meet again."""
        await asyncio.sleep(self._next * (0.5 + self._chance()))
        self._next = min(2 * self._next, longest)

    def with_at_least(self, seconds_min: float) -> Attempts:
        """Attempts of their own until the same time, or for this long if that is later."""
        return Attempts(self._seconds, self._chance, max(self.left, seconds_min))
