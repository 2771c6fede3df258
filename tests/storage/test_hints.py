"""Hints by the contract: no matching row is left out, and a reader always knows where to continue. On every engine,
and in both ways in which SQLite decides them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from hint_ways import WAYS, deciding_in, needs_c
from storage.encrypted_directory import KEY, open_with
from storage.opened import close_healthy, open_sqlite
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
    NumberAfter,
    RowBetween,
    TextAfter,
    WriteSet,
)
from tablestone.engines.sqlite.hinted_read import LARGE_VALUE_BYTES, conditions_of, walk_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tablestone.engines.contract import Engine
    from tablestone.engines.kind import EncryptionKey


@pytest.fixture(autouse=True, params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    with deciding_in(request.param):
        yield request.param


VALUES = [
    b'{"k":"","n":5,"s":"x"}',
    b'{"k":"","n":-5.5,"s":"y"}',
    b'{"k":"","n":"7","s":"y"}',
    b'{"k":"","n":"NaN"}',
    b'{"k":"","n":12}',
    b'{"k":"","n":1e3,"s":"z"}',
    b'{"k":"","n":true}',
    b'{"k":"","m":5}',
    b"",
    b"x" * (LARGE_VALUE_BYTES + 1),
]
LARGE = 9
N = b',"n":'

# hint, the values that match it, and the others that the SQLite engine returns all the same
HOLDS: list[tuple[str, Hint, set[int]]] = [
    ("contains", Contains(b',"s":"y"'), {1, 2}),
    ("number, upward", NumberAfter(N, 5.0, math.inf), {0, 2, 3, 4, 5, 6}),
    ("number, downward", NumberAfter(N, -math.inf, 4.0), {1, 2, 3, 6}),
    ("number in quotes", NumberAfter(N, 6.0, 8.0, quoted=True), {2, 3, 6}),
    ("number in quotes, none near", NumberAfter(N, 8.0, 9.0, quoted=True), {3, 6}),
    ("fractions only", NumberAfter(N, -9.0, -8.0, integers=False), {0, 2, 3, 4, 6}),
    ("number or absent", NumberAfter(N, -9.0, -8.0, or_absent=True), {2, 3, 6, 7, 8}),
    ("text", TextAfter(b',"s":"', b"x", b"y"), {0, 1, 2}),
    ("text or absent", TextAfter(b',"s":"', b"y", b"z", True), {1, 2, 3, 4, 5, 6, 7, 8}),
    ("row", RowBetween(b"3", b"6"), {3, 4, 5}),
    ("row to the end", RowBetween(b"7", None), {7, 8, LARGE}),
    ("all", AllOf((RowBetween(b"2", b"7"), NumberAfter(N, 5.0, 13.0))), {2, 3, 4, 6}),
    ("any", AnyOf((RowBetween(b"8", b"9"), Contains(b'"z"'))), {5, 8}),
]


async def _store(engine: Engine) -> None:
    changes = [Change(b"%d" % index, ANY, put(value)) for index, value in enumerate(VALUES)]
    await committed(engine, WriteSet(b"p", changes))


async def _pieces(
    engine: Engine, hint: Hint, ranges: list[KeyRange], *, rows_max: int, bytes_max: int = 1 << 20
) -> list[list[bytes]]:
    """The values of each read, until there is no next key."""
    pieces = []
    snapshot = await engine.snapshot()
    while True:
        rows = await snapshot.read(ranges, rows_max=rows_max, bytes_max=bytes_max, hint=hint)
        pieces.append(rows.values)
        if rows.next_key is None:
            await snapshot.close()
            return pieces
        ranges = [
            KeyRange(max(start, rows.next_key), end) for start, end in ranges if end > rows.next_key
        ]


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("rows_max", [1, 2, 3, 9, 10, 11])
@pytest.mark.parametrize(("hint", "held"), [row[1:] for row in HOLDS], ids=[r[0] for r in HOLDS])
async def test_what_the_hint_holds_of_is_read_once_and_in_order(
    engine: Engine, hint: Hint, held: set[int], rows_max: int
) -> None:
    await _store(engine)
    two = [KeyRange(Key(b"p", b"1"), Key(b"p", b"4")), KeyRange(Key(b"p", b"5"), WHOLE.end)]
    for ranges, read in ([WHOLE], range(10)), (two, (1, 2, 3, 5, 6, 7, 8, 9)):
        pieces = await _pieces(engine, hint, ranges, rows_max=rows_max)
        assert all(len(piece) <= rows_max for piece in pieces)
        found = [VALUES.index(value) for piece in pieces for value in piece]
        assert found == sorted(set(found))
        assert held & set(read) <= set(found) <= set(read)


@pytest.mark.asyncio
@pytest.mark.parametrize(("hint", "held"), [row[1:] for row in HOLDS], ids=[r[0] for r in HOLDS])
async def test_sqlite_leaves_out_the_others_but_large_values(
    data: Path, hint: Hint, held: set[int]
) -> None:
    engine = open_sqlite(data)
    await _store(engine)
    (found,) = await _pieces(engine, hint, [WHOLE], rows_max=100)
    of_keys = isinstance(hint, RowBetween) or (
        isinstance(hint, AllOf) and isinstance(hint.all_of[0], RowBetween)
    )
    assert {VALUES.index(value) for value in found} == (held if of_keys else held | {LARGE})
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_all_and_any_of_the_same_parts_are_two_hints(engine: Engine) -> None:
    """Even if an engine caches something for a hint: one hint is used before the other, in both orders."""
    await _store(engine)
    for parts in (
        (Contains(b'"y"'), NumberAfter(N, 6.0, 8.0, quoted=True)),
        (Contains(b'"y"'), NumberAfter(N, 7.0, 8.0, quoted=True)),
    ):
        hints: list[Hint] = [AllOf(parts), AnyOf(parts)]
        for hint in hints if parts[1].least == 6.0 else reversed(hints):
            (found,) = await _pieces(engine, hint, [WHOLE], rows_max=100)
            wanted = {VALUES[2]} if isinstance(hint, AllOf) else {VALUES[1], VALUES[2]}
            assert wanted <= set(found)
        assert hints[0] != hints[1]


@pytest.mark.asyncio
async def test_a_piece_counts_the_rows_looked_at_and_not_those_found(data: Path) -> None:
    engine = open_sqlite(data)
    await _store(engine)
    pieces = await _pieces(engine, Contains(b'"z"'), [WHOLE], rows_max=3)
    assert pieces == [[], [VALUES[5]], [], [VALUES[LARGE]]]
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_a_piece_ends_by_bytes_and_goes_on_after_the_last_value(engine: Engine) -> None:
    await _store(engine)
    hint = AnyOf((Contains(b'"y"'), Contains(b'"z"')))
    pieces = await _pieces(engine, hint, [WHOLE], rows_max=100, bytes_max=1)
    assert all(len(piece) == 1 for piece in pieces[:-1])
    found = [value for piece in pieces for value in piece]
    assert [value for value in found if b'"y"' in value or b'"z"' in value] == [
        VALUES[1],
        VALUES[2],
        VALUES[5],
    ]


@pytest.mark.asyncio
async def test_a_hint_reads_inside_the_range_by_the_index(data: Path, way: str) -> None:
    """Rows inside the range and no others, whatever the hint says about rows, and without sorting."""
    engine = open_sqlite(data)
    everything = AllOf(tuple(hint for _, hint, _ in HOLDS))
    for hint in (*(hint for _, hint, _ in HOLDS), everything):
        for key_range, bounds in (
            (KeyRange(Key(b"p", b"a"), Key(b"p", b"b")), "(partition=? AND row>? AND row<?)"),
            (KeyRange.of_partition(b"p"), "(partition=? AND row>?)"),
            (WHOLE, "((partition,row)>(?,?) AND (partition,row)<(?,?))"),
        ):
            walk, bindings = walk_of(key_range)
            condition = conditions_of(hint, in_c=way == "C").everywhere
            plan = [
                str(row[3])
                for row in engine._reader.execute(
                    f"EXPLAIN QUERY PLAN {walk.some.format(condition.text)}",
                    (*bindings, *condition.bindings),
                )
            ]
            search = "SEARCH v USING INDEX sqlite_autoindex_stored_rows_1 "
            assert [line for line in plan if " v " in line] == [search + bounds]
            assert not any("TEMP B-TREE" in line for line in plan)
    await close_healthy(engine)


@pytest.mark.asyncio
@pytest.mark.parametrize("rows_max", [3, 10, 100])
@pytest.mark.parametrize("hint", [row[1] for row in HOLDS], ids=[row[0] for row in HOLDS])
async def test_rows_that_are_left_out_are_counted(data: Path, hint: Hint, rows_max: int) -> None:
    """A scan reports how many rows it examined, however few it found."""
    engine = open_sqlite(data)
    await _store(engine)
    examined = 0
    async with snapshot_of(engine) as snapshot:
        at: Key | None = WHOLE.start
        while at is not None:
            ranges = [KeyRange(at, WHOLE.end)]
            rows = await snapshot.read(ranges, rows_max=rows_max, bytes_max=1 << 20, hint=hint)
            examined += len(rows.values) + rows.left_out
            at = rows.next_key
    assert examined == len(VALUES)
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_a_marker_is_found_wherever_other_values_have_it(data: Path) -> None:
    engine = open_sqlite(data)
    long, short = b"x" * 500 + b',"n":5}', b',"n":5}'
    changes = [Change(b"%d" % row, ANY, put(long if row < 7 else short)) for row in range(9)]
    await committed(engine, WriteSet(b"p", changes))
    async with snapshot_of(engine) as snapshot:
        for hint, values in (
            (NumberAfter(N, 5.0, 5.0), [long] * 7 + [short] * 2),
            (NumberAfter(N, 6.0, 7.0), []),
            (NumberAfter(b',"m":', 6.0, 7.0), []),
        ):
            rows = await snapshot.read([WHOLE], rows_max=100, bytes_max=1 << 20, hint=hint)
            assert rows.values == values
    await close_healthy(engine)


@pytest.mark.asyncio
@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "encrypted"])
async def test_connections_are_counted_by_the_way_they_decide_hints(
    data: Path, key: EncryptionKey | None, way: str
) -> None:
    engine = open_with(data, key)
    await _store(engine)
    async with snapshot_of(engine), snapshot_of(engine) as snapshot:
        rows = await snapshot.read(
            [WHOLE], rows_max=100, bytes_max=1 << 20, hint=NumberAfter(N, 6.0, 8.0, quoted=True)
        )
        assert {VALUES.index(value) for value in rows.values} == {2, 3, 6, LARGE}
    async with snapshot_of(engine):  # on a connection that has been counted
        measured = engine.measure()
    counted = [measured[f"sqlite_hint_{each}_connections"] for each in ("c", "sql")]
    assert counted == ([3, 0] if way == "C" else [0, 3])
    await close_healthy(engine)


@needs_c
@pytest.mark.asyncio
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("way", ["SQL"], indirect=True)
async def test_each_connection_has_its_own_way(data: Path) -> None:
    """The library may be lost or come while a server runs."""
    engine = open_sqlite(data)
    await _store(engine)
    hint = Contains(b',"s":"y"')
    async with snapshot_of(engine) as in_sql:
        with deciding_in("C"):
            async with snapshot_of(engine) as in_c:
                found = [
                    await each.read([WHOLE], rows_max=100, bytes_max=1 << 20, hint=hint)
                    for each in (in_sql, in_c, in_sql)
                ]
                assert [each._rows.hints_in_c for each in (in_sql, in_c)] == [False, True]
    assert [each.values for each in found] == [[VALUES[1], VALUES[2], VALUES[LARGE]]] * 3
    await close_healthy(engine)
