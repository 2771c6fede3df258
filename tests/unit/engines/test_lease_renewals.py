"""Leases are renewed before they end, so requests rarely wait, and no lease is longer for it (decision 8)."""

import asyncio
from collections.abc import Callable

import pytest

from storage.slow_engine import SlowEngine
from tablestone.engines.contract import ANY, Change, Key, Put, WriteSet
from tablestone.engines.leases import Leases
from tablestone.tables import storage_keys
from tablestone.tables.cached_rows import NOT_KEPT, CachedRows
from unit.engines.leased_storage import PLACE, CountingEngine, Elapsed, HeldEngine, at_once, stored

pytestmark = pytest.mark.asyncio


class Renewals:
    """Renewals that a test ends."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, Callable[[bool], None]]] = []

    def __call__(self, number: int, ended: Callable[[bool], None]) -> None:
        self.begun.append((number, ended))


async def test_a_renewed_lease_counts_from_before_its_reads() -> None:
    elapsed, renewals = Elapsed(), Renewals()
    leases = Leases(5.0, elapsed)
    first = leases.generation
    leases.renew_with(first, renewals)
    elapsed.now += 2.5
    assert (leases.generation, renewals.begun) == (first, [])
    elapsed.now += 2.25
    assert leases.generation == first
    ((second, ended),) = renewals.begun
    elapsed.now += 0.125
    assert leases.generation == first  # its rows are not there yet
    ended(True)
    assert leases.generation == second
    elapsed.now += 4.75
    assert leases.generation == second
    elapsed.now += 0.125  # five seconds after the reads began
    assert leases.generation not in {first, second}


@pytest.mark.parametrize(
    ("seconds", "is_read", "is_taken"),
    [
        (0.125, True, True),
        (0.125, False, False),
        (4.9, True, True),
        (5.0, True, False),
        (3600.0, True, False),
    ],
)
async def test_a_renewal_that_fails_or_takes_a_lease_gives_none(
    seconds: float, *, is_read: bool, is_taken: bool
) -> None:
    elapsed, renewals = Elapsed(), Renewals()
    leases = Leases(5.0, elapsed)
    leases.renew_with(leases.generation, renewals)
    elapsed.now += 4.75
    assert leases.generation
    ((number, ended),) = renewals.begun
    elapsed.now += seconds
    ended(is_read)
    assert (leases.generation == number) == is_taken
    elapsed.now += 5.0 - seconds
    assert leases.generation != number


async def test_a_lease_whose_rows_are_late_is_still_the_next_one() -> None:
    """Requests wait for the reads in progress instead of starting their own."""
    elapsed, renewals = Elapsed(), Renewals()
    leases = Leases(5.0, elapsed)
    for _ in range(2):
        leases.renew_with(leases.generation, renewals)
    elapsed.now += 4.75
    first = leases.generation
    (number, ended), (_, other_ended) = renewals.begun
    elapsed.now += 0.125
    ended(True)
    assert leases.generation == first
    elapsed.now += 0.125
    assert leases.generation == number
    other_ended(True)
    assert leases.generation == number


async def test_slow_renewals_begin_earlier_and_never_in_the_first_half() -> None:
    elapsed = Elapsed()
    leases = Leases(10.0, elapsed)
    begun_after = []
    for seconds in (0.0, 0.0, 1.0, 1.0, 4.0, 4.0):
        renewals = Renewals()
        leases.renew_with(leases.generation, renewals)
        began = elapsed.now
        while not renewals.begun:
            elapsed.now += 0.12525
            assert leases.generation
        begun_after.append(elapsed.now - began)
        elapsed.now += seconds
        renewals.begun[0][1](True)
    assert begun_after[1] == pytest.approx(8.5, abs=0.2)
    assert begun_after[3] == pytest.approx(
        6.0, abs=0.2
    )  # 3 s before the end of a lease of which 1 s is over
    assert begun_after[5] == pytest.approx(1.0, abs=0.2)  # half of the lease


async def used(rows: CachedRows, value: bytes | None) -> None:
    """A request uses the row, which has this value."""
    assert await rows.get(PLACE, bytes) == value


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    pytest.fail("it did not happen")


async def renewed(engine: SlowEngine) -> None:
    first = engine.generation
    await until(lambda: engine.generation != first)


async def test_a_row_in_use_is_read_again_before_its_lease_ends() -> None:
    storage, elapsed = CountingEngine(), Elapsed()
    await stored(storage, b"old")
    engine = at_once(storage, Leases(5.0, elapsed))
    rows = CachedRows(engine)
    await used(rows, b"old")
    for round_number in range(2, 5):
        value = b"%d" % round_number
        await stored(storage, value)
        elapsed.now += 4.5
        await renewed(engine)
        assert storage.reads == 2 * round_number
        await used(rows, value)
        assert (rows.kept(PLACE), rows.kept_at) == (value, engine.generation)
    assert (rows.misses, storage.reads) == (1, 8)
    elapsed.now += 3600  # the process was stopped
    assert rows.kept(PLACE) is NOT_KEPT


async def test_a_row_that_is_not_used_in_a_lease_is_not_read_for_the_next_one() -> None:
    storage, elapsed = CountingEngine(), Elapsed()
    engine = at_once(storage, Leases(5.0, elapsed))
    rows, others = CachedRows(engine), CachedRows(engine)
    await used(rows, None)
    await used(others, None)
    elapsed.now += 4.5
    await renewed(engine)
    assert storage.reads == 8  # both again
    await used(others, None)
    elapsed.now += 4.5
    await renewed(engine)
    assert storage.reads == 10  # one of them
    await used(others, None)
    assert storage.reads == 10
    await used(rows, None)
    assert storage.reads == 12


async def test_rows_are_read_together_after_the_marks_of_their_partition() -> None:
    storage, elapsed = HeldEngine(), Elapsed()
    engine = at_once(storage, Leases(5.0, elapsed))
    rows = CachedRows(engine)
    places = [Key(PLACE.partition, b"%d" % number) for number in range(4)]
    for _ in range(4):
        storage.let_go.release()
    for place in places:
        await rows.get(place, bytes)
    elapsed.now += 4.5
    asked = storage.asked
    assert engine.generation
    await until(lambda: storage.asked == asked + 4)  # none waits for another one
    assert storage.reads == 4 + 4 + 1
    for _ in range(4):
        storage.let_go.release()


@pytest.mark.parametrize("marked", ["before the marks are read", "after that"])
async def test_a_renewal_hides_no_change(marked: str) -> None:
    """A mark set before is seen; whoever sets a later one waits until the lease is over."""
    storage, elapsed = HeldEngine(), Elapsed()
    await stored(storage, b"old")
    engine = at_once(storage, Leases(5.0, elapsed))
    rows = CachedRows(engine)
    storage.let_go.release()
    await used(rows, b"old")
    mark = Change(storage_keys.marks(PLACE.partition).start.row, ANY, Put(lambda _: b""))
    if marked == "before the marks are read":
        await storage.commit(WriteSet(PLACE.partition, [mark]))
    elapsed.now += 4.5
    began, first, reads = elapsed.now, engine.generation, storage.reads
    await until(lambda: storage.reads > reads)
    if marked == "after that":
        await storage.commit(WriteSet(PLACE.partition, [mark]))
        await until(lambda: storage.asked == 2)
        elapsed.now += 0.25
        storage.let_go.release()
    await until(lambda: engine.generation != first)
    if marked == "after that":
        await used(rows, b"old")
        elapsed.now = began + 4.9
        assert rows.kept(PLACE) == b"old"
        elapsed.now = began + 5.0
    await stored(storage, b"new")  # as the owner of the mark does, at the earliest
    assert rows.kept(PLACE) is NOT_KEPT
    storage.let_go.release()
    await used(rows, b"new")


async def test_a_renewal_that_no_node_answers_leaves_the_rows_until_their_lease_ends() -> None:
    storage, elapsed = HeldEngine(), Elapsed()
    await stored(storage, b"old")
    engine = at_once(storage, Leases(5.0, elapsed))
    rows = CachedRows(engine)
    storage.let_go.release()
    await used(rows, b"old")
    storage.fails = True
    elapsed.now += 4.5
    assert rows.kept(PLACE) == b"old"
    storage.let_go.release()
    await until(lambda: not rows._renewed_by)
    assert rows.kept(PLACE) == b"old"
    elapsed.now += 0.5
    assert rows.kept(PLACE) is NOT_KEPT
    storage.fails = False
    storage.let_go.release()
    await used(rows, b"old")


async def test_requests_that_come_after_the_lease_wait_for_the_renewal() -> None:
    storage, elapsed = HeldEngine(), Elapsed()
    await stored(storage, b"old")
    engine = at_once(storage, Leases(5.0, elapsed))
    rows = CachedRows(engine)
    storage.let_go.release()
    await used(rows, b"old")
    elapsed.now += 4.5
    first = engine.generation
    await until(lambda: storage.asked == 2)
    elapsed.now += 0.5
    asked = [asyncio.ensure_future(rows.get(PLACE, bytes)) for _ in range(16)]
    await asyncio.sleep(0)
    assert engine.generation != first
    storage.let_go.release()
    assert await asyncio.gather(*asked) == [b"old"] * 16
    assert (storage.asked, rows.misses) == (2, 1)


async def test_requests_share_a_read_that_began_after_them_even_if_it_cannot_be_kept() -> None:
    """The cluster takes longer than a lease to answer: each read serves all requests that waited when it began."""
    storage, elapsed = HeldEngine(), Elapsed()
    await stored(storage, b"old")
    rows = CachedRows(at_once(storage, Leases(5.0, elapsed)))
    asked = [asyncio.ensure_future(rows.get(PLACE, bytes)) for _ in range(16)]
    await until(lambda: storage.asked == 1)
    elapsed.now += 5.0
    storage.let_go.release()
    await until(lambda: storage.asked == 2)
    await stored(storage, b"new")
    late = asyncio.ensure_future(rows.get(PLACE, bytes))
    await asyncio.sleep(0)
    elapsed.now += 5.0
    storage.let_go.release()
    assert await asyncio.gather(*asked) == [b"old", *[b"new"] * 15]
    await until(lambda: storage.asked == 3)
    assert not late.done()  # the second read began before it
    storage.let_go.release()
    assert await late == b"new"
    assert storage.asked == 3
