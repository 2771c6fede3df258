"""An engine in a range of partitions of its own: many tests share one storage, which takes long to make.

Every partition gets a prefix on the way in and loses it on the way out, and so does every entry. That keeps the order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tablestone.engines.contract import (
    Change,
    Entry,
    Key,
    KeyRange,
    Reindex,
    Rows,
    StoredRow,
    WriteSet,
)
from tablestone.engines.forwarding_engine import ForwardingEngine, ForwardingSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tablestone.engines.contract import Committed, Conflict, Engine, Hint, Snapshot


class PrefixedEngine(ForwardingEngine):
    def __init__(self, engine: Engine, prefix: bytes) -> None:
        super().__init__(engine)
        self.prefix = prefix

    async def get(self, key: Key) -> bytes | None:
        return await self._engine.get(self._inside(key))

    async def read(self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        inside = [self._range(key_range) for key_range in ranges]
        return self._rows(await self._engine.read(inside, rows_max=rows_max, bytes_max=bytes_max))

    async def snapshot(self) -> _Inside:
        return _Inside(self, await self._engine.snapshot())

    async def scan(self, key_range: KeyRange, *, rows_max: int) -> list[StoredRow]:
        rows = await self._engine.scan(self._range(key_range), rows_max=rows_max)
        return [row._replace(partition=self._outside(row.partition)) for row in rows]

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        relies_on, entries_of = write_set.relies_on, write_set.entries_of
        if relies_on is not None:
            rows = [(self._inside(key), version) for key, version in relies_on.rows]
            relies_on = relies_on._replace(rows=rows)
        return await self._engine.commit(
            write_set._replace(
                partition=self.prefix + write_set.partition,
                changes=[self._change(change) for change in write_set.changes],
                relies_on=relies_on,
                entries_of=entries_of and self._entries_of(entries_of),
            )
        )

    def _change(self, change: Change) -> Change:
        """Stale entries have the prefix too."""
        if not isinstance(change.mutation, Reindex):
            return change
        stale = [self.prefix + entry for entry in change.mutation.stale]
        return change._replace(mutation=Reindex(stale))

    def _entries_of(
        self, entries_of: Callable[[bytes], Sequence[bytes]]
    ) -> Callable[[bytes], Sequence[bytes]]:
        return lambda value: [self.prefix + entry for entry in entries_of(value)]

    def _inside(self, key: Key) -> Key:
        return Key(self.prefix + key.partition, key.row)

    def _entry(self, entry: Entry) -> Entry:
        return Entry(self.prefix + entry.entry, self.prefix + entry.partition, entry.row)

    def _outside(self, partition: bytes) -> bytes:
        assert partition.startswith(self.prefix)
        return partition[len(self.prefix) :]

    def _range(self, key_range: KeyRange) -> KeyRange:
        return KeyRange(self._inside(key_range.start), self._inside(key_range.end))

    def _rows(self, rows: Rows) -> Rows:
        key = rows.next_key
        outside = key and Key(self._outside(key.partition), key.row)
        return rows._replace(next_key=outside)


class _Inside(ForwardingSnapshot):
    """A snapshot of these partitions."""

    def __init__(self, engine: PrefixedEngine, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._part = engine

    async def read(
        self,
        ranges: Sequence[KeyRange],
        *,
        rows_max: int,
        bytes_max: int,
        hint: Hint | None = None,
        reverse: bool = False,
    ) -> Rows:
        inside = [self._part._range(key_range) for key_range in ranges]
        rows = await super().read(
            inside, rows_max=rows_max, bytes_max=bytes_max, hint=hint, reverse=reverse
        )
        return self._part._rows(rows)

    async def entries(
        self, start: Entry, end: Entry, *, entries_max: int, reverse: bool = False
    ) -> list[Entry]:
        part = self._part
        found = await super().entries(
            part._entry(start), part._entry(end), entries_max=entries_max, reverse=reverse
        )
        return [
            Entry(part._outside(entry), part._outside(partition), row)
            for entry, partition, row in found
        ]

    async def count_entries(self, start: Entry, end: Entry, *, entries_max: int) -> int:
        part = self._part
        return await super().count_entries(
            part._entry(start), part._entry(end), entries_max=entries_max
        )
