"""Moving everything that one engine stores to another, rows with their versions, and comparing the two afterwards.

A moved row is byte for byte the same row, so ETags and Timestamps stay as they were. The rows that only leases need
(`storage_keys.is_for_leases`) stay behind: the other side makes its own. A `RowTarget` knows how an engine takes rows
that have a version already.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from tablestone.engines.contract import Engine, Key, StoredRow, WriteTooLarge
from tablestone.tables import storage_keys
from tablestone.tables.catalog import every_table, read_record
from tablestone.tables.metadata import DocumentKind
from tablestone.tables.storage_keys import Tables, in_words

ROWS_PER_READ_MAX: Final = 500
BYTES_PER_READ: Final = 4 << 20
"""About how many bytes of rows are read at a time, judged by the rows before."""
DIFFERENCES_DESCRIBED_MAX: Final = 10

Progress = Callable[[int, int], None]
"""Takes the numbers of rows and bytes so far."""


class RowTarget(Protocol):
    """Storage that takes rows with the versions that they have."""

    @property
    def at_once(self) -> int:
        """The calls of `write` that may be under way at the same time."""

    @property
    def reached(self) -> Key | None:
        """An interrupted move has stored every row up to this key; None if this is the first attempt."""

    async def write(self, rows: Sequence[StoredRow]) -> None:
        """Store rows durably. Rows that are stored already may come again, as they were."""

    async def reach(self, key: Key) -> None:
        """Every row up to this key has been written: the next attempt may begin after it."""


@dataclass(slots=True)
class Counts:
    """How much storage has, counted as the service names it."""

    tables: int = 0
    entities: int = 0
    accounts: int = 0
    others: int = 0
    """Rows of other kinds: service properties, roles, secrets, and what deleted tables left."""
    size: int = 0
    """Bytes of all keys and values."""
    names: Tables = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return self.tables + self.entities + self.accounts + self.others

    def count(self, row: StoredRow) -> None:
        """Count one row. Catalogs come before entities, as they do in the order of keys."""
        partition = row.partition
        self.size += len(partition) + len(row.row) + len(row.value)
        if partition.startswith(storage_keys.ENTITIES):
            if storage_keys.table_id_of(partition) in self.names:
                self.entities += 1
            else:
                self.others += 1
        elif partition.startswith(storage_keys.CATALOG) and storage_keys.is_table_row(row.row):
            record = read_record(row.value)
            self.names[record.table_id] = record.name
            self.tables += 1
        elif partition == storage_keys.documents_partition(DocumentKind.ACCOUNT.value):
            self.accounts += 1
        else:
            self.others += 1


@dataclass(slots=True)
class StorageComparison:
    """The rows that both sides have, and a sentence for each of the first differences."""

    counts: Counts = field(default_factory=Counts)
    differences: int = 0
    described: list[str] = field(default_factory=list)

    def differs(self, row: StoredRow, how: str) -> None:
        self.differences += 1
        if len(self.described) < DIFFERENCES_DESCRIBED_MAX:
            place = in_words(Key(row.partition, row.row), self.counts.names)
            self.described.append(f"{place[0].upper()}{place[1:]} {how}.")


async def is_empty(engine: Engine) -> bool:
    """Whether the engine stores no row that `move` would bring."""
    return await anext(_rows(engine), None) is None


async def move(source: Engine, target: RowTarget, progress: Progress) -> None:
    """Bring every row of the source to the target; goes on where an earlier attempt stopped.

    Names a row that is too large for the target.
    """
    under_way: deque[tuple[Key, asyncio.Task[None]]] = deque()
    count = size = 0
    too_large: WriteTooLarge | None = None

    async def end_oldest() -> None:
        key, task = under_way.popleft()
        await task
        await target.reach(key)

    try:
        async for rows in _everything(source, target.reached):
            if not rows:
                continue
            last = Key(rows[-1].partition, rows[-1].row)
            under_way.append((last, asyncio.ensure_future(target.write(rows))))
            if len(under_way) >= target.at_once:
                await end_oldest()
            count += len(rows)
            size += sum(len(row.value) for row in rows)
            progress(count, size)
        while under_way:
            await end_oldest()
    except WriteTooLarge as error:
        too_large = error
    finally:
        for _, task in under_way:
            task.cancel()
        await asyncio.gather(*(task for _, task in under_way), return_exceptions=True)
    if too_large is not None:
        assert too_large.key is not None
        names = {table.table_id: table.name async for _account, table in every_table(source)}
        place = in_words(too_large.key, names)
        raise WriteTooLarge(
            f"{place[0].upper()}{place[1:]} is too large for the target. {too_large}"
        )


async def compare(source: Engine, target: Engine, progress: Progress) -> StorageComparison:
    """Read both sides in the order of keys, and compare every row with its version."""
    found = StorageComparison()
    counts = found.counts
    mine, theirs = _rows(source), _rows(target)
    row, other = await anext(mine, None), await anext(theirs, None)
    while row is not None or other is not None:
        if other is None or (row is not None and row[:2] < other[:2]):
            assert row is not None
            found.differs(row, "is missing")
            row = await anext(mine, None)
        elif row is None or other[:2] < row[:2]:
            found.differs(other, "has no counterpart")
            other = await anext(theirs, None)
        else:
            if row != other:
                found.differs(row, "differs")
            counts.count(row)
            row, other = await anext(mine, None), await anext(theirs, None)
            if counts.rows % ROWS_PER_READ_MAX == 0:
                progress(counts.rows, counts.size)
    return found


async def _rows(engine: Engine) -> AsyncIterator[StoredRow]:
    async for rows in _everything(engine, None):
        for row in rows:
            yield row


async def _everything(engine: Engine, after: Key | None) -> AsyncIterator[list[StoredRow]]:
    """All rows of data after a key, in order, in lists of some MiB at most."""
    rest = storage_keys.EVERYTHING
    if after is not None:
        rest = storage_keys.after(rest, after)
    rows_max = 16
    while rows := await engine.scan(rest, rows_max=rows_max):
        yield [row for row in rows if not storage_keys.is_for_leases(Key(row.partition, row.row))]
        widest = max(len(row.value) for row in rows) + 1
        rows_max = min(2 * rows_max, ROWS_PER_READ_MAX, max(BYTES_PER_READ // widest, 1))
        rest = storage_keys.after(rest, rows[-1])
