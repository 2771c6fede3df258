"""A rule of advice, a piece of advice made by filling in the rule's templates, and the sources that rules quote."""

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, NamedTuple


class Severity(enum.Enum):
    SEVERE = "severe"
    """On Azure, requests would be throttled."""
    WARNING = "warning"
    """Requests cost much more than they need to, and the cost grows with the data."""
    NOTE = "note"
    """Another design would be better if the use grows."""

    @property
    def rank(self) -> int:
        """0 for the severest advice, then 1 and 2."""
        return list(Severity).index(self)


class Source(NamedTuple):
    """A section of Microsoft's documents: its title and its address."""

    title: str
    url: str


def _section(page: str, title: str, mark: str = "") -> Source:
    anchor = title.lower().replace("/", "").replace(" ", "-")
    url = f"https://learn.microsoft.com/en-us/azure/storage/tables/{page}#{anchor}"
    return Source(f"{title}{mark}", url)


_pattern = partial(_section, "table-storage-design-patterns")
_design = partial(_section, "table-storage-design-for-query")
_checklist = partial(_section, "storage-performance-checklist", mark=" (checklist)")

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
APPEND: Final = _pattern("Prepend/append anti-pattern")
LOG_DATA: Final = _pattern("Log data anti-pattern")
QUERY_KEYS: Final = _design("How your choice of PartitionKey and RowKey impacts query performance")
CHOOSING_PARTITION_KEY: Final = _design("Choosing an appropriate PartitionKey")
SORTING: Final = _design("Sorting data in the Table service")
QUERY_DENSITY: Final = _checklist("Query density")
HOT_PARTITIONS: Final = _checklist("Hot partitions")
BATCHING: Final = _checklist("Batching")
TARGETS: Final = Source(
    "Scalability and performance targets",
    "https://learn.microsoft.com/en-us/azure/storage/tables/scalability-targets",
)


def library(chapter: str) -> str:
    """The end of a cost: where the patterns' library does it (docs/patterns)."""
    return f" A library does this in Python: docs/patterns/{chapter}.md."


Facts = Mapping[str, object]
"""The values of a finding by their names in the templates. `filter`, `partition`, `partition_key` and `row_key` become
fields of the advice too; `severity` replaces that of the rule."""


class Rule(NamedTuple):
    """A rule: `when` it applies, in words for the documents, and what it says.

    In `sentence`, `change` and `cost`, `{name}` stands for a fact; numbers get separators. `cost` says what the change
    costs in writes. The first source names the pattern.
    """

    id: str
    title: str
    sources: tuple[Source, ...]
    when: str
    sentence: str
    change: str = ""
    cost: str = ""
    severity: Severity = Severity.WARNING


Finding = tuple[Rule, Facts]


@dataclass(frozen=True)
class Advice:
    """A piece of advice: a sentence that says what is wrong, what to change, and what that costs in writes.

    `filter` is the shape of the query in question, `partition` a PartitionKey; both are empty if it is about a table.
    `partition_key` and `row_key` are proposed templates of keys, as `tablestone import` reads them, if it proposes any.
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
        return " ".join(filter(None, (self.sentence, self.change, self.cost)))

    def members(self) -> dict[str, Any]:
        """The advice as members of a JSON object; sources are addresses."""
        return {
            **asdict(self),
            "severity": self.severity.value,
            "sources": [each.url for each in self.sources],
        }


def advice_of(finding: Finding, table: str) -> Advice:
    """The advice on a table, or on an account if `table` is empty."""
    rule, facts = finding
    words = {name: _word(value) for name, value in facts.items()} | {"table": table}
    for name in ("filter", "partition"):
        if len(words.get(name, "")) > SHOWN_MAX:
            words[name] = f"{words[name][: SHOWN_MAX - 1]}…"
    severity = facts.get("severity")
    return Advice(
        rule=rule.id,
        severity=severity if isinstance(severity, Severity) else rule.severity,
        table=table,
        sentence=rule.sentence.format_map(words),
        change=rule.change.format_map(words),
        cost=rule.cost.format_map(words),
        sources=rule.sources,
        filter=str(facts.get("filter", "")),
        partition=str(facts.get("partition", "")),
        partition_key=str(facts.get("partition_key", "")),
        row_key=str(facts.get("row_key", "")),
    )


SHOWN_MAX: Final = 200
"""Characters of a filter or a key in a sentence."""


def counted(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _word(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
