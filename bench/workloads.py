"""The table of workloads: what is asked, of which data, and what the answer must be worth.

A workload is one row. A new one needs the generator (loadgen/operations.go) only if it needs a
kind of request that no other row has. The factors are the project's own floors, as a ratio to
Azurite's throughput.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

SEEDED = 20_000
WALKED = 200_000
PAGE = 1_000


class Uses(Enum):
    """Which table a workload runs on."""

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
    connections: int | None = None
    factor: float | None = None
    by_default: bool = True


def bounded(first: int, end: int) -> str:
    return f"RowKey%20ge%20'{first:010d}'%20and%20RowKey%20lt%20'{end:010d}'%20and%20"


WORKLOADS = (
    Workload("point-read", "point read", {"get": 1}, factor=6),
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
        factor=10,
    ),
    Workload("insert", "insert", {"insert": 1}, uses=Uses.NEW, factor=3),
    Workload("merge", "merge", {"merge": 1}, uses=Uses.WRITTEN, factor=3),
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
        factor=3,
        by_default=False,
    ),
    Workload(
        "ycsb-b",
        "90 % reads, 10 % merges, Zipf keys",
        {"get": 90, "merge": 10},
        uses=Uses.WRITTEN,
        keys="zipf",
        factor=5,
        by_default=False,
    ),
    Workload(
        "walk",
        "walk of 200,000 entities",
        {"page": 1},
        entities=WALKED,
        query="$top=1000",
        entities_per_operation=WALKED,
        expect_entities=WALKED,
        walks=1,
        connections=4,
        factor=10,
        by_default=False,
    ),
    Workload(
        "filter-nothing",
        "filter over 20,000, no match",
        {"page": 1},
        query="$filter=Temperature%20gt%20100.0",
        entities_per_operation=0,
        expect_entities=0,
        by_default=False,
    ),
    Workload(
        "filter-nothing-bounded",
        "the same, RowKey bounded to a tenth",
        {"page": 1},
        query=f"$filter={bounded(10_000, 12_000)}Temperature%20gt%20100.0",
        entities_per_operation=0,
        expect_entities=0,
        factor=5,
        by_default=False,
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
        by_default=False,
    ),
)
# Not a load but a series of sizes, each on a server of its own (growth.py). The second and the third
# are where memory must not have grown; 10,000,000 is for by hand: --sizes 10000000.
GROWTH = "growth"
GROWTH_SIZES = (100, 10_000, 1_000_000)
BY_NAME = {workload.name: workload for workload in WORKLOADS}


def named(names: list[str]) -> list[Workload]:
    """The loads asked for; without names those of the first figure; `all` is every one."""
    if not names:
        return [workload for workload in WORKLOADS if workload.by_default]
    if names == ["all"]:
        return list(WORKLOADS)
    return [BY_NAME[name] for name in names if name != GROWTH]
