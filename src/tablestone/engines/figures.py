"""What an engine reports to the operator: the figures that it counts, the sizes of its files, and numbers of rows.

`CountsRows` and `MeasuredEngine` are asked for at run time, which a compiled class cannot be: so they are
not in `contract.py`. Counting is cheap and never stops. The figures of several workers become one: counters and
distributions are added, gauges are of the storage that all workers share.
"""

import enum
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, runtime_checkable

from tablestone.clock import TICKS_PER_SECOND
from tablestone.engines.change_record import ChangeLog
from tablestone.engines.contract import Key, KeyRange


class PartitionRows(NamedTuple):
    """Some rows of a partition, or all: their number, and the bytes of their keys and values."""

    partition: bytes
    rows: int
    bytes: int


class RowsCounted(NamedTuple):
    """The rows that were counted, by partition in key order, and the first row that was not; None if all were."""

    partitions: Sequence[PartitionRows]
    next_key: Key | None


@runtime_checkable
class CountsRows(Protocol):
    """An engine that counts rows much faster than it reads them."""

    def count_rows(self, key_range: KeyRange, rows_max: int) -> RowsCounted:
        """Count the first `rows_max` rows of a range; some milliseconds for 10,000. Raises `EngineUnavailable`."""
        ...


class StorageSize(NamedTuple):
    """The sizes of an engine's files, in bytes."""

    database_bytes: int
    """The data with its free pages. A log that is not copied yet may make the file shorter or longer than this."""
    free_bytes: int
    """The free pages in it, which later writes use or which are given back."""
    log_bytes: int
    """The file of the write-ahead log."""
    page_bytes: int
    """A page, the unit in which space is free."""


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


CHANGE_FIGURES: Final = (
    Figure("changes_records", FigureKind.GAUGE, "Records of changes that are kept."),
    Figure("changes_bytes", FigureKind.GAUGE, "About the bytes of the records of changes."),
    Figure("changes_oldest_seconds", FigureKind.GAUGE, "Age of the oldest record of changes."),
)
"""The figures of engines that keep changes; all are 0 while none are kept."""


def measure_changes(log: ChangeLog, now: int) -> dict[str, float | list[float]]:
    """The values of `CHANGE_FIGURES` at `now` (ticks)."""
    kept = log.kept()
    records = 0 if kept is None else kept.last + 1 - kept.first
    if kept is None or not records:
        return dict.fromkeys((each.name for each in CHANGE_FIGURES), 0)
    age = max(0, now - kept.oldest_time) / TICKS_PER_SECOND
    return dict(
        zip((each.name for each in CHANGE_FIGURES), (records, kept.bytes, age), strict=True)
    )
