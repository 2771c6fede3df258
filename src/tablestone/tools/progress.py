"""Progress of a transfer: a bar on a terminal, else a plain line every few seconds, or nothing.

Everything goes to standard error, so that standard output can be data.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TextIO

from tablestone.clock import monotonic_seconds

LINE_SECONDS: Final = 5.0
ENTITIES: Final = "entities"
"""Follows the number that was counted; if it is empty, only bytes are shown."""
REJECTED: Final = "rejected"
DIFFERING: Final = "differ"
"""Follows the number of errors."""


class Reached(NamedTuple):
    """The totals of a transfer so far. `position` of `length` says how far it is in the source, if known.

    `errors` are rejected rows or differing entities. `earlier` are the entities of earlier runs: no part of the rate.
    `written` are those of `entities` that were written elsewhere; None: nothing is.
    """

    entities: int
    bytes: int
    errors: int = 0
    position: int = 0
    length: int | None = None
    earlier: int = 0
    written: int | None = None


class Progress:
    """Takes the progress of a transfer; this class shows nothing."""

    def update(self, reached: Reached) -> None:
        """Take the totals so far."""

    def close(self) -> None:
        """Clear what is shown."""


@dataclass(eq=False)
class PlainLines(Progress):
    """A line every few seconds."""

    pause_seconds = LINE_SECONDS

    title: str
    stream: TextIO
    clock: Callable[[], float] = monotonic_seconds
    counted: str = field(default=ENTITIES, kw_only=True)
    errors: str = field(default=REJECTED, kw_only=True)

    def __post_init__(self) -> None:
        self._started = self._told = self.clock()

    def update(self, reached: Reached) -> None:
        now = self.clock()
        if now - self._told < self.pause_seconds:
            return
        self._told = now
        rate = f"{(reached.entities - reached.earlier) / (now - self._started):,.0f}/s"
        size = [shown_bytes(reached.bytes)] if reached.bytes else []
        parts = [f"{reached.entities:,} {self.counted}", *size, rate]
        if reached.written is not None:
            parts[0] += f" read, {reached.written:,} written"
        if not self.counted:
            parts = [f"{shown_bytes(reached.bytes)} of {shown_bytes(reached.length or 0)}"]
        errors = [f"{reached.errors:,} {self.errors}"] if reached.errors else []
        self._show(reached, parts, errors)

    def _show(self, reached: Reached, parts: list[str], errors: list[str]) -> None:
        if reached.position and reached.length:
            passed, rest = self._told - self._started, reached.length - reached.position
            parts.append(f"{shown_seconds(passed * rest / reached.position)} left")
        self.stream.write(f"{self.title}: {', '.join(parts + errors)}\n")
        self.stream.flush()


class Bar(PlainLines):
    """A bar of rich, with rate, bytes, time left where the size is known, and errors."""

    pause_seconds = 0.1

    def __init__(self, title: str, *, counted: str = ENTITIES, errors: str = REJECTED) -> None:
        from rich import progress as bars  # noqa: PLC0415 - only for a terminal
        from rich.console import Console  # noqa: PLC0415 - as above

        super().__init__(title, sys.stderr, counted=counted, errors=errors)
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

    def _show(self, reached: Reached, parts: list[str], errors: list[str]) -> None:
        told = "  ".join(parts + errors)
        self._rich.update(self._task, told=told, total=reached.length, completed=reached.position)

    def close(self) -> None:
        self._rich.stop()


def progress_for(
    title: str, *, quiet: bool, counted: str = ENTITIES, errors: str = REJECTED
) -> Progress:
    """A bar if standard error is a terminal and rich is there (the extra `tools`), else lines; nothing if `quiet`."""
    if quiet:
        return Progress()
    if sys.stderr.isatty():
        with suppress(ModuleNotFoundError):
            return Bar(title, counted=counted, errors=errors)
    return PlainLines(title, sys.stderr, counted=counted, errors=errors)


def shown_count(number: int, noun: str, plural: str | None = None) -> str:
    """A number for a person: `1 table`, `2,000 tables`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def shown_entities(number: int) -> str:
    return shown_count(number, "entity", "entities")


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
