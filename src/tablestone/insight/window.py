"""A window of counts as a JSON value, for a worker's report: the busiest partitions by key, the others by key ranges.

`history` reads it. A PartitionKey of more than `KEY_LENGTH_MAX` characters is cut and gets a hash of the whole
key after a `#`, which no key contains. Knows counts and no reports.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import orjson

from tablestone.insight.counts import (
    MINUTE_SECONDS,
    RANGES_MAX,
    CountedRange,
    Counts,
    InsightCounts,
    ShapeCounts,
    TableCounts,
    WindowCounts,
    joined,
    point_of,
)
from tablestone.insight.query_shapes import shape_terms, shape_text
from tablestone.model.keys import decode_key

LISTED_MAX: Final = 256
"""Partitions of all tables that a report lists by their keys."""
LISTED_OF_TABLE: Final = 16
"""Partitions of each of the busiest tables that it lists in any case."""
TABLES_WITH_PLACES: Final = 16
"""The busiest tables, whose report has `RANGES_MAX` key ranges; other tables have `RANGES_OF_OTHERS`."""
RANGES_OF_OTHERS: Final = 2
KEY_LENGTH_MAX: Final = 128
"""Characters of a partition key in a report."""
HASH_MARK: Final = "#"
"""Before the hash of a key. No key of an entity contains it (wire 1.3)."""


class Windows:
    """The windows of a worker: the present one and the one before. `now` is in seconds since 1970."""

    def __init__(self, now: float) -> None:
        self.counts = InsightCounts(int(now) // MINUTE_SECONDS)
        self._ended: orjson.Fragment | None = None

    def content(self, now: float) -> dict[str, object]:
        """Both windows for a report. A window that has ended is written once."""
        minute = int(now) // MINUTE_SECONDS
        if minute != self.counts.window.minute:
            ended = self.counts.begin_window(minute)
            self._ended = orjson.Fragment(orjson.dumps(window_content(ended)))
        present = window_content(self.counts.window)
        return {"present": present, "ended": self._ended}


def shown_key(key: str) -> str:
    """The key as text that any program can read, and not too long."""
    if not key.isascii():
        key = key.encode("utf-8", "replace").decode("utf-8")
    if len(key) <= KEY_LENGTH_MAX:
        return key
    return f"{key[:KEY_LENGTH_MAX]}{hash_of(key)}"


def hash_of(key: str) -> str:
    """A hash that stands for a key: the same in every worker."""
    return HASH_MARK + blake2b(key.encode("utf-8", "replace"), digest_size=6).hexdigest()


def window_content(window: WindowCounts) -> dict[str, object]:
    """The window as a JSON object. `unlisted`: the most entities of a partition that is not in a list."""
    tables = sorted(window.tables.values(), key=_busyness, reverse=True)
    least = _least_listed(tables)
    unlisted = window.missed
    contents: list[object] = []
    for place, table in enumerate(tables):
        apart = LISTED_OF_TABLE if place < TABLES_WITH_PLACES else 0
        listed, others = _listed(table, least, apart)
        for _, counts in others:
            unlisted = max(unlisted, counts.upper())
        ranges_max = RANGES_MAX if place < TABLES_WITH_PLACES else RANGES_OF_OTHERS
        contents.append(_content_of_table(table, listed, others, ranges_max))
    return {
        "minute": window.minute,
        "unlisted": unlisted,
        "other": window.other.rest.numbers(),
        "tables": contents,
    }


def _busyness(table: TableCounts) -> int:
    rest = table.rest
    return rest.upper() + sum([counts.upper() for counts in table.partitions.values()])


def _least_listed(tables: list[TableCounts]) -> int:
    """The count from which a partition is listed, so that about `LISTED_MAX` of all tables are."""
    uppers = [counts.upper() for table in tables for counts in table.partitions.values()]
    if len(uppers) <= LISTED_MAX:
        return 0
    uppers.sort(reverse=True)
    return uppers[LISTED_MAX]


def _listed(
    table: TableCounts, least: int, apart: int
) -> tuple[list[tuple[str, Counts]], list[tuple[str, Counts]]]:
    """The partitions that are listed, and the others."""
    partitions = list(table.partitions.items())
    if least == 0:
        return partitions, []
    listed = [item for item in partitions if item[1].upper() > least]
    others = [item for item in partitions if item[1].upper() <= least]
    more = apart - len(listed)
    if more > 0:
        others.sort(key=_upper_of, reverse=True)
        listed += others[:more]
        others = others[more:]
    return listed, others


def _upper_of(partition: tuple[str, Counts]) -> int:
    return partition[1].upper()


def _content_of_table(
    table: TableCounts,
    listed: list[tuple[str, Counts]],
    others: list[tuple[str, Counts]],
    ranges_max: int,
) -> dict[str, object]:
    whole = Counts(0)
    whole.add(table.rest)
    for counts in table.partitions.values():
        whole.add(counts)
    ranges = joined([*table.ranges, *[point_of(key, counts) for key, counts in others]], ranges_max)
    plans = dict(table.plans)
    if whole.points:
        plans["point"] = plans.get("point", 0) + whole.points
    return {
        "account": table.account,
        "table": table.name,
        "numbers": whole.numbers(),
        "plans": plans,
        "writes": table.writes,
        "write_requests": table.write_requests,
        "lost_updates": table.lost_updates,
        "properties_max": table.properties_max,
        "entity_bytes_max": table.entity_bytes_max,
        "partitions": [
            [shown_key(key), *counts.numbers(), counts.missed] for key, counts in listed
        ],
        "ranges": [_content_of_range(each) for each in ranges],
        "spans": [
            [shown_key(first), None if last is None else shown_key(last), read]
            for (first, last), read in table.spans.items()
        ],
        "shapes": [_content_of_shape(each) for each in table.shapes.values()],
    }


def _content_of_range(counted: CountedRange) -> list[object]:
    first, last = shown_key(decode_key(counted.first)), shown_key(decode_key(counted.last))
    return [first, last, counted.read, counted.written]


def _content_of_shape(counts: ShapeCounts) -> list[object]:
    terms, joined_by = shape_terms(counts.shape)
    return [
        shape_text(counts.shape),
        terms,
        joined_by,
        counts.names_select,
        counts.is_look,
        counts.plan,
        *(counts.queries, counts.pages, counts.read, counts.returned, counts.seconds),
        counts.durations,
        counts.ended,
    ]
