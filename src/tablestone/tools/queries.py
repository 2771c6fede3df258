"""Queries of the tools: their filters, their pages, and their plan and cost explained in words.

The plan is that of Tablestone; the kinds are the service's own as Microsoft's design guide for tables calls them. The
cost counts what a client receives, because no service says how many entities it read for that.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import total_ordering
from typing import Any, Final

from tablestone.advice.advising import advise_on_query
from tablestone.advice.filter_shape import with_stored_types
from tablestone.advice.workload import QueryUse, TableUse
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.filter_tree import print_filter
from tablestone.model.keys import decode_key, encode_key
from tablestone.query.filter_parser import parse_filter
from tablestone.query.plan import END, KeyInterval, Plan, PlanKind, plan_query
from tablestone.tools import odata
from tablestone.tools.client import Query, RawEntity
from tablestone.tools.formats.rows import key_text
from tablestone.tools.progress import shown_bytes
from tablestone.tools.reading import Cost
from tablestone.tools.refusals import TransferRefused
from tablestone.tools.writing import quoted

RANGES_SHOWN_MAX = 5
_NAMES = {PlanKind.TABLE: "table scan", PlanKind.POINT: "point"}


def explain(
    query: Query,
    cost: Cost,
    *,
    shown: int,
    seconds: float,
    newest: bool,
    types: Mapping[str, EdmType] | None = None,
) -> list[str]:
    """The lines that `--explain` prints. `newest`: only the last entities of what is read are shown.

    `types` are those of the properties of the entities that were received.
    """
    tree = parse_filter(query.filter) if query.filter else None
    plan = plan_query(tree)
    lines = [f"plan: {plan_name(plan)}", *(f"  {line}" for line in plan_lines(plan))]
    asked = None if tree is None else with_stored_types(tree, types or {})
    returned = 0 if cost.requests and not cost.entities else None
    use = QueryUse(asked, entities_returned=returned, plan=plan.kind, reads_newest=newest)
    for advice in advise_on_query(use, TableUse(query.table)):
        lines += [f"advice ({advice.rule}): {advice.change}", f"  cost of writes: {advice.cost}"]
    lines.append(
        f"cost: {_number(cost.requests, 'request', 'requests')}, "
        f"{_number(cost.entities, 'entity', 'entities')} received for {shown:,} shown, "
        f"{shown_bytes(cost.bytes)}, {seconds * 1000:,.0f} ms"
        + (f", {_number(cost.retries, 'retry', 'retries')}" if cost.retries else "")
    )
    return lines


def _number(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def plan_name(plan: Plan) -> str:
    """The kind of a plan as the design guide calls it: point, row range, partition, partition range or table scan."""
    return _NAMES.get(plan.kind, plan.kind.value)


def plan_lines(plan: Plan) -> list[str]:
    """The ranges of keys that a plan reads, and the condition that is tested on each entity there."""
    lines = [f"keys: {_range(interval)}" for interval in plan.ranges[:RANGES_SHOWN_MAX]]
    if len(plan.ranges) > RANGES_SHOWN_MAX:
        lines.append(f"and {len(plan.ranges) - RANGES_SHOWN_MAX:,} ranges more")
    if plan.residual is not None:
        lines.append(f"tested on each entity there: {print_filter(plan.residual)}")
    return lines


def _range(interval: KeyInterval) -> str:
    """A range of keys in words. A bound that ends in a zero byte is just behind the key before that byte."""
    start, end = interval
    if end is None and start == (b"", b""):
        return "all"
    if end is not None and end == (start[0], start[1] + b"\0"):
        return f"exactly {_shown(start)}"
    if end is not None and end == (start[0] + b"\0", b"") and not start[1]:
        return f"all of the partition {decode_key(start[0])!r}"
    return f"{_bound('from', 'after', start)}" + (
        "" if end is None else f" {_bound('before', 'through', end)}"
    )


def _bound(at: str, behind: str, point: tuple[bytes, bytes]) -> str:
    is_behind = point[1].endswith(b"\0") or (not point[1] and point[0].endswith(b"\0"))
    return f"{behind if is_behind else at} {_shown(point)}"


def _shown(point: tuple[bytes, bytes]) -> str:
    partition, row = (decode_key(part.removesuffix(END).removesuffix(b"\0")) for part in point)
    return (
        f"({partition!r}, {row!r})"
        if row or not point[0].endswith(b"\0")
        else f"partition {partition!r}"
    )


Keep = Callable[[RawEntity], bool]


@dataclass(frozen=True)
class Refinement:
    """The work on the client, after the service's own filter."""

    contains: tuple[tuple[str, str], ...] = ()
    starts_with: tuple[tuple[str, str], ...] = ()
    order_by: tuple[tuple[str, bool], ...] = ()
    """Properties, each with whether it is descending."""
    newest: bool = False
    top: int | None = None

    @property
    def reads_everything(self) -> bool:
        """True where no entity can be shown before the last one was read."""
        return bool(self.order_by) or self.newest

    @property
    def looks_at_more(self) -> bool:
        """True where more entities are read than are shown."""
        return self.reads_everything or bool(self.contains or self.starts_with)

    def apply(self, entities: Iterable[RawEntity]) -> Iterator[RawEntity]:
        """The entities that pass, in order, at most `top`."""
        kept = (raw for raw in entities if self._keeps(raw))
        if self.newest:
            last: deque[RawEntity] = deque(kept, maxlen=self.top)
            yield from reversed(last)
        elif self.order_by:
            yield from (
                heapq.nsmallest(self.top, kept, key=self._order)
                if self.top is not None
                else sorted(kept, key=self._order)
            )
        elif self.top is None:
            yield from kept
        else:
            yield from _first(kept, self.top)

    def _keeps(self, raw: RawEntity) -> bool:
        return all(part in _any_text(raw, name) for name, part in self.contains) and all(
            _text(raw, name).startswith(part) and name in raw for name, part in self.starts_with
        )

    def _order(self, raw: RawEntity) -> list[_Ordered]:
        return [
            _Ordered(odata.property_of(raw, name), descending=descending)
            for name, descending in self.order_by
        ]


class Met:
    """Which of some properties were met in the entities that passed by."""

    def __init__(self, names: Iterable[str]) -> None:
        self.missing = list(dict.fromkeys(names))
        """The properties that no entity had so far; none at all if there was no entity."""
        self._any = False

    def watch(self, entities: Iterable[RawEntity]) -> Iterator[RawEntity]:
        """The entities, unchanged."""
        for raw in entities:
            self._any = True
            if self.missing:
                self.missing = [name for name in self.missing if raw.get(name) is None]
            yield raw
        if not self._any:
            self.missing = []


class TypesMet:
    """The types of some properties in the entities that passed by; of several types, the first one met."""

    def __init__(self, names: Iterable[str]) -> None:
        self.found: dict[str, EdmType] = {}
        self._missing = set(names)

    def watch(self, entities: Iterable[RawEntity]) -> Iterator[RawEntity]:
        """The entities, unchanged."""
        for raw in entities:
            for name in [name for name in self._missing if raw.get(name) is not None]:
                self._missing.discard(name)
                # A value that no type of ours has is no reason to end the query.
                with suppress(ValueError):
                    kind = raw.get(name + odata.ANNOTATION)
                    self.found[name] = odata.read_value(name, raw[name], kind).type
            yield raw


def without(entities: Iterable[RawEntity], names: Sequence[str]) -> Iterator[RawEntity]:
    """The entities without properties that were only read to look at them."""
    hidden = {member for name in names for member in (name, name + odata.ANNOTATION)}
    for raw in entities:
        yield {name: raw[name] for name in raw if name not in hidden} if hidden else raw


def _text(raw: RawEntity, name: str) -> str:
    """A property's text, and none where it is no string."""
    value = raw.get(name)
    is_string = raw.get(name + odata.ANNOTATION) in (None, EdmType.STRING.value)
    return value if isinstance(value, str) and is_string else ""


def _any_text(raw: RawEntity, name: str) -> str:
    """A property of any type as the text of a cell; empty where it is absent."""
    value = raw.get(name)
    if isinstance(value, str):
        return value
    found = odata.property_of(raw, name)
    return "" if found is None else key_text(found)


def _first(entities: Iterable[RawEntity], count: int) -> Iterator[RawEntity]:
    """Stops reading with the last one that is wanted."""
    if count <= 0:
        return
    for number, raw in enumerate(entities, start=1):
        yield raw
        if number == count:
            return


_NUMBERS: Final = frozenset((EdmType.INT32, EdmType.INT64, EdmType.DOUBLE))


@total_ordering
class _Ordered:
    """A value in an order over all types: numbers by value, text as the service sorts it, absent last either way."""

    def __init__(self, value: EdmValue | None, *, descending: bool) -> None:
        self._rank = _rank(value)
        self._descending = descending

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Ordered) and self._rank == other._rank

    def __hash__(self) -> int:
        return hash(self._rank)

    def __lt__(self, other: _Ordered) -> bool:
        absent, others = self._rank[0] == _ABSENT, other._rank[0] == _ABSENT
        if absent or others:
            return others and not absent
        return other._rank < self._rank if self._descending else self._rank < other._rank


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
    """`temp desc` or `temp` as (property, descending)."""
    found = []
    for text in texts:
        for part in text.split(","):
            words = part.split()
            if len(words) not in (1, 2) or (len(words) == 2 and words[1] not in ("asc", "desc")):
                raise TransferRefused(f"--order-by {part!r} is not of the form NAME or NAME desc.")
            found.append((words[0], words[1:] == ["desc"]))
    return tuple(found)


def parse_pair(flag: str, text: str) -> tuple[str, str]:
    """`NAME=TEXT` as a pair."""
    name, equals, part = text.partition("=")
    if not equals or not name:
        raise TransferRefused(f"{flag} {text!r} is not of the form NAME=TEXT.")
    return name, part


def prefix_filter(name: str, prefix: str) -> str:
    """Strings that start with a text are a range, for keys and other properties alike."""
    filter_text = f"{name} ge {quoted(prefix)}"
    end = after_prefix(prefix)
    return filter_text if end is None else f"{filter_text} and {name} lt {quoted(end)}"


def after_prefix(prefix: str) -> str | None:
    """The least text above all that start with the prefix, by UTF-16 unit; None where no text is that."""
    units = bytearray(prefix.encode("utf-16-be", "surrogatepass"))
    while units[-2:] == b"\xff\xff":
        del units[-2:]
    if not units:
        return None
    following = int.from_bytes(units[-2:], "big") + 1
    try:
        return (bytes(units[:-2]) + following.to_bytes(2, "big")).decode("utf-16-be")
    except UnicodeDecodeError:
        return None  # half a character: the range has no end, and what was read is looked at again


def all_of(filters: Iterable[str | None]) -> str | None:
    """One filter that asks for all of them."""
    parts = [text for text in filters if text]
    if len(parts) < 2:
        return parts[0] if parts else None
    return " and ".join(f"({part})" for part in parts)


def count_by(entities: Iterable[Mapping[str, Any]], name: str) -> Iterator[tuple[str, int]]:
    """How many entities have each value of a property, most frequent first."""
    counted: Counter[str] = Counter()
    for raw in entities:
        counted[shown_value(odata.property_of(raw, name))] += 1
    yield from counted.most_common()


def shown_value(value: EdmValue | None) -> str:
    """A value as text; absent is empty."""
    return "" if value is None else key_text(value)
