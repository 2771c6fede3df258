"""What only the Cassandra engine has to solve: lost answers, servers with different clocks, the partition directory.

Needs the cluster that ENGINE_UNDER_TEST names. The contract's tests run on this engine too.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from storage.cluster_engine import URL
from storage.write_sets import committed, insert, put, upsert
from tablestone.engines.contract import (
    ABSENT,
    ANY,
    DELETE,
    PRESENT,
    Change,
    Committed,
    Conflict,
    EngineUnavailable,
    Key,
    KeyRange,
    OutcomeUnknown,
    WriteSet,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tablestone.engines.cassandra.connection import Attempts, Call
    from tablestone.engines.cassandra.engine import CassandraEngine
    from tablestone.engines.cassandra.session import Answer

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(
        URL is None,
        reason="no cluster: python -m tests.storage.cluster up, then set ENGINE_UNDER_TEST",
    ),
]

DELETION = WriteSet(b"", [Change(b"r", PRESENT, DELETE)])


class Lossy:
    """Replaces a connection's conditional write, and loses its request or its answer."""

    def __init__(self, engine: CassandraEngine) -> None:
        self._write_if = engine.connection.write_if
        engine.connection.write_if = self.write_if  # type: ignore[method-assign]
        self.lose: list[str] = []
        """What each next write loses: "request", "answer", or "nothing"."""
        self.lost: list[Sequence[Call]] = []

    async def write_if(self, calls: Sequence[Call]) -> Answer | None:
        from tablestone.engines.cassandra.connection import OutcomeInDoubt  # noqa: PLC0415

        lose = self.lose.pop(0) if self.lose else "nothing"
        if lose == "request":
            self.lost.append(calls)
            raise OutcomeInDoubt("lost")
        answer = await self._write_if(calls)
        if lose == "answer":
            raise OutcomeInDoubt("lost")
        return answer

    async def deliver(self) -> list[Answer | None]:
        """Send the lost requests after all."""
        return [await self._write_if(calls) for calls in self.lost]


async def value_at(engine: CassandraEngine, partition: bytes, row: bytes = b"r") -> bytes | None:
    return await engine.get(Key(partition, row))


async def is_listed(engine: CassandraEngine, partition: bytes) -> bool:
    return await engine.directory.holds(partition)


async def test_versions_increase_across_servers_whose_clocks_are_apart_and_across_deletions(
    servers: tuple[CassandraEngine, CassandraEngine], partition: bytes
) -> None:
    given: list[int] = []
    for turn in range(12):
        engine = servers[turn % 2]
        given += await committed(engine, upsert(partition, b"r"))
        if turn % 3 == 2:
            await committed(servers[turn % 2 - 1], DELETION._replace(partition=partition))
    assert given == sorted(set(given))
    assert given[0] == 40_000_000_000


@pytest.mark.parametrize("lose", ["request", "answer"])
@pytest.mark.parametrize("is_there", [False, True])
async def test_a_write_without_an_answer_is_applied_once(
    servers: tuple[CassandraEngine, CassandraEngine], partition: bytes, lose: str, *, is_there: bool
) -> None:
    engine, other = servers
    if is_there:
        await committed(other, insert(partition, b"other"))
    lossy = Lossy(engine)
    lossy.lose = [lose]
    outcome = await engine.commit(insert(partition, b"r", b"mine"))
    assert isinstance(outcome, Committed)
    [stored] = await other.scan(KeyRange.of_row(partition, b"r"), rows_max=2)
    assert [stored.version] == outcome.versions
    assert await other.commit(insert(partition, b"r")) == Conflict(0, stored.version)


async def test_a_write_that_was_given_up_is_not_applied_when_it_arrives_later(
    servers: tuple[CassandraEngine, CassandraEngine], partition: bytes
) -> None:
    """A request is lost, and the engine answers from the stored state: the request must have no effect later."""
    engine, other = servers
    await committed(engine, insert(partition, b"first"))
    engine._commits._clock.now += 1_000  # type: ignore[attr-defined]
    lossy = Lossy(engine)
    lossy.lose = ["request"]
    state = engine._commits._outcomes.state

    async def insert_first(_partition: bytes, attempts: Attempts) -> object:
        engine._commits._outcomes.state = state  # type: ignore[method-assign]
        await committed(other, insert(partition, b"r", b"theirs"))
        return await state(partition, attempts)

    engine._commits._outcomes.state = insert_first  # type: ignore[assignment,method-assign]
    assert isinstance(await engine.commit(insert(partition, b"r", b"mine")), Conflict)
    await committed(other, DELETION._replace(partition=partition))
    assert [answer is not None for answer in await lossy.deliver()] == [True]
    assert await value_at(other, partition) is None


async def test_a_write_that_others_overwrote_at_once_is_known_to_have_been_applied(
    servers: tuple[CassandraEngine, CassandraEngine], partition: bytes
) -> None:
    engine, other = servers
    await committed(engine, insert(partition, b"first"))
    engine._commits._clock.now += 1  # type: ignore[attr-defined]
    send = engine.connection.write_if

    async def lose_and_overwrite(calls: Sequence[Call]) -> Answer | None:
        from tablestone.engines.cassandra.connection import OutcomeInDoubt  # noqa: PLC0415

        engine.connection.write_if = send  # type: ignore[method-assign]
        assert await send(calls) is None
        await committed(other, DELETION._replace(partition=partition))
        raise OutcomeInDoubt("lost")

    engine.connection.write_if = lose_and_overwrite  # type: ignore[method-assign]
    assert isinstance(await engine.commit(insert(partition, b"r", b"mine")), Committed)
    assert await value_at(other, partition) is None


async def test_an_outcome_that_no_server_knows_is_unknown_and_not_a_refusal(
    servers: tuple[CassandraEngine, CassandraEngine], partition: bytes
) -> None:
    engine, _ = servers
    lossy = Lossy(engine)
    lossy.lose = ["answer"]

    async def state(*_: object) -> object:
        raise EngineUnavailable("no node answers")

    engine._commits._outcomes.state = state  # type: ignore[assignment,method-assign]
    with pytest.raises(OutcomeUnknown):
        await engine.commit(insert(partition, b"r"))


async def test_after_a_long_stop_an_outcome_is_unknown_because_its_trace_may_have_expired(
    servers: tuple[CassandraEngine, CassandraEngine], partition: bytes
) -> None:
    """Without its trace, an applied write looks as if it never happened."""
    engine, _ = servers
    await committed(engine, insert(partition, b"first"))
    lossy = Lossy(engine)
    lossy.lose = ["answer"]
    outcomes = engine._commits._outcomes
    state = outcomes.state

    async def much_later(partition: bytes, attempts: Attempts) -> object:
        outcomes._seconds = lambda: 1e9
        found, _ = await state(partition, attempts)
        return found, None

    outcomes.state = much_later  # type: ignore[assignment,method-assign]
    engine._commits._clock.now += 1  # type: ignore[attr-defined]
    with pytest.raises(OutcomeUnknown):
        await engine.commit(insert(partition, b"r"))


async def test_a_partition_is_listed_before_its_first_row_and_taken_out_when_it_is_empty(
    servers: tuple[CassandraEngine, CassandraEngine], partition: bytes
) -> None:
    engine, other = servers
    assert not await is_listed(engine, partition)
    [before] = await committed(engine, insert(partition, b"r"))
    assert await is_listed(other, partition)
    assert not await other.empty_partitions.clean(partition)
    await committed(engine, DELETION._replace(partition=partition))
    assert await is_listed(other, partition)
    assert await other.empty_partitions.clean(partition)
    assert not await is_listed(engine, partition)
    [after] = await committed(other, insert(partition, b"r"))
    assert after > before
    assert await is_listed(engine, partition)
    assert not await engine.empty_partitions.clean(partition)


@pytest.mark.parametrize("moment", ["before it is marked", "before its entry is removed"])
async def test_a_writer_that_comes_while_a_partition_is_taken_out_is_listed_afterwards(
    servers: tuple[CassandraEngine, CassandraEngine], partition: bytes, moment: str
) -> None:
    cleaner, writer = servers
    await committed(cleaner, insert(partition, b"r"))
    await committed(cleaner, DELETION._replace(partition=partition))
    part = cleaner.directory if "removed" in moment else cleaner._commits._outcomes
    name = "remove" if "removed" in moment else "change_state"
    step = getattr(part, name)

    async def write_first(*arguments: object) -> object:
        await committed(writer, upsert(partition, b"r", b"came between"))
        return await step(*arguments)

    setattr(part, name, write_first)
    await cleaner.empty_partitions.clean(partition)
    assert await is_listed(cleaner, partition)
    assert await value_at(cleaner, partition) == b"came between"


async def test_a_cleaning_that_was_cut_off_is_ended_by_the_next(
    servers: tuple[CassandraEngine, CassandraEngine], partition: bytes
) -> None:
    cut_off, other = servers
    await committed(cut_off, insert(partition, b"r"))
    await committed(cut_off, DELETION._replace(partition=partition))

    async def die(*_arguments: object) -> None:
        raise EngineUnavailable("died")

    cut_off.directory.remove = die  # type: ignore[assignment,method-assign]
    with suppress(EngineUnavailable):
        await cut_off.empty_partitions.clean(partition)
    assert await is_listed(other, partition)
    assert await other.empty_partitions.clean(partition)
    assert not await is_listed(other, partition)


async def test_servers_that_write_one_partition_all_get_their_turn(
    servers: tuple[CassandraEngine, CassandraEngine], partition: bytes
) -> None:
    async def write(engine: CassandraEngine, name: bytes) -> None:
        for index in range(10):
            rows = [b"%s %d %d" % (name, index, row) for row in range(3)]
            changes = [Change(row, ABSENT, put(name)) for row in rows]
            await committed(engine, WriteSet(partition, [*changes, Change(b"r", ANY, put(name))]))

    await asyncio.gather(write(servers[0], b"ahead"), write(servers[1], b"behind"))
    rows = await servers[0].scan(KeyRange.of_partition(partition), rows_max=100)
    assert len(rows) == 61


async def test_large_rows_are_asked_for_a_few_at_a_time_from_the_first_read_on(
    servers: tuple[CassandraEngine, CassandraEngine], partition: bytes
) -> None:
    """A node that has to return a thousand rows of a mebibyte runs out of memory."""
    engine, other = servers
    value = bytes(1 << 20)
    for index in range(24):
        longer = value if index == 20 else b"short"
        await committed(engine, insert(partition, b"%02d" % index, longer))
    asked: list[int] = []
    ask = other._reads._ask

    async def count(piece: object, limit: int) -> object:
        asked.append(limit)
        return await ask(piece, limit)  # type: ignore[arg-type]

    other._reads._ask = count  # type: ignore[assignment,method-assign]
    everything = [KeyRange.of_partition(partition)]
    rows = await other.read(everything, rows_max=1000, bytes_max=4 << 20)
    assert len(rows.values) == 24
    assert asked == [16, 4, 4, 4]
    await other.read(everything, rows_max=1000, bytes_max=4 << 20)
    assert asked[4] == 4


async def test_small_rows_of_a_partition_that_is_known_come_in_one_answer(
    servers: tuple[CassandraEngine, CassandraEngine], partition: bytes
) -> None:
    engine, _ = servers
    for start in range(0, 300, 100):
        rows = [b"%03d" % index for index in range(start, start + 100)]
        changes = [Change(row, ABSENT, put(bytes(1000))) for row in rows]
        await committed(engine, WriteSet(partition, changes))
    everything = [KeyRange.of_partition(partition)]
    assert len((await engine.read(everything, rows_max=1000, bytes_max=4 << 20)).values) == 300
    read = engine.connection.read
    calls = 0

    async def count(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        return await read(*arguments)  # type: ignore[arg-type]

    engine.connection.read = count  # type: ignore[assignment,method-assign]
    assert len((await engine.read(everything, rows_max=1000, bytes_max=4 << 20)).values) == 300
    assert calls == 1
