"""The clock: the only module that asks the machine for the time.

Time is counted in *ticks*, as in the service: 100 ns since 0001-01-01T00:00:00Z. Code that needs the time takes a
`Clock` as an argument, so that a test can stop the clock or turn it back.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

Clock = Callable[[], int]
"""Returns the present moment in ticks (100 ns since 0001-01-01T00:00:00Z)."""

TICKS_PER_SECOND = 10_000_000
UNIX_EPOCH_TICKS = 62_135_596_800 * TICKS_PER_SECOND
"""1970-01-01T00:00:00Z in ticks."""


def system_clock() -> int:
    """The machine's wall clock in ticks. It may step back."""
    return time.time_ns() // 100 + UNIX_EPOCH_TICKS


unix_seconds = time.time
"""The same wall clock in seconds since 1970-01-01T00:00:00Z, for texts that an operator reads."""
monotonic_seconds = time.monotonic
"""Seconds on a clock that never steps back, for measuring durations."""
thread_seconds = time.thread_time
process_seconds = time.process_time
"""Seconds of processor time that this thread, or this process, has taken."""
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The clock that also counts the time of a machine's sleep: CLOCK_BOOTTIME on Linux, CLOCK_MONOTONIC on macOS."""


def elapsed_seconds() -> float:
    """Seconds that never step back, to order one machine's events. Sleep counts; a hypervisor's pause may not."""
    return time.clock_gettime(_ELAPSED)


class Moment(NamedTuple):
    """One moment by two clocks: the wall's ticks, and `elapsed_seconds`."""

    ticks: int
    elapsed: float
