"""The sizes of all tables and of their largest partitions: counted beside the server, again and again, in pieces.

No engine keeps such a count. So rows are counted a few thousand at a time, with pauses that are much longer than the
work, in the thread of the storage probe.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tablestone.clock import monotonic_seconds, unix_seconds
from tablestone.engines.contract import Engine, EngineRefused, EngineUnavailable, Key, KeyRange
from tablestone.engines.figures import CountsRows, RowsCounted
from tablestone.insight.counts import HASH_MARK, hash_of, shown_key
from tablestone.insight.report import (
    DAY_BUCKET_SECONDS,
    DAY_SECONDS,
    HOUR_SECONDS,
    PartitionSize,
    SizeSample,
    TableSize,
)
from tablestone.server.admin.readiness import StorageProbe
from tablestone.tables import storage_keys
from tablestone.tables.catalog import every_table
from tablestone.tables.index_building import automatic_indexes
from tablestone.tables.indexes import IndexState

logger = logging.getLogger(__name__)

ROWS_PER_PIECE: Final = 10_000
"""Rows that are counted at a time: a few milliseconds."""
SHARE: Final = 0.05
"""The share of one processor that counting may take."""
SURVEY_PAUSE_SECONDS: Final = 10.0
"""Seconds between two surveys, at least."""
UNCOUNTED_PAUSE_SECONDS: Final = 60.0
"""The same for an engine that cannot count: then only the policies of the tables are read."""
TABLES_MAX: Final = 256
"""The largest tables, whose sizes are kept."""
PARTITIONS_SHOWN: Final = 20
"""The largest partitions of each table."""

NOT_TOLD: Final = "The engine {engine} does not tell the sizes of tables."
IN_MEMORY: Final = "A server that keeps its tables in memory does not report their sizes."
NOT_NOW: Final = "The sizes of tables cannot be counted now: {error}"
NOT_YET: Final = "The sizes of tables have not been counted yet."


@dataclass(slots=True)
class _Counted:
    """A table that is being counted. `largest` is a heap by bytes."""

    account: str
    name: str
    table_id: bytes
    indexes: dict[str, bool] | None
    automatic: tuple[str, ...]
    partitions: int = 0
    entities: int = 0
    size: int = 0
    last: bytes = b""
    """The last partition so far. More of its rows may follow."""
    last_rows: int = 0
    last_size: int = 0
    largest: list[tuple[int, int, bytes]] = field(default_factory=list)

    def add(self, piece: RowsCounted) -> None:
        for partition, rows, size in piece.partitions:
            self.entities += rows
            self.size += size
            if partition == self.last:
                self.last_rows += rows
                self.last_size += size
            else:
                self.end_partition()
                self.partitions += 1
                self.last, self.last_rows, self.last_size = partition, rows, size

    def end_partition(self) -> None:
        """Keep the last partition, which is whole, if it is one of the largest."""
        if not self.last:
            return
        entry = (self.last_size, self.last_rows, self.last)
        heapq.heappush(self.largest, entry)
        if len(self.largest) > PARTITIONS_SHOWN:
            heapq.heappop(self.largest)


@dataclass(eq=False)
class SizeSurvey:
    """The sizes of tables. Without a `probe`, rows are in a worker. Without `shows_keys`, keys are hashed."""

    probe: StorageProbe | None
    engine: str
    now: Callable[[], float] = unix_seconds
    shows_keys: bool = field(kw_only=True)
    sizes: dict[tuple[str, str], TableSize] = field(default_factory=dict, init=False)
    """By account, and name in lower case."""
    expiry: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict, init=False)
    """By the same, for tables with a policy: the name as created, and when entities expire. Any engine tells."""

    def __post_init__(self) -> None:
        self.note = NOT_YET if self.probe is not None else IN_MEMORY

    async def run(self) -> None:
        """Survey until this is cancelled; returns at once if the rows are in a worker."""
        while self.probe is not None:
            pause = SURVEY_PAUSE_SECONDS
            try:
                tables, self.expiry = await self.probe.ask(_tables)
                if tables is None:
                    self.note = NOT_TOLD.format(engine=self.engine)
                    pause = UNCOUNTED_PAUSE_SECONDS
                else:
                    pause = max(pause, await self._survey(self.probe, tables) / SHARE)
            except (EngineUnavailable, EngineRefused) as error:
                # Not logged: readiness tells of storage that does not answer.
                self.note = NOT_NOW.format(error=error)
            except Exception:
                logger.exception("Counting the sizes of tables failed.")
            await asyncio.sleep(pause)

    async def _survey(self, probe: StorageProbe, tables: list[_Counted]) -> float:
        """Count all tables; returns the seconds of work."""
        sizes: dict[tuple[str, str], TableSize] = {}
        started, slept = monotonic_seconds(), 0.0
        for table in tables:
            rest: KeyRange | None = storage_keys.table_range(table.table_id)
            while rest is not None:
                took, rest = await self._count_piece(probe, table, rest)
                pause = took * (1 / SHARE - 1)
                slept += pause
                await asyncio.sleep(pause)
            table.end_partition()
            key = (table.account, table.name.lower())
            sizes[key] = self.sizes[key] = self._size(table, self.sizes.get(key))
            if len(sizes) > TABLES_MAX:
                del sizes[min(sizes, key=lambda each: sizes[each].bytes)]
        self.sizes = sizes
        self.note = ""
        return max(0.0, monotonic_seconds() - started - slept)

    async def _count_piece(
        self, probe: StorageProbe, table: _Counted, rest: KeyRange
    ) -> tuple[float, KeyRange | None]:
        """Count a piece of a table; returns the seconds of work, and the rest of the range."""

        async def count(engine: Engine) -> tuple[float, RowsCounted]:
            assert isinstance(engine, CountsRows)
            started = monotonic_seconds()
            counted = engine.count_rows(rest, ROWS_PER_PIECE)
            return monotonic_seconds() - started, counted

        took, piece = await probe.ask(count)
        table.add(piece)
        return took, None if piece.next_key is None else KeyRange(piece.next_key, rest.end)

    def _size(self, table: _Counted, before: TableSize | None) -> TableSize:
        sample = SizeSample(round(self.now(), 3), table.entities, table.size)
        growth = () if before is None else before.growth
        largest = [
            PartitionSize(*self._shown(partition), entities=rows, bytes=size)
            for size, rows, partition in sorted(table.largest, reverse=True)
        ]
        return TableSize(
            sample.at,
            table.partitions,
            table.entities,
            table.size,
            thinned((*growth, sample)),
            tuple(largest),
            table.name,
            table.indexes,
            table.automatic,
        )

    def _shown(self, partition: bytes) -> tuple[str, bool]:
        key = shown_key(storage_keys.entity_key(Key(partition, b"")).partition_key)
        if not self.shows_keys:
            return hash_of(key), False
        return key, HASH_MARK not in key


def thinned(samples: tuple[SizeSample, ...]) -> tuple[SizeSample, ...]:
    """The samples of the last day: all of the last hour, and one for each earlier quarter of an hour."""
    newest = samples[-1].at
    kept: dict[int, SizeSample] = {}
    for number, sample in enumerate(samples):
        age = newest - sample.at
        if age > DAY_SECONDS + DAY_BUCKET_SECONDS:
            continue
        is_of_hour = age <= HOUR_SECONDS
        kept.setdefault(-number if is_of_hour else int(sample.at // DAY_BUCKET_SECONDS), sample)
    return tuple(kept.values())


async def _tables(
    engine: Engine,
) -> tuple[list[_Counted] | None, dict[tuple[str, str], tuple[str, str]]]:
    """All tables, or None if the engine cannot count rows; and those with an expiry policy."""
    tables, expiry = [], {}
    async for account, record in every_table(engine):
        indexes = {each.property: each.within_partition for each in record.indexes}
        indexed = indexes if engine.capabilities.keeps_entries else None
        made = [each for each in automatic_indexes(record) if each.state is IndexState.READY]
        automatic = tuple(each.property for each in made)
        tables.append(_Counted(account, record.name, record.table_id, indexed, automatic))
        if record.expiry is not None:
            expiry[account, record.name.lower()] = record.name, record.expiry.in_words
    return tables if isinstance(engine, CountsRows) else None, expiry
