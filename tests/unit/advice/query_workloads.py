"""Workloads whose queries read much more than they return."""

from dataclasses import replace

from tablestone.advice.filter_shape import read_shape
from tablestone.advice.workload import QueryUse, WriteUse
from tablestone.model.edm import EdmType
from unit.advice.workload_cases import (
    BY_DESTINATION,
    BY_HOUR,
    FLIGHTS,
    OF_FLIGHTS,
    READINGS,
    SENSORS,
    Case,
    asked,
    table,
)

QUERIES = (
    Case(
        "flights by carrier, searched by destination and hour, with point reads",
        table("Flights", **OF_FLIGHTS, point_reads=500, queries=(BY_DESTINATION,)),
        ("inter-partition-index",),
        (
            "reads 336,776 entities a run and returns 44",
            "Because 500 point reads use the present keys, keep them",
            "PartitionKey `{dest}` and RowKey `{time_hour}_{PartitionKey}_{RowKey}`",
            "would have been 6,735 more requests, or up to 336,776 if copies of one transaction go to several",
        ),
        "Patterns, Inter-partition secondary index pattern",
    ),
    Case(
        "flights by carrier, searched by destination and hour only",
        table("Flights", **OF_FLIGHTS, point_reads=0, queries=(BY_DESTINATION,)),
        ("compound-key",),
        ("PartitionKey `{dest}` and RowKey `{time_hour}_{PartitionKey}_{RowKey}`", "a row range"),
        "Patterns, Compound key pattern; Query, Optimizing queries",
    ),
    Case(
        "states of devices by their keys, which are updated, searched by what the updates change",
        table(
            "State",
            entities=300,
            partitions=300,
            point_reads=0,
            queries=(asked("Status eq ? and T gt ?", 20, 300, 2, T=EdmType.INT32),),
            writes=WriteUse(updates=600, requests=600),
        ),
        ("inter-partition-index",),
        (
            "Because 600 updates and deletes use the present keys, keep them",
            "600 more requests",
            "only if no T is negative",
        ),
        "Patterns, Inter-partition secondary index pattern: the keys of an entity cannot change",
    ),
    Case(
        "flights searched by destination, and by destination and hour: one copy serves both",
        table(
            "Flights",
            **OF_FLIGHTS,
            point_reads=500,
            queries=(asked("dest eq ?", 9, FLIGHTS, 90), BY_DESTINATION),
        ),
        ("inter-partition-index",),
        (
            "`{dest}` and RowKey `{time_hour}_{PartitionKey}_{RowKey}`: the query then reads one partition",
            "The same keys serve the query `dest eq ? and time_hour ge ? and time_hour lt ?` too.",
        ),
        "Patterns, Inter-partition secondary index pattern: a copy for each order of keys",
    ),
    Case(
        "two ranges need two copies, and one of them serves the query without a range",
        table(
            "Flights",
            **OF_FLIGHTS,
            point_reads=500,
            queries=(
                BY_DESTINATION,
                asked("dest eq ?", 20, FLIGHTS, 90),
                asked("dest eq ? and delay gt ?", 20, FLIGHTS, 90, delay=EdmType.INT32),
            ),
        ),
        ("inter-partition-index", "inter-partition-index"),
        (
            "RowKey `{time_hour}_{PartitionKey}_{RowKey}`",
            "RowKey `{delay:010}_{PartitionKey}_{RowKey}`",
            "The same keys serve the query `dest eq ?` too.",
        ),
        "Patterns, Inter-partition secondary index pattern: a copy for each order of keys",
    ),
    Case(
        "a name in the wrong case, of which no copy is made",
        table(
            "Flights", **OF_FLIGHTS, point_reads=500, queries=(asked("Dest eq ?", 20, FLIGHTS, 0),)
        ),
        ("nothing-found",),
        ("It has returned nothing so far", "Check that entities have `Dest`, spelled like this"),
        "Wire, 6.4: a property that an entity does not have makes a comparison false",
    ),
    Case(
        "the same, where an index is possible",
        table(
            "Flights",
            indexes={},
            known_properties=frozenset(("dest", "delay")),
            queries=(asked("dest eq ?", 20, FLIGHTS, 0),),
        ),
        ("nothing-found", "index"),
        ("Check that entities have `dest`", "`tablestone index create Flights dest`"),
        "Indexes: a scan that finds nothing reads as much as one that finds little",
    ),
    Case(
        "the same, where the index is of use within partitions alone",
        table(
            "Flights",
            indexes={"dest": True},
            known_properties=frozenset(("dest", "delay")),
            queries=(asked("dest eq ?", 20, FLIGHTS, 0),),
        ),
        ("nothing-found", "index"),
        ("`tablestone index drop Flights dest` and `tablestone index create Flights dest`",),
        "Indexes: an index within partitions serves no query over all partitions",
    ),
    Case(
        "the same, where nobody knows whether an entity has the property",
        table("Flights", indexes={}, queries=(asked("Dest eq ?", 20, FLIGHTS, 0),)),
        ("nothing-found",),
        ("Check that entities have `Dest`, spelled like this",),
        "Wire, 6.4: a property that an entity does not have makes a comparison false",
    ),
    Case(
        "a flag and a customer: the index is on the customer",
        table(
            "Orders",
            indexes={},
            point_reads=90,
            queries=(asked("flag and Customer eq ?", 20, FLIGHTS, 90),),
        ),
        ("inter-partition-index", "index"),
        ("`tablestone index create Orders Customer`",),
        "Indexes: an index on a property with few values gains little",
    ),
    Case(
        "the same, where an index would be on a property that no entity has",
        table(
            "Flights",
            indexes={},
            known_properties=frozenset(("dest", "delay")),
            queries=(asked("Dest eq ?", 20, FLIGHTS, 0),),
        ),
        ("nothing-found",),
        ("No entity seen so far has `Dest`", "Did you mean `dest`? Check"),
        "Wire, 6.4: a property that an entity does not have makes a comparison false",
    ),
    Case(
        "the same, where the names of the entities are known",
        table(
            "Flights", queries=(asked("Dest eq ?"),), known_properties=frozenset(("dest", "delay"))
        ),
        ("nothing-found",),
        ("No entity seen so far has `Dest`", "Did you mean `dest`? Check"),
        "Wire, 6.4: a property that an entity does not have makes a comparison false",
    ),
    Case(
        "flights of a carrier, searched by tail number inside its partition",
        table(
            "Flights",
            **OF_FLIGHTS,
            point_reads=500,
            queries=(asked("PartitionKey eq ? and tailnum eq ?", 200, 58_665, 90),),
        ),
        ("intra-partition-index",),
        ("under RowKey `tailnum_{tailnum}_{RowKey}`", "one entity group transaction"),
        "Patterns, Intra-partition secondary index pattern",
    ),
    Case(
        "flights searched by delay: a number in a key is padded",
        table(
            "Flights",
            **OF_FLIGHTS,
            point_reads=500,
            queries=(asked("carrier eq ? and delay gt ?", 50, FLIGHTS, 20, delay=EdmType.INT32),),
        ),
        ("inter-partition-index",),
        ("RowKey `{delay:010}_{PartitionKey}_{RowKey}`",),
        "Query, Sorting data in the Table service",
    ),
    Case(
        "large documents searched by author",
        table(
            "Documents",
            entities=50_000,
            partitions=900,
            entity_bytes_mean=80_000.0,
            point_reads=9_000,
            queries=(asked("Author eq ?", 400, 50_000, 6),),
        ),
        ("index-entities",),
        ("nothing but the present keys", "80,000 bytes"),
        "Patterns, Index entities pattern",
    ),
    Case(
        "readings of all stations since a moment",
        table("Readings", **SENSORS, queries=(BY_HOUR, asked("RowKey ge ?", 600, READINGS, 3))),
        ("range-alone",),
        ("a part of RowKey",),
        "Query, A table scan does not include the PartitionKey, whether or not the filter uses the RowKey",
    ),
    Case(
        "an order by its number, which is its RowKey",
        table(
            "Orders",
            entities=800_000,
            partitions=9_000,
            point_reads=70_000,
            queries=(asked("RowKey eq ?", 900, 800_000, 1),),
        ),
        ("row-key-alone",),
        ("Name the PartitionKey too",),
        "Query, Table scan",
    ),
    Case(
        "orders that are not done",
        table(
            "Orders",
            entities=800_000,
            partitions=9_000,
            point_reads=70_000,
            queries=(asked("Status ne ?", 60, 800_000, 40),),
        ),
        ("negation",),
        ("index entities of only the entities you look for",),
        "Patterns, Index entities pattern",
    ),
    Case(
        "orders that are open, by a flag",
        table(
            "Orders",
            entities=800_000,
            partitions=9_000,
            point_reads=70_000,
            queries=(asked("IsOpen", 60, 800_000, 40),),
        ),
        ("flag",),
        ("two partitions",),
        "Query, Choosing an appropriate PartitionKey",
    ),
    Case(
        "people by city or by telephone number",
        table(
            "People",
            entities=90_000,
            partitions=90_000,
            point_reads=10_000,
            queries=(asked("City eq ? or Phone eq ?", 60, 90_000, 1),),
        ),
        ("alternatives",),
        ("send 2 queries", "for City, PartitionKey {City}; for Phone, PartitionKey {Phone}"),
        "Checklist, Denormalization: the same data once for each key that finds it",
    ),
    Case(
        "employees by two numbers of a department",
        table("People", queries=(asked("PartitionKey eq ? and (RowKey eq ? or RowKey eq ?)"),)),
        ("or-of-row-keys",),
        ("one point read for each RowKey",),
        "Query, or on RowKey values is a partition scan",
    ),
    Case(
        "changes since a moment",
        table("People", queries=(asked("Timestamp ge ?"),), point_reads=5),
        ("timestamp",),
        ("no key can hold it",),
        "Patterns, Log tail pattern",
    ),
    Case(
        "expense claims, of which the last ones are shown",
        table(
            "Claims",
            point_reads=5,
            queries=(
                QueryUse(read_shape("PartitionKey eq ?"), 10, 50_000, 50_000, reads_newest=True),
            ),
        ),
        ("log-tail",),
        ("inverted ticks",),
        "Patterns, Log tail pattern",
    ),
    Case(
        "a whole table, every minute",
        table("Settings", queries=(asked("", 60, 9_000, 9_000),), point_reads=0),
        ("whole-table",),
        ("has no filter", "60 times"),
        "Checklist, Query scope",
    ),
    Case(
        "orders by customer, on a server that keeps indexes",
        table(
            "Orders",
            point_reads=9,
            indexes={"amount": False},
            queries=(asked("amount ge ? and customer eq ?", 60, 90_000, 1),),
            writes=WriteUse(inserts=7_000),
            period="the last hour",
        ),
        ("inter-partition-index",),
        ("PartitionKey `{customer}`",),
        "decision 20: the index on amount would serve it, and a scan was quicker",
    ),
    Case(
        "orders by customer, without an index",
        table(
            "Orders",
            point_reads=9,
            indexes={"amount": True},
            queries=(asked("amount ge ? and customer eq ?", 60, 90_000, 1),),
            writes=WriteUse(inserts=7_000),
            period="the last hour",
            storage=" --account shop --data '/srv/my data'",
        ),
        ("inter-partition-index", "index"),
        (
            "make an index instead: `tablestone index create Orders customer --account shop --data '/srv/my data'`.",
            "each change of `customer`, also writes an entry of the index, in the same commit. With one "
            "index, a server took 8 % fewer inserts a second. In the last hour, there were 7,000 writes.",
        ),
        "decision 20: an eq has its entries in key order, so it is preferred to a range",
    ),
    Case(
        "orders by customer, with as many indexes as a table may have",
        table(
            "Orders",
            point_reads=9,
            indexes=dict.fromkeys("abcdefghijklmnop", False),
            queries=(asked("customer eq ?", 60, 90_000, 1),),
        ),
        ("inter-partition-index",),
        ("PartitionKey `{customer}`",),
        "decision 20",
    ),
    Case(
        "orders by customer, on a server that keeps its tables in memory",
        table("Orders", indexes={}, storage="", queries=(asked("customer eq ?", 60, 90_000, 1),)),
        ("inter-partition-index",),
        ("PartitionKey `{customer}`",),
        "Ours: no command reaches the memory of a server",
    ),
    *(
        Case(
            f"orders that failed, {name}",
            table(
                "Orders",
                point_reads=0,
                queries=(replace(asked(shape, 60, 90_000, 1), values=values),),
                period="14 minutes",
            ),
            (advice,),
            (words,),
            "Query, How your choice of PartitionKey and RowKey impacts query performance; Ours: how many are few",
        )
        for name, shape, values, advice, words in (
            ("always", "state eq ?", 1, "flag", "60 queries named 1 value of state, and so few"),
            ("by a few states", "state eq ?", 8, "flag", "60 queries named 8 values of state, and"),
            (
                *("since a time", "state eq ? and at gt ?", 2, "flag"),
                "keep index entities of only the entities you look for",
            ),
            (
                *("by many states", "state eq ?", 9, "compound-key"),
                "In 14 minutes, no other request was seen that uses the present keys. If none does",
            ),
            ("by an unknown number", "state eq ?", None, "compound-key", "PartitionKey `{state}`"),
        )
    ),
    Case(
        "a range of values in one partition",
        table("Orders", indexes={}, queries=(asked("PartitionKey eq ? and amount ge ?"),)),
        ("intra-partition-index", "index"),
        ("`tablestone index create Orders amount --partition`",),
        "decision 20: a range counts the entries of its values, so of one partition alone",
    ),
    Case(
        "people by city or by telephone number, on a server that keeps indexes",
        table("People", indexes={}, queries=(asked("City eq ? or Phone eq ?"),)),
        ("alternatives", "index"),
        (
            "`tablestone index create People City` and `tablestone index create People Phone`, with the --account and "
            "the --data of the server.",
        ),
        "decision 20: an or needs an index for each side",
    ),
    Case(
        "what is not equal, on a server that keeps indexes",
        table("People", indexes={}, queries=(asked("City ne ?"),)),
        ("negation",),
        ("No key helps",),
        "decision 20: no index serves ne",
    ),
    Case(
        "a partition that one task reads to its end",
        table("Orders", is_one_task=True, queries=(asked("PartitionKey eq ?"),)),
        ("whole-partition",),
        ("Add a range of RowKey",),
        "Query, Range Query",
    ),
)
