"""Requests that wait for changes: one look at the record for all, one at the permission of each caller."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from tablestone.engines.change_record import Retention
from tablestone.engines.contract import ANY, Change, Put, WriteSet
from tablestone.engines.memory import MemoryEngine
from tablestone.model.operations import ChangeCursor
from tablestone.server.admission import Admission
from tablestone.server.requests import waits
from tablestone.server.requests.waits import Waits
from tablestone.tables.change_notes import About, CommitKind, note_of
from tablestone.telemetry.request_record import RequestRecord
from tablestone.wire.changes import parse_cursor
from tablestone.wire.messages import RawRequest, RawResponse, Wait

pytestmark = pytest.mark.asyncio

DATA_OF = {b"orders": "Orders", b"stock": "Stock"}


@dataclass
class Served:
    """A pipeline that knows callers and tables only: it answers with the numbers of new records of a table."""

    engine: MemoryEngine = field(default_factory=lambda: MemoryEngine(lambda: 1))
    refused: set[bytes] = field(default_factory=set)
    answers: list[RawRequest] = field(default_factory=list)
    cursors: list[int] = field(default_factory=list)
    """The numbers after which it was asked to read."""

    async def begin(self) -> Waits:
        await self.engine.changes.keep(Retention(None, None))
        return Waits(self.engine, self.answer, Admission(10, 10, 10))

    async def answer(self, request: RawRequest, *_: Any) -> RawResponse:
        self.answers.append(request)
        caller, table = request.raw_path.split(b"/")
        if caller in self.refused:
            return RawResponse(403, [])
        after = parse_cursor(request.query_string.partition(b"since=")[2].decode()).number
        self.cursors.append(after)
        kept = self.engine.changes.kept()
        if kept is None or after < kept.first - 1:
            return RawResponse(410, [])
        records = self.engine.changes._records
        found = [n for n, record in records.items() if n > after and record.note.subject == table]
        reached = self.engine.changes._last
        cursor = ChangeCursor(bytes(8), bytes(8), reached, 0, table)
        if found:
            return RawResponse(200, [], repr(found).encode())
        return RawResponse(200, [], wait=Wait(0, cursor, False, caller))

    async def write(self, table: bytes) -> int:
        note = note_of(About(CommitKind.ENTITIES, "account", None, DATA_OF[table], table))
        change = Change(b"1", ANY, Put(lambda _version: b"{}"))
        await self.engine.commit(WriteSet(b"p", (change,), note=note))
        return self.engine.changes._last

    def wait(
        self, line: Waits, caller: bytes, table: bytes, seconds: int = 20, number: int = 0
    ) -> asyncio.Task[RawResponse]:
        cursor = ChangeCursor(bytes(8), bytes(8), number, 0, table)
        request = RawRequest("GET", caller + b"/" + table, b"", {})
        wait = Wait(seconds, cursor, False, caller)
        return asyncio.create_task(line.answer(request, OpenConnection(), RequestRecord(0.0), wait))


class OpenConnection:
    """What a client sends that stays: the request has no body, and nothing follows."""

    has_more = False

    async def next_piece(self) -> bytes:
        return b""

    async def until_ended(self) -> None:
        await asyncio.Event().wait()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    monkeypatch.setattr(waits, "PERMISSION_SECONDS", 0.3)
    return Served()


async def test_permission_is_asked_once_for_all_requests_of_a_caller_to_a_feed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = await served.begin()
    clock = asyncio.get_running_loop().time
    began = clock()
    tasks = [served.wait(line, b"caller %d" % (n % 5), b"orders") for n in range(100)]
    await asyncio.sleep(0.1)
    for _ in range(20):
        await served.write(b"stock")
        await asyncio.sleep(0.02)
    # Once each 0.3 seconds for five callers; not at all for what is in no feed of theirs.
    assert 5 <= len(served.answers) <= 5 * (1 + (clock() - began) / 0.3)
    monkeypatch.setattr(waits, "PERMISSION_SECONDS", 60.0)
    await asyncio.sleep(0.35)  # what was to be asked by then has been
    served.answers.clear()
    number = await served.write(b"orders")
    found = await asyncio.gather(*tasks)
    assert {response.body for response in found} == {b"[%d]" % number}
    assert 100 <= len(served.answers) <= 105


async def test_the_caller_that_may_not_read_any_more_ends_and_no_other(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "PERMISSION_SECONDS", 60.0)
    line = await served.begin()
    gone = [served.wait(line, b"gone", b"orders") for _ in range(3)]
    stays_on = served.wait(line, b"stays", b"orders")
    await asyncio.sleep(0.05)
    served.refused.add(b"gone")
    served.engine.generation += 1  # the catalogue changes, so it is asked at once
    found = await asyncio.wait_for(asyncio.gather(*gone), 5)
    assert [response.status for response in found] == [403] * 3
    assert not stays_on.done()
    await served.write(b"orders")
    assert (await stays_on).status == 200


async def test_whoever_comes_with_an_earlier_cursor_misses_nothing(served: Served) -> None:
    """As behind an engine that lets others run between the answer and the wait."""
    line = await served.begin()
    first = await served.write(b"orders")
    await served.write(b"stock")
    waiting = served.wait(line, b"caller", b"stock", number=2)
    await asyncio.sleep(0.1)
    late = served.wait(line, b"caller", b"orders", number=first - 1)
    assert (await asyncio.wait_for(late, 5)).body == b"[%d]" % first
    waiting.cancel()


async def test_records_that_went_before_they_were_looked_at_wake_all(served: Served) -> None:
    line = await served.begin()
    waiting = served.wait(line, b"caller", b"orders")
    await asyncio.sleep(0.02)
    for _ in range(3):
        await served.write(b"stock")
    served.engine.changes._records.popitem(last=False)
    until = asyncio.get_running_loop().time() + 20
    while not served.answers:
        assert asyncio.get_running_loop().time() < until
        await asyncio.sleep(0.01)
    waiting.cancel()


async def test_the_cursor_moves_over_what_is_not_for_a_wait(served: Served) -> None:
    """Else what was trimmed meanwhile would seem to be lost to it."""
    line = await served.begin()
    waiting = served.wait(line, b"caller", b"orders", seconds=1)
    for _ in range(5):
        await asyncio.sleep(0.05)
        await served.write(b"stock")
    await waiting
    assert served.cursors == sorted(served.cursors)
    assert served.cursors[-1] == 5


async def test_a_wait_goes_on_when_what_it_passed_over_is_not_kept_any_more(served: Served) -> None:
    line = await served.begin()
    await served.engine.changes.keep(Retention(None, 300))  # three records or so
    waiting = [served.wait(line, b"caller", b"orders") for _ in range(2)]
    for _ in range(20):
        await served.write(b"stock")
        await asyncio.sleep(0.03)  # permission is asked for meanwhile
    assert not any(each.done() for each in waiting)
    number = await served.write(b"orders")
    found = await asyncio.gather(*waiting)
    assert [each.body for each in found] == 2 * [b"[%d]" % number]


async def test_many_callers_do_not_hold_up_the_look(served: Served) -> None:
    """The catalogue changes, so each is asked for, while a record comes for one of them."""
    line = await served.begin()
    answer = served.answer
    slow = asyncio.Event()

    async def slowly(request: RawRequest, *more: Any) -> RawResponse:
        if request.raw_path.startswith(b"other"):
            await slow.wait()
        return await answer(request, *more)

    line._answer = slowly
    others = [served.wait(line, b"other %d" % n, b"stock") for n in range(20)]
    waiting = served.wait(line, b"caller", b"orders")
    await asyncio.sleep(0.05)
    served.engine.generation += 1
    await asyncio.sleep(0.1)
    number = await served.write(b"orders")
    assert (await asyncio.wait_for(waiting, 5)).body == b"[%d]" % number
    slow.set()
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def test_a_failing_look_ends_no_wait(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    line = await served.begin()
    news = served.engine.changes.news

    async def fails(_after: int, _seconds: float) -> None:
        monkeypatch.setattr(served.engine.changes, "news", news)
        raise RuntimeError("planted")

    monkeypatch.setattr(served.engine.changes, "news", fails)
    waiting = served.wait(line, b"caller", b"orders")
    await asyncio.sleep(0.1)
    assert [record.message for record in caplog.records] == ["The look for changes failed."]
    assert not waiting.done()
    await served.write(b"orders")
    assert (await asyncio.wait_for(waiting, 1)).body == b"[1]"
