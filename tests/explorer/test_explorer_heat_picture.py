"""The picture of a heat map: the ranges, and above them what was read across them."""

from itertools import pairwise

import pytest

from tablestone.explorer.heat import (
    ACROSS_HEIGHT,
    LABEL_HEIGHT,
    ROW_HEIGHT_MAX,
    SCALE_WIDTH,
    picture_of,
)
from tablestone.insight.report import HeatMap, HeatRange

BUCKETS = 60
TARGET = 100
RANGES = (HeatRange("a", "a"), HeatRange("b", "b"))


def heat_of(read: dict[int, int], scanned: dict[int, int]) -> HeatMap:
    """A map of two partitions, or of none; reads in the second one and scans, by minute."""
    ranges = RANGES if read else ()
    return HeatMap(
        60,
        tuple(range(0, 60 * BUCKETS, 60)),
        ranges,
        tuple((0, read.get(minute, 0))[: len(ranges)] for minute in range(BUCKETS)),
        ((0, 0)[: len(ranges)],) * BUCKETS,
        tuple(scanned.get(minute, 0) for minute in range(BUCKETS)),
    )


def test_what_was_read_across_the_ranges_has_a_row_of_its_own() -> None:
    picture = picture_of(heat_of({50: 8}, {51: 6_000, 52: 3_000}), TARGET, reads=True, writes=True)
    assert [each.words for each in picture.cells] == [
        "across, 00:51: 6,000 entities read",
        "across, 00:52: 3,000 entities read",
        "b, 00:50: 8 entities read",
    ]
    bright, dim, ranged = picture.cells
    assert (bright.y, bright.height) == (0, ACROSS_HEIGHT)
    assert bright.fill == ranged.fill != dim.fill, "each has its own scale"
    assert ranged.y > ACROSS_HEIGHT
    assert picture.across == 6_000
    assert picture.keys[0].text == "across"
    assert picture.hottest == "b, 00:50: 8 entities read"


def test_a_table_that_is_only_scanned() -> None:
    picture = picture_of(heat_of({}, {30: 1}), TARGET, reads=True, writes=True)
    assert [each.words for each in picture.cells] == ["across, 00:30: 1 entity read"]
    assert picture.hottest == "across, 00:30: 1 entity read"
    assert [each.text for each in picture.keys] == ["across"], "no partition was asked for"
    assert picture.cells[0].width == pytest.approx(100 / 30, abs=0.001), "from the scan on"


@pytest.mark.parametrize(
    ("reads", "scanned"), [(False, {51: 6_000}), (True, {})], ids=["writes only", "no scans"]
)
def test_without_scans_there_is_no_such_row(reads: bool, scanned: dict[int, int]) -> None:  # noqa: FBT001
    picture = picture_of(heat_of({50: 8}, scanned), TARGET, reads=reads, writes=True)
    assert picture.across == 0
    assert picture.height == ROW_HEIGHT_MAX * len(RANGES)
    assert [each.text for each in picture.keys] == ["a", "b"]


@pytest.mark.parametrize("hot", [(0, 1, 2), (24, 25, 49), (47, 48, 49), (0, 48, 49)])
def test_labels_of_hot_ranges_beside_each_other_stay_apart(hot: tuple[int, ...]) -> None:
    """Fifty ranges are six pixels high each."""
    ranges = tuple(HeatRange(f"p{number:02}", f"p{number:02}") for number in range(50))
    read = tuple(100 if number in hot else 1 for number in range(50))
    heat = HeatMap(60, (0,), ranges, (read,), ((0,) * 50,), (9,))
    picture = picture_of(heat, TARGET, reads=True, writes=True)
    assert [each.text for each in picture.keys if each.is_hot] == [f"p{each:02}" for each in hot]
    for labels in (picture.keys, picture.parts):
        places = sorted(each.y for each in labels)
        assert all(below - above >= LABEL_HEIGHT - 0.1 for above, below in pairwise(places))
        assert places[-1] <= picture.height


@pytest.mark.parametrize(("read", "place"), [(5_999, None), (6_000, SCALE_WIDTH), (48_000, 80.0)])
def test_the_target_of_azure_is_drawn_where_it_is_on_the_scale(
    read: int, place: float | None
) -> None:
    """100 entities a second are 6,000 in a minute; an eighth of the entities is at half of the colours."""
    picture = picture_of(
        heat_of({50: read, 51: 6_000}, {51: 9_000}), TARGET, reads=True, writes=True
    )
    lower = picture_of(heat_of({50: read}, {51: 9_000}), TARGET, reads=True, writes=True)
    assert picture.target == 6_000
    assert lower.target_at == place
    assert [each.is_over for each in picture.cells] == [False, read > 6_000, False]
