"""Partition ranges: a page ends where the next one begins, as in the real service, whether it has entities or not.

The service divides a table into ranges of partitions, each on one of its machines, and a page never reaches over two of
them (wire 6.7). It decides by load; here one partition in four begins a range, always the same ones. Knows the layout
of storage and the engine contract.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from tablestone.engines.contract import Hint, Key, KeyRange, MomentPassed, Rows, Snapshot
from tablestone.engines.forwarding_engine import ForwardingEngine, ForwardingSnapshot
from tablestone.model.entity_json import key_of, read_raw
from tablestone.tables import storage_keys

PARTITIONS_PER_RANGE: Final = 4
"""On average."""
_KEY_BEGINS: Final = len(storage_keys.ENTITIES) + storage_keys.TABLE_ID_LENGTH


def begins_range(partition: bytes) -> bool:
    """Whether a range begins with this partition. It depends on the PartitionKey alone, so every run is the same."""
    return blake2b(partition[_KEY_BEGINS:], digest_size=1).digest()[0] % PARTITIONS_PER_RANGE == 0


class RangedEngine(ForwardingEngine):
    """An engine whose reads of entities end with a partition range."""

    async def read(self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        rows = await super().read(ranges, rows_max=rows_max, bytes_max=bytes_max)
        return _of_first_range(rows, ranges[0].start)

    async def snapshot(self) -> Snapshot:
        return _RangedSnapshot(await super().snapshot())


class _RangedSnapshot(ForwardingSnapshot):
    """A snapshot that passes when a partition range ends: the page ends there, even if it is empty."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._has_passed = False

    async def read(
        self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int, hint: Hint | None = None
    ) -> Rows:
        if self._has_passed:
            raise MomentPassed
        rows = await super().read(ranges, rows_max=rows_max, bytes_max=bytes_max, hint=hint)
        first = _of_first_range(rows, ranges[0].start)
        self._has_passed = first.next_key is not None and _divides(first, first.next_key)
        return first


def _of_first_range(rows: Rows, start: Key) -> Rows:
    """The rows before the first partition, except that of the first row, that begins a range."""
    if not start.partition.startswith(storage_keys.ENTITIES):
        return rows
    table_id = start.partition[len(storage_keys.ENTITIES) : _KEY_BEGINS]
    before: bytes | None = None
    for number, value in enumerate(rows.values):
        place = storage_keys.entity_place(table_id, key_of(read_raw(value)))
        if before not in (None, place.partition) and begins_range(place.partition):
            return Rows(rows.values[:number], place)
        before = place.partition
    return rows


def _divides(rows: Rows, next_key: Key) -> bool:
    """Whether a range begins with the next row, which is of another partition than the last one."""
    if not rows.values or not next_key.partition.startswith(storage_keys.ENTITIES):
        return False
    table_id = next_key.partition[len(storage_keys.ENTITIES) : _KEY_BEGINS]
    last = storage_keys.entity_place(table_id, key_of(read_raw(rows.values[-1])))
    return last.partition != next_key.partition and begins_range(next_key.partition)
