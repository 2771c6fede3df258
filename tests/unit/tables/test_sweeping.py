"""Sweeping deleted tables on storage that several servers share: one server sweeps each table, and none is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

import pytest

from storage.slow_engine import MemoryOfServers
from tablestone import limits
from tablestone.clock import TICKS_PER_SECOND
from tablestone.engines.contract import (
    ABSENT,
    Change,
    Engine,
    EngineBusy,
    EngineUnavailable,
    Key,
    KeyRange,
    Put,
    StoredRow,
    WriteSet,
)
from tablestone.engines.memory import MemoryEngine
from tablestone.tables import storage_keys, sweeping
from tablestone.tables.account_incarnation import Named
from tablestone.tables.catalog import Catalog, read_record
from tablestone.tables.integrity import check_rows
from tablestone.tables.sweeping import CLAIM_SECONDS, Sweeper

ACCOUNT = "acct"
NOTES = storage_keys.deleted_rows(ACCOUNT)
EVERYTHING = KeyRange(Key(b"", b""), Key(b"\xff" * 16, b""))


class SharedStorage(MemoryOfServers):
    """Storage of several servers, which counts the reads of each table."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock.ticks)
        self.scanned: list[Key] = []

    async def scan(self, key_range: KeyRange, *, rows_max: int) -> list:  # type: ignore[type-arg]
        self.scanned.append(key_range.start)
        return await super().scan(key_range, rows_max=rows_max)


class Clock:
    def __init__(self) -> None:
        self.now = 638_000_000_000_000_000

    def ticks(self) -> int:
        self.now += 1
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += int(seconds * TICKS_PER_SECOND)


class Server:
    """One of the servers on a storage."""

    def __init__(self, engine: Engine, clock: Clock, fresh_id: Callable[[], bytes]) -> None:
        self.catalog = Catalog(engine, clock.ticks, fresh_id)
        self._sweeper = Sweeper(engine, clock.ticks, fresh_id)
        self.sweep = self._sweeper.sweep
        self.accounts_to_sweep = self._sweeper.accounts


async def filled(engine: Engine, server: Server, table: str, rows: int) -> bytes:
    """A deleted table with rows in some partitions; its id."""
    owner, catalog = Named(ACCOUNT), server.catalog
    await catalog.create(owner, table)
    table_id = (await catalog.require(owner, table)).table_id
    for row in range(rows):
        partition = storage_keys.entity_partition(table_id, f"p{row % 7}")
        change = Change(b"%06d" % row, ABSENT, Put(lambda _: b"x"))
        await engine.commit(WriteSet(partition, (change,)))
    await catalog.delete(owner, table)
    return table_id


async def stored(engine: Engine) -> list[StoredRow]:
    """All rows but the sentinel."""
    rows = await engine.scan(EVERYTHING, rows_max=100)
    return [row for row in rows if row.row != storage_keys.SENTINEL_ROW]


async def swept(server: Server, clock: Clock) -> None:
    """Sweep until no deleted table is recorded."""
    clock.pass_by(limits.SWEEP_AGAIN_SECONDS + 1)
    while await server.sweep(ACCOUNT):
        pass


async def rows_of(engine: Engine, table_id: bytes) -> int:
    return len(await engine.scan(storage_keys.table_range(table_id), rows_max=10_000))


def test_a_table_is_swept_by_the_server_that_claimed_it_until_that_dies() -> None:
    async def scene() -> None:
        clock = Clock()
        engine = SharedStorage(clock)
        ids = (number.to_bytes(8, "big") for number in count(1))
        here, there = (Server(engine, clock, lambda: next(ids)) for _ in range(2))
        table_id = await filled(engine, here, "tab", 3 * limits.SWEEP_ROWS_PER_STEP)
        assert [account async for account in here.accounts_to_sweep()] == [ACCOUNT]
        assert await here.sweep(ACCOUNT)
        assert not await there.sweep(ACCOUNT), "the other server has claimed it"
        assert await rows_of(engine, table_id) == 2 * limits.SWEEP_ROWS_PER_STEP
        clock.pass_by(CLAIM_SECONDS + 1)
        while await there.sweep(ACCOUNT):
            assert not await here.sweep(ACCOUNT)
        assert await rows_of(engine, table_id) == 0
        clock.pass_by(limits.SWEEP_AGAIN_SECONDS + 1)
        while await there.sweep(ACCOUNT):
            pass
        assert await stored(engine) == [], "the table is forgotten"

    asyncio.run(scene())


def test_two_servers_sweep_two_tables_at_the_same_time() -> None:
    async def scene() -> None:
        clock = Clock()
        engine = SharedStorage(clock)
        ids = (number.to_bytes(8, "big") for number in count(1))
        here, there = (Server(engine, clock, lambda: next(ids)) for _ in range(2))
        tables = [
            await filled(engine, here, name, 2 * limits.SWEEP_ROWS_PER_STEP) for name in ("a", "b")
        ]
        assert await here.sweep(ACCOUNT)
        assert await there.sweep(ACCOUNT)
        left = [await rows_of(engine, table_id) for table_id in tables]
        assert left == [limits.SWEEP_ROWS_PER_STEP] * 2

    asyncio.run(scene())


def test_a_sweep_goes_on_from_where_it_was_and_looks_at_everything_at_the_end() -> None:
    """Cassandra refuses to read removed rows again and again; and a late row must not stay."""

    async def scene() -> None:
        clock = Clock()
        engine = SharedStorage(clock)
        ids = (number.to_bytes(8, "big") for number in count(1))
        server = Server(engine, clock, lambda: next(ids))
        table_id = await filled(engine, server, "tab", 3 * limits.SWEEP_ROWS_PER_STEP)
        whole = storage_keys.table_range(table_id)
        engine.scanned.clear()
        while await server.sweep(ACCOUNT):
            pass
        looks = [start for start in engine.scanned if whole.start <= start < whole.end]
        assert looks == sorted(set(looks)), "each place is read once"
        late = Change(b"late", ABSENT, Put(lambda _: b"x"))
        await engine.commit(WriteSet(storage_keys.entity_partition(table_id, "a"), (late,)))
        clock.pass_by(limits.SWEEP_AGAIN_SECONDS + 1)
        while await server.sweep(ACCOUNT):
            pass
        assert await stored(engine) == []

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("ids", "is_swept", "expected"),
    [
        ((b"1111111x", b"2222222x", b"3333333x"), True, {b"dx"}),
        ((b"1111111x", b"2222222x", b"3333333x"), False, {b"dx", b"d2", b"d3"}),
        ((b"111111yx", b"222222xy", b"333333xy"), False, {b"dx", b"dy", b"d333333xy"}),
    ],
)
def test_notes_use_few_rows_again_and_a_row_that_is_taken_is_left(
    ids: tuple[bytes, ...], *, is_swept: bool, expected: set[bytes]
) -> None:
    """Each row that was used once slows the sweeper's reads, for days."""

    async def scene() -> None:
        clock = Clock()
        engine = SharedStorage(clock)
        server = Server(engine, clock, iter(ids).__next__)
        sweeper = Server(engine, clock, lambda: b"a server")
        owner = Named(ACCOUNT)
        notes = set()
        for name in ("a", "b", "c"):
            await filled(engine, server, name, 0)
            notes |= {row.row for row in await engine.scan(NOTES, rows_max=10)}
            assert await check_rows(engine) == []
            if is_swept:
                await swept(sweeper, clock)
        assert notes == expected
        await swept(sweeper, clock)
        assert await stored(engine) == []
        assert await server.catalog.page(owner, "", 10) == ([], None)

    asyncio.run(scene())


def test_a_note_that_another_table_has_now_is_not_forgotten() -> None:
    """The server was suspended between its look at the table and its last commit."""

    async def scene() -> None:
        clock = Clock()
        engine = SharedStorage(clock)
        ids = (bytes((number,)) * 7 + b"x" for number in count(1))
        here, there = (Server(engine, clock, lambda: next(ids)) for _ in range(2))
        await filled(engine, here, "first", 0)
        clock.pass_by(limits.SWEEP_AGAIN_SECONDS + 1)
        scan = engine.scan
        later: list[bool] = []

        async def stands_still(key_range: KeyRange, *, rows_max: int) -> list[StoredRow]:
            rows: list[StoredRow] = await scan(key_range, rows_max=rows_max)
            if key_range.start.partition.startswith(storage_keys.ENTITIES) and not later:
                later.append(True)
                clock.pass_by(CLAIM_SECONDS + 1)
                await there.sweep(ACCOUNT)
                await filled(engine, there, "second", 5)
            return rows

        engine.scan = stands_still  # type: ignore[method-assign]
        await here.sweep(ACCOUNT)
        (note,) = await engine.scan(NOTES, rows_max=10)
        assert read_record(note.value).name == "second"
        await swept(here, clock)
        assert await stored(engine) == []

    asyncio.run(scene())


class TombstonedStorage(SharedStorage):
    """Refuses to read past too many removed records, as Cassandra does."""

    refuses = True

    async def scan(self, key_range: KeyRange, *, rows_max: int) -> list:  # type: ignore[type-arg]
        if self.refuses and key_range == NOTES:
            raise EngineBusy("too many deleted rows.")
        return await super().scan(key_range, rows_max=rows_max)


def test_notes_that_are_refused_at_once_are_read_in_parts() -> None:
    async def scene() -> None:
        clock = Clock()
        engine = TombstonedStorage(clock)
        ids = (bytes((37 * number % 256,)) * 8 for number in count())
        server = Server(engine, clock, lambda: next(ids))
        for number in range(20):
            await filled(engine, server, f"table{number}", 3)
        clock.pass_by(limits.SWEEP_AGAIN_SECONDS + 1)
        for _ in range(1 + storage_keys.DELETED_PARTS):
            while await server.sweep(ACCOUNT):
                pass
        engine.refuses = False
        assert await stored(engine) == []

    asyncio.run(scene())


class BrokenStorage(MemoryEngine):
    """Storage that answers no scan."""

    async def scan(self, key_range: KeyRange, *, rows_max: int) -> list:  # type: ignore[type-arg]
        raise EngineUnavailable(f"no answer to {rows_max} rows from {key_range.start.row!r}.")


def test_a_failure_is_logged_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The sweeper retries at once, and must not fill the log of a disk that stays full."""
    monkeypatch.setattr(sweeping, "SWEEP_PAUSE_SECONDS", 0)

    async def scene() -> None:
        clock = Clock()
        engine = BrokenStorage(clock.ticks)
        running = asyncio.create_task(Sweeper(engine, clock.ticks, lambda: bytes(8)).run())
        for told in (1, 2):
            for _ in range(50):
                await asyncio.sleep(0)
            assert len(caplog.messages) == told
            clock.pass_by(sweeping.LOG_SECONDS)
        running.cancel()

    asyncio.run(scene())
    assert set(caplog.messages) == {caplog.messages[0]}
    assert caplog.messages[0].startswith("sweeping deleted tables waits: no answer to ")
