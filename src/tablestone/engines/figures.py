"""What an engine reports to the operator: figures, sizes of files, and numbers of rows.

Code asks at run time whether an engine is a `CountsRows`, `MeasuredEngine` or `WarningEngine`, which a compiled class
cannot answer: so they are not in `contract.py`. Counting is cheap and never stops. The report of several workers adds
their counters and distributions; gauges describe the storage that all workers share.
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
    """Rows of a partition: their number, and the bytes of their keys and values."""

    partition: bytes
    rows: int
    bytes: int


class RowsCounted(NamedTuple):
    partitions: Sequence[PartitionRows]
    """In key order."""
    next_key: Key | None
    """The first row that was not counted; None if all were."""


@runtime_checkable
class CountsRows(Protocol):
    """An engine that counts rows much faster than it reads them."""

    def count_rows(self, key_range: KeyRange, rows_max: int) -> RowsCounted:
        """Count the first `rows_max` rows of a range; some milliseconds for 10,000. Raises `EngineUnavailable`."""
        ...


class StorageSize(NamedTuple):
    """The sizes of an engine's files, in bytes."""

    database_bytes: int
    """The data with its free pages. Until the log is copied, the file may be shorter or longer."""
    free_bytes: int
    """The free pages in it: later writes use them, or they are given back."""
    log_bytes: int
    """The file of the write-ahead log."""
    page_bytes: int


Values = Mapping[str, float | list[float]]
"""Values by the name of the figure; a distribution's value is `Distribution.numbers`."""


class FigureKind(enum.Enum):
    COUNTER = enum.auto()
    """It only grows while the process lives."""
    GAUGE = enum.auto()
    """A state of storage, the same in every process."""
    DISTRIBUTION = enum.auto()
    """The number of values up to each bound."""


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    """Ends with the unit; a counter's name has no `_total`."""
    kind: FigureKind
    help: str
    bounds: tuple[float, ...] = ()
    """Of a distribution."""


@runtime_checkable
class MeasuredEngine(Protocol):
    """An engine whose kind declares figures (`EngineKind.figures`)."""

    def measure(self) -> Values:
        """The values of all declared figures now. Quick: it is called on the event loop, about once a second."""
        ...


@runtime_checkable
class WarningEngine(Protocol):
    """An engine that finds, while it runs, what may lose data."""

    def warnings(self) -> list[str]:
        """A sentence for each. Quick, as `measure`."""
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
        """The sum of all values, then the number of values for each bound, then the number above all bounds."""
        return [self._sum, *self._counts]


CHANGE_FIGURES: Final = (
    Figure("changes_records", FigureKind.GAUGE, "Records of changes that are kept."),
    Figure("changes_bytes", FigureKind.GAUGE, "About the bytes of the records of changes."),
    Figure("changes_oldest_seconds", FigureKind.GAUGE, "Age of the oldest record of changes."),
)
"""The figures of engines that keep changes; all are 0 while none are kept."""


def measure_changes(log: ChangeLog, now: int) -> dict[str, float | list[float]]:
    kept = log.kept()
    records = 0 if kept is None else kept.last + 1 - kept.first
    if kept is None or not records:
        return dict.fromkeys((each.name for each in CHANGE_FIGURES), 0)
    age = max(0, now - kept.oldest_time) / TICKS_PER_SECOND
    return dict(
        zip((each.name for each in CHANGE_FIGURES), (records, kept.bytes, age), strict=True)
    )
