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
    NOW,
    NOW_SECONDS,
    PERIOD_SECONDS,
    PERIOD_WORDS,
    Activity,
    HeatMap,
    HeatRange,
    InsightReport,
    PartitionActivity,
    QueryShape,
)
from tablestone.tools import insight
from tablestone.tools.errors import TransferFailed
from tablestone.tools.progress import shown_entities, shown_seconds
from tablestone.tools.writing import quoted

HEIGHT_MAX: Final = 300
ROW_HEIGHT_MAX: Final = 28
LEFT_MAX: Final = 150
LETTER: Final = 7
"""Pixels of a letter beside the picture."""
ACROSS: Final = "across"
"""The row of what was read across the ranges: it belongs to no single one."""
ACROSS_HEIGHT: Final = 16
ACROSS_GAP: Final = 4
SCALE_WIDTH: Final = 160
SCALE_STEPS: Final = 32
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
    """A cell of the picture: its place in percent of the width and in pixels; `words` are its numbers for a person.

    `is_over`: it has more entities than Azure lets one partition have in that time.
    """

    x: float
    y: float
    width: float
    height: float
    entities: int
    fill: str
    words: str
    is_over: bool = False


class HeatLabel(NamedTuple):
    """A text beside the picture, or below it at `x` percent; bright for a hot range."""

    x: float
    y: float
    text: str
    is_hot: bool = False


class HeatPicture(NamedTuple):
    """The picture of a heat map. `parts` label the hot ranges, at their right, with their shares of all that is shown.

    `most` is the number of entities in the brightest cell, which has the last colour of `scale`, and `hottest` is that
    cell in words. `across` is the largest number in the row of that name, which has the same colours for numbers of its
    own; 0 without such a row. `target` are the entities of a partition in the time of a cell by Azure's target;
    `target_at` is its place on the scale, if it is on it.
    """

    height: float
    cells: list[HeatCell]
    keys: list[HeatLabel]
    parts: list[HeatLabel]
    times: list[HeatLabel]
    hottest: str
    most: int
    across: int
    left: int
    target: int
    target_at: float | None
    scale: list[tuple[float, str]]


def picture_of(heat: HeatMap, target: int, *, reads: bool, writes: bool) -> HeatPicture:
    """The picture. Azure's `target` is in entities a second."""
    heat = _without_silence(heat)
    ranges = heat.ranges
    target *= heat.seconds
    rows = [
        [
            (read[number] if reads else 0, written[number] if writes else 0)
            for read, written in zip(heat.read, heat.written, strict=True)
        ]
        for number in range(len(ranges))
    ]
    most = max((sum(pair) for row in rows for pair in row), default=0)
    across = max(heat.scanned, default=0) if reads else 0
    words = [ACROSS, *(_short(each.first) for each in ranges)]
    left = min(LEFT_MAX, 20 + LETTER * max(map(len, words)))
    top = ACROSS_HEIGHT + ACROSS_GAP if across else 0
    height = min(ROW_HEIGHT_MAX, HEIGHT_MAX / max(len(ranges), 1))
    width = 100 / max(len(heat.starts), 1)
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
                place = (round(column * width, 3), round(y, 2), round(width, 3), round(tall, 2))
                words = f"{name}, {_clock(heat.starts[column])}: {_words(read, written)}"
                fill = colour(count, brightest)
                yield HeatCell(*place, count, fill, words, name != ACROSS and count > target)

    cells = [
        cell
        for number, row in enumerate(rows)
        for cell in cells_of(shown_range(ranges[number]), row, top + number * height, height, most)
    ]

    def middle(number: int) -> float:
        return top + (number + 0.5) * height + 4

    # The labels of hot ranges beside each other move apart, and the others make room.
    places: dict[int, float] = {}
    free = 0.0
    for after, number in enumerate(sorted(hot), 1 - len(hot)):
        places[number] = min(max(middle(number), free), max(bottom + LABEL_HEIGHT * after, free))
        free = places[number] + LABEL_HEIGHT
    others = (
        number
        for number, _ in _labelled(ranges)
        if all(abs(middle(number) - each) >= LABEL_HEIGHT for each in places.values())
    )

    def label(number: int, x: int, text: str) -> HeatLabel:
        return HeatLabel(x, round(places.get(number, middle(number)), 1), text, number in hot)

    keys = [
        label(number, left - 8, _short(ranges[number].first)) for number in sorted({*hot, *others})
    ]
    if across:
        scans = [(count, 0) for count in heat.scanned]
        cells[:0] = cells_of(ACROSS, scans, 0, ACROSS_HEIGHT, across)
        keys.insert(0, HeatLabel(left - 8, ACROSS_HEIGHT - 4, ACROSS))
    step = SCALE_WIDTH / SCALE_STEPS
    return HeatPicture(
        height=round(bottom, 1),
        cells=cells,
        keys=keys,
        parts=[label(number, 8, f"{totals[number] / sum(totals):.0%}") for number in hot],
        times=[
            HeatLabel(round(number * width, 2), round(bottom + 18, 1), _clock(start))
            for number, start in _labelled(heat.starts)
        ],
        hottest=next((each.words for each in cells if each.entities == (most or across)), ""),
        most=most,
        across=across,
        left=left,
        target=target,
        target_at=round(SCALE_WIDTH * _brightness(target, most), 1) if most >= target else None,
        scale=[
            (number * step, _colour_at((number + 1) / SCALE_STEPS)) for number in range(SCALE_STEPS)
        ],
    )


def colour(count: int, most: int) -> str:
    """The colour of a count, relative to the largest."""
    return _colour_at(_brightness(count, most))


def _brightness(count: int, most: int) -> float:
    """From 0 to 1. The cube root spreads small counts over the dark colours."""
    return float((count / most) ** (1 / 3)) if most else 0.0


def _colour_at(at: float) -> str:
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
    return _since(heat, next((number for number, total in enumerate(totals) if total), 0))


def _since(heat: HeatMap, start: int) -> HeatMap:
    """The map from a column on."""
    return replace(
        heat,
        starts=heat.starts[start:],
        read=heat.read[start:],
        written=heat.written[start:],
        scanned=heat.scanned[start:],
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
"""A query reads in vain if it reads at least this many entities for each one that it returns."""
LITTLE_LOAD: Final = 1000
"""Fewer entities, read and written by programs in a period, say nothing about keys: nothing is drawn or ranked."""
REFRESH_SECONDS: Final = 10


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
    activities = [each.activity[period] for each in report.tables]
    queries, partitions = worst_queries(report, period), report.partitions[period]
    counted = report.at - report.started
    during = PERIOD_WORDS[period]
    if counted < PERIOD_SECONDS[period]:
        during = f"the {shown_seconds(counted)} since the server started"
    return page(
        request,
        "heat.html",
        table=table or "",
        period=period,
        periods=PERIOD_WORDS,
        kind=kind,
        kinds=KINDS,
        refresh=REFRESH_SECONDS,
        during=during,
        entities=sum(each.entities for each in activities),
        by_tools=sum(each.by_tools.get(period, Activity()).entities for each in report.tables),
        little=LITTLE_LOAD,
        is_counted=any(each != Activity() for each in activities),
        picture=_picture(report, period, kind),
        tables=[(each.table, each.activity[period]) for each in report.tables],
        partitions=partitions[:LISTED_MAX],
        share=lambda each: insight.share_of(report, each, period),
        is_large=lambda each: insight.takes_large_share(report, each, period),
        queries=queries,
        asked=sum(each.queries for each in report.queries[period] if not each.from_tools),
        across=insight.read_across(report, period),
        table_advice=table_advice(report, period),
        targets=report.targets,
        busiest=busiest_minute,
        bar_most=max([report.targets["partition"], *map(busiest_minute, partitions)]),
        pk_filter=lambda key: f"PartitionKey eq {quoted(key)}",
    )


def busiest_minute(partition: PartitionActivity) -> float:
    """Entities a second in the busiest minute. One that is cut off by the start of the server is no less busy."""
    return max(partition.rate.busiest_minute, partition.rate.mean)


def table_advice(report: InsightReport, period: str) -> list[Advice]:
    """The advice on tables and partitions. Advice on a query stands beside the query."""
    advices = advise(insight.workload_of(report, period))
    return [each for each in advices if not each.filter][:LISTED_MAX]


def worst_queries(report: InsightReport, period: str) -> list[tuple[QueryShape, list[Advice]]]:
    """The programs' queries that read the most entities without returning them, with the advice on each."""
    tables = {each.name.lower(): each for each in insight.workload_of(report, period).tables}
    found = []
    for shape in insight.shapes_of(report, period):
        if shape.from_tools or shape.ratio < RATIO_MIN:
            continue
        use = insight.query_use(shape)
        table = tables.get(shape.table.lower(), TableUse(shape.table))
        found.append((shape, [] if use is None else advise_on_query(use, table)))
    return found[:LISTED_MAX]


def _picture(report: InsightReport, period: str, kind: str) -> HeatPicture | None:
    maps = next((each.heat for each in report.tables if each.heat is not None), None)
    if maps is None:
        return None
    chosen = maps.day if period == DAY else maps.hour
    if period == NOW:
        chosen = _since(chosen, len(chosen.starts) - NOW_SECONDS // chosen.seconds)
    target = report.targets["partition"]
    return picture_of(chosen, target, reads=kind != "writes", writes=kind != "reads")


def _one_of(text: str | None, known: dict[str, str], default: str) -> str:
    return text if text in known else default
