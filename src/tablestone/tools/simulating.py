"""The keys that templates would give to the rows of a file or the entities of a table: partitions, queries, advice.

Nothing is written. The rows are read once, and memory stays bounded (`simulated_keys`). Knows rows, keys and queries;
does not know how a report is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePath
from typing import Final, NamedTuple

from tablestone.advice.advising import advise_on_table
from tablestone.advice.rule import Advice
from tablestone.advice.workload import PartitionUse, TableUse
from tablestone.limits import PARTITION_RATE_TARGET
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import TIMESTAMP, entity_size
from tablestone.model.keys import PARTITION_KEY, ROW_KEY, EntityKey
from tablestone.tools.client import Query
from tablestone.tools.formats.compressed import ReadPosition
from tablestone.tools.formats.json_lines import typed_members
from tablestone.tools.formats.rows import KeyTemplate, Reading, Rejected, Row, RowMaker
from tablestone.tools.progress import Progress, Reached
from tablestone.tools.reading import TableReader
from tablestone.tools.refusals import TransferRefused
from tablestone.tools.simulated_keys import KeyFigures, SimulatedKeys
from tablestone.tools.simulated_queries import (
    GivenQuery,
    KeyTemplates,
    QueryFigures,
    SimulatedQuery,
    encoded,
)

REJECTED_SHOWN: Final = 10
_SYSTEM: Final = (PARTITION_KEY, ROW_KEY, TIMESTAMP)


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
    templates = _templates(reading, names_present_keys=has_keys)
    types = {} if first is None else {name: each.type for name, each in _columns(first).items()}
    # Of rows without keys it is not known by which of them a point read of the observed table would find a row.
    asked = [each for each in queries if has_keys or not each.is_point_read]
    simulated = [SimulatedQuery(each, templates, types) for each in asked]
    keys = SimulatedKeys()
    try:
        for row in chain(() if first is None else (first,), kept):
            columns = _columns(row)
            size = entity_size(row.key, _stored(columns, reading))
            keys.add(row.key, row.number, size)
            counted.bytes += size
            if simulated:
                _ask(simulated, row.key, columns, has_keys=has_keys)
            progress.update(counted.reached(position))
        figures = keys.figures()
    finally:
        keys.close()
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


def _templates(reading: Reading, *, names_present_keys: bool) -> KeyTemplates:
    return KeyTemplates(
        KeyTemplate(reading.partition_key_template, "--partition-key"),
        KeyTemplate(reading.row_key_template, "--row-key"),
        names_present_keys,
    )


def _columns(row: Row) -> Mapping[str, EdmValue]:
    assert row.columns is not None  # the reading keeps them
    return row.columns


def _stored(columns: Mapping[str, EdmValue], reading: Reading) -> dict[str, EdmValue]:
    """The properties that an entity of these columns has."""
    return {
        name: value
        for name, value in columns.items()
        if name not in _SYSTEM and name not in reading.drop
    }


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
        partition_key=reading.partition_key_template,
        row_key=reading.row_key_template,
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
        queries=tuple(each.figures(keys) for each in queries),
        advice=tuple(advise_on_table(use)),
    )
