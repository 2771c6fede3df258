"""Short ways to write what the tests of engines commit and read, so that a test is the sentence it proves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tablestone.engines.contract import (
    ABSENT,
    ANY,
    Change,
    Committed,
    Key,
    KeyRange,
    Put,
    WriteSet,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tablestone.engines.contract import Engine, Expectation

WHOLE = KeyRange(Key(b"", b""), Key(b"\xff" * 8, b""))
"""All keys these tests use."""


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
    """Commits what must not conflict; the versions it was given."""
    outcome = await engine.commit(write_set)
    assert isinstance(outcome, Committed), outcome
    return outcome.versions


async def fill(engine: Engine, keys: Iterable[tuple[bytes, bytes]]) -> None:
    """Stores under each key the value `value_of` says."""
    for partition, row in keys:
        await committed(engine, upsert(partition, row, value_of(partition, row)))


def value_of(partition: bytes, row: bytes) -> bytes:
    return b"%r at %r" % (row, partition)


async def read_all(engine: Engine, *ranges: KeyRange) -> list[bytes]:
    rows = await engine.read(ranges or (WHOLE,), rows_max=100_000, bytes_max=1 << 40)
    assert rows.next_key is None
    return rows.values


async def read_in_pages(
    engine: Engine, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int
) -> list[list[bytes]]:
    """The pages a caller gets who goes on at `next_key` until there is none."""
    pages = []
    while True:
        rows = await engine.read(ranges, rows_max=rows_max, bytes_max=bytes_max)
        pages.append(rows.values)
        next_key = rows.next_key
        if next_key is None:
            return pages
        ranges = [KeyRange(max(start, next_key), end) for start, end in ranges if end > next_key]
