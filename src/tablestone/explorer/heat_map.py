"""The heat map of a table: key ranges by time as coloured cells of a picture. Pure.

Brightness is the cube root of the operations, so that one hot range does not hide all others. Scans are of no single
range, so they have a row of their own above the ranges, with its own scale. Knows the report of insight; knows no HTML.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final, NamedTuple

from tablestone.insight.report import HeatMap, KeyRange

ROWS_MAX: Final = 64
"""Rows of the picture: neighbouring ranges are added up above it."""
BUCKETS_MIN: Final = 20
"""Columns of the picture, at least."""
WIDTH: Final = 720
HEIGHT: Final = 300
LEFT: Final = 170
BOTTOM: Final = 28
SCANS_HEIGHT: Final = 16
SCANS_GAP: Final = 8
LABELS_MAX: Final = 12
KEY_LENGTH_MAX: Final = 22
_COLOURS: Final = (
    (0.0, (27, 22, 66)),
    (0.25, (94, 26, 110)),
    (0.5, (187, 55, 84)),
    (0.75, (245, 125, 21)),
    (1.0, (252, 255, 164)),
)
"""From dark to bright, also for readers who see no difference between red and green."""


class HeatCell(NamedTuple):
    """A cell of the picture: its place, its colour, and its numbers in words."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    words: str


class HeatLabel(NamedTuple):
    """A text beside the picture."""

    x: float
    y: float
    text: str


class HeatPicture(NamedTuple):
    """The picture of a heat map. `hottest` is the cell with most operations, in words; empty without any.

    `has_scans`: the first row is the one of the scans. `brightest` and `scanned` are the entities of the brightest cell
    of the ranges, and of that row.
    """

    width: float
    height: float
    left: int
    plot_width: float
    plot_height: int
    cells: list[HeatCell]
    keys: list[HeatLabel]
    times: list[HeatLabel]
    hottest: str
    has_scans: bool
    brightest: int
    scanned: int


SCALE: Final = 20
"""Colours of the scale beside the picture."""


def scale() -> list[str]:
    """The colours from the darkest to the brightest."""
    return [colour(step**3, (SCALE - 1) ** 3) for step in range(SCALE)]


def picture_of(heat: HeatMap, *, reads: bool, writes: bool) -> HeatPicture:
    """The picture of entities read, written, or both."""
    heat = _without_silence(heat)
    ranges, rows = _rows(heat, reads=reads, writes=writes)
    scans = [(count, 0) for count in heat.scanned] if reads and any(heat.scanned) else []
    top = SCANS_HEIGHT + SCANS_GAP if scans else 0
    height, wide = HEIGHT / max(len(ranges), 1), WIDTH / max(len(heat.starts), 1)
    most = max((sum(pair) for row in rows for pair in row), default=0)
    cells = []
    hottest = ""

    def add(
        row: list[tuple[int, int]], y: float, cell_height: float, brightest: int, name: str
    ) -> None:
        nonlocal hottest
        for column, (read, written) in enumerate(row):
            if not read + written:
                continue
            words = f"{name}, {_clock(heat.starts[column])}: {_words(read, written)}"
            if row is not scans and read + written == most and not hottest:
                hottest = words
            x = round(LEFT + column * wide, 2)
            place = (x, round(y, 2), round(wide, 2), round(cell_height, 2))
            fill = colour(read + written, brightest)
            cells.append(HeatCell(*place, fill, words))

    add(scans, 0, SCANS_HEIGHT, max(heat.scanned, default=0), "scans")
    for number, row in enumerate(rows):
        add(row, top + number * height, height, most, shown_range(ranges[number]))
    labels = [HeatLabel(LEFT - 8, SCANS_HEIGHT - 4, "scans")] if scans else []
    return HeatPicture(
        LEFT + WIDTH,
        top + HEIGHT + BOTTOM,
        LEFT,
        WIDTH,
        top + HEIGHT,
        cells,
        labels + _key_labels(ranges, height, top),
        _time_labels(heat.starts, wide, top),
        hottest,
        bool(scans),
        most,
        max(heat.scanned, default=0) if scans else 0,
    )


def colour(count: int, most: int) -> str:
    """The colour of a count beside the largest one."""
    at = (count / most) ** (1 / 3) if most else 0.0
    for (low, one), (high, other) in pairwise(_COLOURS):
        if at <= high:
            part = (at - low) / (high - low)
            mixed = (round(a + (b - a) * part) for a, b in zip(one, other, strict=True))
            return "#" + "".join(f"{each:02x}" for each in mixed)
    return "#fcffa4"


def shown_range(keys: KeyRange) -> str:
    """A range of keys in words."""
    first, last = _short(keys.first), _short(keys.last)
    return first if keys.first == keys.last else f"{first} to {last}"


def _without_silence(heat: HeatMap) -> HeatMap:
    """The map from the first request on, so that a server that has just started does not show an empty hour."""
    scanned = heat.scanned or (0,) * len(heat.starts)
    busy = next(
        (
            number
            for number, (read, written, scans) in enumerate(
                zip(heat.read, heat.written, scanned, strict=True)
            )
            if scans or any(read) or any(written)
        ),
        0,
    )
    start = max(0, min(busy - 1, len(heat.starts) - BUCKETS_MIN))
    return replace(
        heat,
        starts=heat.starts[start:],
        read=heat.read[start:],
        written=heat.written[start:],
        scanned=scanned[start:],
    )


def _rows(
    heat: HeatMap, *, reads: bool, writes: bool
) -> tuple[list[KeyRange], list[list[tuple[int, int]]]]:
    """The ranges of the rows, and for each row the entities read and written in each bucket."""
    together = math.ceil(len(heat.ranges) / ROWS_MAX) or 1
    ranges, rows = [], []
    for start in range(0, len(heat.ranges), together):
        part = range(start, min(start + together, len(heat.ranges)))
        ranges.append(KeyRange(heat.ranges[part[0]].first, heat.ranges[part[-1]].last))
        rows.append(
            [
                (
                    sum(read[each] for each in part) if reads else 0,
                    sum(written[each] for each in part) if writes else 0,
                )
                for read, written in zip(heat.read, heat.written, strict=True)
            ]
        )
    return ranges, rows


def _key_labels(ranges: Sequence[KeyRange], height: float, top: int) -> list[HeatLabel]:
    step = math.ceil(len(ranges) / LABELS_MAX) or 1
    return [
        HeatLabel(LEFT - 8, round(top + (number + 0.5) * height + 4, 1), _short(keys.first))
        for number, keys in enumerate(ranges)
        if number % step == 0
    ]


def _time_labels(starts: Sequence[int], wide: float, top: int) -> list[HeatLabel]:
    step = math.ceil(len(starts) / LABELS_MAX) or 1
    return [
        HeatLabel(round(LEFT + number * wide, 1), top + HEIGHT + 18, _clock(start))
        for number, start in enumerate(starts)
        if number % step == 0
    ]


def _clock(start: int) -> str:
    return datetime.fromtimestamp(start, UTC).strftime("%H:%M")


def _short(key: str) -> str:
    text = key or "(empty)"
    return text if len(text) <= KEY_LENGTH_MAX else text[: KEY_LENGTH_MAX - 1] + "…"


def _words(read: int, written: int) -> str:
    return " and ".join(
        f"{count:,} entities {what}"
        for count, what in ((read, "read"), (written, "written"))
        if count
    )
