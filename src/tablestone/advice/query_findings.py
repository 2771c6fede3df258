"""The findings on queries: which key, or which copy of the data under which key, makes a scan a range or a point.

`proposed_keys` makes the keys. If other requests use the present keys, the answer is a copy under the other keys:
inside the partition, written in the same transaction, or in another partition, eventually consistent. Each function
is the condition of one rule of `query_rules`. Knows filters and plans; does not know the words of a rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tablestone.advice.conditions import Conditions, conditions_of
from tablestone.advice.filter_shape import shape_of
from tablestone.advice.proposed_keys import AskedQuery, keys_inside, new_keys, several, template
from tablestone.advice.rule import Facts, Severity
from tablestone.advice.workload import QueryUse, TableUse, Thresholds
from tablestone.limits import PARTITION_RATE_TARGET
from tablestone.model.edm import EdmType
from tablestone.model.entity import TIMESTAMP
from tablestone.model.filter_tree import property_names
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
from tablestone.query.plan import PlanKind

_SYSTEM: Final = (PARTITION_KEY, ROW_KEY, TIMESTAMP)
_READS: Final = {
    PlanKind.TABLE: "every entity of the table",
    PlanKind.PARTITION_RANGE: "every entity of the partitions between its bounds",
    PlanKind.PARTITION: "every entity of the partition",
    PlanKind.RANGES: "every entity of several ranges",
    PlanKind.ROW_RANGE: "every entity of the range",
}
"""The entities that a plan reads. Only a query of one of these kinds can read more than it returns."""
_PLANS: Final = {
    PlanKind.TABLE: "table scan",
    PlanKind.PARTITION_RANGE: "scan of several partitions",
    PlanKind.PARTITION: "partition scan",
    PlanKind.RANGES: "scan of several ranges",
}
"""Kinds of plans as the design guide calls them."""
FREQUENT_RUNS: Final = 10
"""Runs of an observed query from which it is worth a warning: fewer may be a search by hand."""


def _is_wasteful(use: QueryUse, thresholds: Thresholds) -> bool:
    """Whether the query reads much more than it returns; judged by its plan where no number is known."""
    if use.kind not in _READS:
        return False
    if use.entities_read is None or use.entities_returned is None:
        return use.kind is not PlanKind.ROW_RANGE
    return (
        use.entities_read >= thresholds.entities_read * use.runs
        and use.entities_read >= thresholds.ratio * max(1, use.entities_returned)
    )


def _unfound(table: TableUse, use: QueryUse) -> tuple[str, ...]:
    """The properties of a query that finds nothing, or of which it is known that no entity has them: no key helps."""
    names = property_names(use.filter) if use.filter is not None else frozenset()
    asked = sorted(names.difference(_SYSTEM))
    if table.known_properties:
        unknown = tuple(name for name in asked if name not in table.known_properties)
        if unknown:
            return unknown
    return tuple(asked) if use.entities_returned == 0 else ()


def _scans(table: TableUse, thresholds: Thresholds) -> Iterator[AskedQuery]:
    """The wasteful queries whose filter is one query, not several."""
    for use in table.queries:
        branches = conditions_of(use.filter)
        is_one = len(branches) == 1 and use.filter is not None
        if is_one and _is_wasteful(use, thresholds) and not _unfound(table, use):
            yield _query(use, branches[0])


def _query(use: QueryUse, conditions: Conditions) -> AskedQuery:
    equal, ranges = (
        tuple(name for name in names if name not in _SYSTEM)
        for names in (conditions.equal, conditions.ranges)
    )
    return AskedQuery(use, conditions, equal, ranges)


def _about(use: QueryUse, **facts: object) -> dict[str, object]:
    """The facts of every finding on a query."""
    if use.entities_read is None or use.entities_returned is None:
        reads = f"reads {_READS.get(use.kind, 'every entity')}"
    else:
        read, returned = round(use.entities_read / use.runs), use.entities_returned / use.runs
        shown = f"{returned:,.1f}".removesuffix(".0") if returned < 10 else f"{returned:,.0f}"
        reads = f"reads {read:,} entities a run and returns {shown}"
    plan = _PLANS.get(use.kind, use.kind.value)
    about = {"filter": shape_of(use.filter), "plan": plan, "reads": reads}
    is_rare = use.entities_read is not None and use.runs < FREQUENT_RUNS
    return about | facts | ({"severity": Severity.NOTE} if is_rare else {})


class _Keeping(NamedTuple):
    """The words around a copy: why the present keys stay, and when they need not."""

    because: str
    instead: str = ""


def _present_uses(table: TableUse, query: AskedQuery) -> _Keeping | None:
    """The requests that would lose the present keys; None if it is known that there are none."""
    if table.point_reads is None:
        instead = " If no other request uses the present keys, these keys can replace them."
        return _Keeping("Write", instead)
    others = sum(
        1
        for other in table.queries
        if other is not query.use
        and any(
            PARTITION_KEY in (*each.equal, *each.ranges) for each in conditions_of(other.filter)
        )
    )
    changes = table.writes.updates + table.writes.deletes
    uses = (
        (table.point_reads, "point read", "point reads"),
        (changes, "update or delete", "updates and deletes"),
        (others, "other query", "other queries"),
    )
    parts = [f"{count:,} {one if count == 1 else many}" for count, one, many in uses if count]
    if not parts:
        return None
    use = "uses" if table.point_reads + changes + others == 1 else "use"
    *first, last = parts
    told = f"{', '.join(first)} and {last}" if first else last
    return _Keeping(f"Because {told} {use} the present keys, keep them and write")


def _across(table: TableUse, thresholds: Thresholds) -> Iterator[AskedQuery]:
    """Scans over several partitions that fix properties, and not only flags."""
    for query in _scans(table, thresholds):
        is_by_row = ROW_KEY in query.conditions.equal
        if query.equal and not query.fixes_partition and not is_by_row and not _flags(query):
            yield query


def _flags(query: AskedQuery) -> tuple[str, ...]:
    """The properties that the filter fixes, if all of them are Boolean."""
    types = query.conditions.types
    is_flag = all(types.get(name) is EdmType.BOOLEAN for name in query.equal)
    return query.equal if is_flag else ()


def _inside(table: TableUse, thresholds: Thresholds) -> Iterator[AskedQuery]:
    """Scans inside a partition that ask for other properties."""
    for query in _scans(table, thresholds):
        if query.fixes_partition and query.has_key_to_gain:
            yield query


def _keeps_entities_large(table: TableUse, thresholds: Thresholds) -> bool:
    return (table.entity_bytes_mean or 0) >= thresholds.large_copy_bytes


def compound_key(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    across = list(_across(table, thresholds))
    for query in across:
        if not _present_uses(table, query):
            yield _about(query.use, **new_keys(query, across))
    for query in _inside(table, thresholds):
        if not _present_uses(table, query):
            names = (*query.equal, *query.ranges[:1], ROW_KEY)
            row_key = template(names, query.conditions.types)
            yield _about(query.use, **(keys_inside(query) | {"row_key": row_key}))


def inter_partition(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    if _keeps_entities_large(table, thresholds):
        return
    yield from _copies(table, thresholds)


def index_entities(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    if _keeps_entities_large(table, thresholds):
        for facts in _copies(table, thresholds):
            yield {**facts, "mean": table.entity_bytes_mean}


def _copies(table: TableUse, thresholds: Thresholds) -> Iterator[dict[str, object]]:
    across = list(_across(table, thresholds))
    for query in across:
        if keep := _present_uses(table, query):
            more = _more(table)
            yield _about(query.use, **new_keys(query, across), **keep._asdict(), more=more)


def _more(table: TableUse) -> str:
    """The further requests of a copy, where the requests of writes are known."""
    requests = table.writes.requests
    if not requests:
        return ""
    period = f"In {table.period}" if table.period else "Here"
    return f" {period}, that would have been {requests:,} more {'request' if requests == 1 else 'requests'}."


def intra_partition(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    inside = list(_inside(table, thresholds))
    for query in inside:
        if keep := _present_uses(table, query):
            rate = table.rate
            room = (
                f" The busiest partition takes {rate:,.0f} entities/s; its writes would count twice."
                if rate is not None and rate >= thresholds.rate_part * PARTITION_RATE_TARGET
                else ""
            )
            yield _about(query.use, **keys_inside(query, inside), **keep._asdict(), room=room)


def row_key_alone(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    for query in _scans(table, thresholds):
        if not query.fixes_partition and ROW_KEY in query.conditions.equal:
            yield _about(
                query.use,
                partition_key="{RowKey}",
                row_key="{PartitionKey}",
                several=several(query.conditions),
            )


def flag(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    for query in _scans(table, thresholds):
        conditions = query.conditions
        if not query.fixes_partition and ROW_KEY not in conditions.equal and _flags(query):
            yield _about(query.use, names=" and ".join(query.equal))


def range_alone(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    for query in _scans(table, thresholds):
        conditions = query.conditions
        if query.fixes_partition or query.equal or ROW_KEY in conditions.equal:
            continue
        bounded = query.ranges or tuple(name for name in (ROW_KEY,) if name in conditions.ranges)
        if bounded:
            name = bounded[0]
            kind = conditions.types.get(name, EdmType.STRING)
            period = {EdmType.DATE_TIME: "its day or month", EdmType.STRING: "its first characters"}
            part = period.get(kind, "its thousands")
            yield _about(query.use, name=name, part=part)


def alternatives(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    for use in table.queries:
        branches = conditions_of(use.filter)
        if len(branches) > 1 and _is_wasteful(use, thresholds) and not _unfound(table, use):
            sides = "; ".join(_side(_query(use, each)) for each in branches)
            yield _about(use, count=len(branches), sides=sides)


def _side(query: AskedQuery) -> str:
    """The key for one side of an `or`, in words."""
    conditions = query.conditions
    names = " and ".join((*conditions.equal, *conditions.ranges, *conditions.unusable)) or "all"
    if query.fixes_partition:
        if not query.has_key_to_gain:
            return f"for {names}, the present keys"
        return f"for {names}, RowKey {keys_inside(query)['row_key']} inside the partition"
    if ROW_KEY in conditions.equal:
        return f"for {names}, the PartitionKey too"
    if query.equal:
        return f"for {names}, PartitionKey {new_keys(query)['partition_key']}"
    return f"for {names}, no key helps" if not query.ranges else f"for {names}, a key by period"


def negation(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    for query in _scans(table, thresholds):
        conditions = query.conditions
        others = (*query.equal, *query.ranges)
        is_alone = not others and ROW_KEY not in (*conditions.equal, *conditions.ranges)
        if conditions.unusable and is_alone and TIMESTAMP not in conditions.names:
            yield _about(query.use, names=" and ".join(conditions.unusable))


def nothing_found(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    for use in table.queries:
        if _is_wasteful(use, thresholds) and (names := _unfound(table, use)):
            known = table.known_properties
            why = "it has returned nothing so far"
            if not known.issuperset(names) and known:
                why = f"no entity that was seen has {_either(names, 'or')}"
            yield _about(
                use, names=_either(names, "and"), why=why, spelling=_spelling(names, known)
            ) | {"severity": Severity.NOTE}


def _either(names: Sequence[str], join: str) -> str:
    *first, last = [f"`{name}`" for name in names]
    return f"{', '.join(first)} {join} {last}" if first else last


def _spelling(names: Sequence[str], known: frozenset[str]) -> str:
    """A further sentence, if a known name differs in its letters' case only."""
    by_lower = {name.lower(): name for name in known}
    meant = [
        by_lower[name.lower()] for name in names if name.lower() in by_lower and name not in known
    ]
    return f" There is {_either(meant, 'and')}." if meant else ""


def timestamp(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    for query in _scans(table, thresholds):
        if TIMESTAMP in query.conditions.names and not query.has_key_to_gain:
            yield _about(query.use)


def log_tail(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    for use in table.queries:
        read = None if use.entities_read is None else use.entities_read / use.runs
        if use.reads_newest and (read is None or read >= thresholds.entities_read):
            yield _about(use)


def whole_table(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    for use in table.queries:
        if use.filter is None and use.kind is PlanKind.TABLE and not use.reads_newest:
            known = use.entities_read
            is_large = known is None or known >= thresholds.entities_read * use.runs
            if is_large and (table.is_one_task or use.runs >= thresholds.whole_reads):
                yield _about(use, runs=use.runs)


def whole_partition(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    """A partition that a single task reads to its end."""
    for query in _scans(table, thresholds) if table.is_one_task else ():
        conditions = query.conditions
        if query.use.kind is PlanKind.PARTITION and conditions.names == (PARTITION_KEY,):
            yield _about(query.use)


def or_of_row_keys(table: TableUse, _thresholds: Thresholds) -> Iterator[Facts]:
    for use in table.queries:
        branches = conditions_of(use.filter)
        each = branches[0]
        if (
            len(branches) == 1
            and PARTITION_KEY in each.equal
            and PARTITION_KEY not in each.several
            and ROW_KEY in each.several
        ):
            yield _about(use)


def data_series(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    """Small entities of one or two properties that are always read a few dozen at a time."""
    if table.properties_max is None or table.properties_max > 2 or not table.row_form.is_time:
        return
    for use in table.queries:
        returned = use.entities_returned
        if use.kind in (PlanKind.PARTITION, PlanKind.ROW_RANGE) and returned is not None:
            mean = returned / use.runs
            if use.runs * 10 >= thresholds.many_writes and 8 <= mean <= 252:
                yield _about(use, mean=mean)
