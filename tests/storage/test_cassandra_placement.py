"""The pages of a long answer: each row once, whatever the nodes can read in time; and counts of a partition's rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

import cassandra

from tablestone.engines.cassandra import placement
from tablestone.engines.cassandra.connection import Connection
from tablestone.engines.cassandra.placement import count_partitions, mean_row_size
from tablestone.engines.contract import EngineBusy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cassandra.query import SimpleStatement


class Node:
    """A session of a node with these rows, which cannot read more than `rows_max` of them in time."""

    def __init__(self, rows: Sequence[Any], rows_max: int = 1_000_000) -> None:
        self._rows = rows
        self._rows_max = rows_max
        self.sizes: list[int] = []
        self.now = 0.0
        self.seconds_a_row = 0.0

    def execute(
        self, statement: SimpleStatement, _: object, *, timeout: float, paging_state: bytes | None
    ) -> SimpleNamespace:
        assert timeout > 10, "the node's own time-out says more"
        size = statement.fetch_size
        self.sizes.append(size)
        self.now += size * self.seconds_a_row
        if size > self._rows_max:
            raise cassandra.ReadTimeout("raw")
        start = int(paging_state or b"0")
        end = start + size
        is_more = end < len(self._rows)
        return SimpleNamespace(
            current_rows=self._rows[start:end], paging_state=b"%d" % end if is_more else None
        )


def connected(node: Node, monkeypatch: pytest.MonkeyPatch) -> Connection:
    """A connection whose clock advances by the time of the node, and of the waits."""

    def sleep(seconds: float) -> None:
        node.now += seconds

    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr(placement, "monotonic_seconds", lambda: node.now)
    connection = object.__new__(Connection)
    connection.is_open = True
    connection._seconds = lambda: node.now
    connection.session = node
    return connection


def rows_of(connection: Connection, rows_max: int) -> list[Any]:
    return [
        row for page in placement.pages(connection, "SELECT", rows_max=rows_max) for row in page
    ]


@pytest.mark.parametrize("rows_max", [1, 7, 99, 100, 101])
def test_each_row_comes_once(monkeypatch: pytest.MonkeyPatch, rows_max: int) -> None:
    rows = [(number,) for number in range(100)]
    assert rows_of(connected(Node(rows), monkeypatch), rows_max) == rows


def test_a_page_that_is_not_read_in_time_becomes_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(number,) for number in range(50)]
    node = Node(rows, rows_max=12)
    assert rows_of(connected(node, monkeypatch), 1000) == rows
    assert node.sizes[:3] == [1000, 100, 10]


def test_a_page_that_takes_long_is_followed_by_a_smaller_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [(number,) for number in range(100)]
    node = Node(rows)
    node.seconds_a_row = 0.09
    assert rows_of(connected(node, monkeypatch), 40) == rows
    assert node.sizes[:3] == [40, 20, 10]
    node.sizes, node.seconds_a_row = [], 0.0
    assert rows_of(connected(node, monkeypatch), 40) == rows
    assert node.sizes == [40, 40, 40]


def test_a_page_that_is_never_read_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node([(1,)], rows_max=0)
    with pytest.raises(EngineBusy) as busy:
        rows_of(connected(node, monkeypatch), 1000)
    assert busy.value.sentence == "The cluster does not answer: too few nodes answered in time."
    assert node.sizes[:5] == [1000, 100, 10, 1, 1]


def test_the_rows_of_a_partition_are_counted_across_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition whose only row is None has only its static columns left."""
    counts = {b"a": 3, b"empty": 0, b"large": 2_500, b"gone": 0, b"z": 1}
    keys: list[tuple[bytes, bytes | None]] = [
        (partition, b"%d" % row if count else None)
        for partition, count in counts.items()
        for row in range(max(count, 1))
    ]
    told: list[int] = []
    found = dict(count_partitions(connected(Node(keys), monkeypatch), told.append))
    assert found == {b"a": 3, b"large": 2_500, b"z": 1}
    assert sum(told) == len(keys)
    assert list(count_partitions(connected(Node([]), monkeypatch))) == []


def test_values_are_sampled_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred of the longest values are more than a node reads in time."""
    node = Node([(b"x" * 480,)] * 30 + [(None,)], rows_max=10)
    assert mean_row_size(connected(node, monkeypatch), b"p") == 480
    assert node.sizes[0] <= 10
    assert mean_row_size(connected(Node([]), monkeypatch), b"p") == 0
