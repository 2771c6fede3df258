"""The clock: the only module that asks the machine what time it is.

Time is counted in *ticks*, as the service counts it: 100 ns since 0001-01-01T00:00:00Z. Everything that
needs the time takes a `Clock` as an argument, so that a test can hold it still or turn it back.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Answers the present moment in ticks (100 ns since 0001-01-01T00:00:00Z)."""

TICKS_PER_SECOND = 10_000_000
UNIX_EPOCH_TICKS = 62_135_596_800 * TICKS_PER_SECOND
"""1970-01-01T00:00:00Z in ticks."""


def system_clock() -> int:
    """The machine's wall clock in ticks; it may step back, and nothing above may rely on that it does not."""
    return time.time_ns() // 100 + UNIX_EPOCH_TICKS


def monotonic_seconds() -> float:
    """Seconds on a clock that never steps back, for measuring how long something took."""
    return time.monotonic()
