"""Progress of a transfer: a bar on a terminal, else a plain line every few seconds, or nothing.

Everything goes to standard error, so that standard output can be data.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, Protocol, TextIO

from tablestone.clock import monotonic_seconds

LINE_SECONDS: Final = 5.0
_UPDATE_SECONDS: Final = 0.1
ENTITIES: Final = "entities"
"""Stands after the number of what was counted."""
REJECTED: Final = "rejected"
DIFFERING: Final = "differ"
"""Stands after the number of errors."""


class Reached(NamedTuple):
    """The totals of a transfer so far. `position` of `length` is its place in the source, if known."""

    entities: int
    bytes: int
    errors: int = 0
    """Rows that could not be stored, or entities that differ."""
    position: int = 0
    length: int | None = None
    earlier: int = 0
    """Entities of earlier runs; the rate leaves them out."""

    def rate(self, seconds: float) -> str:
        """Entities a second in this run."""
        return f"{(self.entities - self.earlier) / seconds:,.0f}/s"


class Progress(Protocol):
    """The progress of a transfer."""

    def update(self, reached: Reached) -> None:
        """The totals so far."""

    def close(self) -> None:
        """No more updates come."""


class Quiet:
    """Tells nothing."""

    def update(self, reached: Reached) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class PlainLines:
    """A line every few seconds."""

    def __init__(
        self,
        title: str,
        stream: TextIO,
        clock: Callable[[], float] = monotonic_seconds,
        *,
        counted: str = ENTITIES,
        errors: str = REJECTED,
    ) -> None:
        self._title = title
        self._counted = counted
        self._errors = errors
        self._stream = stream
        self._clock = clock
        self._started = self._told = clock()

    def update(self, reached: Reached) -> None:
        now = self._clock()
        if now - self._told < LINE_SECONDS:
            return
        self._told = now
        elapsed = now - self._started
        entities, position = reached.entities, reached.position
        size = shown_bytes(reached.bytes)
        parts = [f"{entities:,} {self._counted}", size, reached.rate(elapsed)]
        if position and reached.length:
            left = elapsed * (reached.length - position) / position
            parts.append(f"{shown_seconds(left)} left")
        if reached.errors:
            parts.append(f"{reached.errors:,} {self._errors}")
        self._stream.write(f"{self._title}: {', '.join(parts)}\n")
        self._stream.flush()

    def close(self) -> None:
        """Nothing is left on the terminal."""


class Bar:
    """A bar of rich, with rate, bytes, time left where the size is known, and errors."""

    def __init__(self, title: str, *, counted: str = ENTITIES, errors: str = REJECTED) -> None:
        from rich import progress as bars  # noqa: PLC0415 - as above
        from rich.console import Console  # noqa: PLC0415 - only for a terminal

        self._counted, self._errors = counted, errors
        self._started = self._told = monotonic_seconds()
        self._rich = bars.Progress(
            bars.SpinnerColumn(),
            bars.TextColumn("{task.description}"),
            bars.BarColumn(bar_width=24),
            bars.TextColumn("{task.fields[told]}"),
            bars.TimeElapsedColumn(),
            bars.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._rich.add_task(title, total=None, told="")
        self._rich.start()

    def update(self, reached: Reached) -> None:
        now = monotonic_seconds()
        if now - self._told < _UPDATE_SECONDS:
            return
        self._told = now
        size, rate = shown_bytes(reached.bytes), reached.rate(now - self._started)
        told = f"{reached.entities:,} {self._counted}  {size}  {rate}"
        if reached.errors:
            told += f"  {reached.errors:,} {self._errors}"
        self._rich.update(self._task, told=told, total=reached.length, completed=reached.position)

    def close(self) -> None:
        self._rich.stop()


def progress_for(
    title: str, *, quiet: bool, counted: str = ENTITIES, errors: str = REJECTED
) -> Progress:
    """A bar if standard error is a terminal, else lines; lines too without rich, which the extra `tools` brings."""
    if quiet:
        return Quiet()
    if sys.stderr.isatty():
        with suppress(ModuleNotFoundError):
            return Bar(title, counted=counted, errors=errors)
    return PlainLines(title, sys.stderr, counted=counted, errors=errors)


def shown_count(number: int, noun: str, plural: str | None = None) -> str:
    """A number for a person: `1 table`, `2,000 tables`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def shown_bytes(size: float) -> str:
    """A size for a person: `12.3 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def shown_seconds(seconds: float) -> str:
    """A time for a person: `3 min 20 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
