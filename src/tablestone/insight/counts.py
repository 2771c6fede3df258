"""Counts of requests by table, partition and query shape, and how they are merged.

A worker counts each request in the window of the present minute and reports its windows about once a second. The admin
process merges them. Memory is bounded: when there is no room, the partitions with the fewest entities lose their own
counts to the rest of their table and its key ranges. A partition counted apart later says how many entities it may have
missed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final
from zlib import crc32

import orjson

from tablestone.advice import filter_shape
from tablestone.model.entity import entity_size
from tablestone.model.entity_json import key_of, read_raw, typed_properties
from tablestone.model.keys import decode_key, encode_key
from tablestone.model.operations import (
    DeleteEntity,
    EntitiesPage,
    EntityGroupTransaction,
    GetEntity,
    InsertEntity,
    InsertOrMergeEntity,
    InsertOrReplaceEntity,
    MergeEntity,
    QueryEntities,
    UpdateEntity,
)
from tablestone.telemetry.request_record import RequestRecord

MINUTE_SECONDS: Final = 60
"""Seconds of a window; windows begin at whole minutes since 1970."""
TABLES_MAX: Final = 256
"""Tables of a window that are counted apart."""
COUNTED_PARTITIONS_MAX: Final = 4096
"""Partitions of all tables that a worker counts apart within a window."""
REPORTED_PARTITIONS_MAX: Final = 256
"""Partitions of all tables in a worker's report."""
MERGED_PARTITIONS_MAX: Final = 512
"""Partitions of all tables in merged windows."""
KEPT_OF_TABLE: Final = 16
"""Partitions that each of the `BUSY_TABLES` busiest tables keeps in reports and merged windows, beyond these limits."""
BUSY_TABLES: Final = 16
SHAPES_MAX: Final = 256
"""Query shapes of all tables in a window."""
RANGES_MAX: Final = 64
"""Key ranges of a table, for the partitions that are not counted apart."""
RANGES_OF_OTHERS: Final = 2
"""The same in a worker's report for a table that is not one of the `BUSY_TABLES`."""
VALUES_MAX: Final = 16
"""Different values of a query shape's fixed properties that are counted; more need no exact number."""
SPANS_MAX: Final = 16
"""Spans of keys that scans of a table passed. One span around all of them replaces more."""
PAGE_BOUNDS: Final[tuple[float, ...]] = (
    *(0.0005, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 30.0),
)
"""Bounds of the histogram of page times, in seconds: closer together than those of the metrics."""
LARGE_BODY_BYTES: Final = 256 * 1024
"""Bodies from this length on have their entities measured: an entity of half the limit has at least so long a text."""
KEY_LENGTH_MAX: Final = 128
"""Characters of a PartitionKey in a report. A longer one is cut, and a hash of the whole key follows."""
HASH_MARK: Final = "#"
"""Precedes the hash of a key. No key of an entity contains it (wire 1.3)."""

TableKey = tuple[str, str]
"""An account, and a table's name in lower case."""
ShapeName = tuple[str, bool, str, bool]
"""The text of a shape, whether it has `$select`, the kind of its plan, and whether a tool of ours sent it."""
_OTHER_SHAPES: Final[filter_shape.ShapeKey] = ("...",)
_OF_ONE_PARTITION: Final = ("point", "row range", "partition")
"""Kinds of plans (`query.plan.PlanKind`) that read one partition."""
_TABLE_EXISTS: Final = frozenset(
    ("EntityAlreadyExists", "UpdateConditionNotSatisfied", "ConditionNotMet", "ResourceNotFound")
)
"""Errors that prove that the table exists. With any other error, the client may have made up its name."""
_UPSERTS: Final = (InsertOrReplaceEntity, InsertOrMergeEntity)
_WITH_ENTITY: Final = (InsertEntity, UpdateEntity, MergeEntity, *_UPSERTS)
_KINDS: Final[Mapping[type, str]] = {
    **dict.fromkeys(_UPSERTS, "upsert"),
    InsertEntity: "insert",
    DeleteEntity: "delete",
}
"""Kinds of writes. Any other write is an update."""


class CountedRange:
    """Keys from `first` to `last`, inclusive, and the entities read and written in them."""

    def __init__(self, first: bytes, last: bytes, read: int, written: int) -> None:
        self.first = first
        self.last = last
        self.read = read
        self.written = written


def joined(ranges: Iterable[CountedRange], ranges_max: int) -> list[CountedRange]:
    """The ranges as at most `ranges_max` (2 or more) new ones, ascending and disjoint.

    Overlapping ranges are joined, because it is unknown where in them their counts lie. A range with a large share of
    the counts stays apart from its neighbours.
    """
    ordered = sorted(ranges, key=lambda each: each.first)
    total = sum([each.read + each.written + 1 for each in ordered])
    share = 2 * total // (ranges_max - 1) + 1 if len(ordered) > ranges_max else 0
    found: list[CountedRange] = []
    size = 0
    for each in ordered:
        weight = each.read + each.written + 1
        if found:
            before = found[-1]
            if each.first <= before.last or size + weight <= share:
                before.last = max(before.last, each.last)
                before.read += each.read
                before.written += each.written
                size += weight
                continue
        found.append(CountedRange(each.first, each.last, each.read, each.written))
        size = weight
    return found


def with_points(
    ranges: list[CountedRange], points: Iterable[CountedRange], ranges_max: int
) -> list[CountedRange]:
    """Add the counts of single keys to ranges that are ascending and disjoint. Changes `ranges`."""
    firsts = [each.first for each in ranges]
    outside: list[CountedRange] = []
    for point in points:
        place = bisect_right(firsts, point.first) - 1
        if place >= 0 and point.first <= ranges[place].last:
            within = ranges[place]
            within.read += point.read
            within.written += point.written
        else:
            outside.append(point)
    return joined([*ranges, *outside], ranges_max) if outside else ranges


class Counts:
    """The counts of one or several partitions.

    `points` are point reads that found their entity: each is one read, one entity read and one returned. The `other_`
    members count all other reads. Up to `missed` more entities were read or written before the partition was counted
    apart. The history sets the last three: `peak` is the most entities in a second; `busiest` and `busiest_writes` are
    the entities and the writes of the busiest minutes.
    """

    def __init__(self, missed: int) -> None:
        self.points = 0
        self.other_reads = 0
        self.writes = 0
        self.other_read = 0
        self.other_returned = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.conflicts = 0
        self.refused = 0
        self.failed = 0
        self.missed = missed
        self.peak = 0.0
        self.busiest = 0
        self.busiest_writes = 0

    def numbers(self) -> list[int]:
        """In the order of the members of `insight.report.Activity`."""
        points = self.points
        return [
            *(points + self.other_reads, self.writes),
            *(self.read(), points + self.other_returned),
            *(self.bytes_in, self.bytes_out),
            *(self.conflicts, self.refused, self.failed),
        ]

    def add(self, other: Counts) -> None:
        """Add other counts, but not their `missed`."""
        self.points += other.points
        self.other_reads += other.other_reads
        self.writes += other.writes
        self.other_read += other.other_read
        self.other_returned += other.other_returned
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.conflicts += other.conflicts
        self.refused += other.refused
        self.failed += other.failed
        self.peak = max(self.peak, other.peak)
        self.busiest = max(self.busiest, other.busiest)
        self.busiest_writes = max(self.busiest_writes, other.busiest_writes)

    def read(self) -> int:
        return self.points + self.other_read

    def entities(self) -> int:
        return self.read() + self.writes

    def operations(self) -> int:
        """Operations as an account's target counts them: each point read, page of a query, and write."""
        reads = self.points + self.other_reads
        return reads + self.writes + self.conflicts + self.refused + self.failed

    def upper(self) -> int:
        """An upper bound of the entities read or written, and of the operations."""
        reads = self.points + max(self.other_reads, self.other_read)
        return reads + self.writes + self.conflicts + self.refused + self.failed + self.missed


class ShapeCounts:
    """The counts of the queries with one `name`. `ended` are pages that were the last of their query."""

    def __init__(self, name: ShapeName, terms: list[list[str]], joined: str) -> None:
        self.name = name
        self.terms = terms
        self.joined = joined
        self.queries = 0
        self.pages = 0
        self.ended = 0
        self.read = 0
        self.returned = 0
        self.seconds = 0.0
        self.durations = [0] * (len(PAGE_BOUNDS) + 1)
        self.values: set[int] = set()
        """Hashes of the different values that the filters fix, up to `VALUES_MAX`."""

    def add(self, other: ShapeCounts) -> None:
        self.queries += other.queries
        self.pages += other.pages
        self.ended += other.ended
        self.read += other.read
        self.returned += other.returned
        self.seconds += other.seconds
        self.values = set(sorted(self.values | other.values)[:VALUES_MAX])
        self.durations = [
            one + more for one, more in zip(self.durations, other.durations, strict=True)
        ]


class TableCounts:
    """The counts of one table: by partition, and for the `rest` together. `name` is as a client wrote it."""

    def __init__(self, account: str, name: str) -> None:
        self.account = account
        self.name = name
        self.partitions: dict[str, Counts] = {}
        self.rest = Counts(0)
        self.tools = Counts(0)
        """The counts of our tools, which are nowhere else but in the shapes."""
        self.tool_requests = 0
        self.peak = 0.0
        """The most entities in a second. The history sets this, and `busiest`."""
        self.busiest = 0
        """The entities of the busiest minute."""
        self.plans: dict[str, int] = {}
        """Reads by kind of plan, without the `points`."""
        self.writes: dict[str, int] = {}
        self.write_requests = 0
        self.lost_updates = 0
        self.properties_max = 0
        self.entity_bytes_max = 0
        """The largest entity in a request of `LARGE_BODY_BYTES` or more."""
        self.ranges: list[CountedRange] = []
        """Key ranges with the partitions that `rest` counts together."""
        self.spans: dict[tuple[str, str | None], int] = {}
        """Entities read by scans, by the first and the last PartitionKey that they passed; None is the table's end."""
        self.shapes: dict[tuple[object, ...], ShapeCounts] = {}
        """By name. In a worker, the `ShapeKey` replaces the text, because it is made faster."""

    def whole(self) -> Counts:
        whole = Counts(0)
        whole.add(self.rest)
        for counts in self.partitions.values():
            whole.add(counts)
        return whole

    def add(self, other: TableCounts, missed: int) -> None:
        """Add the counts of the same table in another window, where any partition may have missed `missed` entities.

        A partition adds only what it missed beyond that: `merged` adds the sum over all windows to each.
        """
        self.add_rest(other)
        for key, counts in other.partitions.items():
            present = self.partitions.get(key)
            if present is None:
                present = self.partitions[key] = Counts(0)
            present.add(counts)
            present.missed += counts.missed - missed

    def add_rest(self, other: TableCounts) -> None:
        """Add all counts except those of partitions."""
        self.rest.add(other.rest)
        self.tools.add(other.tools)
        self.tool_requests += other.tool_requests
        self.peak = max(self.peak, other.peak)
        self.busiest = max(self.busiest, other.busiest)
        _add_by_name(self.plans, other.plans)
        _add_by_name(self.writes, other.writes)
        self.write_requests += other.write_requests
        self.lost_updates += other.lost_updates
        self.properties_max = max(self.properties_max, other.properties_max)
        self.entity_bytes_max = max(self.entity_bytes_max, other.entity_bytes_max)
        self.ranges += other.ranges
        for (first, last), read in other.spans.items():
            self.add_span(first, last, read)
        for each in other.shapes.values():
            self.add_shape(each)

    def add_shape(self, counts: ShapeCounts) -> None:
        present = self.shapes.get(counts.name)
        if present is None:
            present = ShapeCounts(counts.name, counts.terms, counts.joined)
            self.shapes[counts.name] = present
        present.add(counts)

    def add_span(self, first: str, last: str | None, read: int) -> None:
        span = (first, last)
        if span not in self.spans and len(self.spans) >= SPANS_MAX:
            spans = [*self.spans, span]
            lasts = [key for _, key in spans if key is not None]
            around = (
                min([key for key, _ in spans], key=encode_key),
                max(lasts, key=encode_key) if len(lasts) == len(spans) else None,
            )
            self.spans = {around: sum(self.spans.values())}
        self.spans[span] = self.spans.get(span, 0) + read

    def add_write(self, write: object) -> None:
        if isinstance(write, _WITH_ENTITY):
            self.properties_max = max(self.properties_max, len(write.entity.members))
        kind = _KINDS.get(type(write), "update")
        self.writes[kind] = self.writes.get(kind, 0) + 1


def _add_by_name(sums: dict[str, int], counts: Mapping[str, int]) -> None:
    for name, count in counts.items():
        sums[name] = sums.get(name, 0) + count


class WindowCounts:
    """The counts of the minute `minute` since 1970, or those of several minutes or workers, merged."""

    def __init__(self, minute: int = 0) -> None:
        self.minute = minute
        self.tables: dict[TableKey, TableCounts] = {}
        self.other = TableCounts("", "")
        """Requests for tables that have no room here or may not exist."""
        self.other.tools = self.other.rest
        self.missed = 0
        """The most entities of a partition that is not counted apart."""
        self.account_peaks: dict[str, float] = {}
        """The most operations of each account in a second; set by the history."""
        self.partitions = 0
        self.shapes = 0

    def uppers(self) -> list[int]:
        """The upper bounds of the counts of all partitions, ascending."""
        tables = self.tables.values()
        return sorted([counts.upper() for table in tables for counts in table.partitions.values()])

    def drop_partitions(self, most: int, equals: int, kept: int) -> None:
        """Drop the partitions with fewer entities than `most`, and `equals` of those with exactly as many.

        Their counts move to the rest of their tables. Each of the busiest tables keeps `kept` partitions.
        """
        tables = list(self.tables.values())
        if kept and len(tables) > BUSY_TABLES:
            tables.sort(key=lambda table: table.whole().upper(), reverse=True)
        for place, table in enumerate(tables):
            dropped: list[tuple[str, Counts]] = []
            for key, counts in table.partitions.items():
                upper = counts.upper()
                if upper < most:
                    dropped.append((key, counts))
                elif upper == most and equals > 0:
                    equals -= 1
                    dropped.append((key, counts))
            more = kept - len(table.partitions) + len(dropped)
            if place < BUSY_TABLES and more > 0:
                dropped.sort(key=lambda each: each[1].upper())
                del dropped[-more:]
            points: list[CountedRange] = []
            for key, counts in dropped:
                del table.partitions[key]
                table.rest.add(counts)
                encoded = encode_key(key)
                points.append(CountedRange(encoded, encoded, counts.read(), counts.writes))
            if points:
                table.ranges = with_points(table.ranges, points, RANGES_MAX)
                self.partitions -= len(points)
                self.missed = max(self.missed, most)

    def limit_partitions(self, partitions_max: int) -> None:
        """Drop the partitions with the fewest entities, until `partitions_max` are left."""
        uppers = self.uppers()
        excess = len(uppers) - partitions_max
        if excess > 0:
            most = uppers[excess - 1]
            self.drop_partitions(most, excess - bisect_left(uppers, most), KEPT_OF_TABLE)


def merged(windows: Iterable[WindowCounts]) -> WindowCounts:
    """All windows as a new one, which keeps the tables, partitions and shapes with the most entities."""
    whole = WindowCounts()
    for window in windows:
        whole.other.rest.add(window.other.rest)
        for account, peak in window.account_peaks.items():
            whole.account_peaks[account] = max(peak, whole.account_peaks.get(account, 0.0))
        for key, table in window.tables.items():
            present = whole.tables.get(key)
            if present is None:
                present = whole.tables[key] = TableCounts(table.account, table.name)
            present.add(table, window.missed)
        # A partition that this window does not count apart may have that many entities in it.
        whole.missed += window.missed
    for table in whole.tables.values():
        for counts in table.partitions.values():
            counts.missed += whole.missed
        table.ranges = joined(table.ranges, RANGES_MAX)
    if len(whole.tables) > TABLES_MAX:
        ordered = sorted(whole.tables.items(), key=lambda item: item[1].whole().entities())
        for key, table in ordered[:-TABLES_MAX]:
            whole.other.rest.add(table.whole())
            whole.other.rest.add(table.tools)
            for counts in table.partitions.values():
                whole.missed = max(whole.missed, counts.upper())
            del whole.tables[key]
    whole.limit_partitions(MERGED_PARTITIONS_MAX)
    shapes = [
        (shape.read, table, name)
        for table in whole.tables.values()
        for name, shape in table.shapes.items()
    ]
    if len(shapes) > SHAPES_MAX:
        shapes.sort(key=lambda each: each[0])
        for _, table, name in shapes[:-SHAPES_MAX]:
            del table.shapes[name]
    return whole


def window_content(window: WindowCounts) -> dict[str, object]:
    """The window with its busiest partitions as a JSON object, for a worker's report."""
    reported = WindowCounts()
    reported.missed = window.missed
    for key, table in window.tables.items():
        copy = reported.tables[key] = TableCounts(table.account, table.name)
        copy.add_rest(table)
        copy.ranges = joined(table.ranges, RANGES_MAX)
        copy.partitions = dict(table.partitions)
    reported.limit_partitions(REPORTED_PARTITIONS_MAX)
    tables = sorted(reported.tables.values(), key=lambda table: -table.whole().upper())
    return {
        "minute": window.minute,
        "unlisted": reported.missed,
        "other": window.other.rest.numbers(),
        "tables": [
            _content_of_table(table, RANGES_MAX if place < BUSY_TABLES else RANGES_OF_OTHERS)
            for place, table in enumerate(tables)
        ],
    }


def _content_of_table(table: TableCounts, ranges_max: int) -> dict[str, object]:
    plans = dict(table.plans)
    points = table.whole().points
    if points:
        plans["point"] = plans.get("point", 0) + points
    return {
        "account": table.account,
        "table": table.name,
        "rest": table.rest.numbers(),
        "tools": table.tools.numbers(),
        "tool_requests": table.tool_requests,
        "plans": plans,
        "writes": table.writes,
        "write_requests": table.write_requests,
        "lost_updates": table.lost_updates,
        "properties_max": table.properties_max,
        "entity_bytes_max": table.entity_bytes_max,
        "partitions": [
            [shown_key(key), counts.missed, counts.numbers()]
            for key, counts in table.partitions.items()
        ],
        "ranges": [
            [
                *(shown_key(decode_key(end)) for end in (each.first, each.last)),
                each.read,
                each.written,
            ]
            for each in joined(table.ranges, ranges_max)
        ],
        "spans": [
            [shown_key(first), None if last is None else shown_key(last), read]
            for (first, last), read in table.spans.items()
        ],
        "shapes": [
            [
                *(each.name, each.terms, each.joined),
                *(each.queries, each.pages, each.ended, each.read, each.returned),
                *(each.seconds, each.durations, sorted(each.values)),
            ]
            for each in table.shapes.values()
        ],
    }


def read_window(content: Mapping[str, Any]) -> WindowCounts:
    window = WindowCounts(content["minute"])
    window.missed = content["unlisted"]
    window.other.rest = _counts_of(content["other"], 0)
    for each in content["tables"]:
        table = TableCounts(each["account"], each["table"])
        table.rest = _counts_of(each["rest"], 0)
        table.tools = _counts_of(each["tools"], 0)
        table.tool_requests = each["tool_requests"]
        table.plans = each["plans"]
        table.writes = each["writes"]
        table.write_requests = each["write_requests"]
        table.lost_updates = each["lost_updates"]
        table.properties_max = each["properties_max"]
        table.entity_bytes_max = each["entity_bytes_max"]
        for key, missed, numbers in each["partitions"]:
            table.partitions[key] = _counts_of(numbers, missed)
        for first, last, read, written in each["ranges"]:
            table.ranges.append(CountedRange(encode_key(first), encode_key(last), read, written))
        for first, last, read in each["spans"]:
            table.spans[first, last] = read
        for name, terms, joined_by, *numbers in each["shapes"]:
            shape = ShapeCounts(tuple(name), terms, joined_by)
            shape.queries, shape.pages, shape.ended, shape.read, shape.returned = numbers[:5]
            shape.seconds, shape.durations, values = numbers[5:]
            shape.values = set(values)
            table.add_shape(shape)
        window.tables[table.account, table.name.lower()] = table
    return window


def _counts_of(numbers: Sequence[int], missed: int) -> Counts:
    counts = Counts(missed)
    counts.other_reads, counts.writes, counts.other_read, counts.other_returned = numbers[:4]
    counts.bytes_in, counts.bytes_out = numbers[4:6]
    counts.conflicts, counts.refused, counts.failed = numbers[6:]
    return counts


def shown_key(key: str) -> str:
    """The key as valid Unicode, cut to `KEY_LENGTH_MAX`."""
    if not key.isascii():
        key = key.encode("utf-8", "replace").decode("utf-8")
    if len(key) <= KEY_LENGTH_MAX:
        return key
    return f"{key[:KEY_LENGTH_MAX]}{hash_of(key)}"


def hash_of(key: str) -> str:
    """A hash of a key, the same in every worker."""
    return HASH_MARK + blake2b(key.encode("utf-8", "replace"), digest_size=6).hexdigest()


class InsightCounts:
    """Counts the requests of one worker in windows of a minute. `now` is in seconds since 1970."""

    def __init__(self, now: float) -> None:
        self.window = WindowCounts(int(now) // MINUTE_SECONDS)
        self._ended: orjson.Fragment | None = None
        self._by_name: dict[tuple[str, str], TableCounts] = {}
        """The tables of the window by name, as clients spell it."""
        self._known: set[TableKey] = set()
        """Tables known to exist, from all windows: a refused request may be the only one of its minute."""
        self._account = ""
        self._name = ""
        self._table = self.window.other
        """The table of the last request; the next one is often for the same."""

    def content(self, now: float) -> dict[str, object]:
        """The present and the last window, for a report. A window that has ended is serialized only once."""
        minute = int(now) // MINUTE_SECONDS
        if minute != self.window.minute:
            self._ended = orjson.Fragment(orjson.dumps(window_content(self.window)))
            self.window = WindowCounts(minute)
            self._by_name = {}
            self._account = self._name = ""
            self._table = self.window.other
        return {"present": window_content(self.window), "ended": self._ended}

    def count_point_read(self, record: RequestRecord, operation: GetEntity) -> None:
        """Count a point read that found its entity."""
        name, key = operation.table, operation.key.partition_key
        table = self._table
        if name != self._name or record.account != self._account:
            table = self._table_of(record.account, name, is_found=True)
        counts = table.partitions.get(key)
        if record.from_tools:
            counts = table.tools
            table.tool_requests += 1
        elif counts is None:
            counts = self._partition(table, key)
        counts.points += 1
        counts.bytes_out += record.bytes_out

    def count(self, record: RequestRecord, plan: str, read: int, returned: int) -> None:
        """Count any other request on entities."""
        operation, failure = record.operation, record.failure
        place, is_found = place_of(operation), False
        if place is not None:
            name, key = place
            is_found = failure is None or failure.code in _TABLE_EXISTS
        elif record.refused is not None and operation is None:
            (name, is_found), key = record.refused, None
        else:
            return
        if failure is not None and failure.code == "TableNotFound":
            self._known.discard((record.account, name.lower()))
        table = self._table_of(record.account, name, is_found=is_found)
        if isinstance(operation, QueryEntities) and record.result is not None:
            key = self._count_page(table, operation, record, key)
        counts = table.rest if key is None else table.partitions.get(key)
        if record.from_tools:
            counts = table.tools
            table.tool_requests += 1
        elif counts is None:
            assert key is not None
            counts = self._partition(table, key)
        counts.bytes_in += record.bytes_in
        counts.bytes_out += record.bytes_out
        writes: Sequence[object] = ()
        # A point read that finds nothing, or nothing new, is not a failure.
        if failure is not None and not (
            isinstance(operation, GetEntity)
            and (failure.code == "ResourceNotFound" or failure.status == 304)
        ):
            if failure.status in (409, 412):
                counts.conflicts += 1
            elif failure.status >= 500:
                counts.failed += 1
            else:
                counts.refused += 1
        elif plan:
            counts.other_reads += 1
            counts.other_read += read
            counts.other_returned += returned
        else:
            writes = (operation,)
            if isinstance(operation, EntityGroupTransaction):
                writes = operation.writes
            counts.writes += len(writes)
        if record.from_tools:
            return
        if plan:
            table.plans[plan] = table.plans.get(plan, 0) + 1
        table.lost_updates += failure is not None and failure.status == 412
        table.write_requests += bool(writes)
        for write in writes:
            table.add_write(write)
        if record.bytes_in >= LARGE_BODY_BYTES and failure is None:
            table.entity_bytes_max = max(table.entity_bytes_max, largest_entity(operation))

    def _count_page(
        self, table: TableCounts, query: QueryEntities, record: RequestRecord, key: str | None
    ) -> str | None:
        """Count a page. Returns the partition that the query asks for: none for a scan, even one inside a partition."""
        page = record.result
        if not isinstance(page, EntitiesPage) or table is self.window.other:
            return None
        counts = self._shape(table, query, page.plan, from_tools=record.from_tools)
        seconds = record.ended - record.started
        counts.queries += query.token is None
        if query.token is None and len(counts.values) < VALUES_MAX:
            values = filter_shape.fixed_values(query.filter)
            if values:
                counts.values.add(crc32(repr(values).encode("utf-8", "surrogatepass")))
        counts.pages += 1
        counts.ended += page.token is None
        counts.read += page.rows_read
        counts.returned += page.found
        counts.seconds += seconds
        counts.durations[bisect_left(PAGE_BOUNDS, seconds)] += 1
        if key is not None or page.rows_read == 0 or record.from_tools:
            return key
        first, last = span_of(query, page)
        if page.plan in _OF_ONE_PARTITION and first == last:
            return first
        table.add_span(first, last, page.rows_read)
        return None

    def _shape(
        self, table: TableCounts, query: QueryEntities, plan: str, *, from_tools: bool
    ) -> ShapeCounts:
        names_select = query.projection is not None and query.projection.names is not None
        shape = filter_shape.shape_key(query.filter)
        counts = table.shapes.get((shape, plan, names_select, from_tools))
        if counts is None:
            if self.window.shapes >= SHAPES_MAX:
                shape = _OTHER_SHAPES
                counts = table.shapes.get((shape, plan, names_select, from_tools))
            if counts is None:
                self.window.shapes += 1
                text, node = "...", None
                if shape is not _OTHER_SHAPES:
                    text, node = filter_shape.shape_text(query.filter), query.filter
                counts = ShapeCounts(
                    (text, names_select, plan, from_tools), *filter_shape.shape_terms(node)
                )
                table.shapes[shape, plan, names_select, from_tools] = counts
        return counts

    def _table_of(self, account: str, name: str, *, is_found: bool) -> TableCounts:
        """The counts of the table; `window.other` if it has no room or may not exist."""
        by_name, tables = self._by_name, self.window.tables
        table = by_name.get((account, name))
        if table is None:
            lower = (account, name.lower())
            table = tables.get(lower)
            if table is None:
                if not (is_found or lower in self._known) or len(tables) >= TABLES_MAX:
                    return self.window.other
                table = tables[lower] = TableCounts(account, name)
                if len(self._known) >= 4 * TABLES_MAX:
                    self._known.clear()
                self._known.add(lower)
            if len(by_name) >= 4 * TABLES_MAX:  # the same names in many spellings
                by_name.clear()
            by_name[account, name] = table
        self._account, self._name, self._table = account, name, table
        return table

    def _partition(self, table: TableCounts, key: str) -> Counts:
        window = self.window
        if table is window.other:
            return table.rest
        if window.partitions >= COUNTED_PARTITIONS_MAX:
            # Drop half of them. Then `missed` stays below 2 / `COUNTED_PARTITIONS_MAX` of all requests and entities of
            # the window: whenever it grows by n, at least half of the partitions have counted n more.
            uppers = window.uppers()
            window.drop_partitions(uppers[(len(uppers) - 1) // 2], len(uppers), 0)
        window.partitions += 1
        counts = table.partitions[key] = Counts(window.missed)
        return counts


def place_of(operation: object) -> tuple[str, str | None] | None:
    """The table and the PartitionKey (None for several) of an operation on entities; None for any other operation."""
    if isinstance(operation, GetEntity | DeleteEntity):
        return operation.table, operation.key.partition_key
    if isinstance(operation, QueryEntities):
        return operation.table, filter_shape.partition_of(operation.filter)
    if isinstance(operation, EntityGroupTransaction):
        return operation.table, operation.partition_key
    if isinstance(operation, _WITH_ENTITY):
        return operation.table, operation.entity.key.partition_key
    return None


def span_of(query: QueryEntities, page: EntitiesPage) -> tuple[str, str | None]:
    """The first and the last PartitionKey that a page of a scan passed; "" and None are the ends of the table."""
    reads_all = page.plan == "table"
    begins = ends = None
    if query.token is not None:
        begins = query.token.next_partition_key
    elif page.stored and not reads_all:
        begins = key_of(read_raw(page.stored[0])).partition_key
    if page.token is not None:
        ends = page.token.next_partition_key
    elif page.stored and not reads_all:
        ends = key_of(read_raw(page.stored[-1])).partition_key
    first, last = (ends, begins) if query.reverse else (begins, ends)
    return first or "", last


def largest_entity(operation: object) -> int:
    """The bytes of the largest written entity, by the documented formula (wire 9)."""
    writes = operation.writes if isinstance(operation, EntityGroupTransaction) else (operation,)
    most = 0
    for write in writes:
        if isinstance(write, _WITH_ENTITY):
            members = write.entity.members.values()
            # The text of an entity has at least a quarter of the entity's bytes.
            if sum(map(len, members)) > most // 4:
                raw = read_raw(f"{{{','.join(members)}}}".encode("utf-8", "surrogatepass"))
                most = max(most, entity_size(write.entity.key, typed_properties(raw)))
    return most
