"""Reads from the last key to the first find what a read in order finds, in reverse; so with entries of indexes."""

from __future__ import annotations

import asyncio
import tempfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.conftest import HeldClock
from storage.engines_under_test import engine_for, on_engines_that
from storage.opened import close_healthy, open_sqlite
from storage.test_index_entries import FIRST, write
from storage.test_reads import KEYS, RANGES, ascending_ranges, between, keys
from storage.write_sets import WHOLE, committed, fill, insert, put, snapshot_of, value_of
from tablestone.engines.contract import (
    ABSENT,
    AnyOf,
    Change,
    Contains,
    Entry,
    Hint,
    Key,
    KeyRange,
    Rows,
    WriteSet,
)
from tablestone.engines.sqlite.engine import SqliteSnapshot
from tablestone.tables.storage_keys import ranges_back_from, ranges_from

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tablestone.engines.contract import Engine

backwards = on_engines_that(lambda can: can.reads_backwards)


async def read(
    engine: Engine,
    ranges: Sequence[KeyRange],
    rows_max: int = 100,
    bytes_max: int = 1 << 20,
    hint: Hint | None = None,
) -> Rows:
    async with snapshot_of(engine) as snapshot:
        return await snapshot.read(
            ranges, rows_max=rows_max, bytes_max=bytes_max, hint=hint, reverse=True
        )


@backwards
@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("ranges", "found"), [case[1:] for case in RANGES], ids=[case[0] for case in RANGES]
)
async def test_a_read_finds_the_last_key_first(
    engine: Engine, ranges: list[KeyRange], found: list[tuple[bytes, bytes]]
) -> None:
    await fill(engine, KEYS)
    assert await read(engine, ranges) == Rows([value_of(*key) for key in reversed(found)], None)


TWO_RANGES_AND_NOTHING = [
    between((b"p", b"-"), (b"p", b".")),
    between((b"p", b"0"), (b"p", b"2")),
    between((b"p", b"2"), (b"p", b"7")),
]


@backwards
@pytest.mark.asyncio
@pytest.mark.parametrize(
    "ranges",
    [
        [KeyRange.of_partition(b"p")],
        [KeyRange.of_row(b"p", b"%d" % index) for index in range(5)],
        TWO_RANGES_AND_NOTHING,
        [WHOLE],
    ],
)
@pytest.mark.parametrize(
    ("rows_max", "bytes_max", "found", "next_row"),
    [
        (1, 1 << 20, 1, b"3"),
        (4, 1 << 20, 4, b"0"),
        (5, 1 << 20, 5, None),
        (9, 0, 1, b"3"),
        (9, 10, 1, b"3"),
        (9, 11, 2, b"2"),
        (9, 50, 5, None),
        (3, 20, 2, b"2"),
    ],
)
async def test_a_page_ends_at_its_limits(
    engine: Engine,
    *,
    ranges: list[KeyRange],
    rows_max: int,
    bytes_max: int,
    found: int,
    next_row: bytes | None,
) -> None:
    values = [b"value 000%d" % index for index in range(5)]
    for index, value in enumerate(values):
        await committed(engine, insert(b"p", b"%d" % index, value))
    rows = await read(engine, ranges, rows_max, bytes_max)
    assert rows == Rows(values[::-1][:found], None if next_row is None else Key(b"p", next_row))


HINTS = st.none() | st.just(Contains(b"x")) | st.just(AnyOf((Contains(b"x"), Contains(b"y"))))


@given(
    stored=st.dictionaries(keys, st.text(alphabet="xyz", max_size=12), max_size=30),
    ranges=ascending_ranges(),
    rows_max=st.integers(1, 7),
    bytes_max=st.integers(0, 40),
    hint=HINTS,
)
@settings(deadline=None, max_examples=150)
@pytest.mark.parametrize("scheme", ["memory", "sqlite"])
def test_pages_joined_are_the_whole_whatever_the_limits(
    scheme: str,
    stored: dict[tuple[bytes, bytes], str],
    ranges: list[KeyRange],
    rows_max: int,
    bytes_max: int,
    hint: Hint | None,
) -> None:
    """With a hint, every value for which it holds."""
    inside = [
        value.encode()
        for key, value in sorted(stored.items(), reverse=True)
        if any(key_range.start <= key < key_range.end for key_range in ranges)
    ]
    parts = [b""]
    if hint is not None:
        parts = [b"x", b"y"] if isinstance(hint, AnyOf) else [b"x"]
    wanted = [value for value in inside if any(part in value for part in parts)]

    async def run(directory: str) -> None:
        engine = engine_for(scheme, HeldClock(), directory=directory)
        await asyncio.gather(
            *(committed(engine, insert(*key, value.encode())) for key, value in stored.items())
        )
        found: list[bytes] = []
        rest, examined = ranges, 0
        async with snapshot_of(engine) as snapshot:
            while True:
                rows = await snapshot.read(
                    rest, rows_max=rows_max, bytes_max=bytes_max, hint=hint, reverse=True
                )
                assert len(rows.values) <= rows_max
                found += rows.values
                examined += len(rows.values) + rows.left_out
                if rows.next_key is None:
                    break
                assert any(start <= rows.next_key < end for start, end in rest)
                rest = ranges_back_from(rest, rows.next_key)
        left = [value for value in found if any(part in value for part in parts)]
        assert left == wanted
        in_order = iter(inside)
        assert all(value in in_order for value in found)
        assert len(found) <= examined
        await engine.close()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(directory))


@backwards
@pytest.mark.asyncio
async def test_entries_in_reverse(engine: Engine) -> None:
    for row, words in ((b"1", b"a b"), (b"2", b"b"), (b"3", b"b c")):
        await committed(engine, write(row, put(words)))
    everything = [
        *(Entry(b"a", b"p", b"1"), Entry(b"b", b"p", b"1"), Entry(b"b", b"p", b"2")),
        *(Entry(b"b", b"p", b"3"), Entry(b"c", b"p", b"3")),
    ]
    end = Entry(b"\xff", b"", b"")
    async with snapshot_of(engine) as snapshot:
        for start, before, found in (
            (FIRST, end, everything),
            (everything[1], everything[4], everything[1:4]),
            (everything[1], everything[3], everything[1:3]),
            (Entry(b"b", b"p", b"2"), Entry(b"b", b"q", b""), everything[2:4]),
        ):
            for most in (1, 2, 100):
                some = await snapshot.entries(start, before, entries_max=most, reverse=True)
                assert some == found[::-1][:most]


@pytest.mark.asyncio
@pytest.mark.parametrize("partitions", [1, 3])
async def test_a_filter_costs_sqlite_as_many_questions_as_in_order(
    data: Path, partitions: int
) -> None:
    """Each question walks through the rows of a piece: backwards they were two, and a page cost 1.26 times as much."""
    engine = open_sqlite(data)
    for partition in range(partitions):
        changes = [Change(b"%04d" % row, ABSENT, put(b"")) for row in range(700)]
        await committed(engine, WriteSet(b"%d" % partition, changes))
    asked: dict[bool, list[str]] = {False: [], True: []}
    whole = KeyRange(Key(b"0", b""), Key(b"0\0", b"")) if partitions == 1 else WHOLE
    for reverse, questions in asked.items():
        rest = [whole]
        async with snapshot_of(engine) as snapshot:
            assert isinstance(snapshot, SqliteSnapshot)
            connection = snapshot._rows._connection
            connection.exec_trace = lambda _cursor, text, _values, to=questions: (
                to.append(text) or True
            )
            while True:
                rows = await snapshot.read(
                    rest, rows_max=100, bytes_max=1 << 20, hint=Contains(b"no"), reverse=reverse
                )
                if rows.next_key is None:
                    break
                rest = (ranges_back_from if reverse else ranges_from)(rest, rows.next_key)
            connection.exec_trace = None
    kinds = [[text.replace("DESC", "ASC")[:20] for text in texts] for texts in asked.values()]
    assert kinds[0] == kinds[1]
    await close_healthy(engine)
