"""Leases renewed by the last change of each partition: what has not changed is not read again (decision 8)."""

import asyncio

import pytest

from tablestone.engines.contract import ANY, DELETE, Change, EngineUnavailable, Key, Put, WriteSet
from tablestone.engines.leases import Leases
from tablestone.tables.cached_rows import NOT_KEPT, CachedRows
from unit.engines.leased_storage import PLACE, CountingEngine, Elapsed, at_once, stored
from unit.engines.test_lease_renewals import renewed, until, used

pytestmark = pytest.mark.asyncio


class Server:
    """A reader of cached rows, whose leases of 5 s are renewed by last changes."""

    def __init__(self, storage: CountingEngine) -> None:
        self.elapsed = Elapsed()
        self.leases = Leases(5.0, self.elapsed, storage.last_change_of)
        self.engine = at_once(storage, self.leases)
        self.rows = CachedRows(self.engine)

    async def renewed(self) -> None:
        """Renew the lease with a request near its end."""
        self.elapsed.now += 4.5
        await renewed(self.engine)

    def hold_last_changes(self) -> asyncio.Event:
        """From now on, answer `last_change_of` only when this event is set."""
        let_go = asyncio.Event()
        last_change_of = self.leases.last_change_of
        assert last_change_of is not None

        async def late(partition: bytes) -> int:
            await let_go.wait()
            return await last_change_of(partition)

        self.leases.last_change_of = late
        return let_go


async def test_rows_of_a_partition_that_has_not_changed_are_not_read_again() -> None:
    storage = CountingEngine()
    await stored(storage, b"old")
    server = Server(storage)
    await used(server.rows, b"old")
    assert (storage.reads, storage.last_changes_asked) == (2, 0)
    await server.renewed()
    assert (storage.reads, storage.last_changes_asked) == (4, 1)  # no last change was known
    for number in range(2, 5):
        await used(server.rows, b"old")
        assert server.rows.kept_at == server.engine.generation
        await server.renewed()
        assert (storage.reads, storage.last_changes_asked) == (4, number)
    assert server.rows.misses == 1


@pytest.mark.parametrize("lease", [1, 2, 3])
async def test_a_commit_to_the_partition_makes_its_rows_be_read(lease: int) -> None:
    storage = CountingEngine()
    await stored(storage, b"old")
    server = Server(storage)
    await used(server.rows, b"old")
    for _ in range(1, lease):
        await server.renewed()
        await used(server.rows, b"old")
    await stored(storage, b"new")
    reads = storage.reads
    await server.renewed()
    assert storage.reads == reads + 2
    await used(server.rows, b"new")
    await storage.commit(WriteSet(PLACE.partition, [Change(PLACE.row, ANY, DELETE)]))
    await server.renewed()
    await used(server.rows, None)


async def test_a_partition_is_asked_once_for_all_its_rows() -> None:
    storage = CountingEngine()
    server = Server(storage)
    places = [Key(PLACE.partition, b"%d" % number) for number in range(8)]
    for _ in range(3):
        for place in places:
            assert await server.rows.get(place, bytes) is None
        await server.renewed()
    assert storage.last_changes_asked == 3


async def test_after_a_lease_that_was_not_renewed_only_last_changes_are_asked_for() -> None:
    """The server was idle, or stopped. All requests wait for one answer of storage."""
    storage = CountingEngine()
    await stored(storage, b"old")
    server = Server(storage)
    await used(server.rows, b"old")
    await server.renewed()
    await used(server.rows, b"old")
    reads, before = storage.reads, storage.last_changes_asked
    for number in range(1, 4):
        server.elapsed.now += 3600
        assert server.rows.kept(PLACE) is NOT_KEPT
        asked = [server.rows.get(PLACE, bytes) for _ in range(16)]
        assert await asyncio.gather(*asked) == [b"old"] * 16
        assert (storage.reads, storage.last_changes_asked) == (reads, before + number)
    server.elapsed.now += 3600
    await stored(storage, b"new")
    await used(server.rows, b"new")
    assert storage.reads == reads + 2


async def test_a_row_that_is_read_alone_is_not_of_a_later_change() -> None:
    """The last change comes after a request has read a row of the partition, and after that row has changed."""
    storage = CountingEngine()
    server = Server(storage)
    other = Key(PLACE.partition, b"other")
    await used(server.rows, None)
    await server.renewed()
    await used(server.rows, None)
    let_go = server.hold_last_changes()
    server.elapsed.now += 3600
    waiting = asyncio.ensure_future(used(server.rows, None))
    await asyncio.sleep(0)
    assert await server.rows.get(other, bytes) is None
    await storage.commit(WriteSet(PLACE.partition, [_put(other.row, b"new")]))
    let_go.set()
    await waiting
    server.elapsed.now += 3600
    assert await server.rows.get(other, bytes) == b"new"


async def test_storage_that_needs_longer_than_a_lease_is_asked_one_question_at_a_time() -> None:
    storage = CountingEngine()
    await stored(storage, b"old")
    server = Server(storage)
    await used(server.rows, b"old")
    await server.renewed()
    await used(server.rows, b"old")
    last_change_of, let_go = storage.last_change_of, asyncio.Semaphore(0)
    asked = 0

    async def late(partition: bytes) -> int:
        nonlocal asked
        asked += 1
        await let_go.acquire()
        return await last_change_of(partition)

    server.leases.last_change_of = late
    reads = storage.reads
    requests = []
    for _ in range(8):
        server.elapsed.now += 5.0
        requests.append(asyncio.ensure_future(used(server.rows, b"old")))
        await asyncio.sleep(0)
    await until(lambda: asked > 0)
    for _ in range(8):
        assert asked == 1
        await asyncio.sleep(0)
    server.elapsed.now += 5.0
    let_go.release()
    await until(requests[0].done)
    await until(lambda: asked == 2)
    server.elapsed.now += 5.0
    let_go.release()
    await asyncio.gather(*requests)
    assert (asked, storage.reads) == (3, reads)  # the third one is for the next lease
    let_go.release()
    await until(lambda: not server.rows._renewed_by)
    server.elapsed.now += 5.0  # and no request has used it
    let_go.release()
    await used(server.rows, b"old")
    assert (asked, storage.reads) == (4, reads)


async def test_a_new_last_change_is_not_that_of_the_values_of_an_earlier_lease() -> None:
    """Two leases end while storage is asked for last changes. The second one only has values from before a change.

    The simulation found this in 12 of its first 1,000 worlds (seed 997 was one of them).
    """
    storage = CountingEngine()
    server = Server(storage)
    other = Key(PLACE.partition, b"other")
    for _ in range(2):
        await used(server.rows, None)
        assert await server.rows.get(other, bytes) is None
        await server.renewed()
    let_go = server.hold_last_changes()
    requests = []
    for _ in range(2):
        server.elapsed.now += 5.0
        requests.append(asyncio.ensure_future(used(server.rows, None)))
        await asyncio.sleep(0)
    await storage.commit(WriteSet(PLACE.partition, [_put(other.row, b"new")]))
    let_go.set()
    await asyncio.gather(*requests)
    server.elapsed.now += 5.0
    assert await server.rows.get(other, bytes) == b"new"


async def test_a_last_change_that_cannot_be_read_fails_for_every_request_that_waits_for_it() -> (
    None
):
    storage = CountingEngine()
    await stored(storage, b"old")
    server = Server(storage)
    await used(server.rows, b"old")
    asked = 0

    async def refuse(_partition: bytes) -> int:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        raise EngineUnavailable("held")

    server.leases.last_change_of = refuse
    server.elapsed.now += 5.0
    waiting = [server.rows.get(PLACE, bytes) for _ in range(16)]
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(answer, EngineUnavailable) for answer in answers)
    assert (asked, storage.reads) == (1, 2)


async def test_a_row_that_was_read_before_the_last_change_is_not_taken_to_be_of_it() -> None:
    """The lease ends during its renewal: a request reads a row, which changes, and then the last change comes."""
    storage = CountingEngine()
    server = Server(storage)
    other = Key(PLACE.partition, b"other")
    await used(server.rows, None)
    let_go = server.hold_last_changes()
    server.elapsed.now += 4.5
    first = server.engine.generation
    await asyncio.sleep(0)
    server.elapsed.now += 0.5
    assert await server.rows.get(other, bytes) is None
    assert server.engine.generation != first
    await storage.commit(WriteSet(PLACE.partition, [_put(other.row, b"new")]))
    let_go.set()
    await until(lambda: not server.rows._renewed_by)
    assert server.rows.kept(other) is None  # as it was, until the lease ends
    await used(server.rows, None)
    server.elapsed.now += 4.25
    await renewed(server.engine)
    assert await server.rows.get(other, bytes) == b"new"


async def test_a_last_change_that_cannot_be_read_leaves_the_rows_until_their_lease_ends() -> None:
    storage = CountingEngine()
    await stored(storage, b"old")
    server = Server(storage)
    await used(server.rows, b"old")

    async def refuse(_partition: bytes) -> int:
        raise EngineUnavailable("held")

    server.leases.last_change_of = refuse
    server.elapsed.now += 4.5
    assert server.rows.kept(PLACE) == b"old"
    await until(lambda: not server.rows._renewed_by)
    assert server.rows.kept(PLACE) == b"old"
    server.elapsed.now += 0.5
    assert server.rows.kept(PLACE) is NOT_KEPT
    server.leases.last_change_of = storage.last_change_of
    await used(server.rows, b"old")


def _put(row: bytes, value: bytes) -> Change:
    return Change(row, ANY, Put(lambda _: value))
