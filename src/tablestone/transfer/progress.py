"""How far a transfer has come, for a person: a bar on a terminal, else a plain line every few seconds, or nothing.

Everything goes to standard error, so that standard output can be data. Knows counts and a clock; does not know what
is being transferred.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, Protocol, TextIO

from tablestone.clock import monotonic_seconds

LINE_SECONDS: Final = 5.0
_UPDATE_SECONDS: Final = 0.1


class Progress(Protocol):
    """The progress of a transfer. `position` of `size` is its place in the source, if that is known."""

    def update(
        self,
        entities: int,
        size: int,
        *,
        errors: int = 0,
        position: int | None = None,
        of: int | None = None,
    ) -> None:
        """The totals so far: entities, their bytes, and how many rows could not be stored."""

    def close(self) -> None:
        """No more updates come."""


class Quiet:
    """Tells nothing."""

    def update(self, *_: object, **__: object) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class PlainLines:
    """A line every few seconds."""

    def __init__(
        self, title: str, stream: TextIO, clock: Callable[[], float] = monotonic_seconds
    ) -> None:
        self._title = title
        self._stream = stream
        self._clock = clock
        self._started = self._told = clock()

    def update(
        self,
        entities: int,
        size: int,
        *,
        errors: int = 0,
        position: int | None = None,
        of: int | None = None,
    ) -> None:
        now = self._clock()
        if now - self._told < LINE_SECONDS:
            return
        self._told = now
        elapsed = now - self._started
        parts = [f"{entities:,} entities", shown_bytes(size), f"{entities / elapsed:,.0f}/s"]
        if position and of:
            parts.append(f"{shown_seconds(elapsed * (of - position) / position)} left")
        if errors:
            parts.append(f"{errors:,} rejected")
        self._stream.write(f"{self._title}: {', '.join(parts)}\n")
        self._stream.flush()

    def close(self) -> None:
        """Nothing is left on the terminal."""


class Bar:
    """A bar of rich, with rate, bytes, time left where the size is known, and errors."""

    def __init__(self, title: str) -> None:
        from rich import progress as bars  # noqa: PLC0415 - as above
        from rich.console import Console  # noqa: PLC0415 - only for a terminal

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

    def update(
        self,
        entities: int,
        size: int,
        *,
        errors: int = 0,
        position: int | None = None,
        of: int | None = None,
    ) -> None:
        now = monotonic_seconds()
        if now - self._told < _UPDATE_SECONDS:
            return
        self._told = now
        told = (
            f"{entities:,} entities  {shown_bytes(size)}  {entities / (now - self._started):,.0f}/s"
        )
        if errors:
            told += f"  {errors:,} rejected"
        self._rich.update(self._task, told=told, total=of, completed=position or 0)

    def close(self) -> None:
        self._rich.stop()


def progress_for(title: str, *, quiet: bool) -> Progress:
    """The form of progress that suits standard error: a bar on a terminal, lines elsewhere."""
    if quiet:
        return Quiet()
    return Bar(title) if sys.stderr.isatty() else PlainLines(title, sys.stderr)


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
