"""The rules on queries: the words and the source of each finding of `query_findings`."""

from __future__ import annotations

from typing import Final

from tablestone.advice import query_findings as find
from tablestone.advice import rule
from tablestone.advice.rule import Rule, Severity

_SCAN: Final = "The query `{filter}` of {table} is a {plan}: it {reads}."
_COPY: Final = "{because} each entity a second time, under PartitionKey `{partition_key}` and RowKey `{row_key}`"

QUERY_RULES: Final = (
    Rule(
        "compound-key",
        "Keys of the queried properties",
        "A scan asks for fixed values of properties, and no other request needs the present keys.",
        Severity.WARNING,
        (rule.COMPOUND_KEY, rule.QUERY_KEYS, rule.QUERY_DENSITY),
        find.compound_key,
        _SCAN,
        "No other request needs the present keys, so store the entities under PartitionKey `{partition_key}` and "
        "RowKey `{row_key}`: the query then reads {gain}.{several}",
        "Writes cost the same as before; the entities are copied once into a table with the new keys.",
    ),
    Rule(
        "inter-partition-index",
        "A copy in other partitions",
        "A scan of several partitions asks for fixed values of properties, and other requests need the present keys.",
        Severity.WARNING,
        (rule.INTER_PARTITION_INDEX, rule.EVENTUALLY_CONSISTENT, rule.DENORMALIZATION),
        find.inter_partition,
        _SCAN,
        _COPY + ": the query then reads {gain}.{several}{instead}",
        "Each write becomes two requests to two partitions, which cannot share a transaction: the copy is behind until "
        "the second request has succeeded. A queue repeats that one until it does, so it must be idempotent.{more}",
    ),
    Rule(
        "index-entities",
        "Index entities",
        "The same, for entities of 16 KiB or more.",
        Severity.WARNING,
        (rule.INDEX_ENTITIES, rule.EVENTUALLY_CONSISTENT),
        find.index_entities,
        _SCAN,
        _COPY
        + " with nothing but the present keys in it, since an entity has {mean} bytes: the query then reads "
        "{gain}, and a point read gets each entity.{several}{instead}",
        "Each write of a new entity, and of a new value of these properties, becomes two requests to two partitions, "
        "which are eventually consistent.{more}",
    ),
    Rule(
        "intra-partition-index",
        "A copy in the same partition",
        "A query of one partition asks for other properties, and other requests need the present keys.",
        Severity.WARNING,
        (rule.INTRA_PARTITION_INDEX, rule.COMPOUND_KEY),
        find.intra_partition,
        _SCAN,
        "{because} each entity a second time into its partition, under RowKey `{row_key}`: the query then reads "
        "{gain}.{several}{instead}",
        "Each write becomes one entity group transaction of two entities, so the copies are always equal, and the "
        "partition has twice the entities.{room}",
    ),
    Rule(
        "row-key-alone",
        "A RowKey without its PartitionKey",
        "A query fixes the RowKey and not the PartitionKey.",
        Severity.WARNING,
        (rule.QUERY_KEYS, rule.INTER_PARTITION_INDEX),
        find.row_key_alone,
        _SCAN,
        "Name the PartitionKey too, which makes it a point read; if the client does not know it, keep an index entity "
        "under PartitionKey `{partition_key}` and RowKey `{row_key}`.{several}",
        "A point read changes no write; an index entity is a second request for each insert and each delete.",
    ),
    Rule(
        "flag",
        "A property of two values",
        "A scan fixes Boolean properties only.",
        Severity.WARNING,
        (rule.INDEX_ENTITIES, rule.CHOOSING_PARTITION_KEY),
        find.flag,
        _SCAN,
        "A key of {names} would make two partitions, each as hot as half of the table: keep index entities for the "
        "wanted entities only, in a partition of their own.",
        "A change of {names} becomes two requests, which are eventually consistent.",
    ),
    Rule(
        "range-alone",
        "A range without a fixed property",
        "A scan bounds a property and fixes none.",
        Severity.WARNING,
        (rule.COMPOUND_KEY, rule.APPEND, rule.LOG_DATA),
        find.range_alone,
        _SCAN,
        "Write each entity a second time with a part of {name}, such as {part}, in the PartitionKey and {name} in the "
        "RowKey: the query is then one row range for each such part.",
        "Each write becomes two requests. If {name} is a time, all writes of the moment go to one partition: above a "
        "few hundred a second, put a number from 0 to 15 before the part, and send one query for each number.",
    ),
    Rule(
        "alternatives",
        "An or over different properties",
        "A scan has an `or` over different properties.",
        Severity.WARNING,
        (rule.QUERY_KEYS, rule.DENORMALIZATION),
        find.alternatives,
        _SCAN,
        "No single key serves both sides of an `or`: send {count} queries, and leave out what several of them return. "
        "Keys: {sides}.",
        "Each key that is not the present one is a copy, and so one more write for each entity.",
    ),
    Rule(
        "negation",
        "Conditions that no key helps",
        "A scan has only conditions with `ne` or `not`, or ranges of values whose text does not sort.",
        Severity.WARNING,
        (rule.INDEX_ENTITIES, rule.QUERY_DENSITY),
        find.negation,
        _SCAN,
        "No key helps these conditions on {names}: ask with `eq` for the values that are wanted, or keep index "
        "entities for the wanted entities only, in a partition of their own.",
        "Index entities cost a second write when an entity begins or ceases to be wanted.",
    ),
    Rule(
        "nothing-found",
        "A query that finds nothing",
        "All runs of a scan have returned nothing, or no entity that was seen has a property of its filter.",
        Severity.NOTE,
        (rule.QUERY_DENSITY,),
        find.nothing_found,
        _SCAN + " And {why}.",
        "See whether entities have {names}, in this spelling and with values of the filter's type: a name has its "
        "case, and a value of another type is never equal, such as a String beside a DateTime.{spelling}",
        "No write changes. If the query is right and rare entities are what it looks for, keep index entities of them.",
    ),
    Rule(
        "timestamp",
        "A search by Timestamp",
        "A scan asks for a Timestamp.",
        Severity.WARNING,
        (rule.LOG_TAIL, rule.QUERY_KEYS),
        find.timestamp,
        _SCAN,
        "The service sets Timestamp at each write, so no key can hold it: write a time of your own into the RowKey, "
        "as 19 digits of inverted ticks if the newest entities are wanted first.",
        "Inserts cost the same; an entity whose time changes is deleted and inserted, in one transaction.",
    ),
    Rule(
        "log-tail",
        "The newest entities at the end",
        "A client reads to the end of a query and uses the last entities.",
        Severity.WARNING,
        (rule.LOG_TAIL, rule.SORTING),
        find.log_tail,
        "The query `{filter}` of {table} {reads}, and only the last entities are used.",
        "No query returns the last entities first: let the RowKey begin with inverted ticks, in 19 digits, so that "
        "`$top` returns the newest.",
        "Writes cost the same as before; all of them still go to one end of the partition.",
    ),
    Rule(
        "whole-table",
        "A whole table",
        "A query without a filter is sent often, or by a single task.",
        Severity.NOTE,
        (rule.QUERY_KEYS, rule.DENORMALIZATION),
        find.whole_table,
        "A query of {table} has no filter: it {reads}, {runs} times.",
        "The filter `PartitionKey eq ?` reads one partition only, and `$top` ends the answer early. If a program needs "
        "a total or a list of the table often, keep it in an entity of its own.",
        "Such an entity is one more write for each change, in the same transaction if it is in the same partition.",
    ),
    Rule(
        "whole-partition",
        "A whole partition",
        "A single task reads a whole partition.",
        Severity.NOTE,
        (rule.QUERY_KEYS,),
        find.whole_partition,
        _SCAN,
        "A range of RowKey beside the PartitionKey reads a part of the partition.",
        "No write changes, if the RowKey begins with what the range is about.",
    ),
    Rule(
        "or-of-row-keys",
        "An or of RowKeys",
        "A filter names single RowKeys of one partition with `or`.",
        Severity.NOTE,
        (rule.QUERY_KEYS,),
        find.or_of_row_keys,
        "The query `{filter}` of {table} names single RowKeys with `or`: Azure reads the whole partition for it.",
        "Send one point read for each RowKey, several at a time.",
        "No write changes.",
    ),
    Rule(
        "data-series",
        "A series in one entity",
        "Queries return some dozens of entities of one or two properties each, whose RowKeys follow time.",
        Severity.NOTE,
        (rule.DATA_SERIES,),
        find.data_series,
        "The query `{filter}` of {table} returns about {mean} entities of one or two properties each time.",
        "Keep a series in one entity, with a property for each value, up to 252: the query becomes a point read.",
        "An insert becomes a merge of one property; if several writers merge the same entity, each needs its ETag.",
    ),
)
"""The rules on queries, in the order in which advice on equal severity is given."""
