"""A restore that was interrupted and goes on: with the same goal, another record, another life, or a damaged copy.

Whatever it goes on with, the rows are those of the record that was asked for last.
"""

from __future__ import annotations

import asyncio
import threading
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tablestone.archive import base_copy
from tablestone.archive.going_back import MomentRefused, find_goal, restore
from tablestone.archive.store import StoreUnavailable
from tablestone.engines.sqlite.restored_directory import RestoredDirectory
from unit.archive.archived_server import URL, ArchivedServer, restored
from unit.archive.stores import MemoryStore, flipped

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

pytestmark = pytest.mark.asyncio
DAY = 86_400
LONG = """
WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < 2000000)
SELECT count(*) FROM counted
"""


class Interrupted(BaseException):
    """As a kill: nothing else catches it."""


async def interrupt(store: MemoryStore, into: Path, life: str, to: int, steps: int) -> None:
    """Restore, up to so many steps; a negative number counts from the end, whose record is kept then."""
    goal = await find_goal(store, [], life, to, None, store.now)

    def progress(done: int, whole: int) -> None:
        if done >= (steps if steps >= 0 else whole + 1):
            raise Interrupted

    with RestoredDirectory(into) as target:
        try:
            await restore(store, [], goal, target, URL, progress)
        except Interrupted:
            return
        if steps >= 0:
            return
        with target._writing():  # what is made of the rows then: an index entry, a suspended expiry
            target._connection.execute("UPDATE stored_rows SET value = x'00' WHERE row = x'7230'")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_copy, "PART_BYTES", 1)
    monkeypatch.setattr(base_copy, "READ_BYTES", 1)


async def lives(directory: Path, store: MemoryStore) -> tuple[ArchivedServer, ArchivedServer]:
    """A life, and a child that parted from it."""
    parent = ArchivedServer(directory / "data", store)
    await parent.write(3)
    await parent.catch_up()
    for _object in range(3):
        await parent.write(2)
        await parent.turn()
    await restored(store, parent.life, to=parent.last - 2, into=directory / "child")
    await parent.commit(b"p0", {b"only the parent's": b"v"})
    await parent.turn()
    child = parent._another(directory / "child", {})
    for _object in range(3):
        await child.commit(b"p0", {b"only the child's": b"v"})
        await child.turn()
    assert child.life != parent.life
    return parent, child


@pytest.mark.parametrize("steps", [1, 2, 4, 6, 8, -1])
async def test_it_goes_on_with_any_other_goal(tmp_path: Path, steps: int) -> None:
    store = MemoryStore()
    servers = await lives(tmp_path, store)
    goals = [
        (server, number)
        for server in servers
        for number in range(server.last - 3, server.last + 1)
        if number in server.states
    ]
    for number, (begun, to) in enumerate(goals):
        for other, wanted in goals:
            into = tmp_path / f"{number}-{other.life}-{wanted}"
            await interrupt(store, into, begun.life, to, steps)
            if steps < 0 and (begun.life, to) == (other.life, wanted):
                continue  # it is whole, and goes on as it is
            found, rows = await restored(store, other.life, to=wanted, into=into)
            assert (found, rows) == (wanted, other.states[wanted]), (begun.life, to)
    for server in servers:
        await server.close()


async def test_a_newer_copy_in_place_of_the_one_that_was_begun(tmp_path: Path) -> None:
    """Rows that were deleted between the two do not come back."""
    store = MemoryStore()
    server = ArchivedServer(tmp_path / "data", store)
    for number in range(4):
        await server.commit(b"z", {b"r%d" % number: b"old"})
    await server.catch_up()
    into = tmp_path / "restored"
    await interrupt(store, into, server.life, server.last, 3)
    await server.commit(b"z", {b"r0": None, b"r1": None})
    server.clock.move(DAY + 1)
    store.now += DAY + 1
    await server.catch_up()
    begun, *_ = sorted(name for name in store.names("base") if name.part == 4)
    store.damage(begun, flipped)
    assert (await restored(store, into=into))[1] == server.rows()
    await server.close()


async def test_errors_of_the_store_at_any_request(tmp_path: Path) -> None:
    store = MemoryStore()
    servers = await lives(tmp_path, store)
    random = Random(5)
    for run in range(30):
        into = tmp_path / f"run-{run}"
        for _attempt in range(random.randrange(4)):
            server, left = random.choice(servers), random.randrange(30)

            def fails(_what: str, _name: str) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    raise StoreUnavailable("Gone.")

            store.before = fails
            try:
                await restored(store, server.life, to=server.last, into=into)
                into = tmp_path / f"run-{run}-{_attempt}"  # it was whole
            except StoreUnavailable:
                pass
        store.before = lambda _what, _name: None
        server = random.choice(servers)
        assert (await restored(store, server.life, to=server.last, into=into))[1] == server.rows()
    for server in servers:
        await server.close()


async def test_the_newest_record_is_not_the_one_before_a_hole(tmp_path: Path) -> None:
    """Without --to nothing that is missing is left out silently."""
    store = MemoryStore()
    server = ArchivedServer(tmp_path / "data", store)
    await server.catch_up()
    before = server.last
    for _object in range(3):
        await server.write(2)
        await server.turn()
    missing = store.names("changes")[-2]
    kept = store.objects.pop(str(missing))
    with pytest.raises(
        MomentRefused,
        match=f"lacks the records {missing.first} to {missing.last} .*--to {missing.first - 1} restores",
    ):
        await restored(store)
    number, rows = await restored(store, to=missing.first - 1)
    assert (number, rows) == (missing.first - 1, server.states[missing.first - 1])
    assert number > before
    lists = 0

    def lags(what: str, _name: str) -> None:
        nonlocal lists
        lists += what == "list"
        if lists > 1:
            store.objects[str(missing)] = kept

    store.before = lags
    assert (await restored(store))[1] == server.rows()
    assert lists == 2
    await server.close()


async def test_an_interrupt_while_a_thread_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ctrl-C does: the thread ends its transaction before the directory is closed."""
    store = MemoryStore()
    server = ArchivedServer(tmp_path / "data", store)
    await server.write(2)
    await server.catch_up()
    apply, entered = RestoredDirectory.apply, threading.Event()

    def slow(target: RestoredDirectory, records: Iterable[Any], progress: Any) -> None:
        with target._writing():
            entered.set()
            target._connection.execute(LONG).fetchall()
        apply(target, records, progress)

    monkeypatch.setattr(RestoredDirectory, "apply", slow)
    into = tmp_path / "restored"
    task = asyncio.create_task(restored(store, into=into))
    await asyncio.to_thread(entered.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.3)
    monkeypatch.undo()
    assert (await restored(store, into=into))[1] == server.rows()
    await server.close()
