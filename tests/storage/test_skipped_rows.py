"""Ranges of rows in every partition: the result is that of a full walk, and rows outside are skipped."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple
from unittest import mock

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hint_ways import WAYS, deciding_in
from storage.opened import close_healthy, open_sqlite
from storage.test_sqlite import plan_of
from storage.write_sets import WHOLE, committed, put, snapshot_of
from tablestone.engines.contract import (
    ANY,
    AllOf,
    AnyOf,
    Change,
    Contains,
    Hint,
    Key,
    KeyRange,
    RowBetween,
    WriteSet,
)
from tablestone.engines.sqlite import hinted_read
from tablestone.engines.sqlite.data_directory import SCHEMA
from tablestone.engines.sqlite.hinted_read import (
    LARGE_VALUE_BYTES,
    PARTITIONS_BETWEEN,
    PARTITIONS_FROM,
    HintedReader,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tablestone.engines.sqlite.engine import SqliteEngine

NAMES = st.binary(max_size=2).map(lambda name: bytes(byte % 4 for byte in name))
ENDINGS = st.sampled_from([b"x", b"y", b"x" * (LARGE_VALUE_BYTES + 1)])
ROWS = st.dictionaries(NAMES, ENDINGS)
PARTITIONS = (b"", b"p", b"p\0", b"q", b"r")
KEYS = st.builds(Key, st.sampled_from(PARTITIONS), NAMES)
BOUNDS = st.one_of(
    st.tuples(NAMES, NAMES),
    st.tuples(NAMES, st.none()),
    st.tuples(NAMES, NAMES).map(lambda pair: (min(pair), max(pair))),
)
"""Some of them hold no row."""


class Question(NamedTuple):
    """A hint and what it means: a row in one of the ranges, and a text in its value."""

    hint: Hint
    ranges: Sequence[tuple[bytes, bytes | None]]
    text: bytes

    def is_given(self, row: bytes, value: bytes) -> bool:
        """A value that is too large to examine is returned for its key alone."""
        is_inside = any(start <= row and (end is None or row < end) for start, end in self.ranges)
        return is_inside and (self.text in value or len(value) > LARGE_VALUE_BYTES)


@st.composite
def _questions(draw: st.DrawFn) -> Question:
    ranges = draw(st.lists(BOUNDS, min_size=1, max_size=3))
    text = draw(st.sampled_from([b"", b"y"]))
    betweens: list[Hint] = [RowBetween(*each) for each in ranges]
    rows = betweens[0] if len(ranges) == 1 else AnyOf(tuple(betweens))
    return Question(AllOf((rows, Contains(text))) if text else rows, ranges, text)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=300)
@given(
    stored=st.fixed_dictionaries(dict.fromkeys(PARTITIONS, ROWS)),
    question=_questions(),
    ends=st.just(WHOLE) | st.tuples(KEYS, KEYS).filter(lambda ends: ends[0] < ends[1]),
    rows_max=st.sampled_from([1, 2, 3, 7, 30, 1000]),
    bytes_max=st.sampled_from([1, 6_000, 1 << 20]),
    sizes=st.sampled_from([(1, 0, 1), (3, 2, 2), (2, 4, 5), (8, 3, 1)]),
)
def test_seeks_find_what_a_walk_finds(
    stored: dict[bytes, dict[bytes, bytes]],
    question: Question,
    ends: tuple[Key, Key],
    rows_max: int,
    bytes_max: int,
    sizes: tuple[int, int, int],
    way: str,
) -> None:
    """Few rows make a partition large here, so that small and large ones follow each other in every order."""
    key_range = KeyRange(*ends)
    rows = sorted(
        (Key(partition, row), b"%b/%b=%b" % (partition.hex().encode(), row.hex().encode(), ending))
        for partition, of_partition in stored.items()
        for row, ending in of_partition.items()
    )
    inside = [(key, value) for key, value in rows if key_range.start <= key < key_range.end]
    with (
        closing(_database(rows)) as connection,
        deciding_in(way),
        mock.patch.object(hinted_read, "ROWS_TO_BEGIN", sizes[0]),
        mock.patch.object(hinted_read, "ROWS_TO_GO_ON", sizes[1]),
        mock.patch.object(hinted_read, "FIRST_STRIDE", sizes[2]),
    ):
        reader = HintedReader(connection)
        next_key: Key | None = key_range.start
        while next_key is not None:
            at = next_key
            found, next_key, _ = reader.read(
                KeyRange(at, key_range.end), rows_max, bytes_max, question.hint
            )
            assert [value[:20] for value in found] == [
                value[:20]
                for key, value in inside
                if at <= key
                and (next_key is None or key < next_key)
                and question.is_given(key.row, value)
            ]
            assert len(found) <= rows_max
            assert sum(map(len, found[:-1])) < bytes_max
            assert next_key is None or (next_key > at and next_key in dict(inside))


def _database(rows: list[tuple[Key, bytes]]) -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute(SCHEMA)
    connection.executemany(
        "INSERT INTO stored_rows (partition, row, version, value) VALUES (?, ?, 1, ?)",
        [(*key, value) for key, value in rows],
    )
    return connection


LARGE = 1_000
"""The rows of each large partition."""


async def _steps(engine: SqliteEngine, hint: Hint, key_range: KeyRange = WHOLE) -> tuple[int, int]:
    """The number of values of all reads of the range, and the number of steps of SQLite's virtual machine."""
    steps = found = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    async with snapshot_of(engine) as snapshot:
        snapshot._rows._connection.set_progress_handler(count, 1)
        at: Key | None = key_range.start
        while at is not None:
            values, at, _ = await snapshot.read(
                [KeyRange(at, key_range.end)], rows_max=1_000, bytes_max=1 << 20, hint=hint
            )
            found += len(values)
        snapshot._rows._connection.set_progress_handler(None)
    return found, steps


@pytest.mark.asyncio
async def test_rows_outside_are_not_visited_in_large_partitions(data: Path) -> None:
    """Visiting a row takes at least a step; the next partition and its size cost as much as some dozens of rows."""
    engine = open_sqlite(data)
    for partition in range(10):
        changes = [Change(b"%04d" % row, ANY, put(b"x")) for row in range(LARGE)]
        await committed(engine, WriteSet(b"%02d" % partition, changes))
    for bounds, of_each in (
        (RowBetween(b"0500", b"0503"), 3),
        (RowBetween(b"0997", None), 3),
        (RowBetween(b"", b"0003"), 3),
        (RowBetween(b"05", b"05"), 0),
        (RowBetween(b"2", None), 0),
    ):
        found, steps = await _steps(engine, AllOf((bounds, Contains(b"x"))))
        assert found == 10 * of_each
        assert steps < 10 * LARGE
    # A range that begins and ends among the requested rows.
    cut = KeyRange(Key(b"00", b"0501"), Key(b"09", b"0502"))
    found, steps = await _steps(engine, RowBetween(b"0500", b"0503"), cut)
    assert found == 2 + 8 * 3 + 2
    assert steps < 10 * LARGE
    # A bound that leaves out nothing visits all of a partition's rows, so the measure works.
    found, steps = await _steps(engine, RowBetween(b"0", None))
    assert found == 10 * LARGE
    assert steps > 10 * LARGE
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_small_partitions_cost_what_a_walk_costs(data: Path) -> None:
    engine = open_sqlite(data)
    for partition in range(2_000):
        await committed(engine, WriteSet(b"%04d" % partition, [Change(b"1", ANY, put(b"x"))]))
    # The second hint gives no range of rows, so the engine walks.
    found, steps = await _steps(engine, AllOf((RowBetween(b"5", None), Contains(b"x"))))
    none_found, of_walk = await _steps(engine, AnyOf((RowBetween(b"5", None), Contains(b"y"))))
    assert found == none_found == 0
    assert steps < 1.1 * of_walk
    await close_healthy(engine)


@pytest.mark.parametrize("bounds", [(b"1",), (b"1", b"2")])
def test_the_index_alone_distinguishes_partitions(bounds: tuple[bytes, ...]) -> None:
    statement = PARTITIONS_FROM if len(bounds) == 1 else PARTITIONS_BETWEEN
    with closing(_database([])) as connection:
        plan = plan_of(connection, statement, (b"p", b"q", *bounds, 1_000, 64))
    of_rows = [line for line in plan if "stored_rows" in line]
    search = "SEARCH stored_rows USING COVERING INDEX sqlite_autoindex_stored_rows_1 "
    rows = "(partition=? AND row>? AND row<?)" if len(bounds) == 2 else "(partition=? AND row>?)"
    ranges = ["(partition>? AND partition<?)", rows, "(partition=?)"]
    assert sorted(of_rows) == sorted(search + each for each in ranges)
    assert not any("TEMP B-TREE" in line for line in plan)
