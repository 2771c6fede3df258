"""The report of `/insight`: how tables, partitions and queries are used, as values, and as JSON both ways.

`InsightReport` is the whole answer. Its JSON object has the members of the class, with the same names; tuples are
arrays. Moments are seconds since 1970. Counts of partitions have a stated error (`PartitionActivity.missed`); all other
counts are exact.
"""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from typing import Any, Final

import orjson

from tablestone import limits

NOW, HOUR, DAY = PERIODS = ("now", "hour", "day")
"""The periods of a report. Each ends with the report."""
PERIOD_WORDS: Final = {NOW: "the last 5 minutes", HOUR: "the last hour", DAY: "the last day"}
NOW_SECONDS: Final = 300
HOUR_SECONDS: Final = 3600
DAY_SECONDS: Final = 86_400
HOUR_BUCKET_SECONDS: Final = 60
"""Seconds of each time bucket of the last hour."""
DAY_BUCKET_SECONDS: Final = 900
"""Seconds of each time bucket of the last day."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Counts of a table or partition.

    `reads` are point reads and pages of queries; `writes` are writes that were carried out, each of a transaction.
    `entities_read` were examined for the reads, also those that a filter left out; `entities_returned` were in the
    answers. `conflicts` were answered 409 or 412, `refused` any other 4xx, also for the signature or the body where the
    address names the table, `failed` 5xx. A point read that finds nothing is a read. `bytes_in` and `bytes_out` are of
    bodies.
    """

    reads: int = 0
    writes: int = 0
    entities_read: int = 0
    entities_returned: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    conflicts: int = 0
    refused: int = 0
    failed: int = 0

    @property
    def entities(self) -> int:
        """Entities read or written."""
        return self.entities_read + self.writes

    @property
    def entities_used(self) -> int:
        """Entities returned or written: without those that filters left out."""
        return self.entities_returned + self.writes


@dataclass(frozen=True, slots=True)
class Rate:
    """Entities read or written a second, or operations of an account: the mean of a period, and the most in any second.

    Of a partition, `busiest_minute` and `busiest_minute_writes` are the means of the minutes with most entities and
    with most writes. `is_throttled`: the busiest minute of a partition, or the busiest second of an account, is above
    the target, so Azure would throttle. A table has no target.
    """

    mean: float
    peak: float
    is_throttled: bool
    busiest_minute: float = 0.0
    busiest_minute_writes: float = 0.0


@dataclass(frozen=True, slots=True)
class Series:
    """Counts over time, each with one number for each time bucket. Buckets without a request are 0.

    `starts` are the beginnings of the buckets, ascending, each `seconds` long; the last one is not complete yet.
    `entities` were read or written.
    """

    seconds: int
    starts: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    entities: tuple[int, ...]
    bytes: tuple[int, ...]
    conflicts: tuple[int, ...]
    refused: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KeyRange:
    """PartitionKeys from the first to the last, both inclusive; equal for one partition alone."""

    first: str
    last: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Operations by key range and time. `read[t][r]` are entities read in the bucket `t` and the range `r`.

    `ranges` are ascending and disjoint, in the service's order of keys; inside a range the place is not known. Only
    what is known to be of a range is counted in it. `scanned[t]` are the entities read by pages that passed several
    ranges: the ranges of these are not known. All three together are exact.
    """

    seconds: int
    starts: tuple[int, ...]
    ranges: tuple[KeyRange, ...]
    read: tuple[tuple[int, ...], ...]
    written: tuple[tuple[int, ...], ...]
    scanned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionActivity:
    """The requests of one partition in a period.

    The counts are never too high. Up to `missed` more entities were read or written, whose counts had no room.
    `is_key_whole` is false if the key is cut (long keys) or replaced by its hash. `over_time` are the entities in each
    bucket of the last hour, for the periods `now` and `hour`, and of the last day for `day` (`TableInsight.hour`,
    `TableInsight.day`).
    """

    account: str
    table: str
    partition_key: str
    is_key_whole: bool
    activity: Activity
    missed: int
    rate: Rate
    over_time: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FilterTerm:
    """One comparison of a filter, without its value: `operator` is one of eq, ne, gt, ge, lt, le.

    `type` is the EDM type of the value, as `Edm.String`. A Boolean property alone is `eq` with `Edm.Boolean`.
    """

    property: str
    operator: str
    type: str


@dataclass(frozen=True, slots=True)
class QueryShape:
    """Queries of one table that differ only in their values, in a period.

    `filter` is the text with `?` for each value, empty without a filter. A term that is repeated is there twice,
    however often it was; a text that ends with `...` is not whole. `terms` are its comparisons, in order and without
    repetition. They are `joined` by "and", by "or", or in a "mixed" way (also if there is a `not`), and "" if there is
    at most one. `names_select`: the query has `$select`. `plan` is a `query.plan.PlanKind`. `queries` were begun;
    `pages` were answered, with those of continuation tokens. Of a table scan that names RowKeys, `entities_read` has
    also those that the engine passes over, if the size of the table is known: a run that came to the end of the table
    counts for all its entities. `p50_ms` and `p99_ms` are of one page, in milliseconds, and up to the width of a
    histogram's bucket too high. `is_look`: a tool that looks at tables (the explorer, `count`, `simulate-keys`) sent
    them, not a program.
    """

    account: str
    table: str
    filter: str
    terms: tuple[FilterTerm, ...]
    joined: str
    names_select: bool
    plan: str
    queries: int
    pages: int
    entities_read: int
    entities_returned: int
    seconds: float
    p50_ms: float
    p99_ms: float
    is_look: bool = False

    @property
    def ratio(self) -> float:
        """Entities read for each that was returned."""
        return self.entities_read / max(1, self.entities_returned)


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """A large partition of a table: its key, its entities and the bytes that they take in storage."""

    partition_key: str
    is_key_whole: bool
    entities: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SizeSample:
    """The size of a table at a moment."""

    at: float
    entities: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TableSize:
    """The size of a table: all partitions, entities and stored bytes, as they were counted up to `at`.

    `growth` has the sizes at earlier moments of the last day, ascending, and the present one. `largest` are the largest
    partitions by bytes.
    """

    at: float
    partitions: int
    entities: int
    bytes: int
    growth: tuple[SizeSample, ...]
    largest: tuple[PartitionSize, ...]


@dataclass(frozen=True, slots=True)
class HeatMaps:
    """The heat maps of a table, for the last hour and the last day."""

    hour: HeatMap
    day: HeatMap


@dataclass(frozen=True, slots=True)
class TableInsight:
    """One table. `activity`, `plans` (reads by the kind of their plan) and `rates` are by the names of `PERIODS`.

    So are `writes`, those that were carried out: "insert", "update" (also merges), "upsert" and "delete", and
    `write_requests`, the requests of these, of which a transaction is one;
    `lost_updates`, updates and deletes that were refused because another writer came first; `properties_max`, the most
    properties of an entity that was written; and `entity_bytes_max`, the size of the largest one, 0 if all were small.

    `size` is None if it is not known (yet), `heat` if the report was not asked for this table alone.
    """

    account: str
    table: str
    activity: dict[str, Activity]
    plans: dict[str, dict[str, int]]
    rates: dict[str, Rate]
    hour: Series
    day: Series
    size: TableSize | None
    heat: HeatMaps | None
    writes: dict[str, dict[str, int]] = field(default_factory=dict)
    lost_updates: dict[str, int] = field(default_factory=dict)
    properties_max: dict[str, int] = field(default_factory=dict)
    entity_bytes_max: dict[str, int] = field(default_factory=dict)
    write_requests: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AccountInsight:
    """The rates of a whole account, by the names of `PERIODS`, in operations a second.

    Azure's target is one of requests, so a page of a query is one operation, however many entities it reads; each write
    of a transaction is one, because the target is for an entity of 1 KiB in a request.
    """

    account: str
    rates: dict[str, Rate]


@dataclass(frozen=True, slots=True)
class InsightReport:
    """The whole report, of the moment `at`. Counting began at `started`, so a period may be shorter than its name.

    Tables, most entities of the last hour first. By the names of `PERIODS`: `partitions`, the most entities first, and
    `queries`, those first that read most entities beyond those that they returned. `unlisted` is the most entities that
    a partition can have had in a period without being in this list. `targets` are entities a second of a
    `partition`, and operations a second of an `account`. `other_tables`: requests in the last hour whose table was not
    found, or had no room. `sizes_note` says in a sentence why sizes are missing, if they are.
    """

    at: float
    started: float
    workers: int
    targets: dict[str, int]
    accounts: tuple[AccountInsight, ...]
    tables: tuple[TableInsight, ...]
    partitions: dict[str, tuple[PartitionActivity, ...]]
    unlisted: dict[str, int]
    queries: dict[str, tuple[QueryShape, ...]]
    other_tables: Activity
    sizes_note: str

    def to_json(self) -> bytes:
        """The report as a JSON object."""
        return orjson.dumps(self, option=orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def from_json(cls, text: bytes) -> InsightReport:
        """The report of such an object; `ValueError` if it is another one. Members that are not known are ignored."""
        try:
            made = _made(cls, orjson.loads(text))
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"this is no report of insight: {error}") from error
        return typing.cast("InsightReport", made)


TARGETS: Final = {
    "partition": limits.PARTITION_RATE_TARGET,
    "account": limits.ACCOUNT_RATE_TARGET,
}

_types_of = cache(typing.get_type_hints)


def _made(kind: Any, value: Any) -> Any:
    """A JSON value as a value of the type: a number, a text, a tuple, a dict, or a class of these."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return tuple(_made(arguments[0], each) for each in _of_type(list, value))
    if origin is dict:
        return {name: _made(arguments[1], each) for name, each in _of_type(dict, value).items()}
    if origin is types.UnionType:
        return None if value is None else _made(arguments[0], value)
    if is_dataclass(kind) and isinstance(kind, type):
        members = _of_type(dict, value)
        known = {name: each for name, each in _types_of(kind).items() if name in members}
        return kind(**{name: _made(each, members[name]) for name, each in known.items()})
    return _of_type((int, float) if kind is float else kind, value)


def _of_type(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r:.60} instead of {kind}")
    return value
