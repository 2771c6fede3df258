"""Reads by the contract: order, every kind of range, pages that together are complete. On every engine."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.conftest import HeldClock
from storage.engines_under_test import engine_for
from storage.write_sets import WHOLE, committed, fill, insert, read_in_pages, value_of
from tablestone.engines.contract import Key, KeyRange, Rows

if TYPE_CHECKING:
    from tablestone.engines.contract import Engine

KEYS = [
    (b"", b""),
    (b"", b"\0"),
    (b"a", b""),
    (b"a", b"\0"),
    (b"a", b"a"),
    (b"a", b"a\0"),
    (b"a", b"aa"),
    (b"a", b"b"),
    (b"a", b"\xff"),
    (b"a\0", b""),
    (b"a\0", b"a"),
    (b"aa", b"a"),
    (b"b", b"a"),
    (b"\xff", b"\xff\xff"),
]
"""In key order: a prefix before longer keys, bytes as unsigned numbers, the partition before the row."""


def between(start: tuple[bytes, bytes], end: tuple[bytes, bytes]) -> KeyRange:
    return KeyRange(Key(*start), Key(*end))


# name, ranges, the keys they hold
RANGES: list[tuple[str, list[KeyRange], list[tuple[bytes, bytes]]]] = [
    ("point", [KeyRange.of_row(b"a", b"a")], [(b"a", b"a")]),
    ("point, empty key", [KeyRange.of_row(b"", b"")], [(b"", b"")]),
    ("point, nothing there", [KeyRange.of_row(b"a", b"ab")], []),
    ("row range", [between((b"a", b"\0"), (b"a", b"aa"))], KEYS[3:6]),
    ("row range, empty", [between((b"a", b"bb"), (b"a", b"c"))], []),
    ("row range to the partition's end", [between((b"a", b"a"), (b"a\0", b""))], KEYS[4:9]),
    ("partition", [KeyRange.of_partition(b"a")], KEYS[2:9]),
    ("partition, empty key", [KeyRange.of_partition(b"")], KEYS[:2]),
    ("partition, nothing there", [KeyRange.of_partition(b"c")], []),
    ("partition range", [between((b"a", b""), (b"b", b""))], KEYS[2:12]),
    ("partition range, cut inside", [between((b"a", b"b"), (b"aa", b"b"))], KEYS[7:12]),
    ("whole", [WHOLE], KEYS),
    ("no ranges", [], []),
    ("points", [KeyRange.of_row(*KEYS[0]), KeyRange.of_row(*KEYS[5])], [KEYS[0], KEYS[5]]),
    (
        "one of each",
        [
            KeyRange.of_row(b"", b"\0"),
            between((b"a", b"a"), (b"a", b"b")),
            between((b"a", b"c"), (b"aa", b"")),
            KeyRange.of_partition(b"b"),
        ],
        [KEYS[1], *KEYS[4:7], *KEYS[8:11], KEYS[12]],
    ),
    (
        "ranges that touch",
        [between((b"", b""), (b"a", b"a")), between((b"a", b"a"), (b"b", b""))],
        KEYS[:12],
    ),
]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("ranges", "keys"), [case[1:] for case in RANGES], ids=[case[0] for case in RANGES]
)
async def test_a_read_finds_the_keys_of_its_ranges_in_order(
    engine: Engine, ranges: list[KeyRange], keys: list[tuple[bytes, bytes]]
) -> None:
    await fill(engine, reversed(KEYS))
    expected = [value_of(*key) for key in keys]
    rows = await engine.read(ranges, rows_max=100, bytes_max=1 << 20)
    assert rows == Rows(expected, None)


@pytest.mark.asyncio
async def test_get_finds_what_a_read_of_the_key_s_own_range_finds(engine: Engine) -> None:
    await fill(engine, KEYS[::2])
    await committed(engine, insert(b"empty", b"value", b""))
    for key in [*KEYS, (b"empty", b"value")]:
        rows = await engine.read([KeyRange.of_row(*key)], rows_max=2, bytes_max=1 << 20)
        assert ([] if (value := await engine.get(Key(*key))) is None else [value]) == rows.values
    assert [await engine.get(Key(*key)) for key in KEYS[:2]] == [value_of(*KEYS[0]), None]
    assert await engine.get(Key(b"empty", b"value")) == b""


# rows_max, bytes_max -> how many of five values of 10 bytes, and the row of the next key
LIMITS: list[tuple[int, int, int, bytes | None]] = [
    (1, 1 << 20, 1, b"1"),
    (4, 1 << 20, 4, b"4"),
    (5, 1 << 20, 5, None),
    (6, 1 << 20, 5, None),
    (9, 0, 1, b"1"),
    (9, 1, 1, b"1"),
    (9, 10, 1, b"1"),
    (9, 11, 2, b"2"),
    (9, 20, 2, b"2"),
    (9, 50, 5, None),
    (9, 51, 5, None),
    (2, 30, 2, b"2"),
    (3, 20, 2, b"2"),
]
ONE_RANGE = [KeyRange.of_partition(b"p")]
FIVE_POINTS = [KeyRange.of_row(b"p", b"%d" % index) for index in range(5)]
TWO_RANGES_AND_NOTHING = [
    between((b"p", b""), (b"p", b"2")),
    between((b"p", b"2"), (b"p", b"7")),
    between((b"p", b"8"), (b"p", b"9")),
]


@pytest.mark.asyncio
@pytest.mark.parametrize("ranges", [ONE_RANGE, FIVE_POINTS, TWO_RANGES_AND_NOTHING, [WHOLE]])
@pytest.mark.parametrize(("rows_max", "bytes_max", "found", "next_row"), LIMITS)
async def test_a_page_ends_at_its_limits_and_names_the_first_row_left_unread(
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
    rows = await engine.read(ranges, rows_max=rows_max, bytes_max=bytes_max)
    assert rows == Rows(values[:found], None if next_row is None else Key(b"p", next_row))


@pytest.mark.asyncio
async def test_a_page_of_large_values_ends_by_bytes(engine: Engine) -> None:
    value = b"x" * (1 << 20)
    for index in range(6):
        await committed(engine, insert(b"p", b"%d" % index, value))
    pages = await read_in_pages(engine, [WHOLE], rows_max=1_000, bytes_max=(2 << 20) + 1)
    assert [len(page) for page in pages] == [3, 3]


parts = st.binary(max_size=3) | st.sampled_from([b"", b"\0", b"a", b"a\0", b"\xff"])
keys = st.tuples(parts, parts)


@st.composite
def ascending_ranges(draw: st.DrawFn) -> list[KeyRange]:
    ends = sorted(draw(st.sets(keys, min_size=2, max_size=8)))
    spans = [between(*pair) for pair in zip(ends[::2], ends[1::2], strict=False)]
    points = [KeyRange.of_row(*key) for key in sorted(draw(st.sets(keys, max_size=4)))]
    chosen: list[KeyRange] = []
    for key_range in sorted(spans + points):
        if not chosen or chosen[-1].end <= key_range.start:
            chosen.append(key_range)
    return chosen


@given(
    stored=st.dictionaries(keys, st.binary(max_size=12), max_size=30),
    ranges=ascending_ranges(),
    rows_max=st.integers(1, 7),
    bytes_max=st.integers(0, 40),
)
@settings(deadline=None, max_examples=150)
@pytest.mark.parametrize("scheme", ["memory", "sqlite"])
def test_pages_joined_are_the_full_read_whatever_the_limits(
    scheme: str,
    stored: dict[tuple[bytes, bytes], bytes],
    ranges: list[KeyRange],
    rows_max: int,
    bytes_max: int,
) -> None:
    expected = [
        value
        for key, value in sorted(stored.items())
        if any(key_range.start <= key < key_range.end for key_range in ranges)
    ]

    async def run(directory: str) -> None:
        engine = engine_for(scheme, HeldClock(), directory=directory)
        await asyncio.gather(
            *(committed(engine, insert(*key, value)) for key, value in stored.items())
        )
        in_one = await engine.read(ranges, rows_max=1_000, bytes_max=1 << 20)
        assert in_one == Rows(expected, None)
        pages = await read_in_pages(engine, ranges, rows_max=rows_max, bytes_max=bytes_max)
        assert [value for page in pages for value in page] == expected
        for page in pages:
            assert len(page) <= rows_max
            assert not page or sum(map(len, page[:-1])) < max(bytes_max, 1)
        assert all(pages[:-1])
        assert await engine.check() == []
        await engine.close()

    with tempfile.TemporaryDirectory(dir=_memory_backed()) as directory:
        asyncio.run(run(directory))


def _memory_backed() -> Path | None:
    """The test makes hundreds of small databases, and none needs to survive a power failure."""
    shared_memory = Path("/dev/shm")  # noqa: S108 - TemporaryDirectory makes its own directory in it
    return shared_memory if shared_memory.is_dir() else None
