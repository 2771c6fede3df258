"""Workloads without a problem."""

from tablestone.advice.workload import KeyForm, PartitionUse, WriteUse
from unit.advice.workload_cases import BY_HOUR, OF_FLIGHTS, SENSORS, Case, asked, table

HEALTHY = (
    Case(
        "sensor readings by station and hour",
        table(
            "Readings", **SENSORS, queries=(BY_HOUR, asked("PartitionKey eq ?", 30, 8_706, 8_706))
        ),
        (),
        (),
        "Patterns, Compound key pattern",
    ),
    Case(
        "flights by carrier, read by carrier and day",
        table(
            "Flights",
            **OF_FLIGHTS,
            point_reads=800,
            queries=(asked("PartitionKey eq ? and RowKey ge ? and RowKey lt ?", 900, 160, 160),),
        ),
        (),
        (),
        "Query, Range Query",
    ),
    Case(
        "users, a partition each, read by their names",
        table(
            "Users",
            entities=3_000_000,
            partitions=3_000_000,
            hottest=(PartitionUse("ada", 0.001, 2.0),),
            point_reads=4_000_000,
            writes=WriteUse(inserts=9_000, updates=90_000, deletes=100, conflicts=50),
        ),
        (),
        (),
        "Checklist, Tables and partitions: the user ID as the PartitionKey",
    ),
    Case(
        "a partition a day at a low rate",
        table(
            "Jobs",
            entities=40_000,
            partitions=700,
            partition_form=KeyForm.TIME_ASCENDING,
            hottest=(PartitionUse("2013-07-04", 0.9, 6.0),),
            point_reads=9_000,
            queries=(asked("PartitionKey eq ?", 300, 60, 60),),
            writes=WriteUse(inserts=700, updates=1_400),
        ),
        (),
        (),
        "Patterns, Prepend/append anti-pattern: avoid it when the volume is likely to result in throttling",
    ),
    Case(
        "a small table that is always scanned",
        table(
            "Settings",
            entities=40,
            partitions=1,
            point_reads=0,
            queries=(asked("Kind eq ?", 9_000, 40, 2), asked("", 9_000, 40, 40)),
        ),
        (),
        (),
        "Ours: a scan of 40 entities is one page",
    ),
    Case(
        "a scan that returns most of what it reads, once a day",
        table(
            "Orders",
            entities=90_000,
            point_reads=9,
            queries=(asked("Year ge ?", 1, 90_000, 60_000),),
        ),
        (),
        (),
        "Checklist, Query density",
    ),
    Case(
        "an export",
        table("Orders", entities=90_000, point_reads=9, queries=(asked("", 1, 90_000, 90_000),)),
        (),
        (),
        "Checklist, Query density",
    ),
    Case(
        "points, several points, one partition, two partitions and a range of partitions",
        table(
            "Orders",
            queries=(
                asked("PartitionKey eq ? and RowKey eq ?"),
                asked("(PartitionKey eq ? and RowKey eq ?) or (PartitionKey eq ? and RowKey eq ?)"),
                asked("PartitionKey eq ?"),
                asked("PartitionKey eq ? or PartitionKey eq ?"),
                asked("PartitionKey ge ? and PartitionKey lt ?"),
                asked("PartitionKey eq ? and RowKey ge ?"),
            ),
        ),
        (),
        (),
        "Query, How your choice of PartitionKey and RowKey impacts query performance",
    ),
    Case(
        "values by their keys, a partition each, listed once",
        table(
            "Keyv",
            entities=200,
            partitions=200,
            point_reads=2_000,
            queries=(asked("", 1, 200, 200), asked("Kind eq ?", 30, 200, 150)),
        ),
        (),
        (),
        "Query, Choosing an appropriate PartitionKey: a partition for each entity serves point reads",
    ),
    Case("a table of which nothing is known", table("New"), (), (), "Ours"),
)
