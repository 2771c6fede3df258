"""The picture of a heat map: the ranges, and above them the scans, which belong to no single range."""

import pytest

from tablestone.explorer.heat import ROW_HEIGHT_MAX, SCANS_HEIGHT, picture_of
from tablestone.insight.report import HeatMap, HeatRange

BUCKETS = 60
RANGES = (HeatRange("a", "a"), HeatRange("b", "b"))


def heat_of(read: dict[int, int], scanned: dict[int, int]) -> HeatMap:
    """A map of two partitions; reads in the second one and scans, by minute."""
    return HeatMap(
        60,
        tuple(range(0, 60 * BUCKETS, 60)),
        RANGES,
        tuple((0, read.get(minute, 0)) for minute in range(BUCKETS)),
        ((0, 0),) * BUCKETS,
        tuple(scanned.get(minute, 0) for minute in range(BUCKETS)),
    )


def test_scans_have_a_row_of_their_own() -> None:
    picture = picture_of(heat_of({50: 8}, {51: 6_000, 52: 3_000}), reads=True, writes=True)
    assert [each.words for each in picture.cells] == [
        "scans, 00:51: 6,000 entities read",
        "scans, 00:52: 3,000 entities read",
        "b, 00:50: 8 entities read",
    ]
    bright, dim, ranged = picture.cells
    assert (bright.y, bright.height) == (0, SCANS_HEIGHT)
    assert bright.fill == ranged.fill != dim.fill, "each has its own scale"
    assert ranged.y > SCANS_HEIGHT
    assert picture.scanned == 6_000
    assert picture.keys[0].text == "scans"
    assert picture.hottest == "b, 00:50: 8 entities read"


def test_a_table_that_is_only_scanned() -> None:
    picture = picture_of(heat_of({}, {30: 1}), reads=True, writes=True)
    assert [each.words for each in picture.cells] == ["scans, 00:30: 1 entity read"]
    assert picture.hottest == ""
    assert len(picture.times) * picture.cells[0].width < picture.plot_width, "from the scan on"


@pytest.mark.parametrize(
    ("reads", "scanned"), [(False, {51: 6_000}), (True, {})], ids=["writes only", "no scans"]
)
def test_without_scans_there_is_no_such_row(reads: bool, scanned: dict[int, int]) -> None:  # noqa: FBT001
    picture = picture_of(heat_of({50: 8}, scanned), reads=reads, writes=True)
    assert picture.scanned == 0
    assert picture.plot_height == ROW_HEIGHT_MAX * len(RANGES)
    assert [each.text for each in picture.keys] == ["a", "b"]
