"""A rule of advice as data, and a piece of advice, which is a rule applied to one table.

A rule has a condition, which returns the facts of each finding, and three templates that the facts fill. Knows no rule.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple

from tablestone.advice.workload import TableUse, Thresholds

_DOCUMENTS: Final = "https://learn.microsoft.com/en-us/azure/storage/tables/"


class Severity(enum.Enum):
    """The weight of a piece of advice."""

    SEVERE = "severe"
    """On Azure, requests would be throttled."""
    WARNING = "warning"
    """Requests cost much more than they need to, and the cost grows with the data."""
    NOTE = "note"
    """Another design would be better if the use grows."""

    @property
    def rank(self) -> int:
        """The place in a list of advice: the severest first."""
        return list(Severity).index(self)


class Source(NamedTuple):
    """A section of Microsoft's documents: its title and its address."""

    title: str
    page: str
    anchor: str

    @property
    def url(self) -> str:
        """The address of the section."""
        return f"{_DOCUMENTS}{self.page}" + (f"#{self.anchor}" if self.anchor else "")


def _pattern(title: str) -> Source:
    anchor = title.lower().replace("/", "").replace(" ", "-")
    return Source(title, "table-storage-design-patterns", anchor)


INTRA_PARTITION_INDEX: Final = _pattern("Intra-partition secondary index pattern")
INTER_PARTITION_INDEX: Final = _pattern("Inter-partition secondary index pattern")
EVENTUALLY_CONSISTENT: Final = _pattern("Eventually consistent transactions pattern")
INDEX_ENTITIES: Final = _pattern("Index entities pattern")
DENORMALIZATION: Final = _pattern("Denormalization pattern")
COMPOUND_KEY: Final = _pattern("Compound key pattern")
LOG_TAIL: Final = _pattern("Log tail pattern")
HIGH_VOLUME_DELETE: Final = _pattern("High volume delete pattern")
DATA_SERIES: Final = _pattern("Data series pattern")
WIDE_ENTITIES: Final = _pattern("Wide entities pattern")
LARGE_ENTITIES: Final = _pattern("Large entities pattern")
APPEND: Final = Source(
    "Prepend/append anti-pattern", "table-storage-design-patterns", "prependappend-anti-pattern"
)
LOG_DATA: Final = _pattern("Log data anti-pattern")
QUERY_KEYS: Final = Source(
    "How your choice of PartitionKey and RowKey impacts query performance",
    "table-storage-design-for-query",
    "how-your-choice-of-partitionkey-and-rowkey-impacts-query-performance",
)
CHOOSING_PARTITION_KEY: Final = Source(
    "Choosing an appropriate PartitionKey",
    "table-storage-design-for-query",
    "choosing-an-appropriate-partitionkey",
)
SORTING: Final = Source(
    "Sorting data in the Table service",
    "table-storage-design-for-query",
    "sorting-data-in-the-table-service",
)
QUERY_DENSITY: Final = Source(
    "Query density (checklist)", "storage-performance-checklist", "query-density"
)
HOT_PARTITIONS: Final = Source(
    "Hot partitions (checklist)", "storage-performance-checklist", "hot-partitions"
)
BATCHING: Final = Source("Batching (checklist)", "storage-performance-checklist", "batching")
TARGETS: Final = Source("Scalability and performance targets", "scalability-targets", "")

Facts = Mapping[str, object]
"""The values of a finding by their names in the templates. `filter`, `partition`, `partition_key` and `row_key` are
fields of the advice too; `severity` is used instead of the rule's own."""
Condition = Callable[[TableUse, Thresholds], Iterable[Facts]]


@dataclass(frozen=True)
class Rule:
    """A rule: when it speaks, and its words. `{name}` in a template is a fact; numbers have separators.

    `when` is the condition in words, and `cost` says what the change costs in writes. The rule is named after its first
    source.
    """

    id: str
    title: str
    when: str
    severity: Severity
    sources: tuple[Source, ...]
    find: Condition
    sentence: str
    change: str
    cost: str


@dataclass(frozen=True)
class Advice:
    """A piece of advice: a sentence that says what is wrong, what to change, and what that costs in writes.

    `filter` is the shape of the query that it is about, `partition` a PartitionKey; both are empty for a table.
    `partition_key` and `row_key` are templates of keys, as `tablestone import` reads them, where the advice has some.
    """

    rule: str
    severity: Severity
    table: str
    sentence: str
    change: str
    cost: str
    sources: tuple[Source, ...]
    filter: str = ""
    partition: str = ""
    partition_key: str = ""
    row_key: str = ""

    @property
    def text(self) -> str:
        """All of it in one paragraph."""
        return " ".join(filter(None, (self.sentence, self.change, self.cost)))

    def members(self) -> dict[str, Any]:
        """The advice as members of a JSON object; a source is its address."""
        return {
            **asdict(self),
            "severity": self.severity.value,
            "sources": [each.url for each in self.sources],
        }


def applied(rule: Rule, table: TableUse, thresholds: Thresholds) -> list[Advice]:
    """The pieces of advice that the rule gives on a table."""
    found = []
    for facts in rule.find(table, thresholds):
        words = {name: _word(value) for name, value in facts.items()} | {"table": table.name}
        words |= {name: _short(words[name]) for name in ("filter", "partition") if name in words}
        severity = facts.get("severity")
        advice = Advice(
            rule.id,
            severity if isinstance(severity, Severity) else rule.severity,
            table.name,
            rule.sentence.format_map(words),
            rule.change.format_map(words),
            rule.cost.format_map(words),
            rule.sources,
        )
        fields = {name: str(facts[name]) for name in _FIELDS if name in facts}
        found.append(replace(advice, **fields))  # type: ignore[arg-type]
    return found


SHOWN_MAX: Final = 200
"""Characters of a filter or a key in a sentence."""


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 1]}…"


_FIELDS: Final = ("filter", "partition", "partition_key", "row_key")


def _word(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
