"""The age of records of changes: by the wall clock, unless it has jumped forward within the last hour.

A clock that is wrong for a minute must not empty a record that is kept for an hour. So a jump forward counts only after
an hour: the present time is a clock that never steps back, plus the smallest lead of the wall clock in the last hour.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from tablestone.clock import TICKS_PER_SECOND, Clock

TRUSTED_SECONDS: Final = 3600
"""A jump of the wall clock is believed after this time."""


class RecordAge:
    """Says which records are too old. Until `begin`, the wall clock alone decides, and tests move it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._elapsed: Callable[[], float] | None = None
        self._began = 0.0
        self._leads: deque[tuple[float, int]] = deque()
        """When a lead of the wall clock was last seen, and the lead in ticks; both ascend."""

    def begin(self, elapsed: Callable[[], float] | None) -> None:
        """A server has started. `elapsed` never steps back, and goes on while the machine sleeps."""
        self._elapsed = elapsed
        if elapsed is not None:
            self._began = elapsed()
            self.now()

    def oldest_time(self, ticks: int | None) -> int:
        """Records from before this time are older than so many ticks; 0 while no record is too old."""
        if ticks is None:
            return 0
        now, grace = self.now(), min(TRUSTED_SECONDS, ticks / TICKS_PER_SECOND)
        if self._elapsed is not None and self._elapsed() < self._began + grace:
            return 0
        return now - ticks

    def now(self) -> int:
        """The present time for the age of records, in ticks."""
        if self._elapsed is None:
            return self._clock()
        elapsed, leads = self._elapsed(), self._leads
        counted = int(elapsed * TICKS_PER_SECOND)
        lead = self._clock() - counted
        if leads:  # nothing else was seen since
            leads[-1] = elapsed, leads[-1][1]
        while leads and leads[-1][1] >= lead:
            leads.pop()
        leads.append((elapsed, lead))
        while leads[0][0] < elapsed - TRUSTED_SECONDS:
            leads.popleft()
        return counted + leads[0][1]
