"""The error of counts in limited memory: no count is too high, and each says how much too low it may be."""

import random
from collections import Counter

import orjson
import pytest

from tablestone.insight.counts import (
    COUNTED_PARTITIONS_MAX,
    MERGED_PARTITIONS_MAX,
    RANGES_MAX,
    InsightCounts,
    WindowCounts,
    merged,
    read_window,
    window_content,
)
from tablestone.insight.report import Activity
from tablestone.model.keys import EntityKey
from tablestone.model.operations import GetEntity
from tablestone.telemetry.request_counts import RequestCounts
from tablestone.telemetry.worker_reports import REPORT_BYTES_MAX, resident_bytes
from unit.insight.test_insight_counts import counted, get


def of_many(total: int, partitions: int, seed: int) -> tuple[WindowCounts, Counter[str]]:
    """Point reads in more partitions than there is room for, a few of them hot; and the true counts."""
    chance = random.Random(seed)
    keys = [
        f"k{int(chance.paretovariate(0.7)) if chance.random() < 0.3 else chance.randrange(partitions):06}"
        for _ in range(total)
    ]
    records = {key: get(key) for key in set(keys)}
    windows = InsightCounts(0.0)
    counts = RequestCounts(insight=windows)
    for key in keys:
        counts.count(records[key])
    assert len(windows.window.tables["weather", "readings"].partitions) <= COUNTED_PARTITIONS_MAX
    content = orjson.loads(orjson.dumps(window_content(windows.window)))
    return read_window(content), Counter(keys)


def require_stated_error(found: WindowCounts, true: Counter[str]) -> None:
    """No count is too high, none is lower than it says, and a partition without a count is small."""
    (table,) = found.tables.values()
    for key, count in true.items():
        partition = table.partitions.get(key)
        if partition is None:
            assert count <= found.missed
        else:
            reads = Activity(*partition.numbers()).reads
            assert reads <= count <= reads + partition.missed
    assert Activity(*table.whole().numbers()).reads == true.total()
    apart = sum(Activity(*each.numbers()).reads for each in table.partitions.values())
    assert apart + sum(each.read for each in table.ranges) == true.total()
    assert len(table.ranges) <= RANGES_MAX


@pytest.mark.parametrize("seed", range(3))
def test_the_error_is_stated(seed: int) -> None:
    found, true = of_many(40_000, 20_000, seed)
    assert len(true) > 2 * COUNTED_PARTITIONS_MAX
    require_stated_error(found, true)
    (table,) = found.tables.values()
    assert (
        max(each.missed for each in table.partitions.values())
        <= 2 * true.total() / COUNTED_PARTITIONS_MAX
    )
    hottest = max(true, key=lambda key: true[key])
    assert table.partitions[hottest].missed == 0


def test_partitions_that_are_counted_and_not_listed() -> None:
    found, true = of_many(20_000, 1_000, 1)
    require_stated_error(found, true)
    (table,) = found.tables.values()
    assert len(table.partitions) < len(true) <= COUNTED_PARTITIONS_MAX
    assert all(each.missed == 0 for each in table.partitions.values())


def test_the_error_of_several_workers_and_minutes_is_stated() -> None:
    windows = [of_many(20_000, 20_000, seed) for seed in range(4)]
    whole: Counter[str] = Counter()
    for _, true in windows:
        whole += true
    two = merged((merged(bucket for bucket, _ in windows[:2]), *(each for each, _ in windows[2:])))
    require_stated_error(two, whole)
    (table,) = two.tables.values()
    assert table.partitions[max(whole, key=lambda key: whole[key])].missed == 0


def test_more_partitions_than_a_bucket_has_room_for() -> None:
    """Each window lists all of its own."""
    true: Counter[str] = Counter()
    buckets = []
    for window in range(3):
        keys = Counter({f"{window}-{number:03}": 1 + number % 7 for number in range(250)})
        buckets.append(counted(*(get(key) for key in keys.elements())))
        true += keys
    found = merged(buckets)
    assert len(found.tables["weather", "readings"].partitions) == MERGED_PARTITIONS_MAX
    require_stated_error(found, true)


@pytest.mark.slow
def test_a_million_partitions_take_little_memory() -> None:
    """A unique PartitionKey for each entity: the counts of the table and of its key ranges stay exact."""
    windows = InsightCounts(0.0)
    before = resident_bytes()
    total = 1_000_000
    record = get()
    for number in range(total):
        key = EntityKey(f"{number * 7919 % total:06}-{'x' * 30}", "r")
        windows.count_point_read(record, GetEntity("Readings", key, None))
    assert resident_bytes() - before < 32 * 1024 * 1024
    written = orjson.dumps(windows.content(0.0))
    assert len(written) < REPORT_BYTES_MAX // 4
    found = read_window(orjson.loads(written)["present"])
    (table,) = found.tables.values()
    assert Activity(*table.whole().numbers()).reads == total
    assert found.missed <= 2 * total / COUNTED_PARTITIONS_MAX
    largest = max(each.read for each in table.ranges)
    assert largest < total / 8  # even keys fall into even ranges
