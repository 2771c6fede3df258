"""The report of `/insight`: how tables, partitions and queries are used.

`InsightReport` is the whole answer. As JSON it has the members of the class; tuples are arrays. Times are seconds since
1970. Counts of partitions have a stated error (`PartitionActivity.missed`); all others are exact.
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
"""The periods of a report. Each ends when the report is made."""
PERIOD_WORDS: Final = {NOW: "the last 5 minutes", HOUR: "the last hour", DAY: "the last day"}
NOW_SECONDS: Final = 300
HOUR_SECONDS: Final = 3600
DAY_SECONDS: Final = 86_400
PERIOD_SECONDS: Final = {NOW: NOW_SECONDS, HOUR: HOUR_SECONDS, DAY: DAY_SECONDS}
HOUR_BUCKET_SECONDS: Final = 60
DAY_BUCKET_SECONDS: Final = 900


@dataclass(frozen=True, slots=True)
class Activity:
    """Counts of a table or partition.

    `reads` are point reads, whether or not they find something, and pages of queries. `writes` succeeded; each write of
    a transaction counts. `entities_read` were examined, including those that a filter left out; `entities_returned`
    were in the answers. `conflicts` were answered 409 or 412, `refused` any other 4xx, `failed` 5xx. `bytes_in` and
    `bytes_out` count bodies.
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
        return self.entities_read + self.writes

    @property
    def entities_used(self) -> int:
        """Entities returned or written, without those that filters left out."""
        return self.entities_returned + self.writes


@dataclass(frozen=True, slots=True)
class Rate:
    """Entities read or written per second, or operations of an account: the mean of a period, and the busiest second.

    `busiest_minute` is the mean per second of the busiest minute of a table or partition, `busiest_minute_writes` that
    of a partition's writes. Azure would throttle (`is_throttled`) if the busiest minute of a partition, or the busiest
    second of an account, is above the target. A table has no target.
    """

    mean: float
    peak: float
    is_throttled: bool
    busiest_minute: float = 0.0
    busiest_minute_writes: float = 0.0


@dataclass(frozen=True, slots=True)
class Series:
    """Counts by time bucket, each `seconds` long; the last is not over yet. `entities` were read or written."""

    seconds: int
    starts: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    entities: tuple[int, ...]
    bytes: tuple[int, ...]
    conflicts: tuple[int, ...]
    refused: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HeatRange:
    """PartitionKeys from the first to the last, both inclusive."""

    first: str
    last: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Entities by time and key range: `read[t][r]` is the number read in the bucket `t` and the range `r`.

    `ranges` are ascending and disjoint, in the service's order of keys. `scanned[t]` are entities read by pages that
    passed several ranges; they count in none. Together the three are exact.
    """

    seconds: int
    starts: tuple[int, ...]
    ranges: tuple[HeatRange, ...]
    read: tuple[tuple[int, ...], ...]
    written: tuple[tuple[int, ...], ...]
    scanned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionActivity:
    """The requests for one partition in a period.

    The counts are never too high; up to `missed` more entities were read or written. `is_key_whole` is false if the key
    is cut or replaced by its hash. `over_time` are the entities in each bucket of the last hour or, if the period is
    `day`, of the last day.
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
    """One comparison of a filter without its value: `operator` is one of eq, ne, gt, ge, lt, le.

    `type` is the EDM type of the value, such as `Edm.String`. A Boolean property alone is `eq` with `Edm.Boolean`.
    """

    property: str
    operator: str
    type: str


@dataclass(frozen=True, slots=True)
class QueryShape:
    """Queries of one table in a period that differ only in their values.

    `filter` is its text with `?` for each value; empty without a filter. A term that occurs several times stands twice
    in it; a text that is cut ends with `...`. `terms` are the different comparisons, `joined` by "and", by "or", or
    "mixed" (also with `not`); "" for one or none. `names_select`: the query has `$select`. `plan` is a
    `query.plan.PlanKind`. `queries` were begun; `pages` were answered, with and without continuation tokens. If a table
    scan names RowKeys and the table's size is known, `passed_over` estimates the entities that the engine left out by
    seeks: with `entities_read`, a run to the end makes the whole table, which Azure reads. `p50_ms` and `p99_ms` are
    for one page, too high by a bucket of the histogram at most. `from_tools`: a tool of ours sent the queries,
    not a program; they come last. `values` is how many different values, or combinations, the filters fix by `eq` in
    properties other than keys: up to 16; 0 if none, or unknown.
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
    from_tools: bool = False
    values: int = 0
    passed_over: int = 0

    @property
    def azure_reads(self) -> int:
        """The entities that Azure would read: an estimate if some were passed over, else what was counted."""
        return self.entities_read + self.passed_over

    @property
    def ratio(self) -> float:
        """Entities that Azure would read for each one returned; if none was, all of them."""
        return self.azure_reads / max(1, self.entities_returned)


@dataclass(frozen=True, slots=True)
class PartitionSize:
    partition_key: str
    is_key_whole: bool
    entities: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SizeSample:
    at: float
    entities: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TableSize:
    """The size of a table at the time `at`: its partitions, entities and stored bytes.

    `growth` has the sizes of the last day, oldest first, up to this one. `largest` are the largest partitions by bytes.
    `name` is the table's name as it was created; requests may spell it in another case. `indexes` are the properties
    that have an index, and whether it is within partitions; None if the engine keeps no indexes.
    """

    at: float
    partitions: int
    entities: int
    bytes: int
    growth: tuple[SizeSample, ...]
    largest: tuple[PartitionSize, ...]
    name: str = ""
    indexes: dict[str, bool] | None = None
    automatic: tuple[str, ...] = ()
    """The properties whose index the server made by itself."""


@dataclass(frozen=True, slots=True)
class HeatMaps:
    hour: HeatMap
    day: HeatMap


@dataclass(frozen=True, slots=True)
class TableInsight:
    """One table. The dictionaries are by the names of `PERIODS`.

    `plans` are reads by kind of plan. `writes` succeeded: "insert", "update" (merges too), "upsert" and "delete";
    `write_requests` are the requests with them, and a transaction is one. `lost_updates` are updates and deletes
    refused because another writer came first. `properties_max` is the most properties of a written entity, and
    `entity_bytes_max` the size of the largest one, 0 if all were small. `size` is None if it is unknown; `heat` is None
    unless the report is about this table alone. `expiry` says when its entities expire, if they do. `by_tools` are the
    counts of our tools, and `tool_requests` their requests; no other member has them.
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
    expiry: str = ""
    by_tools: dict[str, Activity] = field(default_factory=dict)
    tool_requests: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AccountInsight:
    """The rates of an account in operations per second, by the names of `PERIODS`.

    Azure's target assumes requests of one entity of 1 KiB. So a page of a query is one operation, however many entities
    it reads, and each write of a transaction is one too.
    """

    account: str
    rates: dict[str, Rate]


@dataclass(frozen=True, slots=True)
class InsightReport:
    """The whole report at the time `at`. Counting began at `started`, so a period may be shorter than its name.

    `tables` come in the order of their entities in the last hour. `partitions`, `unlisted` and `queries` are by the
    names of `PERIODS`: the partitions with the most entities; the most entities of a partition that is not listed; the
    queries that read the most entities without returning them. `targets` are entities per second of a `partition` and
    operations per second of an `account`. `other_tables` are requests of the last hour whose table does not exist or
    had no room. `sizes_note` says why sizes are missing, if they are. `storage` are the options with which a command
    finds the data of the server, to paste; empty if no directory holds them.
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
    storage: str | None = None

    def to_json(self) -> bytes:
        return orjson.dumps(self, option=orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def from_json(cls, text: bytes) -> InsightReport:
        """Read what `to_json` made; unknown members are ignored. Raises `ValueError` if it is not a report."""
        try:
            made = _made(cls, orjson.loads(text))
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"this is no report of insight: {error}") from error
        return typing.cast("InsightReport", made)


TARGETS: Final = {"partition": limits.PARTITION_RATE_TARGET, "account": limits.ACCOUNT_RATE_TARGET}

_types_of = cache(typing.get_type_hints)


def _made(kind: Any, value: Any) -> Any:
    """A JSON value as a value of the type `kind`: a number, a text, a tuple, a dict, or a class of these."""
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
