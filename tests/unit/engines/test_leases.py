"""Rows cached under a lease: they are valid while it lasts, and it never hides an acknowledged change.

Several servers use one storage, each with its own leases (docs/decisions/0008-leases.md).
"""

import asyncio
from itertools import count
from random import Random
from typing import Any

import pytest

from storage.slow_engine import SlowEngine
from tablestone.engines.contract import (
    ABSENT,
    ANY,
    DELETE,
    Change,
    Committed,
    Conflict,
    EngineUnavailable,
    Key,
    KeyRange,
    Put,
    Rows,
    WriteSet,
)
from tablestone.engines.leases import Leases
from tablestone.engines.memory import MemoryEngine
from tablestone.tables import cache_invalidation, storage_keys
from tablestone.tables.account_incarnation import Named
from tablestone.tables.cache_invalidation import InvalidatingChange, remove_old_marks
from tablestone.tables.cached_rows import NOT_KEPT, CachedRows
from tablestone.tables.catalog import Catalog
from tablestone.tables.integrity import check_rows
from tablestone.tables.metadata import Documents
from tablestone.tables.sweeping import Sweeper
from unit.engines.leased_storage import (
    KIND,
    PLACE,
    CountingEngine,
    Elapsed,
    HeldEngine,
    at_once,
    stored,
)

pytestmark = pytest.mark.asyncio

SECONDS = 0.03


def server(storage: MemoryEngine, leases: Leases | None = None, seed: int = 0) -> SlowEngine:
    """One server's engine on the storage."""
    return SlowEngine(storage, Random(seed), leases=leases or Leases(SECONDS))


async def test_a_lease_ends_when_its_time_is_over_also_for_a_process_that_stood_still() -> None:
    elapsed = Elapsed()
    leases = Leases(5.0, elapsed)
    first = leases.generation
    elapsed.now += 4.9
    assert leases.generation == first
    elapsed.now += 0.1
    second = leases.generation
    assert second != first
    elapsed.now += 3600  # stopped, or asleep
    assert leases.generation not in {first, second}


async def test_what_is_kept_is_used_until_the_lease_ends_and_not_longer() -> None:
    storage, elapsed = CountingEngine(), Elapsed()
    await stored(storage, b"old")
    rows = CachedRows(at_once(storage, Leases(5.0, elapsed)))
    for _ in range(3):
        assert await rows.get(PLACE, bytes) == b"old"
    assert (storage.reads, rows.kept(PLACE)) == (2, b"old")  # of marks, and of the row
    await stored(storage, b"new")  # by a server that does not wait for leases
    elapsed.now += 4.9
    assert await rows.get(PLACE, bytes) == b"old"
    elapsed.now += 0.1
    assert rows.kept(PLACE) is NOT_KEPT
    assert await rows.get(PLACE, bytes) == b"new"
    assert storage.reads == 4


async def test_requests_that_come_during_a_read_wait_for_it() -> None:
    """Sixteen clients read four rows twice in each lease, more than they asked for, on a busy cluster."""
    storage, elapsed = HeldEngine(), Elapsed()
    await stored(storage, b"old")
    rows = CachedRows(at_once(storage, Leases(5.0, elapsed)))
    asked = [asyncio.ensure_future(rows.get(PLACE, bytes)) for _ in range(16)]
    await asyncio.sleep(0)
    storage.let_go.release()
    assert await asyncio.gather(*asked) == [b"old"] * 16
    assert (storage.reads, rows.misses, rows.hits) == (2, 1, 15)


@pytest.mark.parametrize(
    "reason", ["a change is under way", "its request was cancelled", "the lease ended"]
)
async def test_a_read_that_cannot_be_kept_is_for_one_request_only(reason: str) -> None:
    storage, elapsed = HeldEngine(), Elapsed()
    await stored(storage, b"old")
    rows = CachedRows(at_once(storage, Leases(5.0, elapsed)))
    first = asyncio.ensure_future(rows.get(PLACE, bytes))
    second = asyncio.ensure_future(rows.get(PLACE, bytes))
    if reason == "a change is under way":
        mark = Change(storage_keys.marks(PLACE.partition).start.row, ANY, Put(lambda _: b"{}"))
        await storage.commit(WriteSet(PLACE.partition, [mark]))
    await asyncio.sleep(0)
    if reason == "its request was cancelled":
        first.cancel()
    storage.let_go.release()
    if reason == "the lease ended":
        elapsed.now += 5.0
    await asyncio.wait((first,))
    await stored(storage, b"new")
    storage.let_go.release()
    assert await second == b"new"
    assert first.cancelled() == (reason == "its request was cancelled")


async def test_a_read_that_fails_fails_for_every_request_that_waits_for_it() -> None:
    """A read is retried for 15 s. If each waiting request did that, a lost cluster would be asked forever."""
    storage, elapsed = HeldEngine(), Elapsed()
    await stored(storage, b"old")
    rows = CachedRows(at_once(storage, Leases(5.0, elapsed)))
    asked = [asyncio.ensure_future(rows.get(PLACE, bytes)) for _ in range(16)]
    await asyncio.sleep(0)
    storage.fails = True
    storage.let_go.release()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(answer, EngineUnavailable) for answer in answers)
    assert storage.asked == 1
    storage.fails = False
    storage.let_go.release()
    assert await rows.get(PLACE, bytes) == b"old"


async def test_one_of_the_requests_that_wait_takes_over_a_read_that_was_cancelled() -> None:
    storage, elapsed = HeldEngine(), Elapsed()
    await stored(storage, b"old")
    rows = CachedRows(at_once(storage, Leases(5.0, elapsed)))
    asked = [asyncio.ensure_future(rows.get(PLACE, bytes)) for _ in range(16)]
    await asyncio.sleep(0)
    asked[0].cancel()
    await asyncio.wait((asked[0],))
    storage.let_go.release()
    storage.let_go.release()
    assert await asyncio.gather(*asked[1:]) == [b"old"] * 15
    assert storage.asked <= 2


async def test_a_lease_begins_before_the_row_is_read() -> None:
    """A read that takes as long as a lease leaves nothing to use afterwards."""
    storage, elapsed = CountingEngine(), Elapsed()
    await stored(storage)
    engine = at_once(storage, Leases(5.0, elapsed))
    rows = CachedRows(engine)
    read = engine.read

    async def slowly(*arguments: Any, **named: Any) -> Rows:
        answer = await read(*arguments, **named)
        elapsed.now += 5.0
        return answer

    engine.read = slowly  # type: ignore[method-assign]
    await rows.get(PLACE, bytes)
    assert rows.kept(PLACE) is NOT_KEPT


async def test_where_the_generation_is_none_nothing_is_kept() -> None:
    storage = CountingEngine()
    await stored(storage)
    engine = at_once(storage, None)
    assert engine.generation is None
    rows = CachedRows(engine)
    for reads in range(1, 4):
        assert await rows.get(PLACE, bytes) is not None
        assert (storage.reads, rows.kept(PLACE), rows.kept_at) == (reads, NOT_KEPT, None)


@pytest.mark.parametrize("absence_by_lease", [True, False])
async def test_that_there_is_no_row_is_kept_where_a_creation_waits(
    *, absence_by_lease: bool
) -> None:
    storage = CountingEngine()
    rows = CachedRows(at_once(storage, Leases(5.0, Elapsed())), absence_by_lease=absence_by_lease)
    for _ in range(3):
        assert await rows.get(PLACE, bytes) is None
    assert storage.reads == (2 if absence_by_lease else 6)


async def test_nothing_is_kept_of_a_partition_in_which_a_change_is_under_way() -> None:
    storage = CountingEngine()
    await stored(storage)
    other = InvalidatingChange(server(storage), PLACE.partition)
    assert await other.waits()
    rows = CachedRows(at_once(storage, Leases(5.0, Elapsed())))
    for _ in range(2):
        assert await rows.get(PLACE, bytes) is not None
        assert rows.kept(PLACE) is NOT_KEPT
    assert await rows.get(Key(PLACE.partition, b"not there"), bytes) is None
    assert rows.kept_at is None
    assert isinstance(await other.commit((Change(PLACE.row, ANY, DELETE),)), Committed)
    assert await rows.get(PLACE, bytes) is None
    assert rows.kept(PLACE) is None


async def test_a_change_acts_on_every_request_that_begins_after_it_and_none_goes_back() -> None:
    """After a request has seen a change on one server, no later request on any server sees the earlier state."""
    storage = MemoryEngine(count(1_000).__next__)
    servers = [Documents(server(storage, seed=seed)) for seed in range(4)]
    moments = count()
    reads: list[tuple[int, int, int]] = []
    known: list[tuple[int, int]] = []
    is_changing = True

    async def read(documents: Documents) -> None:
        while is_changing:
            began = next(moments)
            members = await documents.get(KIND, "name", dict)
            reads.append((began, next(moments), members["n"] if members else 0))
            await asyncio.sleep(0.0005)

    async def change(documents: Documents) -> None:
        for _ in range(8):
            made: list[int] = []

            def edit(members: dict[str, Any] | None, made: list[int] = made) -> dict[str, Any]:
                made[:] = [(members or {"n": 0})["n"] + 1]
                return {"n": made[0]}

            await documents.change(KIND, "name", edit)
            known.append((next(moments), made[0]))

    readers = [asyncio.create_task(read(each)) for each in servers]
    await asyncio.gather(change(servers[0]), change(servers[1]))
    await asyncio.sleep(SECONDS)
    is_changing = False
    await asyncio.gather(*readers)
    known += ((end, value) for _, end, value in reads)
    known.sort(reverse=True)
    newest = 0
    for began, _, value in sorted(reads):
        while known and known[-1][0] < began:
            newest = max(newest, known.pop()[1])
        assert value >= newest
    assert newest == 16
    assert len(reads) > 20  # on a busy machine too


async def test_a_change_that_is_refused_leaves_no_mark() -> None:
    storage = MemoryEngine(count(1_000).__next__)
    documents = Documents(server(storage))
    seen: list[Any] = []

    def refuse(members: dict[str, Any] | None) -> dict[str, Any]:
        if seen:
            raise ZeroDivisionError
        seen.append(members)
        return {"n": 1}

    with pytest.raises(ZeroDivisionError):
        await documents.change(KIND, "name", refuse)
    assert seen == [None]
    assert await marks_in(storage) == 0


async def test_a_changer_whose_mark_was_taken_away_waits_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was suspended for so long that its mark was removed; other servers may have cached the rows."""
    waits: list[float] = []

    async def outlast(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(cache_invalidation, "outlast", outlast)
    storage = MemoryEngine(count(1_000).__next__)
    engine = server(storage)
    async with InvalidatingChange(engine, PLACE.partition) as change:
        assert await change.waits()
        assert not await change.waits()
        await remove_old_marks(engine, PLACE.partition, before=1 << 60)
        assert await marks_in(storage) == 0
        put = Change(PLACE.row, ABSENT, Put(lambda _: b"{}"))
        assert isinstance(await change.commit((put,)), Committed)
    assert waits == [SECONDS, SECONDS]
    assert await marks_in(storage) == 0
    async with InvalidatingChange(engine, PLACE.partition) as change:
        assert await change.waits()
        outcome = await change.commit((put,))
        assert isinstance(outcome, Conflict)
        assert outcome.index == 0


async def test_a_mark_that_was_left_behind_is_taken_away_when_it_is_old() -> None:
    storage = MemoryEngine(count(1_000).__next__)
    engine = server(storage)
    left_behind = InvalidatingChange(engine, PLACE.partition)
    await left_behind.waits()
    ((_, _, version, _),) = await storage.scan(storage_keys.marks(PLACE.partition), rows_max=9)
    await remove_old_marks(engine, PLACE.partition, before=version)
    assert await marks_in(storage) == 1
    await remove_old_marks(engine, PLACE.partition, before=version + 1)
    assert await marks_in(storage) == 0


async def test_marks_are_no_documents_and_no_tables_and_healthy() -> None:
    storage = MemoryEngine(count(1_000).__next__)
    engine = server(storage)
    documents = Documents(engine)
    catalog = Catalog(engine, count(1_000).__next__, lambda: b"12345678")
    await documents.change(KIND, "name", lambda _: {"assignments": []})
    await catalog.create(Named("account"), "table")
    for partition in (PLACE.partition, storage_keys.catalog_partition("account")):
        await InvalidatingChange(engine, partition).waits()
    assert await documents.names(KIND) == ["name"]
    records, following = await catalog.page(Named("account"), "", 10)
    assert ([record.name for record in records], following) == (["table"], None)
    assert not await Sweeper(engine, count(1_000).__next__, lambda: b"a server").step()
    assert await check_rows(storage) == []


async def test_a_table_is_created_without_waiting_and_deleted_for_every_server_at_once() -> None:
    storage = MemoryEngine(count(1_000).__next__)
    elapsed = Elapsed()
    owner = Named("account")
    ids = (b"%08d" % number for number in count())
    catalogs = [
        Catalog(server(storage, seed=seed), count(1_000).__next__, ids.__next__)
        for seed in range(2)
    ]
    frozen = Catalog(server(storage, Leases(SECONDS, elapsed)), count().__next__, ids.__next__)
    for _ in range(3):
        assert await catalogs[1].find(owner, "table") is None
        await catalogs[0].create(owner, "table")
        assert await catalogs[1].find(owner, "table") is not None
        assert await frozen.find(owner, "table") is not None
        await catalogs[0].delete(owner, "table")
        assert await catalogs[1].find(owner, "table") is None
        elapsed.now += SECONDS  # its process was stopped
        assert await frozen.find(owner, "table") is None


async def test_all_tables_of_an_account_are_deleted_under_one_mark() -> None:
    storage = MemoryEngine(count(1_000).__next__)
    owner = Named("account")
    random = Random(0)
    catalogs = [
        Catalog(server(storage, seed=seed), count(1_000).__next__, lambda: random.randbytes(8))
        for seed in range(2)
    ]
    for number in range(20):
        await catalogs[0].create(owner, f"table{number}")
        assert await catalogs[1].find(owner, f"table{number}") is not None
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await catalogs[0].delete_all(owner) == 20
    assert loop.time() - began < 20 * SECONDS
    for number in range(20):
        assert await catalogs[1].find(owner, f"table{number}") is None
    assert await marks_in(storage, storage_keys.catalog_partition("account")) == 0


async def test_a_change_that_cannot_be_carried_out_is_an_error_and_no_more() -> None:
    storage = MemoryEngine(count(1_000).__next__)
    engine = server(storage)
    async with InvalidatingChange(engine, PLACE.partition) as change:
        await change.waits()
        engine.failure = EngineUnavailable("no node answers")
        with pytest.raises(EngineUnavailable):
            await change.commit((Change(PLACE.row, ANY, DELETE),))
    engine.failure = None
    assert await marks_in(storage) == 1  # the sweeper removes it


async def marks_in(storage: MemoryEngine, partition: bytes = PLACE.partition) -> int:
    key_range: KeyRange = storage_keys.marks(partition)
    return len(await storage.scan(key_range, rows_max=99))
