"""How far a read of several partitions asks ahead of its page: few requests are wasted, and memory is bounded."""

from collections import deque

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

from tablestone.engines.cassandra.read import (
    AHEAD_BYTES,
    ANSWER_BYTES,
    PARTITIONS_AT_ONCE_MAX,
    ROWS_AT_ONCE_MIN,
    WIDE_BYTES,
    ReadAhead,
    Widths,
)

PAGE = 1000


def widths_of(partitions: range, widest: int | None) -> Widths:
    widths = object.__new__(Widths)
    widths._known = {}
    if widest is not None:
        for partition in partitions:
            widths.learn(b"%d" % partition, widest)
    return widths


def read(counts: list[int], rows_max: int, widest: int | None) -> tuple[int, int, int]:
    """Read partitions of these sizes: the requests, the rows they brought, the most bytes in flight."""
    partitions = range(len(counts))
    widths = widths_of(partitions, widest)
    ahead = ReadAhead(widths, rows_max)
    length = widest or WIDE_BYTES
    waiting: deque[tuple[int, int]] = deque()
    rest = deque(partitions)
    requests = brought = most = taken = 0
    while taken < rows_max and (waiting or rest):
        while rest and len(waiting) < ahead.partitions:
            partition = rest.popleft()
            limit = ahead.limit(b"%d" % partition, is_ahead=bool(waiting))
            waiting.append((partition, limit))
            requests += 1
            brought += min(limit, counts[partition])
        most = max(most, length * sum(limit for _, limit in waiting))
        partition, limit = waiting.popleft()
        seen = min(limit, counts[partition])
        ahead.take(seen)
        taken += seen
        widths.learn(b"%d" % partition, widest)
        while seen % limit == 0 and seen and taken < rows_max:
            limit = ahead.limit(b"%d" % partition)
            more = min(limit, counts[partition] - seen)
            requests, brought, seen, taken = requests + 1, brought + more, seen + more, taken + more
            ahead.take(more)
            if more < limit:
                break
        ahead.end_partition(b"%d" % partition, seen)
    return requests, brought, most


@pytest.mark.parametrize(
    ("title", "counts", "widest", "requests_max", "in_vain_max"),
    [
        ("one row each", [1] * 2000, 1, 1040, 40),
        ("large ones, known", [1000] * 100, 1, 3, 40),
        ("large ones after small ones, known", [1] * 50 + [1000] * 100, 1, 90, 600),
        ("large ones, not known", [1000] * 100, None, 4, 40),
        ("ten rows each", [10] * 1000, 1, 140, 350),
        ("rows of a mebibyte", [3] * 1000, 1 << 20, 1000, 30),
    ],
)
def test_little_is_asked_for_in_vain(
    title: str, counts: list[int], widest: int | None, requests_max: int, in_vain_max: int
) -> None:
    requests, brought, _ = read(counts, PAGE, widest)
    assert requests <= requests_max, title
    assert brought - PAGE <= in_vain_max, title


@pytest.mark.parametrize("count", [1, 3, 16, 100, 1000, 100_000])
@pytest.mark.parametrize("widest", [1, WIDE_BYTES, 100_000, 1 << 20])
def test_the_memory_for_answers_is_bounded(count: int, widest: int) -> None:
    """A few rows that are longer than an answer should be are requested all the same."""
    _, _, most = read([count] * 200, 5 * PAGE, widest)
    assert most <= max(ANSWER_BYTES, ROWS_AT_ONCE_MIN * widest) + AHEAD_BYTES


def test_small_partitions_are_asked_many_at_a_time() -> None:
    ahead = ReadAhead(widths_of(range(100), 1), PAGE)
    for partition in range(8):
        ahead.take(1)
        ahead.end_partition(b"%d" % partition, 1)
    assert ahead.partitions == PARTITIONS_AT_ONCE_MAX
