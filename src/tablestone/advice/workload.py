"""A workload for the advice: tables with their partitions, keys, queries and writes, as frozen values.

It comes from the counts of a running server, from a client that knows one query and its table, or from a test that
records requests. An unknown number is None, and a rule that needs it says nothing.
"""

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tablestone.model.filter_tree import FilterNode
from tablestone.query.plan import PlanKind, plan_query


class KeyForm(enum.Enum):
    """How keys follow time."""

    TIME_ASCENDING = "time, ascending"
    """A date, a time, seconds, milliseconds or ticks: the newest key is the last."""
    TIME_DESCENDING = "time, descending"
    """Inverted ticks of the log tail pattern: the newest key is the first."""
    OTHER = "other"
    """They do not, or their text does not show it."""

    @property
    def is_time(self) -> bool:
        """Whether all new keys come at one end."""
        return self is not KeyForm.OTHER


_YEAR: Final = r"(?:19|20)\d\d"
_MONTH: Final = r"(?:0[1-9]|1[0-2])"
_DAY: Final = r"(?:0[1-9]|[12]\d|3[01])"
_ASCENDING: Final = re.compile(
    rf"{_YEAR}-{_MONTH}(?:-{_DAY})?(?![0-9A-Za-z])|{_YEAR}-{_MONTH}-{_DAY}T"  # 2013-07, 2013-07-04T15:00
    rf"|{_YEAR}{_MONTH}{_DAY}(?![0-9])|{_YEAR}{_MONTH}{_DAY}[T_-]?\d{{2}}(?:\d\d){{0,2}}(?![0-9])"  # 20130704 and more
    r"|1[0-9]{9}(?![0-9])|1[0-9]{12}(?![0-9])"  # seconds and milliseconds since 1970, from 2001 on
    r"|0?6[0-9]{17}(?![0-9])"  # ticks since year 1, from 1902 to 2219; some programs write a zero first
)
_DESCENDING: Final = re.compile(r"2[45][0-9]{17}(?![0-9])")
"""The largest tick minus the present one, in 19 digits, from 1744 to 2378."""

PART: Final = 0.9
"""The share of the keys that must have the form."""


def form_of(keys: Iterable[str]) -> KeyForm:
    """The form of most keys; `OTHER` for fewer than two different ones."""
    distinct = set(keys)
    if len(distinct) < 2:
        return KeyForm.OTHER
    for form, pattern in (
        (KeyForm.TIME_ASCENDING, _ASCENDING),
        (KeyForm.TIME_DESCENDING, _DESCENDING),
    ):
        if sum(1 for key in distinct if pattern.match(key)) >= PART * len(distinct):
            return form
    return KeyForm.OTHER


@dataclass(frozen=True)
class QueryUse:
    """A query, with totals of all its runs. Only the form of the filter matters (see `filter_shape.read_shape`)."""

    filter: FilterNode | None
    runs: int = 1
    entities_read: int | None = None
    entities_returned: int | None = None
    plan: PlanKind | None = None
    """The plan that a server observed; None: the planner's own."""
    reads_newest: bool = False
    """The client reads to the end and uses only the last entities."""
    values: int | None = None
    """How many different values the queries named in the fixed properties."""

    @property
    def kind(self) -> PlanKind:
        return self.plan or plan_query(self.filter).kind


@dataclass(frozen=True)
class WriteUse:
    """Writes by kind, transactions included. `conflicts` were refused because another writer came first (412)."""

    inserts: int = 0
    updates: int = 0
    """Updates and merges, which need an existing entity."""
    deletes: int = 0
    conflicts: int = 0
    upserts: int = 0
    """Both kinds of upserts. No answer shows which of them were inserts, so no rule counts them as either."""
    requests: int | None = None
    """The requests with these writes; a transaction is one."""

    @property
    def total(self) -> int:
        return self.inserts + self.updates + self.deletes + self.upserts


@dataclass(frozen=True)
class PartitionUse:
    """One partition. `share` is its part of the table's operations: 0 to 1."""

    key: str
    share: float | None = None
    rate: float | None = None
    """Entities read and written in a second: the mean of the busiest minute, where it was observed."""
    writes: int = 0
    """Requests with a single write; transactions do not count."""
    point_reads: int = 0
    write_rate: float | None = None
    """The same for entities written; None if only reads and writes together are known."""
    peak: float | None = None
    """The most entities in any second, where it was observed."""


@dataclass(frozen=True)
class TableUse:
    """One table and its use in a period. `hottest` and `queries` may hold only the largest."""

    name: str
    entities: int | None = None
    partitions: int | None = None
    hottest: tuple[PartitionUse, ...] = ()
    partition_form: KeyForm = KeyForm.OTHER
    row_form: KeyForm = KeyForm.OTHER
    properties_max: int | None = None
    """The largest number of properties of an entity, without its keys and Timestamp."""
    entity_bytes_max: int | None = None
    entity_bytes_mean: float | None = None
    point_reads: int | None = None
    queries: tuple[QueryUse, ...] = ()
    writes: WriteUse = field(default_factory=WriteUse)
    period: str = ""
    """The period in words, such as `the last hour`; empty if it has no name."""
    indexes: Mapping[str, bool] | None = None
    """The properties that have an index, and whether it is within partitions; None if unknown, and on Azure."""
    storage: str | None = None
    """The options with which a command finds the table, to paste; empty if no command can."""
    index_place: str = ""
    """Where a person makes an index, if not by a command, such as `on the tab Indexes`."""
    known_properties: frozenset[str] = frozenset()
    """The properties that entities were seen to have; empty if none are known."""
    is_one_task: bool = False
    """One task, such as a test: its author decides what is too much, so advice covers every read that a key narrows."""

    @property
    def rate(self) -> float | None:
        """The rate of the busiest partition; None if no rate is known."""
        return max((each.rate for each in self.hottest if each.rate is not None), default=None)


@dataclass(frozen=True)
class Workload:
    """All tables of an account. `rate` is the operations of its busiest second; a page of a query is one."""

    tables: tuple[TableUse, ...] = ()
    rate: float | None = None
