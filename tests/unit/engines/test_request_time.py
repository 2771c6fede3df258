"""The time that storage has for one request: it starts with the request, and waiting for the client does not count."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

import pytest

from tablestone import limits
from tablestone.engines import request_time
from tablestone.engines.contract import EngineBusy
from tablestone.engines.leases import Leases
from tablestone.server.requests import body as body_module
from tablestone.server.requests.body import RequestBody
from tablestone.tables.cached_rows import CachedRows
from unit.engines.leased_storage import PLACE, CountingEngine, Elapsed, HeldEngine, at_once, stored

if TYPE_CHECKING:
    from tablestone.engines.contract import Key

ALLOWED = limits.STORAGE_SECONDS_MAX


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Elapsed:
    """The clock of requests, which the test sets."""
    elapsed = Elapsed()
    monkeypatch.setattr(request_time, "monotonic_seconds", elapsed)
    monkeypatch.setattr(body_module, "monotonic_seconds", elapsed)
    request_time.forget()
    return elapsed


def test_the_time_runs_from_the_beginning_of_a_request(now: Elapsed) -> None:
    assert request_time.left() == inf
    request_time.begin()
    now.now += 10
    assert request_time.left() == ALLOWED - 10
    now.now += ALLOWED
    assert request_time.left() < 0
    request_time.begin()
    assert request_time.left() == ALLOWED


def test_work_for_no_request_has_no_limit(now: Elapsed) -> None:
    request_time.extend(1)
    assert request_time.left() == inf
    request_time.begin()
    request_time.forget()
    now.now += 1000
    assert request_time.left() == inf


@pytest.mark.asyncio
async def test_the_time_in_which_the_body_arrives_does_not_count(now: Elapsed) -> None:
    class Slow:
        has_more = True

        async def next_piece(self) -> bytes:
            now.now += 20
            self.has_more = False
            return b"x"

        async def until_ended(self) -> None: ...

    request_time.begin()
    now.now += 1
    assert await RequestBody(Slow(), {b"content-length": b"1"}).read(1) == b"x"
    assert request_time.left() == ALLOWED - 1


@pytest.mark.asyncio
async def test_a_request_waits_for_the_read_of_another_one_no_longer_than_it_may() -> None:
    storage = HeldEngine()
    await stored(storage)
    rows = CachedRows(at_once(storage, Leases(5.0, Elapsed())))
    reading = asyncio.ensure_future(rows.get(PLACE, bytes))
    while not storage.asked:  # noqa: ASYNC110 - a reading begins within a few turns
        await asyncio.sleep(0)

    async def wait_in_a_request() -> None:
        request_time.begin()
        request_time.extend(0.05 - ALLOWED)
        await rows.get(PLACE, bytes)

    with pytest.raises(EngineBusy):
        await asyncio.create_task(wait_in_a_request())
    assert storage.asked == 1
    storage.let_go.release()
    assert await reading is not None


@pytest.mark.asyncio
async def test_the_renewal_of_a_lease_is_not_bound_to_the_request_that_began_it() -> None:
    left: list[float] = []

    class WatchedEngine(CountingEngine):
        async def get(self, key: Key) -> bytes | None:
            left.append(request_time.left())
            return await super().get(key)

    storage, elapsed = WatchedEngine(), Elapsed()
    await stored(storage)
    rows = CachedRows(at_once(storage, Leases(5.0, elapsed)))
    request_time.begin()
    await rows.get(PLACE, bytes)
    assert left.pop() <= ALLOWED
    elapsed.now += 4.75
    await rows.get(PLACE, bytes)
    while not left:  # noqa: ASYNC110 - a renewal begins within a few turns
        await asyncio.sleep(0)
    assert left == [inf]
    assert request_time.left() <= ALLOWED
