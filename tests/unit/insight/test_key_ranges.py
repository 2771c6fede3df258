"""Ranges of keys with counts: limited in number, with exact sums."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestone.insight.counts import CountedRange, joined

KEYS = st.binary(max_size=2)
COUNTS = st.integers(0, 1000)


@st.composite
def ranges(draw: st.DrawFn) -> CountedRange:
    first, last = sorted((draw(KEYS), draw(KEYS)))
    return CountedRange(first, last, draw(COUNTS), draw(COUNTS))


@given(st.lists(ranges(), max_size=60), st.integers(2, 20))
def test_joined_ranges(given_ranges: list[CountedRange], ranges_max: int) -> None:
    found = joined(given_ranges, ranges_max)
    assert len(found) <= ranges_max
    assert all(each.first <= each.last for each in found)
    assert all(one.last < other.first for one, other in pairwise(found))
    for each in found:
        inside = [one for one in given_ranges if each.first <= one.first <= each.last]
        assert (each.read, each.written) == (
            sum(o.read for o in inside),
            sum(o.written for o in inside),
        )
        assert max(one.last for one in inside) == each.last
    assert sum(each.read for each in found) == sum(each.read for each in given_ranges)


def points(*counts: int) -> list[CountedRange]:
    return [
        CountedRange(b"%02d" % key, b"%02d" % key, count, 0) for key, count in enumerate(counts)
    ]


@pytest.mark.parametrize(
    ("counts", "ranges_max", "expected"),
    [
        ((1, 1, 1), 3, ["00-00", "01-01", "02-02"]),
        ((1, 1, 1, 1, 900, 1, 1, 1, 1), 4, ["00-03", "04-04", "05-08"]),
        ((100,) * 9, 4, ["00-05", "06-08"]),
        ((*(1,) * 5, 500, *(1,) * 14), 4, ["00-04", "05-05", "06-19"]),
    ],
    ids=["there is room", "a hot key stays alone", "even counts", "many keys beside a hot one"],
)
def test_neighbours_are_joined(
    counts: tuple[int, ...], ranges_max: int, expected: list[str]
) -> None:
    found = joined(points(*counts), ranges_max)
    assert [f"{each.first.decode()}-{each.last.decode()}" for each in found] == expected
