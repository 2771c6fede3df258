"""The rules on queries, as data: which key, or copy under another key, turns a scan into a range or a point."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Final

from tablestone.advice import rule, thresholds
from tablestone.advice.filter_shape import shape_of
from tablestone.advice.proposed_keys import (
    SYSTEM_PROPERTIES,
    AskedQuery,
    Conditions,
    conditions_of,
    keys_inside,
    new_keys,
    several,
    template,
)
from tablestone.advice.rule import Facts, Finding, Rule, Severity, counted
from tablestone.advice.workload import QueryUse, TableUse
from tablestone.limits import INDEXES_MAX, PARTITION_RATE_TARGET
from tablestone.model.edm import EdmType
from tablestone.model.entity import TIMESTAMP
from tablestone.model.filter_tree import Comparison, ComparisonOperator, leaves, property_names
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
from tablestone.query.index_plan import properties_by_index
from tablestone.query.plan import PlanKind, plan_query

_READS: Final = {
    PlanKind.TABLE: "every entity of the table",
    PlanKind.PARTITION_RANGE: "every entity of the partitions between its bounds",
    PlanKind.PARTITION: "every entity of the partition",
    PlanKind.RANGES: "every entity of several ranges",
    PlanKind.ROW_RANGE: "every entity of the range",
}
"""What a plan reads. Only queries of these kinds can read more than they return."""
_PLANS: Final = {
    PlanKind.TABLE: "table scan",
    PlanKind.PARTITION_RANGE: "scan of several partitions",
    PlanKind.PARTITION: "partition scan",
    PlanKind.RANGES: "scan of several ranges",
}
"""Kinds of plans, as Microsoft's design guide calls them."""
_SCAN: Final = "The query `{filter}` of {table} is a {plan}: it {reads}."
_COPY: Final = "{because} each entity a second time, under PartitionKey `{partition_key}` and RowKey `{row_key}`"
FREQUENT_RUNS: Final = 10
"""Runs from which an observed query deserves a warning: fewer may be a search by hand."""

COMPOUND_KEY: Final = Rule(
    "compound-key",
    "Keys of the queried properties",
    (rule.COMPOUND_KEY, rule.QUERY_KEYS, rule.QUERY_DENSITY),
    "A scan filters on fixed values of properties, and no other request was seen that uses the present keys.",
    _SCAN,
    "{seen} that uses the present keys. If none does, store the entities under PartitionKey `{partition_key}` and "
    "RowKey `{row_key}`: the query then reads {gain}.{several}",
    "Writes cost the same as before; the entities are copied once into a table with the new keys.",
)
INTER_PARTITION_INDEX: Final = Rule(
    "inter-partition-index",
    "A copy in other partitions",
    (rule.INTER_PARTITION_INDEX, rule.EVENTUALLY_CONSISTENT, rule.DENORMALIZATION),
    "A scan of several partitions filters on fixed values of properties, and other requests need the present keys.",
    _SCAN,
    _COPY + ": the query then reads {gain}.{several}{instead}",
    "Each write becomes two requests to two partitions, which cannot share a transaction: the copy lags until the "
    "second request succeeds. Let a queue retry that request, and make it idempotent.{more}"
    + rule.library("indexed-tables"),
)
INDEX_ENTITIES: Final = Rule(
    "index-entities",
    "Index entities",
    (rule.INDEX_ENTITIES, rule.EVENTUALLY_CONSISTENT),
    "The same, for entities of 16 KiB or more.",
    _SCAN,
    _COPY
    + " with nothing but the present keys in it, because an entity has {mean} bytes: the query then reads "
    "{gain}, and a point read gets each entity.{several}{instead}",
    "Each insert, and each change of these properties, becomes two requests to two partitions, which are eventually "
    "consistent.{more}" + rule.library("indexed-tables"),
)
INTRA_PARTITION_INDEX: Final = Rule(
    "intra-partition-index",
    "A copy in the same partition",
    (rule.INTRA_PARTITION_INDEX, rule.COMPOUND_KEY),
    "A query of one partition filters on other properties, and other requests need the present keys.",
    _SCAN,
    "{because} each entity a second time into its partition, under RowKey `{row_key}`: the query then reads "
    "{gain}.{several}{instead}",
    "Each write becomes one entity group transaction of two entities, so the copies are always equal, and the "
    "partition has twice the entities.{room}" + rule.library("indexed-tables"),
)
ROW_KEY_ALONE: Final = Rule(
    "row-key-alone",
    "A RowKey without its PartitionKey",
    (rule.QUERY_KEYS, rule.INTER_PARTITION_INDEX),
    "A query fixes the RowKey but not the PartitionKey.",
    _SCAN,
    "Name the PartitionKey too, which makes it a point read; if the client does not know it, keep an index entity "
    "under PartitionKey `{partition_key}` and RowKey `{row_key}`.{several}",
    "A point read costs no write; an index entity adds a request to each insert and each delete.",
)
FLAG: Final = Rule(
    "flag",
    "A property with few values",
    (rule.INDEX_ENTITIES, rule.CHOOSING_PARTITION_KEY),
    "A scan fixes only Boolean properties, or its filters have named eight values or fewer, at least twice each.",
    _SCAN,
    "{parts}: keep index entities of only the entities you look for, in a partition of their own.",
    "A change of {names} becomes two requests, which are eventually consistent.",
)
RANGE_ALONE: Final = Rule(
    "range-alone",
    "A range without a fixed property",
    (rule.COMPOUND_KEY, rule.APPEND, rule.LOG_DATA),
    "A scan filters on a range of a property, and fixes none.",
    _SCAN,
    "Write each entity a second time with a part of {name}, such as {part}, in the PartitionKey and {name} in the "
    "RowKey: the query then reads one row range for each such part.",
    "Each write becomes two requests. If {name} is a time, all writes at any moment go to one partition: above a "
    "few hundred a second, put a number from 0 to 15 before the part, and send one query for each number.",
)
ALTERNATIVES: Final = Rule(
    "alternatives",
    "An or over different properties",
    (rule.QUERY_KEYS, rule.DENORMALIZATION),
    "A scan has an `or` over different properties.",
    _SCAN,
    "No single key serves both sides of an `or`: send {count} queries, and drop the entities that several of them "
    "return. Keys: {sides}.",
    "Each key other than the present one needs a copy: one more write for each entity.",
)
NEGATION: Final = Rule(
    "negation",
    "Conditions that no key helps",
    (rule.INDEX_ENTITIES, rule.QUERY_DENSITY),
    "A scan has only conditions with `ne`, `not`, `contains` or `endswith`, or ranges of values whose text does not "
    "sort.",
    _SCAN,
    "No key helps these conditions on {names}: query with `eq` for the values you want, or keep index entities of "
    "only the entities you look for, in a partition of their own.",
    "Index entities cost a second write whenever an entity starts or stops matching.",
)
NOTHING_FOUND: Final = Rule(
    "nothing-found",
    "A query that finds nothing",
    (rule.QUERY_DENSITY,),
    "Every run of a scan has returned nothing, or no entity seen so far has a property of its filter.",
    _SCAN + " {why}.",
    "{spelling}Check that entities have {names}, spelled like this and with values of the filter's type: names are "
    "case-sensitive, and values of different types, such as a String and a DateTime, are never equal.",
    "Nothing needs to change for that. If the query is right and looks for rare entities, keep index entities of them, "
    "which costs a second write of each.",
    severity=Severity.NOTE,
)
TIMESTAMP_SEARCH: Final = Rule(
    "timestamp",
    "A search by Timestamp",
    (rule.LOG_TAIL, rule.QUERY_KEYS),
    "A scan filters on Timestamp.",
    _SCAN,
    "The service sets Timestamp at each write, so no key can hold it: write a time of your own into the RowKey, as "
    "19 digits of inverted ticks if you want the newest entities first.",
    "Inserts cost the same; an entity whose time changes is deleted and inserted, in one transaction.",
)
LOG_TAIL: Final = Rule(
    "log-tail",
    "The newest entities at the end",
    (rule.LOG_TAIL, rule.SORTING),
    "A client reads to the end of a query and uses the last entities.",
    "The query `{filter}` of {table} {reads}, and only the last entities are used.",
    "No query returns the last entities first: begin the RowKey with inverted ticks, in 19 digits, so that `$top` "
    "returns the newest.",
    "Writes cost the same as before; all of them still go to one end of the partition."
    + rule.library("keys"),
)
WHOLE_TABLE: Final = Rule(
    "whole-table",
    "A whole table",
    (rule.QUERY_KEYS, rule.DENORMALIZATION),
    "A query without a filter is sent often, or by a single task.",
    "A query of {table} has no filter: it {reads}, {runs}.",
    "The filter `PartitionKey eq ?` reads one partition only, and `$top` ends the answer early. If a program needs "
    "a total or a list of the table often, keep it in an entity of its own.",
    "Such an entity costs one more write for each change, in the same transaction if it is in the same partition.",
    severity=Severity.NOTE,
)
WHOLE_PARTITION: Final = Rule(
    "whole-partition",
    "A whole partition",
    (rule.QUERY_KEYS,),
    "A single task reads a whole partition.",
    _SCAN,
    "Add a range of RowKey to the PartitionKey, to read only a part of the partition.",
    "Writes cost the same if the RowKey begins with what the range selects.",
    severity=Severity.NOTE,
)
OR_OF_ROW_KEYS: Final = Rule(
    "or-of-row-keys",
    "An or of RowKeys",
    (rule.QUERY_KEYS,),
    "A filter names single RowKeys of one partition with `or`.",
    "The query `{filter}` of {table} names single RowKeys with `or`: Azure reads the whole partition for it.",
    "Send one point read for each RowKey, several in parallel.",
    "Writes cost the same.",
    severity=Severity.NOTE,
)
DATA_SERIES: Final = Rule(
    "data-series",
    "A series in one entity",
    (rule.DATA_SERIES,),
    "Queries return a few dozen entities of one or two properties each, whose RowKeys follow time.",
    "The query `{filter}` of {table} returns about {mean} entities of one or two properties each time.",
    "Keep a series in one entity, with a property for each value, up to 252: the query becomes a point read.",
    "An insert becomes a merge of one property; if several writers merge the same entity, each needs its ETag.",
    severity=Severity.NOTE,
)

INDEX: Final = Rule(
    "index",
    "An index of Tablestone",
    (rule.INTER_PARTITION_INDEX, rule.QUERY_DENSITY),
    "A scan has a condition that an index would serve, and the server may be a Tablestone that keeps indexes.",
    _SCAN,
    "If the table stays on a Tablestone with SQLite or PostgreSQL, make an index instead: {commands}. Azure has no "
    "indexes: code that must also run there needs keys or copies of its own.",
    "Each insert and delete, and each change of {names}, also writes an entry of the index, in the same commit. With "
    "one index, a server took 8 % fewer inserts a second.{more}",
    severity=Severity.NOTE,
)

QUERY_RULES: Final = (
    *(COMPOUND_KEY, INTER_PARTITION_INDEX, INDEX_ENTITIES, INTRA_PARTITION_INDEX, ROW_KEY_ALONE),
    *(FLAG, RANGE_ALONE, ALTERNATIVES, NEGATION, NOTHING_FOUND, TIMESTAMP_SEARCH, LOG_TAIL),
    *(WHOLE_TABLE, WHOLE_PARTITION, OR_OF_ROW_KEYS, DATA_SERIES, INDEX),
)
"""The rules on queries, in the order in which advice of equal severity is given."""


def query_findings(table: TableUse) -> Iterator[Finding]:
    """What is wrong with the queries of a table, except scans that an index serves by now."""
    scans = []
    served = {
        shape_of(use.filter)
        for use in table.queries
        if use.kind is PlanKind.INDEX
        and properties_by_index(plan_query(use.filter), table.indexes or {})
    }
    for use in table.queries:
        branches = conditions_of(use.filter)
        if _is_wasteful(table, use) and shape_of(use.filter) not in served:
            names = _unfound(table, use)
            if names:
                yield NOTHING_FOUND, _of_nothing(use, names, table.known_properties)
            elif len(branches) > 1:
                sides = "; ".join(_side(AskedQuery(use, each)) for each in branches)
                yield ALTERNATIVES, _about(use, count=len(branches), sides=sides)
            elif use.filter is not None:
                scans.append(AskedQuery(use, branches[0]))
            # Of one that finds nothing, only if its properties are known to be there.
            if not names or (table.known_properties and table.known_properties.issuperset(names)):
                yield from _of_index(table, use)
        yield from _of_use(table, use, branches)
    yield from _copies(table, scans)
    for query in scans:
        yield from _of_scan(table, query)


def _copies(table: TableUse, scans: Sequence[AskedQuery]) -> Iterator[Finding]:
    """Keys of the queried properties: for copies or, if nothing needs the present keys, for the entities themselves."""
    across = [
        each
        for each in scans
        if each.equal and not (each.fixes_partition or each.fixes_row_key or _few_parts(each))
    ]
    mean = table.entity_bytes_mean or 0
    more = ""
    if requests := table.writes.requests:
        period = f"In {table.period}" if table.period else "Here"
        # The copies of one transaction may belong to several partitions, and no transaction spans two.
        most = ""
        if table.writes.total > requests:
            most = f", or up to {table.writes.total:,} if copies of one transaction go to several partitions"
        what = counted(requests, "more request", "more requests")
        more = f" {period}, that would have been {what}{most}."
    seen = f"In {table.period}, no" if table.period else "No"
    seen += " other request was seen"
    for query in across:
        keys, keep = new_keys(query, across), _present_uses(table, query)
        if not keep:
            yield COMPOUND_KEY, _about(query.use, **keys, seen=seen)
        elif mean >= thresholds.LARGE_COPY_BYTES:
            yield INDEX_ENTITIES, _about(query.use, **keys, **keep, more=more, mean=mean)
        else:
            yield INTER_PARTITION_INDEX, _about(query.use, **keys, **keep, more=more)
    inside = [each for each in scans if each.fixes_partition and each.has_key_to_gain]
    rate = table.rate
    room = ""
    if rate is not None and rate >= thresholds.RATE_PART * PARTITION_RATE_TARGET:
        room = f" The busiest partition takes {rate:,.0f} entities/s; its writes would count twice."
    for query in inside:
        if keep := _present_uses(table, query):
            keys = keys_inside(query, inside)
            yield INTRA_PARTITION_INDEX, _about(query.use, **keys, **keep, room=room)
        else:
            names = (*query.equal, *query.ranges[:1], ROW_KEY)
            row_key = template(names, query.conditions.types)
            keys = keys_inside(query) | {"row_key": row_key}
            yield COMPOUND_KEY, _about(query.use, **keys, seen=seen)


def _of_index(table: TableUse, use: QueryUse) -> Iterator[Finding]:
    """The indexes to make for a scan. If it has some already, the server found the scan cheaper: propose none."""
    plan = plan_query(use.filter)
    if table.indexes is None or table.storage == "" or properties_by_index(plan, table.indexes):
        return
    fixed = {
        leaf.name: isinstance(leaf, Comparison) and leaf.operator is not ComparisonOperator.EQUAL
        for leaf in leaves(plan.residual)
        if leaf.name not in (PARTITION_KEY, TIMESTAMP)
    }
    flags = {
        name for name, kind in conditions_of(use.filter)[0].types.items() if kind is EdmType.BOOLEAN
    }
    alone = sorted(fixed, key=lambda name: (name in flags, fixed[name]))
    found = [properties_by_index(plan, {name: False}) for name in alone]
    names = next(filter(None, found), properties_by_index(plan, dict.fromkeys(alone, False)))
    is_one = PARTITION_KEY in conditions_of(use.filter)[0].equal
    known = table.indexes
    missing = [name for name in names if name not in known or (known[name] and not is_one)]
    if missing and len(known.keys() | missing) <= INDEXES_MAX:
        # A range inside one partition needs an index within partitions: one over all of them mixes their values.
        dropped = [name for name in missing if name in known]
        given = table.storage or ""
        commands = [f"`tablestone index drop {table.name} {name}{given}`" for name in dropped]
        commands += [
            f"`tablestone index create {table.name} {name}{' --partition' * (is_one and fixed[name])}{given}`"
            for name in missing
        ]
        where = "" if given else ", with the --account and the --data of the server"
        more = ""
        if table.writes.total:
            period = f"In {table.period}" if table.period else "Here"
            total = table.writes.total
            was = "was" if total == 1 else "were"
            more = f" {period}, there {was} {counted(total, 'write', 'writes')}."
        shown = _joined([f"`{name}`" for name in missing], "and")
        found_by = _joined(commands, "and") + where
        if table.index_place:
            found_by = f"on {shown}, {table.index_place}"
        yield INDEX, _about(use, commands=found_by, names=shown, more=more)


def _few_parts(query: AskedQuery) -> str:
    """Why a key of the fixed properties would make too few partitions; empty if it would make enough."""
    types, names = query.conditions.types, " and ".join(query.equal)
    if all(types.get(name) is EdmType.BOOLEAN for name in query.equal):
        return f"A key of {names} would make two partitions, each with half of the load"
    values, runs, few = query.use.values, query.use.runs, thresholds.KEY_VALUES
    # A value that comes again shows that there are few; some runs of one value each show nothing.
    if values is None or values > few or runs < max(few, 2 * values):
        return ""
    named = counted(values, "value", "values")
    return f"{runs:,} queries named {named} of {names}, and so few make a few large partitions"


def _of_scan(table: TableUse, query: AskedQuery) -> Iterator[Finding]:
    """What is wrong with a scan, apart from the keys that `_copies` proposes for it."""
    use, conditions = query.use, query.conditions
    bounded = query.ranges or tuple(name for name in (ROW_KEY,) if name in conditions.ranges)
    if query.fixes_partition:
        pass  # `_copies` covers it
    elif query.fixes_row_key:
        keys = {"partition_key": "{RowKey}", "row_key": "{PartitionKey}"}
        yield ROW_KEY_ALONE, _about(use, **keys, several=several(conditions))
    elif query.equal:
        if parts := _few_parts(query):
            yield FLAG, _about(use, names=" and ".join(query.equal), parts=parts)
    elif bounded:
        name = bounded[0]
        kind = conditions.types.get(name, EdmType.STRING)
        period = {EdmType.DATE_TIME: "its day or month", EdmType.STRING: "its first characters"}
        yield RANGE_ALONE, _about(use, name=name, part=period.get(kind, "its thousands"))
    if not query.has_key_to_gain:
        is_of_row_key = query.fixes_row_key or ROW_KEY in conditions.ranges
        if TIMESTAMP in conditions.names:
            yield TIMESTAMP_SEARCH, _about(use)
        elif conditions.unusable and not is_of_row_key:
            yield NEGATION, _about(use, names=" and ".join(conditions.unusable))
    is_whole = use.kind is PlanKind.PARTITION and conditions.names == (PARTITION_KEY,)
    if table.is_one_task and is_whole:
        yield WHOLE_PARTITION, _about(use)


def _of_use(table: TableUse, use: QueryUse, branches: Sequence[Conditions]) -> Iterator[Finding]:
    """What is wrong with a query whether or not it reads much more than it returns."""
    read, returned = use.entities_read, use.entities_returned
    is_large = table.is_one_task or read is None or read >= thresholds.ENTITIES_READ * use.runs
    if use.reads_newest and is_large:
        yield LOG_TAIL, _about(use)
    if (
        use.filter is None
        and use.kind is PlanKind.TABLE
        and not use.reads_newest
        and is_large
        and (table.is_one_task or use.runs >= thresholds.WHOLE_READS)
    ):
        yield WHOLE_TABLE, _about(use, runs=counted(use.runs, "time", "times"))
    (each, *others) = branches
    is_of_one_partition = PARTITION_KEY in each.equal and PARTITION_KEY not in each.several
    if not others and is_of_one_partition and ROW_KEY in each.several:
        yield OR_OF_ROW_KEYS, _about(use)
    is_small = table.properties_max is not None and table.properties_max <= 2
    if (
        is_small
        and table.row_form.is_time
        and use.kind in (PlanKind.PARTITION, PlanKind.ROW_RANGE)
        and use.runs * 10 >= thresholds.MANY_WRITES
        and returned is not None
        and 8 <= returned / use.runs <= 252
    ):
        yield DATA_SERIES, _about(use, mean=returned / use.runs)


def _of_nothing(use: QueryUse, names: Sequence[str], known: frozenset[str]) -> Facts:
    shown = [f"`{name}`" for name in names]
    why = "It has returned nothing so far"
    if known and not known.issuperset(names):
        why = f"No entity seen so far has {_joined(shown, 'or')}"
    return _about(use, names=_joined(shown, "and"), why=why, spelling=_spelling(names, known)) | {
        "severity": Severity.NOTE
    }


def _is_wasteful(table: TableUse, use: QueryUse) -> bool:
    """Whether the query reads much more than it returns; without numbers, its plan decides."""
    if use.kind not in _READS:
        return False
    if use.entities_read is None or use.entities_returned is None:
        return use.kind is not PlanKind.ROW_RANGE
    return table.is_one_task or (
        use.entities_read >= thresholds.ENTITIES_READ * use.runs
        and use.entities_read >= thresholds.RATIO * max(1, use.entities_returned)
    )


def _unfound(table: TableUse, use: QueryUse) -> tuple[str, ...]:
    """Properties that make a query find nothing, so no key helps: those that no entity has or, if not known, all."""
    names = property_names(use.filter)
    asked = sorted(names.difference(SYSTEM_PROPERTIES))
    if table.known_properties:
        unknown = tuple(name for name in asked if name not in table.known_properties)
        if unknown:
            return unknown
    return tuple(asked) if use.entities_returned == 0 else ()


def _about(use: QueryUse, **facts: object) -> dict[str, object]:
    """The facts of every finding on a query."""
    if use.entities_read is None or use.entities_returned is None:
        reads = f"reads {_READS.get(use.kind, 'every entity')}"
    else:
        read, returned = round(use.entities_read / use.runs), use.entities_returned / use.runs
        shown = f"{returned:,.1f}".removesuffix(".0") if returned < 10 else f"{returned:,.0f}"
        reads = f"reads {counted(read, 'entity', 'entities')} a run and returns {shown}"
    plan = _PLANS.get(use.kind, use.kind.value)
    about = {"filter": shape_of(use.filter), "plan": plan, "reads": reads}
    is_rare = use.entities_read is not None and use.runs < FREQUENT_RUNS
    return about | facts | ({"severity": Severity.NOTE} if is_rare else {})


def _present_uses(table: TableUse, query: AskedQuery) -> dict[str, str]:
    """Why the present keys must stay beside a copy, or when they need not; empty if no request uses them."""
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
    parts = [counted(*each) for each in uses if each[0]]
    if not parts:
        return {}
    use = "uses" if table.point_reads + changes + others == 1 else "use"
    because = f"Because {_joined(parts, 'and')} {use} the present keys, keep them and write"
    return {"because": because, "instead": ""}


def _joined(parts: Sequence[str], word: str) -> str:
    *first, last = parts
    return f"{', '.join(first)} {word} {last}" if first else last


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


def _spelling(names: Sequence[str], known: frozenset[str]) -> str:
    """A question to put before the advice, if a known name is almost the same."""
    by_lower = {name.lower(): name for name in sorted(known)}
    near = [get_close_matches(name.lower(), by_lower, n=1) for name in names if name not in known]
    meant = [f"`{by_lower[each]}`" for found in near for each in found]
    return f"Did you mean {_joined(meant, 'and')}? " if meant else ""
