"""The table of workloads: the request, its data, and the target for its figures.

A workload is one row. A new one changes the generator (loadgen/operations.go) only if it needs a kind of request that
no other row has. The project's own targets are here too: factors are ratios to Azurite's throughput, and other targets
have names of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

SEEDED = 20_000
WALKED = 200_000
PAGE = 1_000
FLIGHTS = 336_776
EIGHT = 8
"""The connections of point reads with company, and of their company: 16 together."""

HTTP_FLOOR_SHARE_LEAST = 0.5
"""A point read's throughput, as a share of the constant answer's."""
RAW_FLOOR_SHARE_LEAST = 0.2
"""The same, of the constant answer by the loop and the parser alone (raw_floor.py)."""
BY_HAND_SHARE_LEAST = 0.6
"""The speed of a filter that matches nothing, as a share of the same in SQL by hand (filter_in_sql.py)."""
TRANSACTION_ENTITIES_LEAST = 20_000
"""Entities a second into one partition by transactions, where the disk allows it."""
LATE_PAGE_MOST = 2.0
"""A later page of a walk may take this many times as long as the first."""
START_SECONDS_MOST = 0.5
RESIDENT_MIB_MOST = 150
RESIDENT_SPREAD_MOST = 0.1
"""Memory under load with the most entities may exceed that with the fewest that count by this share."""
RESIDENT_FROM = 10_000
"""The fewest entities with which memory under load counts."""


class Uses(Enum):
    """The table that a workload runs on."""

    SEEDED = "a seeded table that is only read"
    WRITTEN = "a seeded table that is written to"
    NEW = "a new table in each round"


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    mix: dict[str, int]
    uses: Uses = Uses.SEEDED
    entities: int = SEEDED
    keys: str = "uniform"
    query: str = ""
    entities_per_operation: int = 1
    expect_entities: int = -1
    walks: int = 0
    """How often each connection follows the pages to their end. Three times where the first page counts, so that two of
    three first pages are not on a new connection.
    """
    connections: int | None = None
    shapes: int = 1
    """How many sets of properties the entities of a transaction have."""
    data: str = ""
    """Where the entities come from; empty if the load generator makes them from their numbers."""
    matches: str = ""
    """Text in the JSON of the entities that match the query's filter, whose number is checked."""
    company: Workload | None = None
    """The workload of other connections at the same time. Its answers are not in the figures."""
    factor: float | None = None


def bounded(first: int, end: int) -> str:
    return f"RowKey%20ge%20'{first:010d}'%20and%20RowKey%20lt%20'{end:010d}'%20and%20"


FLOORS = (
    Workload("point-read", "point read", {"get": 1}, factor=7),
    Workload(
        "point-read-select",
        "point read with $select of three",
        {"get": 1},
        query="$select=Name,Temperature,MeasuredAt",
        factor=5,
    ),
    Workload(
        "page",
        "page of 1,000 entities",
        {"page": 1},
        query="$filter=PartitionKey%20eq%20'{partition}'",
        entities_per_operation=PAGE,
        expect_entities=PAGE,
        factor=12,
    ),
    Workload("insert", "insert", {"insert": 1}, uses=Uses.NEW, factor=4),
    Workload("merge", "merge", {"merge": 1}, uses=Uses.WRITTEN, factor=4),
    Workload("update", "update with ETag", {"update": 1}, uses=Uses.WRITTEN, factor=3),
    Workload("upsert", "insert or replace, half new", {"upsert": 1}, uses=Uses.WRITTEN, factor=3),
    Workload(
        "transaction",
        "transaction of 100 inserts",
        {"batch": 1},
        uses=Uses.NEW,
        entities_per_operation=100,
        factor=6,
    ),
    Workload(
        "ycsb-a",
        "half reads, half merges, Zipf keys",
        {"get": 50, "merge": 50},
        uses=Uses.WRITTEN,
        keys="zipf",
        factor=5,
    ),
    Workload(
        "ycsb-b",
        "90 % reads, 10 % merges, Zipf keys",
        {"get": 90, "merge": 10},
        uses=Uses.WRITTEN,
        keys="zipf",
        factor=5,
    ),
    Workload(
        "walk",
        "walk of 200,000 entities",
        {"page": 1},
        entities=WALKED,
        query="$top=1000",
        entities_per_operation=WALKED,
        expect_entities=WALKED,
        walks=3,
        connections=2,
        factor=10,
    ),
    Workload(
        "filter-nothing",
        "filter over 20,000, no match",
        {"page": 1},
        query="$filter=Temperature%20gt%20100.0",
        entities_per_operation=0,
        expect_entities=0,
    ),
    Workload(
        "filter-two",
        "filter of two conditions over 20,000, no match",
        {"page": 1},
        query="$filter=Temperature%20gt%2020.0%20and%20Name%20eq%20'Bob'",
        entities_per_operation=0,
        expect_entities=0,
        connections=4,
        factor=0.2,
    ),
    Workload(
        "filter-nothing-bounded",
        "the same, RowKey bounded to a tenth",
        {"page": 1},
        query=f"$filter={bounded(10_000, 12_000)}Temperature%20gt%20100.0",
        entities_per_operation=0,
        expect_entities=0,
        factor=5,
    ),
    Workload(
        "filter-percent",
        "1 % of 200,000 by filter, all pages",
        {"page": 1},
        entities=WALKED,
        query="$filter=Count%20eq%2037",
        entities_per_operation=WALKED // 100,
        expect_entities=WALKED // 100,
        walks=1,
        connections=4,
        factor=0.5,
    ),
)
NOTHING, TRANSACTION, INSERT, MERGE = (
    next(each for each in FLOORS if each.name == name)
    for name in ("filter-nothing", "transaction", "insert", "merge")
)
ALONE = Workload("reads", "8 point reads at a time", {"get": 1}, connections=EIGHT)
COMPANY = (
    ALONE,
    replace(
        ALONE,
        name="reads-by-scans",
        title="the same, beside 8 filters over 20,000",
        company=replace(NOTHING, connections=EIGHT),
    ),
    replace(
        ALONE,
        name="reads-by-wide-scans",
        title="the same, beside 8 filters over 200,000",
        company=replace(NOTHING, connections=EIGHT, entities=WALKED),
    ),
    replace(
        ALONE,
        name="reads-by-transactions",
        title="the same, beside 8 transactions",
        company=replace(TRANSACTION, name="company", connections=EIGHT),
    ),
    replace(
        ALONE,
        name="reads-by-merges",
        title="the same, beside 8 merges",
        company=replace(MERGE, name="company", connections=EIGHT),
    ),
)
FORMS_OF_WRITES = (
    replace(MERGE, name="merge-one", title="merge of one entity by all", entities=1, factor=None),
    *(
        replace(
            TRANSACTION,
            name=f"transaction-{inserts}" + ("-shapes" if shapes > 1 else ""),
            title=f"transaction of {inserts} inserts" + (", of many shapes" if shapes > 1 else ""),
            entities_per_operation=inserts,
            shapes=shapes,
            factor=None,
        )
        for inserts, shapes in ((2, 1), (2, 64), (10, 1), (10, 64), (100, 64))
    ),
)
WRITES = (
    *FORMS_OF_WRITES,
    *(
        replace(
            write,
            name=f"{write.name}-{connections}",
            title=f"{write.title}, {connections} connections",
            connections=connections,
            factor=None,
        )
        for write in (INSERT, MERGE, TRANSACTION)
        for connections in (EIGHT, 64)
    ),
)
"""Writes in other numbers and forms than the floors."""
FLIGHT = Workload(
    "flights-point-read", "point read of a flight", {"get": 1}, entities=FLIGHTS, data="flights"
)
REAL = (
    FLIGHT,
    replace(
        FLIGHT,
        name="flights-page",
        title="a carrier's flights of a day",
        mix={"page": 1},
        query="$filter=PartitionKey%20eq%20'{partition}'",
    ),
    replace(
        FLIGHT,
        name="flights-filter",
        title="of these, those from Newark",
        mix={"page": 1},
        query="$filter=PartitionKey%20eq%20'{partition}'%20and%20Origin%20eq%20'EWR'",
        matches='"Origin":"EWR"',
    ),
    replace(
        FLIGHT,
        name="flights-load",
        title="flights in transactions of up to 100",
        mix={"seed": 1},
        uses=Uses.NEW,
    ),
)
WORKLOADS = (*FLOORS, *WRITES, *COMPANY, *REAL)
# Not a load but a series of sizes, each on its own server (growth.py). Between the second and the third, memory must
# not have grown; 10,000,000 is run by hand: --sizes 10000000.
GROWTH = "growth"
GROWTH_SIZES = (100, 10_000, 1_000_000)
BY_NAME = {workload.name: workload for workload in WORKLOADS}
SHORT = FLOORS[: 1 + [each.name for each in FLOORS].index("transaction")]
SMOKE = (*FLOORS, *FORMS_OF_WRITES)
"""Every kind of request, without growth and company: tests that answers are right, not how fast they come."""
GROUPS = {
    "floors": FLOORS,
    "short": SHORT,
    "smoke": SMOKE,
    "writes": WRITES,
    "company": COMPANY,
    "flights": REAL,
    "all": WORKLOADS,
}
WITH_GROWTH = {GROWTH, "floors", "all"}
"""The selections that include growth."""


def named(names: list[str]) -> list[Workload]:
    """The requested loads, in the table's order."""
    asked = {each.name for name in names for each in GROUPS.get(name, ())} | set(names)
    return [workload for workload in WORKLOADS if workload.name in asked]
