"""Counts of the requests of one worker by table, partition and query shape, in windows of a minute.

Memory is bounded: if there are too many partitions, the counts of those with the fewest entities are dropped. They stay
in those of the table and its key ranges, and a partition that comes later says how many entities it may have missed.
A request costs a look-up and some additions.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

import orjson

from tablestone.advice.filter_shape import (
    ShapeKey,
    partition_of,
    shape_key,
    shape_terms,
    shape_text,
)
from tablestone.model.entity import entity_size
from tablestone.model.entity_json import key_of, read_raw, typed_properties
from tablestone.model.errors import StorageError
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


class CountedRange:
    """Keys from `first` to `last`, inclusive, and the entities read and written in them."""

    def __init__(self, first: bytes, last: bytes, read: int, written: int) -> None:
        self.first = first
        self.last = last
        self.read = read
        self.written = written


def _first_of(counted: CountedRange) -> bytes:
    return counted.first


def joined(ranges: Iterable[CountedRange], ranges_max: int) -> list[CountedRange]:
    """The ranges, ascending and disjoint, and at most `ranges_max` (2 or more) of them, as new values.

    Ranges that overlap become one, since the place of their counts is not known. A range with a large share is not
    joined with its neighbours.
    """
    ordered = sorted(ranges, key=_first_of)
    total = 0
    for each in ordered:
        total += each.read + each.written + 1
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
    """The ranges, ascending and disjoint, with the counts of single keys. The ranges are changed."""
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


def grouped(keys: Sequence[tuple[bytes, int]], groups_max: int) -> list[tuple[bytes, bytes]]:
    """The first and the last key of each of at most `groups_max` groups of keys, of about the same weight.

    `keys` are ascending and distinct, each with its weight. A key with a large share is alone.
    """
    ranges = [CountedRange(key, key, weight, 0) for key, weight in keys]
    return [(each.first, each.last) for each in joined(ranges, groups_max)]


LARGE_BODY_BYTES: Final = 256 * 1024
"""The body from which its entities are measured: half of the largest entity has no shorter text."""
UPSERTS: Final = (InsertOrReplaceEntity, InsertOrMergeEntity)
"""The types of writes of an entity that may be there or not; no answer tells which it was."""
WITH_ENTITY: Final = (*(InsertEntity, UpdateEntity, MergeEntity), *UPSERTS)
"""The types of writes that have an entity."""


def place_of(operation: object) -> tuple[str, str | None] | None:
    """The table and the PartitionKey of an operation on entities; None for any other operation."""
    if isinstance(operation, GetEntity | DeleteEntity):
        return operation.table, operation.key.partition_key
    if isinstance(operation, QueryEntities):
        return operation.table, partition_of(operation.filter)
    if isinstance(operation, EntityGroupTransaction):
        return operation.table, operation.partition_key
    if isinstance(operation, WITH_ENTITY):
        return operation.table, operation.entity.key.partition_key
    return None


def span_of(query: QueryEntities, page: EntitiesPage) -> tuple[str, str | None]:
    """The first and the last PartitionKey that a page of a scan passed; "" and None for the ends of the table."""
    reads_all = page.plan == "table"
    first, last = "", None
    if query.token is not None:
        first = query.token.next_partition_key
    elif page.stored and not reads_all:
        first = key_of(read_raw(page.stored[0])).partition_key
    if page.token is not None:
        last = page.token.next_partition_key
    elif page.stored and not reads_all:
        last = key_of(read_raw(page.stored[-1])).partition_key
    return first, last


def is_answer(operation: object, failure: StorageError) -> bool:
    """Whether the error only says that there is nothing to read, or nothing new: no fault of the request."""
    return isinstance(operation, GetEntity) and (
        failure.code == "ResourceNotFound" or failure.status == 304
    )


def largest_entity(operation: object) -> int:
    """The bytes of the largest entity that is written, by the documented formula (wire 9)."""
    writes = operation.writes if isinstance(operation, EntityGroupTransaction) else (operation,)
    most = 0
    for write in writes:
        if isinstance(write, WITH_ENTITY):
            members = write.entity.members.values()
            if (
                sum(map(len, members)) > most // 4
            ):  # a text has at least a quarter of the bytes that it stands for
                raw = read_raw(f"{{{','.join(members)}}}".encode("utf-8", "surrogatepass"))
                most = max(most, entity_size(write.entity.key, typed_properties(raw)))
    return most


MINUTE_SECONDS: Final = 60
"""Seconds of a window; windows begin at whole minutes since 1970."""
PARTITIONS_MAX: Final = 4096
"""Partitions that a worker counts apart in a window, of all tables."""
TABLES_MAX: Final = 256
"""Tables that a worker counts apart in a window."""
SHAPES_MAX: Final = 256
"""Query shapes that a worker counts apart in a window, of all tables."""
RANGES_MAX: Final = 64
"""Key ranges of the partitions of a table that are not counted apart any more."""
SPANS_MAX: Final = 16
"""Spans of keys that scans of a table passed; further ones are counted as the span around all."""
PAGE_BOUNDS: Final[tuple[float, ...]] = (
    *(0.0005, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 30.0),
)
"""Bounds of the histogram of the time of a page, in seconds: narrower than those of metrics."""
_NOT_APART: Final[ShapeKey] = ("...",)
_OF_ONE_PARTITION: Final = ("point", "row range", "partition")
"""Kinds of plans (`query.plan.PlanKind`) of queries that read one partition alone."""
_OF_A_TABLE_THAT_IS_THERE: Final = frozenset(
    ("EntityAlreadyExists", "UpdateConditionNotSatisfied", "ConditionNotMet", "ResourceNotFound")
)
"""Errors of operations whose table was found. Clients can make up the tables of other errors."""


class Counts:
    """The counts of a partition, or of the rest of a table. `points` are point reads that found their entity.

    A partition may have `missed` so many more entities.
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

    def numbers(self) -> list[int]:
        """In the order of the members of `insight_report.Activity`."""
        points = self.points
        return [
            *(points + self.other_reads, self.writes),
            *(points + self.other_read, points + self.other_returned),
            *(self.bytes_in, self.bytes_out),
            *(self.conflicts, self.refused, self.failed),
        ]

    def read(self) -> int:
        """Entities that were read."""
        return self.points + self.other_read

    def upper(self) -> int:
        """Not less than the entities read or written, nor than the requests."""
        reads = self.points + max(self.other_reads, self.other_read)
        return reads + self.writes + self.conflicts + self.refused + self.failed + self.missed

    def add(self, other: Counts) -> None:
        """Add the counts of a partition that are dropped."""
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


class ShapeCounts:
    """The counts of the queries of one shape, with or without `$select`, that have one kind of plan.

    `is_look`: they are of tools that look at tables, and not of a program.
    """

    def __init__(self, shape: ShapeKey, plan: str, *, names_select: bool, is_look: bool) -> None:
        self.shape = shape
        self.plan = plan
        self.names_select = names_select
        self.is_look = is_look
        self.queries = 0
        self.pages = 0
        self.ended = 0
        """Pages that were the last of their query."""
        self.read = 0
        self.returned = 0
        self.seconds = 0.0
        self.durations = [0] * (len(PAGE_BOUNDS) + 1)


class TableCounts:
    """The counts of one table: by partition, and of the rest in sums. `plans` lacks the point reads of `Counts`."""

    def __init__(self, account: str, name: str) -> None:
        self.account = account
        self.name = name
        self.partitions: dict[str, Counts] = {}
        self.rest = Counts(0)
        self.plans: dict[str, int] = {}
        self.writes: dict[str, int] = {}
        """Writes that were carried out, by their kind."""
        self.write_requests = 0
        """Requests of these writes: a transaction is one."""
        self.lost_updates = 0
        """Updates and deletes that were refused because another writer came first."""
        self.properties_max = 0
        """The most properties of an entity in a write."""
        self.entity_bytes_max = 0
        """The largest entity in a request of `LARGE_BODY_BYTES` or more."""
        self.ranges: list[CountedRange] = []
        """Where the partitions were whose counts are in the rest."""
        self.spans: dict[tuple[str, str | None], int] = {}
        """Entities read by scans, by the keys that they passed: from the first to the last, None for the end."""
        self.shapes: dict[tuple[ShapeKey, str, bool, bool], ShapeCounts] = {}

    def add_write(self, write: object) -> None:
        kind = "update"
        if isinstance(write, DeleteEntity):
            kind = "delete"
        else:
            if isinstance(write, InsertEntity):
                kind = "insert"
            elif isinstance(write, UPSERTS):
                kind = "upsert"
            assert isinstance(write, WITH_ENTITY)
            self.properties_max = max(self.properties_max, len(write.entity.members))
        self.writes[kind] = self.writes.get(kind, 0) + 1

    def add_span(self, first: str, last: str | None, read: int) -> None:
        span = (first, last)
        if span not in self.spans and len(self.spans) >= SPANS_MAX:
            firsts = [key for key, _ in self.spans]
            lasts = [key for _, key in self.spans]
            whole = sum(self.spans.values())
            around = (
                min([*firsts, first], key=encode_key),
                None
                if None in lasts
                else max([key for key in lasts if key is not None], key=encode_key),
            )
            self.spans = {around: whole}
        self.spans[span] = self.spans.get(span, 0) + read


class WindowCounts:
    """The counts of one window, which began at the minute `minute` since 1970."""

    def __init__(self, minute: int) -> None:
        self.minute = minute
        self.tables: dict[tuple[str, str], TableCounts] = {}
        self.other = TableCounts("", "")
        """Requests of tables that have no room, or of which it is not known whether they are there."""
        self.missed = 0
        """The most entities that a partition can have had without being counted apart."""
        self.partitions = 0
        self.shapes = 0


class InsightCounts:
    """The counts of one worker. `minute` is the present one, since 1970."""

    def __init__(self, minute: int) -> None:
        self.window = WindowCounts(minute)
        self._by_name: dict[tuple[str, str], TableCounts] = {}
        """The tables of the window by their names as clients write them."""
        self._known: set[tuple[str, str]] = set()
        """Tables that were found, in any window: a request that is refused may be the only one of a minute."""
        self._account = ""
        self._name = ""
        self._table = self.window.other
        """The table of the last request: the next one is often of the same."""

    def begin_window(self, minute: int) -> WindowCounts:
        """Count in a new window from now on, and return the one that has ended."""
        ended = self.window
        self.window = WindowCounts(minute)
        self._by_name = {}
        self._account = self._name = ""
        self._table = self.window.other
        return ended

    def count_point_read(self, record: RequestRecord, operation: GetEntity) -> None:
        """Count a point read that found its entity."""
        name, key = operation.table, operation.key.partition_key
        table = self._table
        if name != self._name or record.account != self._account:
            table = self._table_of(record.account, name, is_found=True)
        counts = table.partitions.get(key)
        if counts is None:
            counts = self._partition(table, key)
        counts.points += 1
        counts.bytes_out += record.bytes_out

    def count(self, record: RequestRecord, plan: str, read: int, returned: int) -> None:
        """Count any other request on entities whose answer is ready."""
        operation, failure = record.operation, record.failure
        place, is_found = place_of(operation), False
        if place is not None:
            name, key = place
            is_found = failure is None or failure.code in _OF_A_TABLE_THAT_IS_THERE
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
        if counts is None:
            assert key is not None
            counts = self._partition(table, key)
        counts.bytes_in += record.bytes_in
        counts.bytes_out += record.bytes_out
        if plan:
            table.plans[plan] = table.plans.get(plan, 0) + 1
        if failure is not None and not is_answer(operation, failure):
            _add_failure(counts, failure)
            table.lost_updates += failure.status == 412
        elif plan:
            counts.other_reads += 1
            counts.other_read += read
            counts.other_returned += returned
        elif isinstance(operation, EntityGroupTransaction):
            counts.writes += len(operation.writes)
            table.write_requests += 1
            for write in operation.writes:
                table.add_write(write)
        else:
            counts.writes += 1
            table.write_requests += 1
            table.add_write(operation)
        if record.bytes_in >= LARGE_BODY_BYTES and failure is None:
            table.entity_bytes_max = max(table.entity_bytes_max, largest_entity(operation))

    def _count_page(
        self, table: TableCounts, query: QueryEntities, record: RequestRecord, key: str | None
    ) -> str | None:
        """Count a page by its shape and its span of keys. Returns its partition if the query is of one alone.

        A page of a scan is of none, also if it lies inside one partition: the caller did not ask for that partition.
        """
        page = record.result
        if not isinstance(page, EntitiesPage) or table is self.window.other:
            return None
        counts = self._shape(table, query, page.plan, is_look=record.is_look)
        seconds = record.ended - record.started
        counts.queries += query.token is None
        counts.pages += 1
        counts.ended += page.token is None
        counts.read += page.rows_read
        counts.returned += len(page.stored)
        counts.seconds += seconds
        counts.durations[bisect_left(PAGE_BOUNDS, seconds)] += 1
        if key is not None or page.rows_read == 0:
            return key
        first, last = span_of(query, page)
        if page.plan in _OF_ONE_PARTITION and first == last:
            return first
        table.add_span(first, last, page.rows_read)
        return None

    def _shape(
        self, table: TableCounts, query: QueryEntities, plan: str, *, is_look: bool
    ) -> ShapeCounts:
        names_select = query.projection is not None and query.projection.names is not None
        shape = shape_key(query.filter)
        counts = table.shapes.get((shape, plan, names_select, is_look))
        if counts is None:
            if self.window.shapes >= SHAPES_MAX:
                shape = _NOT_APART
                counts = table.shapes.get((shape, plan, names_select, is_look))
            if counts is None:
                self.window.shapes += 1
                counts = ShapeCounts(shape, plan, names_select=names_select, is_look=is_look)
                table.shapes[shape, plan, names_select, is_look] = counts
        return counts

    def _table_of(self, account: str, name: str, *, is_found: bool) -> TableCounts:
        """The counts of the table, or those of all others if there is no room for it, or it may not be there."""
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
            if len(by_name) >= 4 * TABLES_MAX:  # names in many spellings
                by_name.clear()
            by_name[account, name] = table
        self._account, self._name, self._table = account, name, table
        return table

    def _partition(self, table: TableCounts, key: str) -> Counts:
        """The counts of a partition that has none yet."""
        window = self.window
        if table is window.other:
            return table.rest
        if window.partitions >= PARTITIONS_MAX:
            self._drop_partitions()
        window.partitions += 1
        counts = table.partitions[key] = Counts(window.missed)
        return counts

    def _drop_partitions(self) -> None:
        """Make room: drop the half of the partitions that can have had the fewest entities.

        So `missed` stays below 2 / `PARTITIONS_MAX` of all requests and entities of the window: each time that it
        grows by n, at least half of the partitions have n that it did not grow by before.
        """
        window = self.window
        uppers = [
            counts.upper()
            for table in window.tables.values()
            for counts in table.partitions.values()
        ]
        uppers.sort()
        most = uppers[(len(uppers) - 1) // 2]
        for table in window.tables.values():
            dropped = [item for item in table.partitions.items() if item[1].upper() <= most]
            if not dropped:
                continue
            for key, counts in dropped:
                del table.partitions[key]
                table.rest.add(counts)
            points = [point_of(key, counts) for key, counts in dropped]
            table.ranges = with_points(table.ranges, points, RANGES_MAX)
            window.partitions -= len(dropped)
        window.missed = most


def point_of(key: str, counts: Counts) -> CountedRange:
    """A partition as a range of its one key."""
    encoded = encode_key(key)
    return CountedRange(encoded, encoded, counts.read(), counts.writes)


def _add_failure(counts: Counts, failure: StorageError) -> None:
    status = failure.status
    if status in (409, 412):
        counts.conflicts += 1
    elif status >= 500:
        counts.failed += 1
    else:
        counts.refused += 1


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
