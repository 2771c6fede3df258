"""The rules on queries: which key, or which copy of the data under which key, makes a scan a range or a point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tablestone.advice import rule
from tablestone.advice.filter_shape import shape_of
from tablestone.advice.proposed_keys import (
    SYSTEM_PROPERTIES,
    AskedQuery,
    conditions_of,
    keys_inside,
    new_keys,
    several,
    template,
)
from tablestone.advice.rule import Facts, Rule, Severity
from tablestone.advice.thresholds import Thresholds
from tablestone.advice.workload import QueryUse, TableUse
from tablestone.limits import PARTITION_RATE_TARGET
from tablestone.model.edm import EdmType
from tablestone.model.entity import TIMESTAMP
from tablestone.model.filter_tree import property_names
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
from tablestone.query.plan import PlanKind

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
_SCAN: Final = "The query `{filter}` of {table} is a {plan}: it {reads}."
_COPY: Final = "{because} each entity a second time, under PartitionKey `{partition_key}` and RowKey `{row_key}`"
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
    asked = sorted(names.difference(SYSTEM_PROPERTIES))
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
            yield AskedQuery(use, branches[0])


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


def _present_uses(table: TableUse, query: AskedQuery) -> dict[str, str]:
    """Why the present keys stay beside a copy, and when they need not; empty if no request is known to use them."""
    if table.point_reads is None:
        instead = " If no other request uses the present keys, these keys can replace them."
        return {"because": "Write", "instead": instead}
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
        return {}
    use = "uses" if table.point_reads + changes + others == 1 else "use"
    because = f"Because {_joined(parts, 'and')} {use} the present keys, keep them and write"
    return {"because": because, "instead": ""}


def _joined(parts: Sequence[str], word: str) -> str:
    *first, last = parts
    return f"{', '.join(first)} {word} {last}" if first else last


def _across(table: TableUse, thresholds: Thresholds) -> Iterator[AskedQuery]:
    """Scans over several partitions that fix properties, and not only flags."""
    for query in _scans(table, thresholds):
        is_by_row = ROW_KEY in query.conditions.equal
        if (
            query.equal
            and not query.fixes_partition
            and not is_by_row
            and not _fixes_flags_only(query)
        ):
            yield query


def _fixes_flags_only(query: AskedQuery) -> bool:
    types = query.conditions.types
    return all(types.get(name) is EdmType.BOOLEAN for name in query.equal)


def _inside(table: TableUse, thresholds: Thresholds) -> Iterator[AskedQuery]:
    """Scans inside a partition that ask for other properties."""
    for query in _scans(table, thresholds):
        if query.fixes_partition and query.has_key_to_gain:
            yield query


def _keeps_entities_large(table: TableUse, thresholds: Thresholds) -> bool:
    return (table.entity_bytes_mean or 0) >= thresholds.large_copy_bytes


@rule.rule(
    "compound-key",
    "Keys of the queried properties",
    Severity.WARNING,
    (rule.COMPOUND_KEY, rule.QUERY_KEYS, rule.QUERY_DENSITY),
    _SCAN,
    "No other request needs the present keys, so store the entities under PartitionKey `{partition_key}` and "
    "RowKey `{row_key}`: the query then reads {gain}.{several}",
    "Writes cost the same as before; the entities are copied once into a table with the new keys.",
)
def compound_key(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    """A scan asks for fixed values of properties, and no other request needs the present keys."""
    across = list(_across(table, thresholds))
    for query in across:
        if not _present_uses(table, query):
            yield _about(query.use, **new_keys(query, across))
    for query in _inside(table, thresholds):
        if not _present_uses(table, query):
            names = (*query.equal, *query.ranges[:1], ROW_KEY)
            row_key = template(names, query.conditions.types)
            yield _about(query.use, **(keys_inside(query) | {"row_key": row_key}))


@rule.rule(
    "inter-partition-index",
    "A copy in other partitions",
    Severity.WARNING,
    (rule.INTER_PARTITION_INDEX, rule.EVENTUALLY_CONSISTENT, rule.DENORMALIZATION),
    _SCAN,
    _COPY + ": the query then reads {gain}.{several}{instead}",
    "Each write becomes two requests to two partitions, which cannot share a transaction: the copy is behind until "
    "the second request has succeeded. A queue repeats that one until it does, so it must be idempotent.{more}",
)
def inter_partition(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    """A scan of several partitions asks for fixed values of properties, and other requests need the present keys."""
    if not _keeps_entities_large(table, thresholds):
        yield from _copies(table, thresholds)


@rule.rule(
    "index-entities",
    "Index entities",
    Severity.WARNING,
    (rule.INDEX_ENTITIES, rule.EVENTUALLY_CONSISTENT),
    _SCAN,
    _COPY
    + " with nothing but the present keys in it, since an entity has {mean} bytes: the query then reads "
    "{gain}, and a point read gets each entity.{several}{instead}",
    "Each write of a new entity, and of a new value of these properties, becomes two requests to two partitions, "
    "which are eventually consistent.{more}",
)
def index_entities(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    """The same, for entities of 16 KiB or more."""
    if _keeps_entities_large(table, thresholds):
        for facts in _copies(table, thresholds):
            yield {**facts, "mean": table.entity_bytes_mean}


def _copies(table: TableUse, thresholds: Thresholds) -> Iterator[dict[str, object]]:
    across = list(_across(table, thresholds))
    for query in across:
        if keep := _present_uses(table, query):
            more = ""
            if requests := table.writes.requests:
                period = f"In {table.period}" if table.period else "Here"
                what = "request" if requests == 1 else "requests"
                more = f" {period}, that would have been {requests:,} more {what}."
            yield _about(query.use, **new_keys(query, across), **keep, more=more)


@rule.rule(
    "intra-partition-index",
    "A copy in the same partition",
    Severity.WARNING,
    (rule.INTRA_PARTITION_INDEX, rule.COMPOUND_KEY),
    _SCAN,
    "{because} each entity a second time into its partition, under RowKey `{row_key}`: the query then reads "
    "{gain}.{several}{instead}",
    "Each write becomes one entity group transaction of two entities, so the copies are always equal, and the "
    "partition has twice the entities.{room}",
)
def intra_partition(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    """A query of one partition asks for other properties, and other requests need the present keys."""
    inside = list(_inside(table, thresholds))
    for query in inside:
        if keep := _present_uses(table, query):
            rate = table.rate
            room = ""
            if rate is not None and rate >= thresholds.rate_part * PARTITION_RATE_TARGET:
                room = f" The busiest partition takes {rate:,.0f} entities/s; its writes would count twice."
            yield _about(query.use, **keys_inside(query, inside), **keep, room=room)


@rule.rule(
    "row-key-alone",
    "A RowKey without its PartitionKey",
    Severity.WARNING,
    (rule.QUERY_KEYS, rule.INTER_PARTITION_INDEX),
    _SCAN,
    "Name the PartitionKey too, which makes it a point read; if the client does not know it, keep an index entity "
    "under PartitionKey `{partition_key}` and RowKey `{row_key}`.{several}",
    "A point read changes no write; an index entity is a second request for each insert and each delete.",
)
def row_key_alone(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    """A query fixes the RowKey and not the PartitionKey."""
    for query in _scans(table, thresholds):
        if not query.fixes_partition and ROW_KEY in query.conditions.equal:
            yield _about(
                query.use,
                partition_key="{RowKey}",
                row_key="{PartitionKey}",
                several=several(query.conditions),
            )


@rule.rule(
    "flag",
    "A property of two values",
    Severity.WARNING,
    (rule.INDEX_ENTITIES, rule.CHOOSING_PARTITION_KEY),
    _SCAN,
    "A key of {names} would make two partitions, each as hot as half of the table: keep index entities for the "
    "wanted entities only, in a partition of their own.",
    "A change of {names} becomes two requests, which are eventually consistent.",
)
def flag(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    """A scan fixes Boolean properties only."""
    for query in _scans(table, thresholds):
        is_by_row = ROW_KEY in query.conditions.equal
        if query.equal and not query.fixes_partition and not is_by_row and _fixes_flags_only(query):
            yield _about(query.use, names=" and ".join(query.equal))


@rule.rule(
    "range-alone",
    "A range without a fixed property",
    Severity.WARNING,
    (rule.COMPOUND_KEY, rule.APPEND, rule.LOG_DATA),
    _SCAN,
    "Write each entity a second time with a part of {name}, such as {part}, in the PartitionKey and {name} in the "
    "RowKey: the query is then one row range for each such part.",
    "Each write becomes two requests. If {name} is a time, all writes of the moment go to one partition: above a "
    "few hundred a second, put a number from 0 to 15 before the part, and send one query for each number.",
)
def range_alone(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    """A scan bounds a property and fixes none."""
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


@rule.rule(
    "alternatives",
    "An or over different properties",
    Severity.WARNING,
    (rule.QUERY_KEYS, rule.DENORMALIZATION),
    _SCAN,
    "No single key serves both sides of an `or`: send {count} queries, and leave out what several of them return. "
    "Keys: {sides}.",
    "Each key that is not the present one is a copy, and so one more write for each entity.",
)
def alternatives(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    """A scan has an `or` over different properties."""
    for use in table.queries:
        branches = conditions_of(use.filter)
        if len(branches) > 1 and _is_wasteful(use, thresholds) and not _unfound(table, use):
            sides = "; ".join(_side(AskedQuery(use, each)) for each in branches)
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


@rule.rule(
    "negation",
    "Conditions that no key helps",
    Severity.WARNING,
    (rule.INDEX_ENTITIES, rule.QUERY_DENSITY),
    _SCAN,
    "No key helps these conditions on {names}: ask with `eq` for the values that are wanted, or keep index "
    "entities for the wanted entities only, in a partition of their own.",
    "Index entities cost a second write when an entity begins or ceases to be wanted.",
)
def negation(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    """A scan has only conditions with `ne` or `not`, or ranges of values whose text does not sort."""
    for query in _scans(table, thresholds):
        conditions = query.conditions
        others = (*query.equal, *query.ranges)
        is_alone = not others and ROW_KEY not in (*conditions.equal, *conditions.ranges)
        if conditions.unusable and is_alone and TIMESTAMP not in conditions.names:
            yield _about(query.use, names=" and ".join(conditions.unusable))


@rule.rule(
    "nothing-found",
    "A query that finds nothing",
    Severity.NOTE,
    (rule.QUERY_DENSITY,),
    _SCAN + " And {why}.",
    "See whether entities have {names}, in this spelling and with values of the filter's type: a name has its "
    "case, and a value of another type is never equal, such as a String beside a DateTime.{spelling}",
    "No write changes. If the query is right and rare entities are what it looks for, keep index entities of them.",
)
def nothing_found(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    """All runs of a scan have returned nothing, or no entity that was seen has a property of its filter."""
    for use in table.queries:
        if _is_wasteful(use, thresholds) and (names := _unfound(table, use)):
            known = table.known_properties
            shown = [f"`{name}`" for name in names]
            why = "it has returned nothing so far"
            if not known.issuperset(names) and known:
                why = f"no entity that was seen has {_joined(shown, 'or')}"
            yield _about(
                use, names=_joined(shown, "and"), why=why, spelling=_spelling(names, known)
            ) | {"severity": Severity.NOTE}


def _spelling(names: Sequence[str], known: frozenset[str]) -> str:
    """A further sentence, if a known name differs in its letters' case only."""
    by_lower = {name.lower(): name for name in known}
    meant = [
        f"`{by_lower[name.lower()]}`"
        for name in names
        if name.lower() in by_lower and name not in known
    ]
    return f" There is {_joined(meant, 'and')}." if meant else ""


@rule.rule(
    "timestamp",
    "A search by Timestamp",
    Severity.WARNING,
    (rule.LOG_TAIL, rule.QUERY_KEYS),
    _SCAN,
    "The service sets Timestamp at each write, so no key can hold it: write a time of your own into the RowKey, "
    "as 19 digits of inverted ticks if the newest entities are wanted first.",
    "Inserts cost the same; an entity whose time changes is deleted and inserted, in one transaction.",
)
def timestamp(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    """A scan asks for a Timestamp."""
    for query in _scans(table, thresholds):
        if TIMESTAMP in query.conditions.names and not query.has_key_to_gain:
            yield _about(query.use)


@rule.rule(
    "log-tail",
    "The newest entities at the end",
    Severity.WARNING,
    (rule.LOG_TAIL, rule.SORTING),
    "The query `{filter}` of {table} {reads}, and only the last entities are used.",
    "No query returns the last entities first: let the RowKey begin with inverted ticks, in 19 digits, so that "
    "`$top` returns the newest.",
    "Writes cost the same as before; all of them still go to one end of the partition.",
)
def log_tail(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    """A client reads to the end of a query and uses the last entities."""
    for use in table.queries:
        read = None if use.entities_read is None else use.entities_read / use.runs
        if use.reads_newest and (read is None or read >= thresholds.entities_read):
            yield _about(use)


@rule.rule(
    "whole-table",
    "A whole table",
    Severity.NOTE,
    (rule.QUERY_KEYS, rule.DENORMALIZATION),
    "A query of {table} has no filter: it {reads}, {runs} times.",
    "The filter `PartitionKey eq ?` reads one partition only, and `$top` ends the answer early. If a program needs "
    "a total or a list of the table often, keep it in an entity of its own.",
    "Such an entity is one more write for each change, in the same transaction if it is in the same partition.",
)
def whole_table(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    """A query without a filter is sent often, or by a single task."""
    for use in table.queries:
        if use.filter is None and use.kind is PlanKind.TABLE and not use.reads_newest:
            known = use.entities_read
            is_large = known is None or known >= thresholds.entities_read * use.runs
            if is_large and (table.is_one_task or use.runs >= thresholds.whole_reads):
                yield _about(use, runs=use.runs)


@rule.rule(
    "whole-partition",
    "A whole partition",
    Severity.NOTE,
    (rule.QUERY_KEYS,),
    _SCAN,
    "A range of RowKey beside the PartitionKey reads a part of the partition.",
    "No write changes, if the RowKey begins with what the range is about.",
)
def whole_partition(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    """A single task reads a whole partition."""
    for query in _scans(table, thresholds) if table.is_one_task else ():
        conditions = query.conditions
        if query.use.kind is PlanKind.PARTITION and conditions.names == (PARTITION_KEY,):
            yield _about(query.use)


@rule.rule(
    "or-of-row-keys",
    "An or of RowKeys",
    Severity.NOTE,
    (rule.QUERY_KEYS,),
    "The query `{filter}` of {table} names single RowKeys with `or`: Azure reads the whole partition for it.",
    "Send one point read for each RowKey, several at a time.",
    "No write changes.",
)
def or_of_row_keys(table: TableUse, _thresholds: Thresholds) -> Iterator[Facts]:
    """A filter names single RowKeys of one partition with `or`."""
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


@rule.rule(
    "data-series",
    "A series in one entity",
    Severity.NOTE,
    (rule.DATA_SERIES,),
    "The query `{filter}` of {table} returns about {mean} entities of one or two properties each time.",
    "Keep a series in one entity, with a property for each value, up to 252: the query becomes a point read.",
    "An insert becomes a merge of one property; if several writers merge the same entity, each needs its ETag.",
)
def data_series(table: TableUse, thresholds: Thresholds) -> Iterator[Facts]:
    """Queries return some dozens of entities of one or two properties each, whose RowKeys follow time."""
    if table.properties_max is None or table.properties_max > 2 or not table.row_form.is_time:
        return
    for use in table.queries:
        returned = use.entities_returned
        if use.kind in (PlanKind.PARTITION, PlanKind.ROW_RANGE) and returned is not None:
            mean = returned / use.runs
            if use.runs * 10 >= thresholds.many_writes and 8 <= mean <= 252:
                yield _about(use, mean=mean)


QUERY_RULES: Final[tuple[Rule, ...]] = (
    *(compound_key, inter_partition, index_entities, intra_partition, row_key_alone, flag),
    *(range_alone, alternatives, negation, nothing_found, timestamp, log_tail, whole_table),
    *(whole_partition, or_of_row_keys, data_series),
)
"""The rules on queries, in the order in which advice on equal severity is given."""
