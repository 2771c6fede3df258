"""The heat page: the heat map of a table, the hot partitions, the queries that scan, and the advice on them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from tablestone.advice.advising import advise, advise_on_query
from tablestone.advice.rule import Advice
from tablestone.advice.workload import TableUse
from tablestone.explorer.page_templates import account_of, page
from tablestone.insight.report import (
    DAY,
    HOUR,
    PERIOD_WORDS,
    Activity,
    HeatMap,
    HeatRange,
    InsightReport,
    QueryShape,
)
from tablestone.tools import insight
from tablestone.tools.errors import TransferFailed
from tablestone.tools.progress import shown_entities, shown_seconds
from tablestone.tools.writing import quoted

WIDTH: Final = 780
HEIGHT_MAX: Final = 300
ROW_HEIGHT_MAX: Final = 28
LEFT_MAX: Final = 150
LETTER: Final = 7
"""Pixels of a letter beside the picture."""
SCANS_HEIGHT: Final = 16
SCANS_GAP: Final = 4
LABELS_MAX: Final = 12
LABEL_HEIGHT: Final = 14
KEY_LENGTH_MAX: Final = 22
HOT_ROWS: Final = 3
HOT_SHARE: Final = 0.1
"""A range is hot if it has this share of all entities, and at least twice an even share."""
_COLOURS: Final = (
    (0.0, (27, 22, 66)),
    (0.25, (94, 26, 110)),
    (0.5, (187, 55, 84)),
    (0.75, (245, 125, 21)),
    (1.0, (252, 255, 164)),
)
"""From dark to bright, also for readers who cannot tell red from green."""
_T = TypeVar("_T")


class HeatCell(NamedTuple):
    """A cell of the picture, in pixels; `words` are its numbers for a person."""

    x: float
    y: float
    width: float
    height: float
    entities: int
    fill: str
    words: str


class HeatLabel(NamedTuple):
    """A text beside the picture, bright for a hot range."""

    x: float
    y: float
    text: str
    is_hot: bool = False


class HeatPicture(NamedTuple):
    """The picture of a heat map. `parts` label the hot ranges, at their right, with their shares of all that is shown.

    `brightest` is the number of entities in the brightest cell of the ranges, and `hottest` is that cell in words.
    `scanned` is the largest number in the row of scans, which has a scale of its own; 0 without such a row.
    """

    plot_height: float
    cells: list[HeatCell]
    keys: list[HeatLabel]
    parts: list[HeatLabel]
    times: list[HeatLabel]
    hottest: str
    brightest: int
    scanned: int
    left: int
    plot_width: int = WIDTH


def picture_of(heat: HeatMap, *, reads: bool, writes: bool) -> HeatPicture:
    heat = _without_silence(heat)
    ranges = heat.ranges
    rows = [
        [
            (read[number] if reads else 0, written[number] if writes else 0)
            for read, written in zip(heat.read, heat.written, strict=True)
        ]
        for number in range(len(ranges))
    ]
    most = max((sum(pair) for row in rows for pair in row), default=0)
    scanned = max(heat.scanned, default=0) if reads else 0
    words = ["scans", *(_short(each.first) for each in ranges)]
    left = min(LEFT_MAX, 20 + LETTER * max(map(len, words)))
    top = SCANS_HEIGHT + SCANS_GAP if scanned else 0
    height = min(ROW_HEIGHT_MAX, HEIGHT_MAX / max(len(ranges), 1))
    width = WIDTH / max(len(heat.starts), 1)
    bottom = top + height * len(ranges)
    totals = [sum(map(sum, row)) for row in rows]
    least = max(1, sum(totals) * max(HOT_SHARE, 2 / max(len(totals), 1)))
    ranked = sorted(range(len(totals)), key=lambda number: -totals[number])[:HOT_ROWS]
    hot = [number for number in ranked if totals[number] >= least]

    def cells_of(
        name: str, row: list[tuple[int, int]], y: float, tall: float, brightest: int
    ) -> Iterator[HeatCell]:
        for column, (read, written) in enumerate(row):
            if count := read + written:
                x = left + column * width
                place = (round(x, 2), round(y, 2), round(width, 2), round(tall, 2))
                words = f"{name}, {_clock(heat.starts[column])}: {_words(read, written)}"
                yield HeatCell(*place, count, colour(count, brightest), words)

    cells = [
        cell
        for number, row in enumerate(rows)
        for cell in cells_of(shown_range(ranges[number]), row, top + number * height, height, most)
    ]
    hottest = next((cell.words for cell in cells if cell.entities == most), "")

    def label(number: int, x: int, text: str) -> HeatLabel:
        return HeatLabel(x, round(top + (number + 0.5) * height + 4, 1), text, number in hot)

    distance = LABEL_HEIGHT / height
    others = (
        number
        for number, _ in _labelled(ranges)
        if all(abs(number - each) >= distance for each in hot)
    )
    keys = [
        label(number, left - 8, _short(ranges[number].first)) for number in sorted({*hot, *others})
    ]
    parts = [
        label(number, left + WIDTH + 8, f"{totals[number] / sum(totals):.0%}") for number in hot
    ]
    if scanned:
        scans = [(count, 0) for count in heat.scanned]
        cells[:0] = cells_of("scans", scans, 0, SCANS_HEIGHT, scanned)
        keys.insert(0, HeatLabel(left - 8, SCANS_HEIGHT - 4, "scans"))
    times = [
        HeatLabel(round(left + number * width, 1), round(bottom + 18, 1), _clock(start))
        for number, start in _labelled(heat.starts)
    ]
    return HeatPicture(round(bottom, 1), cells, keys, parts, times, hottest, most, scanned, left)


def colour(count: int, most: int) -> str:
    """The colour of a count, relative to the largest. The cube root spreads small counts over the dark colours."""
    at = (count / most) ** (1 / 3) if most else 0.0
    (low, one), (high, other) = next(pair for pair in pairwise(_COLOURS) if at <= pair[1][0])
    part = (at - low) / (high - low)
    mixed = (round(a + (b - a) * part) for a, b in zip(one, other, strict=True))
    return "#" + "".join(f"{each:02x}" for each in mixed)


def shown_range(keys: HeatRange) -> str:
    first, last = _short(keys.first), _short(keys.last)
    return first if keys.first == keys.last else f"{first} to {last}"


def _without_silence(heat: HeatMap) -> HeatMap:
    """The map from the first request on: a server that has just started does not show an empty hour."""
    scanned = heat.scanned or (0,) * len(heat.starts)
    columns = zip(heat.read, heat.written, scanned, strict=True)
    totals = [sum(read) + sum(written) + scans for read, written, scans in columns]
    start = next((number for number, total in enumerate(totals) if total), 0)
    return replace(
        heat,
        starts=heat.starts[start:],
        read=heat.read[start:],
        written=heat.written[start:],
        scanned=scanned[start:],
    )


def _labelled(items: Sequence[_T]) -> list[tuple[int, _T]]:
    """The rows or columns that have a label, with their numbers."""
    return list(enumerate(items))[:: math.ceil(len(items) / LABELS_MAX) or 1]


def _clock(start: int) -> str:
    return datetime.fromtimestamp(start, UTC).strftime("%H:%M")


def _short(key: str) -> str:
    text = key or "(empty)"
    return text if len(text) <= KEY_LENGTH_MAX else text[: KEY_LENGTH_MAX - 1] + "…"


def _words(read: int, written: int) -> str:
    return " and ".join(
        f"{shown_entities(count)} {what}"
        for count, what in ((read, "read"), (written, "written"))
        if count
    )


KINDS: Final = {"all": "reads and writes", "reads": "reads", "writes": "writes"}
LISTED_MAX: Final = 20
RATIO_MIN: Final = 2
"""A query scans if it reads at least this many entities for each one that it returns."""


def heat(request: Request) -> Response:
    """The page of one table or, without a heat map, of the whole account."""
    settings = account_of(request).settings
    if settings.admin is None:
        return page(request, "no_heat.html")
    try:
        return _heat_of(request, settings.admin, settings.connection.account)
    except TransferFailed as failed:
        # The admin address failed. The application would blame the URL of the endpoint.
        return page(request, "problem.html", sentence=str(failed), status=502)


def _heat_of(request: Request, admin: str, account: str) -> Response:
    parameters = request.query_params
    period = _one_of(parameters.get("period"), PERIOD_WORDS, HOUR)
    kind = _one_of(parameters.get("show"), KINDS, "all")
    table = request.path_params.get("table")
    report, _ = insight.ask_for_insight(admin, table, account)
    return page(
        request,
        "heat.html",
        table=table or "",
        period=period,
        periods=PERIOD_WORDS,
        kind=kind,
        kinds=KINDS,
        counted=shown_seconds(report.at - report.started),
        is_counted=any(each.activity[period] != Activity() for each in report.tables),
        picture=_picture(report, period, kind),
        tables=[(each.table, each.activity[period]) for each in report.tables],
        partitions=report.partitions[period][:LISTED_MAX],
        share=lambda each: insight.share_of(report, each, period),
        is_large=lambda each: insight.takes_large_share(report, each, period),
        has_queries=bool(report.queries[period]),
        queries=scanning_queries(report, period),
        table_advice=table_advice(report, period),
        targets=report.targets,
        pk_filter=lambda key: f"PartitionKey eq {quoted(key)}",
    )


def table_advice(report: InsightReport, period: str) -> list[Advice]:
    """The advice on tables and partitions. Advice on a query stands beside the query."""
    advices = advise(insight.workload_of(report, period))
    return [each for each in advices if not each.filter][:LISTED_MAX]


def scanning_queries(report: InsightReport, period: str) -> list[tuple[QueryShape, list[Advice]]]:
    """The queries that read the most entities without returning them, with the advice on each."""
    tables = {each.name.lower(): each for each in insight.workload_of(report, period).tables}
    found = []
    for shape in insight.shapes_of(report, period):
        if shape.ratio < RATIO_MIN:
            continue
        use = insight.query_use(shape)
        table = tables.get(shape.table.lower(), TableUse(shape.table))
        advice = [] if use is None or shape.from_tools else advise_on_query(use, table)
        found.append((shape, advice))
    return found[:LISTED_MAX]


def _picture(report: InsightReport, period: str, kind: str) -> HeatPicture | None:
    maps = next((each.heat for each in report.tables if each.heat is not None), None)
    if maps is None:
        return None
    chosen = maps.day if period == DAY else maps.hour
    return picture_of(chosen, reads=kind != "writes", writes=kind != "reads")


def _one_of(text: str | None, known: dict[str, str], default: str) -> str:
    return text if text in known else default
