"""Figures of an engine for the operator: the names that a kind of engine declares, and the parts that count.

Counting is cheap and never stops. The figures of several workers become one: counters and distributions are added,
gauges are of the storage that all workers share. Knows no engine and no form of output.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

Values = Mapping[str, float | list[float]]
"""Values by the names of figures; of a distribution, the list that `Distribution.numbers` returns."""


class FigureKind(enum.Enum):
    """The way in which a figure changes."""

    COUNTER = enum.auto()
    """It only grows while the process lives."""
    GAUGE = enum.auto()
    """A state of storage, the same in every process."""
    DISTRIBUTION = enum.auto()
    """How often values were up to each of some bounds."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure; `name` ends with its unit, and of a counter without `_total`. `bounds` are of a distribution."""

    name: str
    kind: FigureKind
    help: str
    bounds: tuple[float, ...] = ()


@runtime_checkable
class MeasuredEngine(Protocol):
    """An engine whose kind declares figures (`EngineKind.figures`)."""

    def measure(self) -> Values:
        """The values of all declared figures now. Quick: it is called on the event loop, about once a second."""
        ...


class Distribution:
    """Counts values by the first bound that each does not exceed."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._sum = 0.0
        self._counts = [0] * (len(bounds) + 1)

    def add(self, value: float) -> None:
        self._sum += value
        self._counts[bisect_left(self._bounds, value)] += 1

    def numbers(self) -> list[float]:
        """The sum of all values, then the number of values for each bound, and last of those above all bounds."""
        return [self._sum, *self._counts]
