"""A clock that a test controls: freeze it, set it, advance it, or let it tick at another rate.

It decides Timestamps, ETags, the header Date, the validity of signatures and tokens, expiry, and how long a table's
deletion takes. An entity's Timestamp never goes back, even if the clock does. The date of a request signed with a
shared key is checked against the machine's clock, because the SDKs take it from there.
"""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from tablestone.clock import (
    TICKS_PER_SECOND,
    UNIX_EPOCH_TICKS,
    Clock,
    monotonic_seconds,
    system_clock,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_TICKS_PER_MICROSECOND: Final = TICKS_PER_SECOND // 1_000_000
_EARLIEST: Final = datetime(1601, 1, 1, tzinfo=UTC)
"""The earliest DateTime that the service knows."""
_LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC)


class ClockRefused(ValueError):
    """A moment, step or rate that no clock can have. The text is one sentence."""


class _Course(NamedTuple):
    """The clock shows `moment` when the machine's clock shows `since`, and then ticks `rate` times as fast."""

    moment: int
    since: int
    rate: float


_REAL: Final = _Course(0, 0, 1)


class StorageClock:
    """The clock of one storage, at first the machine's. Any thread may change it."""

    def __init__(
        self, machine: Clock = system_clock, seconds: Callable[[], float] = monotonic_seconds
    ) -> None:
        self._machine = machine
        self._seconds = seconds
        self._skipped_seconds = 0.0
        self._course = _REAL

    def ticks(self) -> int:
        """The present moment in ticks, like a `tablestone.clock.Clock`."""
        moment, since, rate = self._course
        return moment + round((self._machine() - since) * rate)

    def elapsed_seconds(self) -> float:
        """Monotonic seconds, plus those that `advance` skipped. They pass while frozen, so a scan still yields."""
        return self._seconds() + self._skipped_seconds

    @property
    def rate(self) -> float:
        """Ticks per tick of the machine: 1 at first, 0 while frozen."""
        return self._course.rate

    def now(self) -> datetime:
        """The present moment, in UTC."""
        microseconds = (self.ticks() - UNIX_EPOCH_TICKS) // _TICKS_PER_MICROSECOND
        return _EPOCH + timedelta(microseconds=microseconds)

    def freeze(self, at: datetime | None = None) -> None:
        """Stop the clock, now or at a moment."""
        self._go(self.ticks() if at is None else ticks_of(at), 0.0)

    def set(self, to: datetime) -> None:
        """Jump to a moment. The rate stays, so a frozen clock stays frozen."""
        self._go(ticks_of(to), self.rate)

    def advance(
        self, step: timedelta | None = None, *, days: float = 0, hours: float = 0,
        minutes: float = 0, seconds: float = 0, **others: object,
    ) -> None:  # fmt: skip
        """Skip some time; a page under way counts it as time spent. Raises `ClockRefused` beyond the year 9999."""
        if others:
            raise ClockRefused(
                f"A clock advances by days, hours, minutes and seconds, not by {', '.join(others)}."
            )
        whole = timedelta() if step is None else step
        if not isinstance(whole, timedelta):
            raise ClockRefused(f"A clock advances by a timedelta, not by {whole!r}: use hours=.")
        for number in (days, hours, minutes, seconds):
            _require_number(number)
        try:
            whole += timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
            is_too_late = self.now() + max(whole, timedelta()) > _LATEST
        except OverflowError:
            is_too_late = True
        if is_too_late:
            raise ClockRefused(f"A clock does not advance beyond {_LATEST:%Y-%m-%d}.")
        if whole < timedelta():
            raise ClockRefused("A clock advances by a time that is not negative: use set().")
        self._go(self.ticks() + whole // _MICROSECOND * _TICKS_PER_MICROSECOND, self.rate)
        self._skipped_seconds += whole.total_seconds()

    def tick(self, rate: float = 1.0) -> None:
        """From now on, go `rate` times as fast as the machine's clock (0 to 1,000,000)."""
        _require_number(rate)
        if not 0 <= rate <= 1_000_000:
            raise ClockRefused(f"A clock ticks at a rate from 0 to 1,000,000, not {rate}.")
        self._go(self.ticks(), rate)

    def _go(self, moment: int, rate: float) -> None:
        self._course = _Course(moment, self._machine(), rate)

    def reset(self) -> None:
        """Return to the machine's clock."""
        self._course = _REAL


def ticks_of(moment: datetime) -> int:
    """A moment in ticks. Raises `ClockRefused` if it has no time zone or cannot be a Timestamp."""
    if not isinstance(moment, datetime):
        raise ClockRefused(f"A clock is set to a datetime in UTC, not to {moment!r}.")
    if moment.tzinfo is None:
        raise ClockRefused(f"{moment} has no time zone: give a moment in UTC.")
    if not _EARLIEST <= moment <= _LATEST:
        raise ClockRefused(f"{moment} is not from {_EARLIEST:%Y-%m-%d} to {_LATEST:%Y-%m-%d}.")
    return (moment - _EPOCH) // _MICROSECOND * _TICKS_PER_MICROSECOND + UNIX_EPOCH_TICKS


def _require_number(value: Any) -> None:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ClockRefused(f"A clock takes numbers, not {value!r}.")
