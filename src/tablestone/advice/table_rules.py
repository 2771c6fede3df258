"""The rules on tables and partitions: hot and giant partitions, keys that follow time, entities and writes.

A partition's rate is judged by the service's target, 2,000 entities a second. Without a known rate, its share of the
table's operations decides.
"""

import math
from collections.abc import Iterator
from typing import Final

from tablestone import limits
from tablestone.advice import rule, thresholds
from tablestone.advice.proposed_keys import conditions_of, divided_key
from tablestone.advice.rule import Finding, Rule, Severity, counted
from tablestone.advice.workload import PartitionUse, TableUse
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
from tablestone.query.plan import PlanKind

_TARGET: Final = limits.PARTITION_RATE_TARGET
_TARGET_IN_WORDS: Final = f"Azure's target for a partition is {_TARGET:,}/s"
_PARTITION_LIKE: Final = (PlanKind.PARTITION, PlanKind.ROW_RANGE)
_ACROSS: Final = (PlanKind.TABLE, PlanKind.PARTITION_RANGE, PlanKind.RANGES)

HOT_PARTITION: Final = Rule(
    "hot-partition",
    "A hot partition",
    (rule.HOT_PARTITIONS, rule.TARGETS, rule.CHOOSING_PARTITION_KEY),
    "A partition takes 2,000 entities/s for a minute, not counting what scans read and filter out; or, if no rate "
    "is known, half of the load of a table of four partitions or more.",
    "The partition '{partition}' of {table} {heat}.{further}",
    "Split it: append another property to its PartitionKey, or a number from 0 to {last} made by a hash of the "
    "RowKey.{example}",
    "Writes cost the same; a query of the whole partition becomes {parts} queries, and a transaction holds the "
    "entities of one part only.",
)
APPEND: Final = Rule(
    "append",
    "PartitionKeys that follow time",
    (rule.APPEND, rule.HOT_PARTITIONS, rule.TARGETS),
    "PartitionKeys are dates, times or ticks, and one of them takes 1,000 writes/s for a minute; or, if no rate is "
    "known, half of the load.",
    "The PartitionKeys of {table} follow time, so all writes at any moment go to one partition: '{partition}' {heat}.",
    "Take the PartitionKey from what the entities are about, such as a device or a customer, and put the time into "
    "the RowKey; if there is no such property, put a number made by a hash before the time.",
    "Writes cost the same; a query for a time becomes one row range for each device, or for each number.",
)
GIANT_PARTITION: Final = Rule(
    "giant-partition",
    "One partition with everything",
    (rule.CHOOSING_PARTITION_KEY, rule.TARGETS),
    "A table has one partition with 100,000 entities or more.",
    "All {entities} entities of {table} are in one partition, which one server of Azure serves: at most 2,000 "
    "entities/s, however the account grows.",
    "Take the PartitionKey from a property that the queries fix with `eq`, and leave the rest in the RowKey.",
    "Writes cost the same; a transaction then holds entities of one value of that property only.",
)
UNIQUE_PARTITION_KEY: Final = Rule(
    "unique-partition-key",
    "A PartitionKey for each entity",
    (rule.CHOOSING_PARTITION_KEY,),
    "Almost every entity has its own PartitionKey, and ten or more queries, no fewer than the requests for single "
    "entities, read several entities from several partitions.",
    "{table} has {partitions} partitions for {entities} entities, and queries that return several entities go from "
    "partition to partition.",
    "Take the PartitionKey from {key}, and put the present PartitionKey into the RowKey.",
    "Writes become cheaper: up to 100 entities of a partition are one transaction. A point read needs both keys.",
    severity=Severity.NOTE,
)
QUEUE: Final = Rule(
    "queue",
    "A table as a queue",
    (rule.APPEND, rule.HIGH_VOLUME_DELETE, rule.EVENTUALLY_CONSISTENT),
    "There are almost as many deletes as inserts, in up to 16 partitions that are read as ranges.",
    "{table} is used as a queue: {inserts} inserts and {deletes} deletes, read from the beginning of {beginning}; "
    "each read passes over what was deleted, and all writers write to the same place.",
    "Use a queue service for the messages, and a table for their state; or spread them over partitions by a hash "
    "of their key, one worker for each.",
    "A message costs one request to the queue instead of an insert and a delete here.",
)
HIGH_VOLUME_DELETE: Final = Rule(
    "high-volume-delete",
    "Many entities deleted one by one",
    (rule.HIGH_VOLUME_DELETE,),
    "10,000 entities or more are deleted one by one, and keys follow time.",
    "{deletes} entities of {table} were deleted one by one, and their keys follow time.",
    "Use one table for each day or month, with the period in its name, and delete the table.",
    "Deletes become one request for each period; a query over several periods becomes one for each table, and a "
    "new table is slow until Azure has divided it." + rule.library("many-entities"),
)
LOG_DATA: Final = Rule(
    "log-data",
    "A log in a table",
    (rule.LOG_DATA,),
    "PartitionKeys follow time, no entity is changed or read alone, and each query returns 100 entities or more.",
    "{table} is a log: {inserts} inserts by time, no change, no point read, and large ranges read at once.",
    "Append such data to blobs, with the period in the name.",
    "One request appends many lines, so writes become fewer.",
    severity=Severity.NOTE,
)
CONTENTION: Final = Rule(
    "contention",
    "Writers that conflict",
    (rule.DATA_SERIES, rule.EVENTUALLY_CONSISTENT),
    "100 writes or more are refused with 412, one for every ten updates.",
    "{conflicts} writes to {table} were refused because another writer came first; {updates} updates succeeded.",
    "Give each writer its own entity, such as a counter for each worker, and add them up when they are read; or let "
    "one worker apply the changes from a queue.",
    "Writes cost the same; a read becomes a row range instead of a point."
    + rule.library("counters"),
)
WIDE_ENTITY: Final = Rule(
    "wide-entity",
    "Wide entities",
    (rule.WIDE_ENTITIES,),
    "An entity has half of the properties that it can have.",
    "Entities of {table} have up to {properties} of the {most} properties that one can have.",
    "Divide such an entity into several of the same partition, with a number at the end of the RowKey.",
    "A write of the whole becomes one transaction, and a read of it a row range."
    + rule.library("large-values"),
    severity=Severity.NOTE,
)
LARGE_ENTITY: Final = Rule(
    "large-entity",
    "Large entities",
    (rule.LARGE_ENTITIES,),
    "An entity has half of the bytes that it can have.",
    "Entities of {table} have up to {size} of the 1,024 KiB that one can have.",
    "Keep the large value in a blob, and its address in the entity.",
    "Each write of the value becomes two requests: the blob first, then the entity."
    + rule.library("large-values"),
    severity=Severity.NOTE,
)
SINGLE_WRITES: Final = Rule(
    "single-writes",
    "Writes that fit into one transaction",
    (rule.BATCHING,),
    "A single task, such as a test, sends several writes to one partition.",
    "{writes} writes to the partition '{partition}' of {table}: {would} would do.",
    "An entity group transaction holds up to 100 writes of one partition.",
    "All writes of a transaction are one billed request, and all of them succeed or none does.",
    severity=Severity.NOTE,
)
SINGLE_READS: Final = Rule(
    "single-reads",
    "Point reads that one query would answer",
    (rule.QUERY_KEYS,),
    "A single task reads several entities of one partition one by one.",
    "{reads} point reads of the partition '{partition}' of {table}: one query with PartitionKey eq and a range of "
    "RowKey would do.",
    severity=Severity.NOTE,
)
READS_ACROSS: Final = Rule(
    "reads-across",
    "A join in the client",
    (rule.DENORMALIZATION,),
    "A single task reads ten entities or more from several partitions one by one.",
    "One task reads {reads} single entities from {partitions} partitions of {table}.",
    "Copy the values that the task needs into the entity that it reads first.",
    "A change of such a value is written to each copy, in one transaction only inside a partition.",
    severity=Severity.NOTE,
)

TABLE_RULES: Final = (
    *(HOT_PARTITION, APPEND, GIANT_PARTITION, UNIQUE_PARTITION_KEY, QUEUE, HIGH_VOLUME_DELETE),
    *(LOG_DATA, CONTENTION, WIDE_ENTITY, LARGE_ENTITY, SINGLE_WRITES, SINGLE_READS, READS_ACROSS),
)
"""The rules on tables, in the order in which advice of equal severity is given."""


def table_findings(table: TableUse) -> Iterator[Finding]:
    """What is wrong with a table, its partitions and its writes."""
    appended = list(_appended(table))
    yield from appended or _hot_partition(table)
    if table.partitions == 1 and (table.entities or 0) >= thresholds.GIANT_ENTITIES:
        partition = table.hottest[0].key if table.hottest else ""
        yield GIANT_PARTITION, {"entities": table.entities, "partition": partition}
    yield from _unique_partitions(table)
    yield from _of_writes(table)
    most = limits.ENTITY_PROPERTIES_MAX
    if (table.properties_max or 0) >= thresholds.ENTITY_PART * most:
        yield WIDE_ENTITY, {"properties": table.properties_max, "most": most}
    entity_bytes = table.entity_bytes_max or 0
    if entity_bytes >= thresholds.ENTITY_PART * limits.ENTITY_SIZE_BYTES_MAX:
        yield LARGE_ENTITY, {"size": f"{entity_bytes / 1024:,.0f} KiB"}
    if table.is_one_task:
        yield from _of_one_task(table)


def _severity(rate: float | None) -> Severity:
    return Severity.SEVERE if rate is not None and rate >= _TARGET else Severity.WARNING


def _hot(table: TableUse) -> Iterator[tuple[PartitionUse, str]]:
    """The hot partitions, the busiest first, and how hot each is in words: by its rate or, without one, its share."""
    busiest = sorted(table.hottest, key=lambda each: -(each.rate or 0.0))
    for partition in busiest:
        if partition.rate is not None:
            if partition.rate >= _TARGET:
                heat = f"takes {partition.rate:,.0f} entities/s"
                if partition.peak is not None:
                    heat = (
                        f"took {partition.rate:,.0f} entities/s in its busiest minute, and "
                        f"{partition.peak:,.0f} in its busiest second"
                    )
                yield partition, f"{heat}; {_TARGET_IN_WORDS}"
        elif (
            partition.share is not None
            and partition.share >= thresholds.SHARE
            and (table.partitions or 0) >= thresholds.PARTITIONS
        ):
            yield partition, f"takes {partition.share:.0%} of the operations of the table"


def _hot_partition(table: TableUse) -> Iterator[Finding]:
    hot = list(_hot(table))
    for partition, heat in hot[:1]:
        parts = max(2, math.ceil((partition.rate or 0) / (_TARGET / 2)))
        further = len(hot) - 1
        words = "partition is" if further == 1 else "partitions are"
        key = divided_key(table)
        example = f" For example, PartitionKey `{key}` and RowKey `{{RowKey}}`."
        yield (
            HOT_PARTITION,
            {
                "partition": partition.key,
                "partition_key": key,
                "row_key": key and "{RowKey}",
                "example": key and example,
                "heat": heat,
                "further": f" {further:,} other {words} hot too." if further else "",
                "parts": parts,
                "last": parts - 1,
                "severity": _severity(partition.rate),
            },
        )


def _appended(table: TableUse) -> Iterator[Finding]:
    if not table.partition_form.is_time:
        return
    busiest = sorted(table.hottest, key=lambda each: -(each.write_rate or 0.0))
    for partition in busiest[:1]:
        rate, words = partition.write_rate, "took {:,.0f} writes/s in its busiest minute"
        if rate is None:
            rate, words = partition.rate, "takes {:,.0f} entities/s"
        if rate is None:
            if partition.share is not None and partition.share >= thresholds.SHARE:
                part = f"{partition.share:.0%} of the table's operations"
                heat = part if partition.share < 1 else "all of them"
                yield APPEND, {"partition": partition.key, "heat": f"takes {heat}"}
        elif rate >= thresholds.RATE_PART * _TARGET:
            severity = _severity(rate)
            heat = f"{words.format(rate)}; {_TARGET_IN_WORDS}"
            yield APPEND, {"partition": partition.key, "heat": heat, "severity": severity}


def _unique_partitions(table: TableUse) -> Iterator[Finding]:
    entities, partitions = table.entities or 0, table.partitions or 0
    if entities < thresholds.ENTITIES_READ or partitions < 0.95 * entities:
        return
    asked = [
        use
        for use in table.queries
        if use.kind in _ACROSS
        and use.filter is not None  # a listing of the table needs no other keys
        and (use.entities_returned is None or use.entities_returned >= 2 * use.runs)
    ]
    runs = sum(use.runs for use in asked)
    by_key = (table.point_reads or 0) + table.writes.updates + table.writes.deletes
    if runs >= max(thresholds.WHOLE_READS, by_key):
        names = dict.fromkeys(
            name
            for use in asked
            if (use.values or math.inf) > thresholds.KEY_VALUES
            for each in conditions_of(use.filter)
            for name in each.equal
            if name not in (PARTITION_KEY, ROW_KEY)
        )
        key = " and ".join(names) or "a property that entities have in common"
        yield UNIQUE_PARTITION_KEY, {"partitions": partitions, "entities": entities, "key": key}


def _of_writes(table: TableUse) -> Iterator[Finding]:
    writes = table.writes
    if _is_queue(table):
        one = (table.partitions or 0) < 2
        yield (
            QUEUE,
            {
                "inserts": writes.inserts,
                "deletes": writes.deletes,
                "beginning": "its one partition" if one else f"{table.partitions:,} partitions",
                "severity": _severity(table.rate),
            },
        )
    elif writes.deletes >= max(thresholds.MANY_WRITES, 0.2 * writes.inserts) and (
        table.partition_form.is_time or table.row_form.is_time
    ):
        yield HIGH_VOLUME_DELETE, {"deletes": writes.deletes}
    if (
        table.partition_form.is_time
        and writes.inserts >= thresholds.MANY_WRITES
        and not (writes.updates or writes.upserts or writes.deletes or table.point_reads)
        and table.point_reads is not None
        and table.queries
        and all((use.entities_returned or 0) >= 100 * use.runs for use in table.queries)
    ):
        yield LOG_DATA, {"inserts": writes.inserts}
    least = max(thresholds.MANY_WRITES / 100, thresholds.CONFLICT_RATIO * max(1, writes.updates))
    if writes.conflicts >= least:
        yield CONTENTION, {"conflicts": writes.conflicts, "updates": writes.updates}


def _is_queue(table: TableUse) -> bool:
    """Whether there are about as many deletes as inserts, in few partitions that are read as ranges."""
    writes = table.writes
    return (
        writes.inserts >= thresholds.MANY_WRITES
        and writes.deletes >= 0.8 * writes.inserts
        and table.partitions is not None
        and table.partitions <= thresholds.PARTITIONS * 4
        and any(use.kind in _PARTITION_LIKE for use in table.queries)
    )


def _of_one_task(table: TableUse) -> Iterator[Finding]:
    """What a single task, such as a test, could do in fewer requests."""
    for each in table.hottest:
        if each.writes > 1:
            number = -(-each.writes // limits.CHANGE_SET_OPERATIONS_MAX)
            would = counted(number, "transaction", "transactions")
            yield SINGLE_WRITES, {"partition": each.key, "writes": each.writes, "would": would}
        if each.point_reads > 1:
            yield SINGLE_READS, {"partition": each.key, "reads": each.point_reads}
    read = [each.point_reads for each in table.hottest if each.point_reads]
    if len(read) > 1 and sum(read) >= 10:
        yield READS_ACROSS, {"reads": sum(read), "partitions": len(read)}
