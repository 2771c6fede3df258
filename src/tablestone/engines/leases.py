"""Leases: the generation of an engine that does not learn of the commits of other processes.

Time is divided into leases of a few seconds each. A row that was read in one lease may be used until the lease ends.
The next lease begins when the generation is first read after that, so the processes of a cluster do not all read their
rows again at the same moment. Knows no rows. The reasons are in docs/decisions/0008-leases.md.
"""

from __future__ import annotations

from collections.abc import Callable

from tablestone.clock import elapsed_seconds


class Leases:
    """The leases of one process. `elapsed` is a clock that goes on while the process or the machine is suspended."""

    def __init__(self, seconds: float, elapsed: Callable[[], float] = elapsed_seconds) -> None:
        self.seconds = seconds
        self._elapsed = elapsed
        self._ends = float("-inf")
        self._generation = 0

    @property
    def generation(self) -> int:
        """The number of the current lease: rows that were read in an earlier one may not be used any more."""
        now = self._elapsed()
        if now >= self._ends:
            self._ends = now + self.seconds
            self._generation += 1
        return self._generation
