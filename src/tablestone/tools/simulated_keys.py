"""The keys that rows would have: partitions by size, and rows that have the same key. Exact, in bounded memory.

The keys are in a temporary database of SQLite, which keeps up to `CACHE_KIB` in memory and the rest in a file without
a name in the directory for temporary files: about 100 bytes for each row, and as much again while it sorts. Knows keys
and sizes; does not know where rows come from.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tablestone.advice.workload import KeyForm, form_of
from tablestone.model.keys import EntityKey
from tablestone.tools.refusals import TransferFailed

CACHE_KIB: Final = 64 * 1024
ROWS_PER_INSERT: Final = 5_000
LARGEST_SHOWN: Final = 10
SAME_SHOWN: Final = 10
SAMPLE_MAX: Final = 1_000
PERCENTILES: Final = (50, 90, 99)


@dataclass(frozen=True)
class PartitionFigure:
    """A large partition: its entities, their bytes by the service's formula, and its part of all entities (0 to 1)."""

    partition_key: str
    entities: int
    bytes: int
    share: float


@dataclass(frozen=True)
class SameKey:
    """A key that several rows have, with the numbers of the first two."""

    partition_key: str
    row_key: str
    rows: int
    first: int
    second: int


@dataclass(frozen=True)
class KeyFigures:
    """All keys. `entities` are distinct keys; `same_rows` are the rows whose key an earlier row has.

    `percentiles` are sizes of partitions in entities by their name, such as `p50`. `typical` is the mean size of the
    partition of an entity that is drawn at random.
    """

    entities: int
    bytes: int
    partitions: int
    largest: tuple[PartitionFigure, ...]
    percentiles: dict[str, int]
    typical: float
    same_rows: int
    same_keys: int
    same: tuple[SameKey, ...]
    partition_form: KeyForm
    row_form: KeyForm
    newest_partition: str | None
    """If PartitionKeys follow time, the one that new entities have."""


class SimulatedKeys:
    """Collects keys; `figures` ends the collection."""

    def __init__(self) -> None:
        # An empty name is a temporary database: a file without a name, which is written only when the cache is full.
        self._database = sqlite3.connect("", isolation_level=None)
        self._waiting: list[tuple[str, str, int, int]] = []
        with _failures():
            self._database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            self._database.execute("PRAGMA journal_mode = OFF")
            self._database.execute(
                "CREATE TABLE keys (partition TEXT, row TEXT, number INTEGER, size INTEGER)"
            )
            self._database.execute("BEGIN")

    def add(self, key: EntityKey, number: int, size: int) -> None:
        """Add the row of this number, with the size of its entity in bytes."""
        self._waiting.append((*key, number, size))
        if len(self._waiting) >= ROWS_PER_INSERT:
            self._flush()

    def close(self) -> None:
        """Remove the keys."""
        self._database.close()

    def _flush(self) -> None:
        with _failures():
            self._database.executemany("INSERT INTO keys VALUES (?, ?, ?, ?)", self._waiting)
        self._waiting.clear()

    def figures(self) -> KeyFigures:
        """Everything about the keys; `TransferFailed` if the disk for temporary files is full."""
        self._flush()
        with _failures():
            rows = self._database.execute(
                "SELECT partition, row, number, size FROM keys ORDER BY partition, row, number"
            )
            return _summed(rows)


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise TransferFailed(
            f"The keys cannot be kept in the directory for temporary files: {error}. TMPDIR names another."
        ) from None


class _Sample:
    """A bounded part of a sequence, taken at equal distances."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._distance = 1
        self._seen = 0

    def add(self, text: str) -> None:
        if self._seen % self._distance == 0:
            self.texts.append(text)
            if len(self.texts) > SAMPLE_MAX:
                del self.texts[1::2]
                self._distance *= 2
        self._seen += 1


class _Sizes:
    """The sizes of all partitions: how many there are of each size, and the largest."""

    def __init__(self) -> None:
        # Few sizes are different: n entities have partitions of at most √(2n) sizes.
        self.counts: Counter[int] = Counter()
        self._largest: list[tuple[int, int, str]] = []

    def add(self, partition: str, entities: int, size: int) -> None:
        self.counts[entities] += 1
        item = (entities, size, partition)
        if len(self._largest) < LARGEST_SHOWN:
            heapq.heappush(self._largest, item)
        elif item > self._largest[0]:
            heapq.heapreplace(self._largest, item)

    def largest(self, entities: int) -> tuple[PartitionFigure, ...]:
        ordered = sorted(self._largest, key=lambda each: (-each[0], -each[1], each[2]))
        return tuple(
            PartitionFigure(key, count, size, count / entities) for count, size, key in ordered
        )

    def percentiles(self) -> dict[str, int]:
        """The smallest size that so many percent of the partitions do not exceed, and the largest."""
        total, passed, found = sum(self.counts.values()), 0, {}
        wanted = list(PERCENTILES)
        for size in sorted(self.counts):
            passed += self.counts[size]
            while wanted and passed * 100 >= wanted[0] * total:
                found[f"p{wanted.pop(0)}"] = size
        if total:
            found["max"] = max(self.counts)
        return found


def _summed(rows: Iterator[tuple[str, str, int, int]]) -> KeyFigures:
    """The figures of rows in the order of keys."""
    sizes, partitions, row_keys = _Sizes(), _Sample(), _Sample()
    same: list[SameKey] = []
    entities = total = same_rows = same_keys = 0
    inside = inside_bytes = repeated = first = second = 0
    last: tuple[str, str] | None = None

    def end_of_key() -> None:
        if last is not None and repeated and len(same) < SAME_SHOWN:
            same.append(SameKey(*last, repeated + 1, first, second))

    for partition, row, number, size in rows:
        if last == (partition, row):
            same_rows += 1
            same_keys += not repeated
            second = second if repeated else number
            repeated += 1
            continue
        end_of_key()
        if last is None or last[0] != partition:
            if last is not None:
                sizes.add(last[0], inside, inside_bytes)
            partitions.add(partition)
            inside = inside_bytes = 0
        row_keys.add(row)
        last, first, repeated = (partition, row), number, 0
        inside += 1
        inside_bytes += size
        entities += 1
        total += size
    end_of_key()
    if last is not None:
        sizes.add(last[0], inside, inside_bytes)
    partition_form = form_of(partitions.texts)
    ends = {
        KeyForm.TIME_ASCENDING: last[0] if last else None,
        KeyForm.TIME_DESCENDING: partitions.texts[0] if partitions.texts else None,
    }
    squares = sum(size * size * count for size, count in sizes.counts.items())
    return KeyFigures(
        entities=entities,
        bytes=total,
        partitions=sum(sizes.counts.values()),
        largest=sizes.largest(entities),
        percentiles=sizes.percentiles(),
        typical=squares / entities if entities else 0.0,
        same_rows=same_rows,
        same_keys=same_keys,
        same=tuple(same),
        partition_form=partition_form,
        row_form=form_of(row_keys.texts),
        newest_partition=ends.get(partition_form),
    )
