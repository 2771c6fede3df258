"""Races in the Cassandra engine: other servers write between the reads of a page, or the steps of a commit.

Needs the cluster that ENGINE_UNDER_TEST names. The contract's tests run on this engine too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from storage.cluster_engine import URL
from storage.write_sets import committed, insert, put, upsert
from tablestone.clock import monotonic_seconds
from tablestone.engines.contract import (
    ABSENT,
    DELETE,
    PRESENT,
    Change,
    Conflict,
    Key,
    KeyRange,
    SnapshotPassed,
    WriteSet,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tablestone.engines.cassandra.engine import CassandraEngine
    from tablestone.engines.cassandra.session import Answer

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(
        URL is None,
        reason="no cluster: python -m tests.storage.cluster up, then set ENGINE_UNDER_TEST",
    ),
]


@pytest.mark.parametrize("is_there", [False, True])
async def test_ranges_of_one_partition_are_read_at_one_moment_even_where_the_first_is_empty(
    servers: tuple[CassandraEngine, CassandraEngine], partition: bytes, *, is_there: bool
) -> None:
    """A transaction commits after the first range was read: the page shows all of it, or nothing."""
    engine, other = servers
    if is_there:
        await committed(other, insert(partition, b"c"))
    ask = engine._reads._ask

    async def commit_after_the_first(piece: object, limit: int) -> object:
        answer = await ask(piece, limit)  # type: ignore[arg-type]
        engine._reads._ask = ask  # type: ignore[method-assign]
        changes = [Change(row, ABSENT, put(row)) for row in (b"a", b"b")]
        await committed(other, WriteSet(partition, changes))
        return answer

    engine._reads._ask = commit_after_the_first  # type: ignore[assignment,method-assign]
    ranges = [
        KeyRange(Key(partition, b"a"), Key(partition, b"aa")),
        KeyRange(Key(partition, b"b"), Key(partition, b"bb")),
    ]
    values, next_key, _ = await engine.read(ranges, rows_max=10, bytes_max=1 << 20)
    assert values in ([b"a"], [b"a", b"b"])
    rest = [] if next_key is None else [KeyRange(next_key, Key(partition, b"bb"))]
    found = await engine.read(rest, rows_max=10, bytes_max=1 << 20)
    assert [*values, *found.values] == [b"a", b"b"]


class Meanwhile:
    """Runs something after the engine's read with this number, from 1."""

    def __init__(
        self, engine: CassandraEngine, number: int, act: Callable[[], Awaitable[object]]
    ) -> None:
        self._read = engine.connection.read
        self._left = number
        self._act = act
        engine.connection.read = self.read  # type: ignore[assignment, method-assign]

    async def read(self, *asked: Any) -> Answer:
        answer = await self._read(*asked)
        self._left -= 1
        if self._left == 0:
            await self._act()
        return answer


def transaction(partition: bytes, *rows: bytes) -> WriteSet:
    return WriteSet(partition, [Change(row, ABSENT, put(row)) for row in rows])


@pytest.mark.parametrize("second", ["in the partition", "to partitions after it"])
@pytest.mark.parametrize("number", range(1, 9))
async def test_a_partition_that_comes_between_two_ranges_is_shown_whole(
    servers: tuple[CassandraEngine, CassandraEngine], partition: bytes, second: str, number: int
) -> None:
    """The directory does not list it when the first range ends: PartitionKey lt 'b' or …"""
    engine, other = servers
    first, last = partition + b"a", partition + b"b"
    await committed(other, insert(first, b"r"))
    Meanwhile(engine, number, lambda: committed(other, transaction(last, b"1", b"6")))
    end = Key(last, b"9") if second == "in the partition" else Key(partition + b"c", b"")
    ranges = [KeyRange(Key(first, b""), Key(last, b"2")), KeyRange(Key(last, b"5"), end)]
    values, next_key, _ = await engine.read(ranges, rows_max=10, bytes_max=1 << 20)
    if next_key is None:
        assert values[1:] in ([], [b"1", b"6"])
    else:  # the next page has what this one leaves out
        assert (values[1:], next_key) in (([b"1"], (last, b"6")), ([], (last, b"5")))


@pytest.mark.parametrize("in_snapshot", [False, True])
@pytest.mark.parametrize("number", range(1, 7))
async def test_a_first_read_never_says_that_its_moment_has_passed(
    servers: tuple[CassandraEngine, CassandraEngine],
    partition: bytes,
    number: int,
    *,
    in_snapshot: bool,
) -> None:
    """The partition's first range is empty, and the second one changes while they are read."""
    engine, other = servers
    await committed(other, transaction(partition, b"7"))
    Meanwhile(engine, number, lambda: committed(other, transaction(partition, b"8")))
    reader = await engine.snapshot() if in_snapshot else engine
    ranges = [
        KeyRange(Key(partition, b""), Key(partition, b"1")),
        KeyRange(Key(partition, b"5"), Key(partition, b"9")),
    ]
    values, next_key, _ = await reader.read(ranges, rows_max=10, bytes_max=1 << 20)
    assert values in ([b"7"], [b"7", b"8"])
    assert next_key is None


@pytest.mark.parametrize("is_there", [False, True])
async def test_more_points_than_are_asked_for_at_once_are_read_at_one_moment(
    servers: tuple[CassandraEngine, CassandraEngine], partition: bytes, *, is_there: bool
) -> None:
    engine, other = servers
    if is_there:
        await committed(other, insert(partition, b"001"))
    names = [b"%03d" % number for number in range(150)]
    Meanwhile(engine, 1, lambda: committed(other, transaction(partition, b"000", b"149")))
    values, next_key, _ = await engine.read(
        [KeyRange.of_row(partition, name) for name in names], rows_max=1000, bytes_max=1 << 30
    )
    seen = [value for value in values if value != b"001"]
    assert seen in ([], [b"000", b"149"]) or (next_key is not None and b"149" not in seen)


async def test_a_snapshot_does_not_go_on_past_a_partition_that_was_emptied_and_taken_out(
    servers: tuple[CassandraEngine, CassandraEngine], partition: bytes
) -> None:
    engine, other = servers
    first, second = partition + b"a", partition + b"b"
    for each in (first, second):
        await committed(other, transaction(each, b"0", b"1"))
    snapshot = await engine.snapshot()
    end = Key(partition + b"c", b"")
    rows = await snapshot.read([KeyRange(Key(first, b""), end)], rows_max=1, bytes_max=1 << 20)
    assert (rows.values, rows.next_key) == ([b"0"], (first, b"1"))
    deletions = [Change(row, PRESENT, DELETE) for row in (b"0", b"1")]
    await committed(other, WriteSet(first, deletions))
    assert await other.empty_partitions.clean(first)
    assert rows.next_key is not None
    with pytest.raises(SnapshotPassed):
        await snapshot.read([KeyRange(rows.next_key, end)], rows_max=10, bytes_max=1 << 20)


async def test_a_first_write_that_was_given_up_leaves_no_entry_for_ever(
    servers: tuple[CassandraEngine, CassandraEngine], partition: bytes
) -> None:
    """The partition was listed, the write of its row never reached a node, and its server disappeared."""
    engine, other = servers
    await engine.directory.enlist(partition, 0)
    attempts = engine.connection.attempts()
    began = monotonic_seconds()
    assert not await engine._commits._outcomes.was_applied(
        partition, 1, 5_000_000_000, began, attempts
    )
    assert await other.directory.holds(partition)
    state, _ = await other._commits._outcomes.state(partition)
    assert (state.listed, state.mark) == (0, 5_000_000_000)
    [(lifetime,)] = other.connection.execute(
        "SELECT ttl(mark) FROM rows WHERE partition = %s LIMIT 1", (partition,)
    )
    assert lifetime > 0
    assert await other.empty_partitions.clean(partition)
    assert not await other.directory.holds(partition)
    await committed(engine, insert(partition, b"r"))
    assert await other.directory.holds(partition)


async def test_every_commit_moves_the_mark_however_late_the_clock_is(
    servers: tuple[CassandraEngine, CassandraEngine], partition: bytes
) -> None:
    ahead, behind = servers
    marks = [0]
    await committed(ahead, upsert(partition, b"r"))
    for write_set in (
        insert(partition, b"s"),
        WriteSet(partition, [Change(b"s", PRESENT, DELETE)]),
        WriteSet(partition, [Change(b"r", PRESENT, None), Change(b"t", ABSENT, put(b"t"))]),
        WriteSet(partition, [Change(b"t", PRESENT, DELETE)]),
    ):
        marks.append(await ahead._commits._outcomes.mark_of(partition))
        await committed(behind, write_set)
    marks.append(await ahead._commits._outcomes.mark_of(partition))
    assert marks == sorted(set(marks))


@pytest.mark.parametrize("number", [1, 2])
async def test_a_row_that_is_only_looked_at_is_there_at_the_moment_of_the_commit(
    servers: tuple[CassandraEngine, CassandraEngine], partition: bytes, number: int
) -> None:
    """Another server deletes it between the two reads before such a commit, or after them."""
    engine, other = servers
    await committed(other, insert(partition, b"r"))
    Meanwhile(
        engine,
        number,
        lambda: committed(other, WriteSet(partition, [Change(b"r", PRESENT, DELETE)])),
    )
    changes = [Change(b"r", PRESENT, None), Change(b"s", ABSENT, put(b"s"))]
    assert await engine.commit(WriteSet(partition, changes)) == Conflict(0, ABSENT)
    assert await other.get(Key(partition, b"s")) is None
