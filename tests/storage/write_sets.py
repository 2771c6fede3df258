"""Short forms of write sets and reads, so that a test of an engine reads like the sentence it proves."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from tablestone.engines.contract import (
    ABSENT,
    ANY,
    Change,
    Committed,
    Key,
    KeyRange,
    Put,
    Snapshot,
    WriteSet,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from tablestone.engines.contract import Engine, Expectation

Snapshot_co = TypeVar("Snapshot_co", bound=Snapshot, covariant=True)

WHOLE = KeyRange(Key(b"", b""), Key(b"\xff" * 8, b""))
"""All keys that these tests use."""


def put(value: bytes) -> Put:
    return Put(lambda _version: value)


def insert(partition: bytes, row: bytes, value: bytes = b"value") -> WriteSet:
    return WriteSet(partition, [Change(row, ABSENT, put(value))])


def upsert(partition: bytes, row: bytes, value: bytes = b"value") -> WriteSet:
    return WriteSet(partition, [Change(row, ANY, put(value))])


def replace(
    partition: bytes, row: bytes, expectation: Expectation, value: bytes = b"new"
) -> WriteSet:
    return WriteSet(partition, [Change(row, expectation, put(value))])


async def committed(engine: Engine, write_set: WriteSet) -> list[int]:
    """Commit what must not conflict; returns the versions assigned."""
    outcome = await engine.commit(write_set)
    assert isinstance(outcome, Committed), outcome
    return outcome.versions


async def fill(engine: Engine, keys: Iterable[tuple[bytes, bytes]]) -> None:
    """Store under each key the value that `value_of` returns."""
    for partition, row in keys:
        await committed(engine, upsert(partition, row, value_of(partition, row)))


def value_of(partition: bytes, row: bytes) -> bytes:
    return b"%r at %r" % (row, partition)


class _HasSnapshots(Protocol[Snapshot_co]):
    async def snapshot(self) -> Snapshot_co: ...


@asynccontextmanager
async def snapshot_of(engine: _HasSnapshots[Snapshot_co]) -> AsyncIterator[Snapshot_co]:
    """A snapshot that is closed after the block."""
    snapshot = await engine.snapshot()
    try:
        yield snapshot
    finally:
        await snapshot.close()


async def read_all(engine: Engine, *ranges: KeyRange) -> list[bytes]:
    pages = await read_in_pages(engine, ranges or (WHOLE,), rows_max=100_000, bytes_max=1 << 40)
    return [value for page in pages for value in page]


async def read_in_pages(
    engine: Engine, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int
) -> list[list[bytes]]:
    """The pages of a caller who continues at `next_key` until there is none."""
    pages = []
    while True:
        rows = await engine.read(ranges, rows_max=rows_max, bytes_max=bytes_max)
        pages.append(rows.values)
        next_key = rows.next_key
        if next_key is None:
            return pages
        ranges = [KeyRange(max(start, next_key), end) for start, end in ranges if end > next_key]
