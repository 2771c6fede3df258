"""Queries of the tools: reading ahead, filters, sorting on the client, table sizes, and the text of `--explain`.

The plan is Tablestone's, with the names of Microsoft's design guide for tables. The cost counts what the client
receives: no service says how many entities it read.
"""

from __future__ import annotations

import enum
import heapq
import math
import re
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple

import orjson

from tablestone.advice.advising import advise_on_query
from tablestone.advice.filter_shape import with_stored_types
from tablestone.advice.workload import QueryUse, TableUse
from tablestone.model.edm import INT64_MAX, INT64_MIN, EdmType, EdmValue
from tablestone.model.entity import entity_size
from tablestone.model.errors import StorageError
from tablestone.model.filter_tree import (
    MIRRORED,
    TEXT_FUNCTIONS,
    Comparison,
    FilterNode,
    leaves,
    print_filter,
)
from tablestone.model.keys import PARTITION_KEY, decode_key, encode_key
from tablestone.model.operations import IndexFound
from tablestone.query import filter_lexer
from tablestone.query.evaluate import TRUE_OF_MISMATCH, WIDENS_TO
from tablestone.query.filter_parser import parse_filter
from tablestone.query.index_plan import properties_by_index
from tablestone.query.plan import END, KeyInterval, Plan, PlanKind, plan_query
from tablestone.tools import odata
from tablestone.tools.client import (
    ContinuationToken,
    Page,
    Query,
    RawEntity,
    TableEndpoint,
    Walk,
    endless,
)
from tablestone.tools.errors import ServiceError, TransferFailed, TransferRefused
from tablestone.tools.formats.rows import key_text
from tablestone.tools.progress import Progress, Reached, shown_bytes, shown_count
from tablestone.tools.retrying import InFlight, Retry
from tablestone.tools.writing import quoted

PAGES_AHEAD: Final = 1
LOOKED_AT: Final = 100
"""Entities at the start of a table that show which properties it has, and of which types."""
OPERATORS: Final = tuple(each.value for each in MIRRORED)
ELSEWHERE: Final = {
    "==": "eq",
    "=": "eq",
    "!=": "ne",
    "<>": "ne",
    ">": "gt",
    ">=": "ge",
    "<": "lt",
    "<=": "le",
    "&&": "and",
    "&": "and",
    "||": "or",
    "|": "or",
    "!": "not",
    **{word.upper(): word for word in (*OPERATORS, "and", "or", "not")},
    "like": "`tablestone query` with --starts-with or --contains",
}
"""Words and operators of other languages, and their equivalents here."""
NOT_IMPLEMENTED: Final = 501
_BEYOND_INT32: Final = re.compile(r"'Edm\.Int32' literal '(-?\d+)'")


@dataclass
class Cost:
    """What reading cost: requests, entities and bytes received, and retries."""

    requests: int = 0
    entities: int = 0
    bytes: int = 0
    retries: int = 0
    examined: int | None = None
    """The entities that the server examined; None if it does not say so."""


def checked_filter(text: str | None) -> str | None:
    """The filter, or None if it is blank; `TransferRefused` says what is wrong and where."""
    if text is None or not text.strip():
        return None
    try:
        parse_filter(text, extended=True)
    except StorageError as error:
        sentence = f"The filter cannot be read: {error.text} {filter_hint(text, error)}"
        raise TransferRefused(sentence.rstrip()) from None
    return text


def filter_hint(text: str, error: StorageError) -> str:
    """What to write instead, for the usual mistakes; empty for any other mistake."""
    for token, following in pairwise(_tokens(text)):
        if token.value == '"':
            content = text[token.end :].partition('"')[0]
            return f"Put a text in single quotes: {quoted(content)}."
        if token.kind == filter_lexer.NULL:
            return (
                "The service stores no null: the property is absent, and no filter asks for that."
            )
        end = token.start + 2 if token.kind == filter_lexer.INVALID else token.end
        both, one = text[token.start : end], text[token.start]
        foreign = next((each for each in (both, one) if each in ELSEWHERE), None)
        if foreign and following.value not in OPERATORS:  # `like eq 1` names a property
            return f"Use {ELSEWHERE[foreign]} for {foreign}."
    bare = value_without_quotes(text)
    if bare is not None:
        return f"Put a text in quotes: '{bare.value}'."
    beyond = _BEYOND_INT32.search(error.text)
    if beyond is None:
        return ""
    if INT64_MIN <= int(beyond[1]) <= INT64_MAX:
        return f"Write {beyond[1]}L: a whole number beyond 32 bits ends in L."
    return f"Write {beyond[1]}.0: a number beyond 64 bits is a Double."


def extension_hint(text: str | None) -> str:
    """What to do about functions of text that a service has not implemented; empty for a filter without them."""
    with suppress(StorageError):
        tree = parse_filter(text or "", extended=True)
        if any(getattr(leaf, "operator", None) in TEXT_FUNCTIONS for leaf in leaves(tree)):
            return (
                "Functions of text need a server with --query-extensions; `tablestone query` has --starts-with and "
                "--contains for every service."
            )
    return ""


def _tokens(text: str) -> list[filter_lexer.Token]:
    """The tokens of a filter; none if a literal is malformed: the parser's error says so."""
    with suppress(StorageError):
        return list(filter_lexer.tokens(text))
    return []


def value_without_quotes(text: str) -> filter_lexer.Token | None:
    """The first name where a value belongs, such as `JFK` in `PartitionKey eq JFK`."""
    found = _tokens(text)
    for name, operator, value in zip(found, found[1:], found[2:], strict=False):
        kinds = (name.kind, operator.kind, value.kind)
        if kinds == (filter_lexer.NAME,) * 3 and operator.value in OPERATORS:
            return value
    return None


class TableReader:
    """Reads tables of one endpoint and counts the cost."""

    def __init__(self, endpoint: TableEndpoint, retry: Retry | None = None) -> None:
        self.cost = Cost()
        self._endpoint, self._retry = endpoint, retry or Retry(InFlight(1 + PAGES_AHEAD))

    def page(self, query: Query, token: ContinuationToken | None) -> Page:
        """One page of a query, with retries while the service is busy."""
        try:
            page = self._retry(lambda: self._endpoint.page(query, token))
        except ServiceError as error:
            hint = extension_hint(query.filter) if error.status == NOT_IMPLEMENTED else ""
            raise TransferFailed(f"{query.table}: {error} {hint}".rstrip()) from error
        self.cost.requests += 1
        self.cost.entities += len(page.entities)
        self.cost.bytes += page.size
        if page.examined is not None:
            self.cost.examined = (self.cost.examined or 0) + page.examined
        self.cost.retries = self._retry.retries
        return page

    def pages(self, query: Query, token: ContinuationToken | None = None) -> Iterator[Page]:
        """The pages from the token on, at most `query.top` entities in all. Reads one page ahead."""
        left = query.top
        with ThreadPoolExecutor(PAGES_AHEAD, thread_name_prefix="read") as pool:
            walk = Walk()
            coming = pool.submit(self.page, query, token)
            while True:
                try:
                    page = coming.result()
                finally:
                    # A failure refers to this frame. If the frame also referred to the failure, the garbage collector
                    # would end both, in any thread: perhaps in the one whose end this generator then waits for.
                    del coming
                if left is not None and len(page.entities) >= left:
                    page = page._replace(entities=page.entities[:left], next_token=None)
                if page.next_token is None:
                    yield page
                    return
                left = None if left is None else left - len(page.entities)
                if walk.is_back_at(page.next_token):
                    raise endless(query.table)
                coming = pool.submit(self.page, query, page.next_token)
                yield page

    def entities(self, query: Query, progress: Progress | None = None) -> Iterator[RawEntity]:
        """The entities of a query in key order, at most `query.top`."""
        for page in self.pages(query):
            if progress is not None:
                progress.update(Reached(self.cost.entities, self.cost.bytes))
            yield from page.entities

    def partition_keys(self, table: str) -> Iterator[str]:
        """The distinct PartitionKeys. Each request seeks past the last one found."""
        last: str | None = None
        while True:
            later = None if last is None else f"PartitionKey gt {quoted(last)}"
            asked = Query(table, later, (PARTITION_KEY,), top=1)
            # Goes on over empty pages with a token: the service ends a page where a partition server's range ends.
            found = next(self.entities(asked), None)
            if found is None:
                return
            last = str(found[PARTITION_KEY])
            yield last


def first_types(reader: TableReader, table: str) -> dict[str, set[EdmType]]:
    """The properties of the first entities of a table, each with its types."""
    found: dict[str, set[EdmType]] = {}
    for raw in reader.page(Query(table, top=LOOKED_AT), None).entities:
        for name in raw:
            with suppress(ValueError):  # an unknown type must not end the query
                if value := odata.property_of(raw, name):
                    found.setdefault(name, set()).add(value.type)
    return found


def mistyped(
    tree: FilterNode | None, stored: Mapping[str, Collection[EdmType]], *, found: bool
) -> Iterator[str]:
    """Sentences on comparisons with a literal whose type no entity that was read has in the property.

    Nothing matches these or, if entities were `found`, all do: another type counts as less.
    """
    for leaf in leaves(tree):
        types = set(stored.get(leaf.name, ()))
        if not types or not isinstance(leaf, Comparison):
            continue
        literal = leaf.literal.type
        if (leaf.operator in TRUE_OF_MISMATCH) is found and types.isdisjoint(
            WIDENS_TO.get(literal, (literal,))
        ):
            kinds = " or ".join(sorted(each.value for each in types))
            all_match = ", so each of them counts as less" if found else ""
            instead = ""
            with suppress(ValueError):
                (kind,) = types
                value = odata.typed_value(leaf.name, shown_value(leaf.literal), kind)
                instead = f" Write {print_filter(replace(leaf, literal=value))}."
            yield (
                f"{print_filter(leaf)}: {leaf.name} is {kinds} in the entities that were read, not "
                f"{literal.value}{all_match}.{instead}"
            )


class TableSize(NamedTuple):
    """The size of a table. `bytes` follows the service's documented formula, without Timestamps."""

    table: str
    entities: int
    bytes: int


def entity_bytes(raw: RawEntity) -> int:
    """The size of an entity by the formula, or the length of its JSON if it has a value of an unknown type."""
    try:
        return entity_size(*odata.read_entity(raw))
    except ValueError:
        return len(orjson.dumps(raw))


def size_of(reader: TableReader, table: str, progress: Progress) -> TableSize:
    """The size of a table, which is read whole; `TransferFailed` if it is deleted meanwhile."""
    entities = size = 0
    for page in reader.pages(Query(table)):
        size += sum(map(entity_bytes, page.entities))
        entities += len(page.entities)
        progress.update(Reached(entities, size))
    return TableSize(table, entities, size)


class Mixed(enum.Enum):
    """What to do with a property that has values of several types."""

    FAIL = "fail"
    COLUMNS = "columns"


class Columns:
    """Counts (property, type) pairs; of times it keeps the range too, and whether one is finer than 1 µs."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._seen: dict[tuple[str, EdmType], list[int]] = {
            (name, EdmType(kind)): list(numbers)
            for name, kind, numbers in (state or {}).get("columns", [])
        }

    def state(self) -> dict[str, Any]:
        """The columns as a journal stores them."""
        return {"columns": [(name, kind.value, seen) for (name, kind), seen in self._seen.items()]}

    def add(self, raw: Mapping[str, Any]) -> None:
        for name, given in raw.items():
            # A name that was only selected may be one that no property can have; its value is None.
            if given is None or not odata.is_property(name):
                continue
            value = odata.property_of(raw, name)
            assert value is not None
            seen = self._seen.setdefault((name, value.type), [0, 0, 0, 0])
            if value.type is EdmType.DATE_TIME:
                assert isinstance(value.value, int)
                seen[1] = min(seen[1], value.value) if seen[0] else value.value
                seen[2] = max(seen[2], value.value)
                seen[3] = max(seen[3], int(value.value % 10 != 0))
            seen[0] += 1

    def pairs(self, mixed: Mixed) -> list[tuple[str, EdmType]]:
        """The columns by name; with `Mixed.FAIL`, a property of several types raises `TransferFailed`."""
        pairs = sorted(self._seen, key=lambda pair: (pair[0], pair[1].value))
        by_name: dict[str, list[EdmType]] = {}
        for name, kind in pairs:
            by_name.setdefault(name, []).append(kind)
        for name, kinds in by_name.items():
            if len(kinds) > 1 and mixed is Mixed.FAIL:
                counts = " and ".join(
                    f"{self._seen[name, kind][0]:,} of {_type_name(kind)}" for kind in kinds
                )
                raise TransferFailed(
                    f"{name} has values of several types: {counts}. --mixed columns gives each type a column of its "
                    "own."
                )
        return pairs

    def titles(self, mixed: Mixed) -> list[tuple[str, str, EdmType, list[int]]]:
        """Title, property, type and numbers of each column, for a format whose columns need different names."""
        pairs = self.pairs(mixed)
        uses = Counter(name for name, _ in pairs)
        titles = [f"{name}:{_type_name(kind)}" if uses[name] > 1 else name for name, kind in pairs]
        return [(title, *pair, self._seen[pair]) for title, pair in zip(titles, pairs, strict=True)]


def _type_name(kind: EdmType) -> str:
    return kind.value.removeprefix("Edm.")


RANGES_SHOWN_MAX = 5


def explain(
    query: Query,
    cost: Cost,
    *,
    shown: int,
    seconds: float,
    newest: bool,
    types: Mapping[str, EdmType] | None = None,
    indexes: Sequence[IndexFound] | None = None,
) -> list[str]:
    """The lines that `--explain` prints. `newest`: only the last entities that are read are shown.

    `types` has the types of the properties that were received. `indexes` is None if they are unknown.
    """
    tree = parse_filter(query.filter, extended=True) if query.filter else None
    plan, by_index = planned(tree, indexes)
    lines = [f"plan: {plan_name(plan.kind)}", *(f"  {line}" for line in plan_lines(plan, by_index))]
    lines += [
        f"  the index on {each.property} is {each.state}"
        for each in indexes or ()
        if each.state != "ready"
        and properties_by_index(plan, {each.property: each.within_partition})
    ]
    asked = None if tree is None else with_stored_types(tree, types or {})
    returned = 0 if cost.requests and not cost.entities else None
    use = QueryUse(asked, entities_returned=returned, plan=plan.kind, reads_newest=newest)
    for advice in advise_on_query(use, TableUse(query.table, indexes=within_partitions(indexes))):
        lines += [f"advice ({advice.rule}): {advice.change}", f"  cost of writes: {advice.cost}"]
    examined = "" if cost.examined is None else f"{cost.examined:,} examined by the server, "
    lines.append(
        f"cost: {shown_count(cost.requests, 'request')}, "
        f"{shown_count(cost.entities, 'entity', 'entities')} received for {shown:,} shown, {examined}"
        f"{shown_bytes(cost.bytes)}, {seconds * 1000:,.0f} ms"
        + (f", {shown_count(cost.retries, 'retry', 'retries')}" if cost.retries else "")
    )
    return lines


def planned(
    tree: FilterNode | None, indexes: Sequence[IndexFound] | None
) -> tuple[Plan, tuple[str, ...]]:
    """The plan of a filter, and the properties whose indexes it uses."""
    plan = plan_query(tree)
    ready = within_partitions([each for each in indexes or () if each.state == "ready"])
    by_index = properties_by_index(plan, ready or {})
    return (plan._replace(kind=PlanKind.INDEX) if by_index else plan), by_index


def within_partitions(indexes: Sequence[IndexFound] | None) -> dict[str, bool] | None:
    """The indexed properties, each with whether its index is within partitions."""
    return None if indexes is None else {each.property: each.within_partition for each in indexes}


def plan_name(kind: PlanKind) -> str:
    """The kind of a plan as the design guide calls it: point, row range, partition, partition range or table scan."""
    return "table scan" if kind is PlanKind.TABLE else kind.value


def plan_lines(plan: Plan, by_index: Sequence[str] = ()) -> list[str]:
    """The ranges of keys and the indexes that a plan reads, and the condition tested on each entity."""
    lines = [f"keys: {_range(interval)}" for interval in plan.ranges[:RANGES_SHOWN_MAX]]
    if len(plan.ranges) > RANGES_SHOWN_MAX:
        lines.append(f"and {len(plan.ranges) - RANGES_SHOWN_MAX:,} ranges more")
    if by_index:
        names = " and ".join(by_index)
        lines.append(
            f"by the index on {names}, after a scan of as many entities if they are more than a few"
        )
    if plan.residual is not None:
        lines.append(f"tested on each entity there: {print_filter(plan.residual)}")
    return lines


def _range(interval: KeyInterval) -> str:
    """A range of keys in words. A bound that ends in a zero byte is right after the key without that byte."""
    start, end = interval
    if end is None and start == (b"", b""):
        return "all"
    if end is not None and end == (start[0], start[1] + b"\0"):
        return f"exactly {_shown(start)}"
    if end is not None and end == (start[0] + b"\0", b"") and not start[1]:
        return f"all of the partition {decode_key(start[0])!r}"
    until = "" if end is None else f" {_bound('before', 'through', end)}"
    return _bound("from", "after", start) + until


def _bound(at: str, after: str, point: tuple[bytes, bytes]) -> str:
    is_after = point[1].endswith(b"\0") or (not point[1] and point[0].endswith(b"\0"))
    return f"{after if is_after else at} {_shown(point)}"


def _shown(point: tuple[bytes, bytes]) -> str:
    partition, row = (decode_key(part.removesuffix(END).removesuffix(b"\0")) for part in point)
    is_key = row or not point[0].endswith(b"\0")
    return f"({partition!r}, {row!r})" if is_key else f"partition {partition!r}"


@dataclass(frozen=True)
class Refinement:
    """What the client does after the service's own filter."""

    contains: tuple[tuple[str, str], ...] = ()
    starts_with: tuple[tuple[str, str], ...] = ()
    order_by: tuple[tuple[str, bool], ...] = ()
    """Properties, each with whether it is descending."""
    newest: bool = False
    top: int | None = None

    @property
    def reads_everything(self) -> bool:
        """Whether the last entity must be read before the first is shown."""
        return bool(self.order_by) or self.newest

    @property
    def looks_at_more(self) -> bool:
        """Whether it may read more entities than it shows."""
        return self.reads_everything or bool(self.contains or self.starts_with)

    def apply(self, entities: Iterable[RawEntity]) -> Iterator[RawEntity]:
        """The entities that pass, in order, at most `top`."""
        kept = (raw for raw in entities if self._keeps(raw))
        if self.newest:
            yield from reversed(deque(kept, maxlen=self.top))
        elif self.order_by and self.top is not None:
            yield from heapq.nsmallest(self.top, kept, key=self._order)
        else:
            yield from islice(sorted(kept, key=self._order) if self.order_by else kept, self.top)

    def _keeps(self, raw: RawEntity) -> bool:
        return all(part in _any_text(raw, name) for name, part in self.contains) and all(
            _text(raw, name).startswith(part) and name in raw for name, part in self.starts_with
        )

    def _order(self, raw: RawEntity) -> list[_Ordered]:
        return [
            _Ordered(_rank(odata.property_of(raw, name)), descending)
            for name, descending in self.order_by
        ]


class Met:
    """Watches a stream of entities for some properties, and notes the first type of each."""

    def __init__(self, names: Iterable[str]) -> None:
        self.types: dict[str, EdmType] = {}
        self._waiting = list(dict.fromkeys(names))
        self._any = False

    @property
    def missing(self) -> list[str]:
        """Properties that no entity had; empty if there was no entity."""
        return self._waiting if self._any else []

    def watch(self, entities: Iterable[RawEntity]) -> Iterator[RawEntity]:
        """The entities, unchanged."""
        for raw in entities:
            self._any = True
            for name in [name for name in self._waiting if raw.get(name) is not None]:
                self._waiting.remove(name)
                with suppress(ValueError):  # an unknown type must not end the query
                    kind = raw.get(name + odata.ANNOTATION)
                    self.types[name] = odata.read_value(name, raw[name], kind).type
            yield raw


def without(entities: Iterable[RawEntity], names: Sequence[str]) -> Iterator[RawEntity]:
    """The entities without the properties that were read only for sorting or searching."""
    hidden = {member for name in names for member in (name, name + odata.ANNOTATION)}
    for raw in entities:
        yield {name: raw[name] for name in raw if name not in hidden} if hidden else raw


def _text(raw: RawEntity, name: str) -> str:
    """The text of a String property; empty for another type."""
    value = raw.get(name)
    is_string = raw.get(name + odata.ANNOTATION) in (None, EdmType.STRING.value)
    return value if isinstance(value, str) and is_string else ""


def _any_text(raw: RawEntity, name: str) -> str:
    """A property of any type as text; empty if absent."""
    value = raw.get(name)
    if isinstance(value, str):
        return value
    found = odata.property_of(raw, name)
    return "" if found is None else key_text(found)


_NUMBERS: Final = frozenset((EdmType.INT32, EdmType.INT64, EdmType.DOUBLE))


@dataclass(frozen=True)
class _Ordered:
    """Orders values of all types: numbers by value, text as the service does; absent values last in both directions."""

    rank: tuple[str, Any]
    descending: bool

    def __lt__(self, other: _Ordered) -> bool:
        absent, others = self.rank[0] == _ABSENT, other.rank[0] == _ABSENT
        if absent or others:
            return others and not absent
        return other.rank < self.rank if self.descending else self.rank < other.rank


_ABSENT: Final = "~"


def _rank(value: EdmValue | None) -> tuple[str, Any]:
    if value is None:
        return _ABSENT, 0
    content = value.value
    if value.type in _NUMBERS:
        is_nan = isinstance(content, float) and math.isnan(content)
        return "number", -math.inf if is_nan else content
    if isinstance(content, str):
        return value.type.value, encode_key(content)
    return value.type.value, content


def parse_order(texts: tuple[str, ...]) -> tuple[tuple[str, bool], ...]:
    """Parse `temp desc` or `temp` as (property, descending)."""
    found = []
    for text in texts:
        for part in text.split(","):
            words = part.split()
            if len(words) not in (1, 2) or (len(words) == 2 and words[1] not in ("asc", "desc")):
                raise TransferRefused(f"--order-by {part!r} is not of the form NAME or NAME desc.")
            found.append((words[0], words[1:] == ["desc"]))
    return tuple(found)


def parse_pair(flag: str, text: str) -> tuple[str, str]:
    """Parse `NAME=TEXT`."""
    name, equals, part = text.partition("=")
    if not equals or not name:
        raise TransferRefused(f"{flag} {text!r} is not of the form NAME=TEXT.")
    return name, part


def prefix_filter(name: str, prefix: str) -> str:
    """The filter for strings that start with a text: a range, which works for keys and other properties."""
    filter_text = f"{name} ge {quoted(prefix)}"
    end = after_prefix(prefix)
    return filter_text if end is None else f"{filter_text} and {name} lt {quoted(end)}"


def after_prefix(prefix: str) -> str | None:
    """The least text above all that start with the prefix, by UTF-16 unit; None if there is none."""
    units = bytearray(prefix.encode("utf-16-be", "surrogatepass"))
    while units[-2:] == b"\xff\xff":
        del units[-2:]
    if not units:
        return None
    following = int.from_bytes(units[-2:], "big") + 1
    try:
        return (bytes(units[:-2]) + following.to_bytes(2, "big")).decode("utf-16-be")
    except UnicodeDecodeError:
        return None  # half a surrogate pair: leave the range open; the client filters again


def all_of(filters: Iterable[str | None]) -> str | None:
    """The conjunction of the filters that are not empty."""
    parts = [text for text in filters if text]
    if len(parts) < 2:
        return parts[0] if parts else None
    return " and ".join(f"({part})" for part in parts)


def count_by(entities: Iterable[Mapping[str, Any]], name: str) -> Iterator[tuple[str, int]]:
    """Count the entities of each value of a property, most frequent first."""
    counted: Counter[str] = Counter()
    for raw in entities:
        counted[shown_value(odata.property_of(raw, name))] += 1
    yield from counted.most_common()


def shown_value(value: EdmValue | None) -> str:
    return "" if value is None else key_text(value)
