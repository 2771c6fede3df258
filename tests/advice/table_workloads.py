"""Workloads whose keys, entities or writes are wrong for the service."""

from __future__ import annotations

from advice.workload_cases import (
    Case,
    asked,
    table,
)
from tablestone.advice.key_forms import KeyForm
from tablestone.advice.workload import PartitionUse, WriteUse

TABLES = (
    Case(
        "a queue: appended at the end, read from the beginning, deleted",
        table(
            "Messages",
            entities=300,
            partitions=1,
            row_form=KeyForm.TIME_ASCENDING,
            hottest=(PartitionUse("queue", 1.0, 900.0, 300),),
            point_reads=0,
            queries=(asked("PartitionKey eq ?", 90_000, 32, 32),),
            writes=WriteUse(inserts=500_000, deletes=499_700),
        ),
        ("queue",),
        ("Use a queue service",),
        "Checklist, Append Only patterns; Patterns, Eventually consistent transactions pattern",
    ),
    Case(
        "log-ins, the old ones deleted one by one",
        table(
            "Logins",
            entities=2_000_000,
            partitions=70_000,
            row_form=KeyForm.TIME_ASCENDING,
            hottest=(PartitionUse("ada", 0.01, 3.0),),
            point_reads=1_000,
            writes=WriteUse(inserts=40_000, deletes=40_000),
        ),
        ("high-volume-delete",),
        ("one table for each day or month",),
        "Patterns, High volume delete pattern",
    ),
    Case(
        "keys of the hour, with a busy present hour",
        table(
            "Log",
            entities=5_000_000,
            partitions=8_000,
            partition_form=KeyForm.TIME_ASCENDING,
            hottest=(PartitionUse("2013-07-04T15", 0.95, 2_600.0),),
            point_reads=900,
            writes=WriteUse(inserts=900_000),
        ),
        ("append",),
        ("2,600 entities/s", "Make the PartitionKey of what the entities are about"),
        "Patterns, Prepend/append anti-pattern",
    ),
    Case(
        "a log by hour that is read in bulk",
        table(
            "Log",
            entities=5_000_000,
            partitions=8_000,
            partition_form=KeyForm.TIME_DESCENDING,
            hottest=(PartitionUse("2516999999999999999", 0.95),),
            point_reads=0,
            queries=(asked("PartitionKey ge ? and PartitionKey lt ?", 20, 9_000, 9_000),),
            writes=WriteUse(inserts=900_000),
        ),
        ("append", "log-data"),
        ("95% of the table's operations", "Append such data to blobs"),
        "Patterns, Log data anti-pattern",
    ),
    Case(
        "one partition with all customers",
        table(
            "Customers",
            entities=1_500_000,
            partitions=1,
            hottest=(PartitionUse("customers", 1.0, 300.0, 1_500_000),),
            point_reads=90_000,
        ),
        ("giant-partition",),
        ("All 1,500,000 entities of Customers are in one partition",),
        "Query, Choosing an appropriate PartitionKey",
    ),
    Case(
        "one partition with all customers, and more than Azure serves",
        table(
            "Customers",
            entities=1_500_000,
            partitions=1,
            hottest=(PartitionUse("customers", 1.0, 3_100.0, 1_500_000),),
            point_reads=90_000,
        ),
        ("hot-partition", "giant-partition"),
        ("3,100 entities/s of the 2,000/s", "a number from 0 to 3"),
        "Scalability and performance targets for Table storage",
    ),
    Case(
        "a celebrity among the users",
        table(
            "Posts",
            entities=4_000_000,
            partitions=60_000,
            hottest=(PartitionUse("celebrity", 0.6),),
            point_reads=90_000,
        ),
        ("hot-partition",),
        ("'celebrity' of Posts takes 60% of the operations",),
        "Checklist, High-traffic data",
    ),
    Case(
        "a PartitionKey for each entity, and queries for many entities",
        table(
            "Events",
            entities=50_000,
            partitions=50_000,
            point_reads=0,
            queries=(asked("Device eq ?", 300, 50_000, 40),),
        ),
        ("compound-key", "unique-partition-key"),
        ("50,000 partitions for 50,000 entities", "Make the PartitionKey of Device"),
        "Query, Choosing an appropriate PartitionKey: one entity per partition has no transactions",
    ),
    Case(
        "a counter that many workers change",
        table(
            "Counters",
            entities=20,
            partitions=20,
            point_reads=9_000,
            writes=WriteUse(updates=9_000, conflicts=4_000),
        ),
        ("contention",),
        ("Give each writer its own entity",),
        "Patterns, Data series pattern: many clients that update one entity",
    ),
    Case(
        "hourly counts, one entity each, that are read a day at a time",
        table(
            "Counts",
            entities=90_000,
            partitions=3_000,
            row_form=KeyForm.TIME_ASCENDING,
            properties_max=1,
            point_reads=0,
            queries=(asked("PartitionKey eq ? and RowKey ge ?", 5_000, 24, 24),),
        ),
        ("data-series",),
        ("a property for each value",),
        "Patterns, Data series pattern",
    ),
    Case(
        "entities of 240 properties and of 900 KiB",
        table("Wide", properties_max=240, entity_bytes_max=900 * 1024),
        ("wide-entity", "large-entity"),
        ("up to 240 properties of the 252", "up to 900 KiB"),
        "Patterns, Wide entities pattern and Large entities pattern",
    ),
    Case(
        "one task that writes and reads single entities",
        table(
            "Orders",
            is_one_task=True,
            hottest=tuple(PartitionUse(f"p{n}", writes=3, point_reads=6) for n in range(2)),
        ),
        ("single-writes", "single-writes", "single-reads", "single-reads", "reads-across"),
        ("3 writes to the partition 'p0' of Orders: 1 transaction would do.", "12 single entities"),
        "Checklist, Batching; Patterns, Denormalization pattern",
    ),
)
