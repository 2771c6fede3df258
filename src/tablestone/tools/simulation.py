"""Simulate new keys for the rows of a file or the entities of a table: partitions, sizes, queries and advice.

Nothing is written. The rows are read once, and memory stays bounded.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePath
from typing import Final, NamedTuple

from tablestone.advice.advising import advise_on_table
from tablestone.advice.rule import Advice
from tablestone.advice.workload import KeyForm, PartitionUse, TableUse, form_of
from tablestone.limits import PARTITION_RATE_TARGET
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import entity_size
from tablestone.model.keys import PARTITION_KEY, ROW_KEY, EntityKey
from tablestone.tools.client import Query
from tablestone.tools.errors import TransferFailed, TransferRefused
from tablestone.tools.formats.compressed import ReadPosition
from tablestone.tools.formats.json_lines import typed_members
from tablestone.tools.formats.rows import Reading, Rejected, Row, RowMaker
from tablestone.tools.progress import Progress, Reached
from tablestone.tools.queries import TableReader
from tablestone.tools.simulated_queries import (
    GivenQuery,
    KeyTemplates,
    QueryFigures,
    SimulatedQuery,
    encoded,
)

CACHE_KIB: Final = 64 * 1024
ROWS_PER_INSERT: Final = 5_000
LARGEST_SHOWN: Final = 10
SAME_SHOWN: Final = 10
SAMPLE_MAX: Final = 1_000
PERCENTILES: Final = (50, 90, 99)


@dataclass(frozen=True)
class PartitionFigure:
    """A large partition: entities, bytes by the service's formula, and its share of all entities (0 to 1)."""

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
    """If PartitionKeys follow time, the one of new entities."""


_SUMS: Final = (
    # The size of a key is that of its first row: beside MIN, SQLite takes the other columns from the same row.
    "CREATE TABLE entities AS SELECT partition, row, size, MIN(number) AS first, COUNT(*) AS rows "
    "FROM keys GROUP BY partition, row ORDER BY partition, row",
    "CREATE TABLE partitions AS SELECT partition, COUNT(*) AS entities, SUM(size) AS bytes, "
    "SUM(rows - 1) AS same_rows, SUM(rows > 1) AS same_keys "
    "FROM entities GROUP BY partition ORDER BY partition",
)
_SAME: Final = (
    "SELECT partition, row, rows, first, MIN(number) FROM keys CROSS JOIN "
    "(SELECT * FROM entities WHERE rows > 1 ORDER BY rowid LIMIT ?) USING (partition, row) "
    "WHERE number > first GROUP BY partition, row"
)


class SimulatedKeys:
    """Collects keys; `figures` ends the collection."""

    def __init__(self) -> None:
        # The empty name makes a temporary database, which goes to disk only when the cache is full.
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
        self._database.close()

    def _flush(self) -> None:
        with _failures():
            self._database.executemany("INSERT INTO keys VALUES (?, ?, ?, ?)", self._waiting)
        self._waiting.clear()

    def figures(self) -> KeyFigures:
        """The figures; `TransferFailed` if the disk for temporary files is full."""
        self._flush()
        with _failures():
            return self._summed()

    def _summed(self) -> KeyFigures:
        ask = self._database.execute
        for statement in _SUMS:
            ask(statement)
        partitions, first, last, entities, size, same_rows, same_keys = ask(
            "SELECT COUNT(*), MIN(partition), MAX(partition), TOTAL(entities), TOTAL(bytes), "
            "TOTAL(same_rows), TOTAL(same_keys) FROM partitions"
        ).fetchone()
        largest = ask(
            "SELECT partition, entities, bytes, entities / ? FROM partitions "
            "ORDER BY entities DESC, bytes DESC, partition LIMIT ?",
            (entities, LARGEST_SHOWN),
        )
        same = ask(_SAME, (SAME_SHOWN,)) if same_keys else ()
        # Few sizes are different: n entities have partitions of at most √(2n) sizes.
        sizes = ask(
            "SELECT entities, COUNT(*) FROM partitions GROUP BY entities ORDER BY entities"
        ).fetchall()
        partition_form = form_of(self._sample("partition", "partitions", partitions))
        ends = {KeyForm.TIME_ASCENDING: last, KeyForm.TIME_DESCENDING: first}
        squares = sum(each * each * count for each, count in sizes)
        return KeyFigures(
            entities=int(entities),
            bytes=int(size),
            partitions=partitions,
            largest=tuple(PartitionFigure(*each) for each in largest),
            percentiles=_percentiles(sizes, partitions),
            typical=squares / entities if entities else 0.0,
            same_rows=int(same_rows),
            same_keys=int(same_keys),
            same=tuple(SameKey(*each) for each in same),
            partition_form=partition_form,
            row_form=form_of(self._sample("row", "entities", int(entities))),
            newest_partition=ends.get(partition_form),
        )

    def _sample(self, column: str, table: str, count: int) -> Iterator[str]:
        """Some texts of a column, at equal distances."""
        distance = count // SAMPLE_MAX + 1
        asked = f"SELECT {column} FROM {table} WHERE rowid % ? = 0"  # noqa: S608 - both names are ours
        return (text for (text,) in self._database.execute(asked, (distance,)))


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise TransferFailed(
            f"The keys cannot be kept in the directory for temporary files: {error}. TMPDIR names another."
        ) from None


def _percentiles(sizes: list[tuple[int, int]], partitions: int) -> dict[str, int]:
    """For each percentile, the smallest size that covers so many partitions, and the largest size."""
    passed, found, wanted = 0, {}, list(PERCENTILES)
    for size, count in sizes:
        passed += count
        while wanted and passed * 100 >= wanted[0] * partitions:
            found[f"p{wanted.pop(0)}"] = size
    if sizes:
        found["max"] = sizes[-1][0]
    return found


REJECTED_SHOWN: Final = 10


@dataclass(frozen=True)
class RejectedRow:
    """A row that cannot be stored under the new keys, and why."""

    number: int
    reason: str


class ExampleKey(NamedTuple):
    """The key of a row, which shows what the templates make."""

    number: int
    partition_key: str
    row_key: str


@dataclass(frozen=True)
class Simulation:
    """The result. `rate` is the busiest rate of the table, in entities a second, where it is known.

    `example` is the key of the first row that can be stored.
    `rows` were read; `rejected` of them have a bad key or a bad value. `hot` are the partitions that would take more
    than Azure's target, if the rate is spread as the entities are; of keys that follow time, the newest takes all.
    """

    source: str
    partition_key: str
    row_key: str
    rows: int
    rejected: int
    rejected_rows: tuple[RejectedRow, ...]
    example: ExampleKey | None
    keys: KeyFigures
    rate: float | None
    hot: tuple[str, ...]
    queries: tuple[QueryFigures, ...]
    advice: tuple[Advice, ...]

    @property
    def can_be_loaded(self) -> bool:
        """Whether an import with these keys would store every row."""
        return not (self.rejected or self.keys.same_rows)


def rows_of_table(reader: TableReader, table: str, reading: Reading) -> Iterator[Row | Rejected]:
    """The entities of a table as rows with the new keys, numbered from 1."""
    maker = RowMaker(reading)
    for number, raw in enumerate(reader.entities(Query(table)), start=1):
        try:
            yield maker.make(number, typed_members(raw, reading))
        except ValueError as error:
            key = EntityKey(raw[PARTITION_KEY], raw[ROW_KEY])
            yield Rejected(number, f"{error}, of the entity {tuple(key)!r}", "")


def simulate(
    source: str,
    rows: Iterable[Row | Rejected],
    reading: Reading,
    queries: list[GivenQuery],
    *,
    rate: float | None,
    position: ReadPosition,
    progress: Progress,
) -> Simulation:
    """Read all rows; `TransferRefused` for a query that cannot be read, before the first row counts."""
    counted = _Counted()
    kept = counted.kept(rows)
    first = next(kept, None)
    if first is None and counted.rejected:
        refused = counted.shown[0]
        raise TransferRefused(
            f"No row of {source} can be stored under these keys; row {refused.number:,}: {refused.reason}."
        )
    has_keys = first is not None and PARTITION_KEY in _columns(first)
    maker = RowMaker(reading)
    templates = KeyTemplates(maker.partition_key, maker.row_key, has_keys)
    types = {} if first is None else {name: each.type for name, each in _columns(first).items()}
    # If the rows have no keys, nothing says which row a point read of the observed table would find.
    asked = [each for each in queries if has_keys or not each.is_point_read]
    simulated = [SimulatedQuery(each, templates, types) for each in asked]
    with closing(SimulatedKeys()) as keys:
        for row in chain(() if first is None else (first,), kept):
            columns = _columns(row)
            size = entity_size(row.key, maker.stored(columns))
            keys.add(row.key, row.number, size)
            counted.bytes += size
            if simulated:
                _ask(simulated, row.key, columns, has_keys=has_keys)
            progress.update(counted.reached(position))
        figures = keys.figures()
    example = None if first is None else ExampleKey(first.number, *first.key)
    return _report(source, reading, counted, example, figures, simulated, rate)


class _Counted:
    """The rows so far."""

    def __init__(self) -> None:
        self.rows = self.rejected = self.bytes = 0
        self.shown: list[RejectedRow] = []

    def kept(self, rows: Iterable[Row | Rejected]) -> Iterator[Row]:
        """Count the rows; only those that can be stored go on."""
        for row in rows:
            self.rows += 1
            if isinstance(row, Row):
                yield row
            else:
                self.rejected += 1
                if len(self.shown) < REJECTED_SHOWN:
                    self.shown.append(RejectedRow(row.number, row.reason))

    def reached(self, position: ReadPosition) -> Reached:
        return Reached(
            self.rows, self.bytes, self.rejected, position.position, position.size or None
        )


def _columns(row: Row) -> Mapping[str, EdmValue]:
    assert row.columns is not None  # the reading keeps them
    return row.columns


def _ask(
    queries: list[SimulatedQuery],
    key: EntityKey,
    columns: Mapping[str, EdmValue],
    *,
    has_keys: bool,
) -> None:
    if has_keys:
        old = (columns.get(PARTITION_KEY), columns.get(ROW_KEY))
        texts = [str(each.value) if each is not None else "" for each in old]
        present = encoded(EntityKey(*texts))
    else:
        present = None
        columns = {
            **columns,
            PARTITION_KEY: EdmValue(EdmType.STRING, key.partition_key),
            ROW_KEY: EdmValue(EdmType.STRING, key.row_key),
        }
    new = encoded(key)
    for query in queries:
        query.add(new, columns, present)


def _hottest(keys: KeyFigures, rate: float | None) -> tuple[PartitionUse, ...]:
    """The partitions that would be used most: all writes of a moment are in the newest, if the keys follow time."""
    if keys.newest_partition is not None:
        return (PartitionUse(keys.newest_partition, 1.0, rate),)
    return tuple(
        PartitionUse(
            each.partition_key,
            each.share,
            None if rate is None else rate * each.share,
            each.entities,
        )
        for each in keys.largest
    )


def _report(
    source: str,
    reading: Reading,
    counted: _Counted,
    example: ExampleKey | None,
    keys: KeyFigures,
    queries: list[SimulatedQuery],
    rate: float | None,
) -> Simulation:
    hottest = _hottest(keys, rate)
    use = TableUse(
        PurePath(source).name,
        entities=keys.entities,
        partitions=keys.partitions,
        hottest=hottest,
        partition_form=keys.partition_form,
        row_form=keys.row_form,
    )
    return Simulation(
        source=source,
        partition_key=reading.partition_key,
        row_key=reading.row_key,
        rows=counted.rows,
        rejected=counted.rejected,
        rejected_rows=tuple(counted.shown),
        example=example,
        keys=keys,
        rate=rate,
        hot=tuple(
            each.key
            for each in hottest
            if each.rate is not None and each.rate >= PARTITION_RATE_TARGET
        ),
        queries=tuple(each.figures(keys.entities, keys.typical) for each in queries),
        advice=tuple(advise_on_table(use)),
    )
