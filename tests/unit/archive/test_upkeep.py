"""How an archive stays small: objects are joined, and deleted with age (`archive/upkeep.py`, `base_copy.py`)."""

from __future__ import annotations

import asyncio
import gc
import shutil
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from storage.encrypted_directory import KEY, OTHER
from tablestone.archive import base_copy, history, upkeep
from tablestone.archive.going_back import MomentRefused, find_goal, timeline
from tablestone.archive.history import Life, Line, read_lives
from tablestone.archive.objects import (
    Content,
    Kind,
    Name,
    ObjectDamaged,
    ObjectRefused,
    read_object,
    read_records,
    write_object,
)
from tablestone.archive.store import StoreUnavailable
from tablestone.clock import UNIX_EPOCH_TICKS
from unit.archive.archived_server import ArchivedServer, restored
from unit.archive.stores import MemoryStore, flipped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from tablestone.engines.kind import EncryptionKey
    from tablestone.engines.sqlite.archive_source import StoredRecord

pytestmark = pytest.mark.asyncio
HOUR = 3_600
DAY = 86_400


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest_asyncio.fixture
async def server(tmp_path: Path, store: MemoryStore) -> AsyncIterator[ArchivedServer]:
    opened = ArchivedServer(tmp_path / "data", store, retention=3 * DAY)
    await opened.catch_up()
    await write_small(opened, 6)
    yield opened
    await opened.close()


async def write_small(server: ArchivedServer, count: int) -> None:
    """So many objects of changes, of two records each, a second apart."""
    for _number in range(count):
        await later(server, 1)
        await server.write(2)
        await server.catch_up()


async def later(server: ArchivedServer, seconds: float, *, by_store: float | None = None) -> None:
    assert isinstance(server.store, MemoryStore)
    server.clock.move(seconds)
    server.store.now += seconds if by_store is None else by_store


async def test_one_that_hangs_is_told(server: ArchivedServer, store: MemoryStore) -> None:
    delete, answers = store.delete, asyncio.Event()

    async def hangs(name: str) -> None:
        await answers.wait()
        await delete(name)

    store.delete = hangs  # type: ignore[method-assign]
    told = [False, False, False, False, False, True, True]
    for is_told in told:  # the second joins, the fourth deletes
        await later(server, 0.7 * HOUR)
        await server.write(1)
        for _turn in range(50):
            await server.archiver.turn()
            await asyncio.sleep(0.001)
        warnings = [each for each in server.warnings if each.startswith("Old changes in")]
        assert len(warnings) == is_told, (warnings, told)
    answers.set()
    await server.catch_up()
    assert server.warnings == []


async def look_after(server: ArchivedServer, seconds: float) -> None:
    """After a time, write and look after the archive."""
    await later(server, seconds)
    await server.write(1)
    await server.catch_up()
    server.archiver.upkeep.looked_at = server.clock.seconds
    await server.archiver.upkeep.run(server.term)


def kinds(store: MemoryStore) -> dict[str, int]:
    found = {kind.value: len(store.names(kind.value)) for kind in Kind}
    return {kind: count for kind, count in found.items() if count}


def records(
    store: MemoryStore, kind: str, keys: Sequence[EncryptionKey] = ()
) -> list[StoredRecord]:
    return [
        record
        for name in store.names(kind)
        for record in read_records(read_object(name, store.objects[str(name)][0], keys).body)
    ]


async def holds(server: ArchivedServer, *numbers: int) -> None:
    for number in numbers:
        assert (await restored(server.store, server.life, to=number))[1] == server.states[number]


async def test_old_objects_are_joined_with_the_same_records(
    server: ArchivedServer, store: MemoryStore
) -> None:
    small, last = records(store, "changes"), server.last
    times = await timeline(store, (await goal_of(store)).history, [])
    await look_after(server, HOUR - 4)
    assert len(store.names("joined")) == 1
    joined = records(store, "joined")
    assert joined == small[: len(joined)]
    assert 2 < len(joined) < len(small)
    await look_after(server, HOUR)
    joined = records(store, "joined")
    assert joined == [server.source.record(record.number) for record in joined]
    for name in store.names("changes"):
        if name.last <= len(joined):
            store.damage(name)
    again = await timeline(store, (await goal_of(store)).history, [])
    again = [each._replace(entry=each.entry._replace(stored=None)) for each in again]
    assert again[: len(times)] == times  # moments are as exact as before
    await holds(server, *range(last - 11, last + 1))


async def goal_of(store: MemoryStore, to: int | None = None):  # type: ignore[no-untyped-def]  # noqa: ANN201
    return await find_goal(store, [], None, to, None, store.now + 1e9)


async def test_small_objects_go_an_hour_after_they_were_joined(
    server: ArchivedServer, store: MemoryStore
) -> None:
    last = server.last
    await look_after(server, HOUR + 10)
    assert kinds(store)["joined"] == 1
    assert kinds(store)["changes"] == 6 + 1
    await look_after(server, HOUR - 10)
    assert kinds(store)["changes"] == 6 + 2
    await look_after(server, 20)
    assert kinds(store)["changes"] < 6
    await holds(server, last - 5, last, server.last)
    joined = next(name for name in store.names("joined") if name.last >= last)
    store.damage(joined, flipped)
    assert len(store.names("changes")) >= 2
    with pytest.raises(Exception, match=f"{joined} is damaged"):
        await restored(store, server.life, to=last)


@pytest.mark.parametrize("how", [flipped, lambda _data: b""], ids=["flipped", "empty"])
async def test_a_damaged_join_is_named(
    server: ArchivedServer, store: MemoryStore, how: Callable[[bytes], bytes]
) -> None:
    """Also by a moment. Everything before it can be restored."""
    await look_after(server, HOUR + 10)
    (joined,) = store.names("joined")
    store.damage(joined, how)
    moment = server.clock.ticks - (HOUR + 12) * 10_000_000
    sentence = f"{joined} is damaged. --to {joined.first - 1} restores"
    with pytest.raises(ObjectDamaged, match=sentence):
        await restored(store, server.life, to=joined.first + 1)
    with pytest.raises(ObjectDamaged, match=sentence):
        await restored(store, server.life, moment=moment)
    await holds(server, joined.first - 1)


async def test_a_large_join_is_split(
    server: ArchivedServer, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "JOINED_ENTRIES_MAX", 2)
    await look_after(server, HOUR + 10)
    assert [name.last - name.first for name in store.names("joined")] == [3, 3, 3]


async def test_nothing_is_joined_across_keys(tmp_path: Path, store: MemoryStore) -> None:
    server = ArchivedServer(tmp_path / "data", store, keys=[KEY])
    await server.catch_up()
    await write_small(server, 3)
    server = await server.again(keys=[OTHER, KEY])
    await server.catch_up()
    await write_small(server, 3)
    last = server.last
    await look_after(server, HOUR + 10)
    joined = store.names("joined")
    assert len(joined) == 2
    for name, key, other in ((joined[0], KEY, OTHER), (joined[1], OTHER, KEY)):
        data = store.objects[str(name)][0]
        assert read_object(name, data, [key]).body
        with pytest.raises(ObjectRefused):
            read_object(name, data, [other])
    await look_after(server, HOUR + 10)
    assert (await restored(store, to=last - 8, keys=[KEY, OTHER]))[1] == server.states[last - 8]
    await server.close()


async def test_with_the_new_key_alone_what_it_encrypts_is_joined(
    tmp_path: Path, store: MemoryStore
) -> None:
    """What cannot be read stays, until it is old enough to go."""
    server = ArchivedServer(tmp_path / "data", store, keys=[KEY], retention=3 * DAY)
    await server.catch_up()
    await write_small(server, 3)
    server = await server.again(keys=[OTHER])
    await server.catch_up()
    await write_small(server, 3)
    await look_after(server, HOUR + 10)
    assert len(store.names("joined")) == 1
    await later(server, 5 * DAY)
    await look_after(server, 1)
    await look_after(server, 5 * DAY)
    old = [name for name in store.names("base") if name.term == 1]
    assert old == []
    await server.close()


async def test_what_is_older_than_the_newest_base_before_the_horizon_goes(
    server: ArchivedServer, store: MemoryStore
) -> None:
    first = server.last
    lasts = []
    for _day in range(6):
        await look_after(server, DAY + 1)
        await server.catch_up()
        lasts.append(server.last)
        await write_small(server, 2)
    ends = [name for name in store.names("base") if name.part is None]
    horizon = store.now - 3 * DAY
    before = [name for name in ends if store.objects[str(name)][1] <= horizon]
    assert len(before) == 1
    assert before[0].first > first
    for kind in ("changes", "joined"):
        assert all(name.last > before[0].first for name in store.names(kind))
    for number in range(before[0].first, server.last + 1):
        await holds(server, number)
    with pytest.raises(MomentRefused):
        await restored(store, server.life, to=first)


async def test_without_retention_nothing_goes(tmp_path: Path, store: MemoryStore) -> None:
    server = ArchivedServer(tmp_path / "data", store, retention=None)
    await server.write(3)
    await server.catch_up()
    first = server.last
    for _day in range(3):
        await look_after(server, 40 * DAY)
        await server.catch_up()
    await holds(server, first, server.last)
    await server.close()


@pytest.mark.parametrize("jump", [400 * DAY, -400 * DAY], ids=["ahead", "back"])
async def test_ages_are_of_the_stores_clock(
    server: ArchivedServer, store: MemoryStore, jump: int
) -> None:
    """A server whose clock is wrong deletes nothing that is young, and no more than that."""
    names = set(store.objects)
    server.clock.ticks += jump * 10_000_000
    for _hour in range(3):
        server.clock.seconds += HOUR + 1
        await server.write(1)
        await server.catch_up()
    assert names <= set(store.objects)


async def test_what_a_child_needs_stays(tmp_path: Path, store: MemoryStore) -> None:
    """Its parent is written on, and keeps the base copy before the two parted."""
    parent = ArchivedServer(tmp_path / "data", store, retention=3 * DAY)
    await parent.catch_up()
    await write_small(parent, 3)
    parted = parent.last
    await restored(store, parent.life, to=parted, into=tmp_path / "child")
    await write_small(parent, 2)
    child = parent._another(tmp_path / "child", {"store": store})
    await child.write(1, b"child")
    await child.turn()
    assert child.parent == (parent.life, parted)
    young = child.last
    for _day in range(8):
        await look_after(parent, DAY + 1)
    for first in (parent.life, child.life):  # in whatever order they are listed
        names = sorted(store.objects, key=lambda name, life=first: (life not in name, name))  # type: ignore[misc]
        store.objects = {name: store.objects[name] for name in names}
        await look_after(parent, DAY + 1)
    assert (await restored(store, child.life, to=young))[1] == child.states[young]
    child.clock.move(2 * DAY)
    await child.write(1, b"child")
    await child.turn()
    await child.catch_up()  # its own base copy
    assert any(name.life == child.life for name in store.names("base"))
    for _day in range(8):
        await look_after(parent, DAY + 1)
    # The child says itself how far back it goes: another server may keep its changes for longer.
    assert (await restored(store, child.life, to=young))[1] == child.states[young]

    def is_needed() -> bool:
        mine = [name for name in store.names("base") if name.life == parent.life]
        return any(name.first <= parted for name in mine)

    assert is_needed()
    for _day in range(8):
        await look_after(child, DAY + 1)
        await child.catch_up()
    assert is_needed()
    for _day in range(2):
        await look_after(parent, DAY + 1)
    assert not is_needed()
    assert (await restored(store, child.life))[1] == child.rows()
    await child.close()
    await parent.close()


async def test_parts_of_a_base_copy_without_an_end_go_after_a_day(
    server: ArchivedServer, store: MemoryStore
) -> None:
    left = Name(server.life, Kind.BASE, 1, 3, part=1)
    store.objects[str(left)] = b"?", store.now
    await look_after(server, DAY - 10)
    assert str(left) in store.objects
    await look_after(server, 30)
    assert str(left) not in store.objects
    await holds(server, server.last)


async def test_without_the_right_to_delete_all_else_works(
    server: ArchivedServer, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.may_delete = False
    last = server.last
    for _hour in range(4):
        await look_after(server, HOUR + 10)
    assert kinds(store)["joined"] >= 1
    assert caplog.text.count("cannot be deleted") == 1
    assert server.archiver.failing is None
    await holds(server, last - 3, last, server.last)
    store.may_delete = True
    before = kinds(store)["changes"]
    await look_after(server, 10)
    assert kinds(store)["changes"] < before


async def test_a_term_that_was_lost_deletes_nothing(
    tmp_path: Path, server: ArchivedServer, store: MemoryStore
) -> None:
    await look_after(server, HOUR + 10)
    copy = tmp_path / "copy"
    shutil.copytree(server.data, copy)
    other = server._another(copy, {})
    await other.catch_up()
    names = set(store.objects)
    await later(server, 2 * DAY)
    other.archiver.upkeep.looked_at = server.clock.seconds
    await other.write(1)
    await other.catch_up()
    with pytest.raises(Exception, match="another server goes on"):
        await server.archiver.upkeep.run(server.term)
    assert names <= set(store.objects)
    await other.close()


async def test_a_base_copy_of_nothing_new_is_not_written_twice(
    server: ArchivedServer, store: MemoryStore
) -> None:
    """An idle server: its rows without records change, such as leases, and its term goes on."""
    await later(server, DAY + 1)
    await server.turn()
    await server.catch_up()
    names = store.names("base")
    with closing(server.engine._directory.connect_writer()) as writer:
        writer.execute("INSERT INTO stored_rows VALUES (x'ff', x'01', 1, x'00')")
    for _day in range(3):
        await later(server, DAY + 1)
        await server.turn()
        await server.catch_up()
    assert store.names("base") == names
    assert len(store.names("terms")) == 1
    listed: list[str] = []
    store.before = lambda what, _name: listed.append(what)
    for _second in range(3):
        await server.turn()
    assert listed == []  # an idle server asks the store nothing


async def test_a_base_copy_waits_for_the_changes_of_meanwhile(
    server: ArchivedServer, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REST", "WAIT_SECONDS"):
        monkeypatch.setattr(base_copy, name, 0.0)
    monkeypatch.setattr(base_copy, "PART_BYTES", 1)
    reached: list[int] = []
    real, is_away = store.create, True

    async def create(name: str, data: bytes) -> None:
        if "/changes/" in name and is_away:
            raise StoreUnavailable("Not now.")
        if "/base/" in name and not name.endswith("end"):
            reached.append(await server.write(1))
        await real(name, data)

    store.create = create  # type: ignore[method-assign]
    ends = [name for name in store.names("base") if name.part is None]
    await later(server, DAY + 1)
    for _turn in range(50):
        await server.archiver.turn()
        await asyncio.sleep(0.01)
    assert len(reached) >= 6
    assert [name for name in store.names("base") if name.part is None] == ends
    is_away = False
    await server.catch_up()
    goal = await goal_of(store)
    assert goal.bases[0].end == reached[-1]
    assert goal.bases[0].start < reached[0]
    await holds(server, reached[-1], server.last)


async def test_a_base_copy_has_the_time_of_its_last_record(
    server: ArchivedServer, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory may have removed that record when the copy ends: its time is where the archive begins."""
    monkeypatch.setattr(base_copy, "WAIT_SECONDS", 0.5)
    monkeypatch.setattr(base_copy, "REST", 0.0)
    real, last = store.create, list[int]()

    async def create(name: str, data: bytes) -> None:
        if "/changes/" in name and not last:
            raise StoreUnavailable("Not now.")
        await real(name, data)
        if "/base/" in name and not name.endswith("end"):
            last.append(await server.write(1))

    store.create = create  # type: ignore[method-assign]
    await later(server, DAY + 1)
    while not last:
        await server.archiver.turn()
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.1)  # it waits for the changes of meanwhile
    await later(server, 1)
    await server.write(2)
    await server.archiver.turn()
    await server.archiver._note()
    with closing(server.engine._directory.connect_writer()) as writer:
        writer.execute("DELETE FROM change_records WHERE number <= ?", (last[-1],))
    await server.catch_up()
    (base, *_others) = (await goal_of(store)).bases
    assert (base.end, base.facts["time"]) == (last[-1], server.times[last[-1]])


async def test_an_interrupted_base_copy_goes_on(
    server: ArchivedServer, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_copy, "PART_BYTES", 1)
    monkeypatch.setattr(base_copy, "REST", 0.0)
    parts_before = len(store.names("base"))

    def stops(what: str, name: str) -> None:
        if what == "create" and name.endswith("/000004"):
            raise StoreUnavailable("Not now.")

    store.before = stops
    await later(server, DAY + 1)
    for _turn in range(3):
        await server.turn()
    begun = {name.part for name in store.names("base")[parts_before:]}
    assert begun == {1, 2, 3}
    server = await server.again()
    await server.turn()
    start = store.names("base")[-1].first
    stray = Name(server.life, Kind.BASE, 2, start, part=3)  # it does not follow part 2
    facts = {"part": base_copy.Part(2, 3, "", 1, start, "ff/ff", "ff/ff")}
    store.objects[str(stray)] = write_object(stray, Content(facts)), store.now
    store.before = lambda _what, _name: None
    await server.write(5)
    server = await server.again()
    await server.write(2)
    await server.catch_up()
    new = [name for name in store.names("base")[parts_before:] if name != stray]
    assert {name.term for name in new if name.first == start and name.part in begun} == {1}
    assert {name.term for name in new if name.first == start and name.part not in begun} == {3}
    parts = (await goal_of(store)).bases[0].facts["parts"]
    assert len(parts) == len(server.rows()) == 6
    await holds(server, server.last)
    line = Line.of(await read_lives(store), server.life)
    assert len(line.bases) == 2
    await server.close()


async def test_a_copy_goes_on_without_the_rows_of_a_lost_term(
    server: ArchivedServer, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They were scanned from commits that no archive has, and that its successor never had."""
    for name in ("REST", "WAIT_SECONDS"):
        monkeypatch.setattr(base_copy, name, 0.0)
    monkeypatch.setattr(base_copy, "PART_BYTES", 1)
    await later(server, DAY + 1)
    copy = tmp_path / "copy"
    shutil.copytree(server.data, copy)
    parts, real = len(store.names("base")), store.create

    async def create(name: str, data: bytes) -> None:
        if "/changes/" in name:
            raise StoreUnavailable("Not now.")
        if name.endswith("/000002"):
            await server.commit(b"p2", {b"lost": b"v"})
        await real(name, data)

    store.create = create  # type: ignore[method-assign]
    for _turn in range(30):
        await server.archiver.turn()
        await asyncio.sleep(0.01)
    lost = store.names("base")[parts:]
    assert len(lost) == len(server.rows())
    store.create = real  # type: ignore[method-assign]
    taker = server._another(copy, {})
    await taker.turn()
    await taker.catch_up()
    assert taker.life == server.life
    (base, *_) = (await goal_of(store)).bases
    assert base.name.term == 2
    assert (await restored(store, taker.life))[1] == taker.rows()
    await taker.close()


async def test_a_copy_that_goes_on_keeps_its_old_parts(
    server: ArchivedServer, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were left over when upkeep listed them: the store was away for two days in the middle of a copy."""
    monkeypatch.setattr(base_copy, "PART_BYTES", 1)

    def fails(what: str, name: str) -> None:
        if what == "create" and name.endswith("/000003"):
            raise StoreUnavailable("away")

    await later(server, DAY)
    store.before = fails
    for _turn in range(3):
        await server.turn()
    store.before = lambda _what, _name: None
    await later(server, 2 * DAY)
    await server.write(1)
    await server.archiver._write_new(server.term)
    own = (await read_lives(store))[server.life]
    names = list(upkeep._left_over(own, store.now - upkeep.UNFINISHED_SECONDS))
    assert [name.part for name in names] == [1, 2]
    await server.archiver.base_copies.run(server.term)
    await server.archiver.upkeep._delete(server.term, names)
    assert all(str(name) in store.objects for name in names)
    assert await restored(store, server.life) == (server.last, server.states[server.last])


async def test_two_servers_of_one_archive_keep_what_each_of_them_says(
    server: ArchivedServer, store: MemoryStore, tmp_path: Path
) -> None:
    """Each deletes in its own life only."""
    other = ArchivedServer(tmp_path / "other", store, server.clock, retention=None)
    await other.write(3)
    await other.catch_up()
    first, oldest = other.last, server.last
    for _day in range(8):
        await later(server, DAY)
        for each in (server, other):
            await each.write(2)
            await each.catch_up()
            await each.archiver.upkeep.run(each.term)
    assert await restored(store, other.life, to=first) == (first, other.states[first])
    with pytest.raises(MomentRefused):
        await restored(store, server.life, to=oldest)
    for each in (server, other):
        assert await restored(store, each.life) == (each.last, each.states[each.last])
    await other.close()


IN_2035 = 2_050_000_000.0


async def clock_jumps(server: ArchivedServer, to: float) -> None:
    """The machine's clock, which is that of its directory too, is set; the next start is an hour and more ago."""
    assert isinstance(server.store, MemoryStore)
    server.store.now = to
    server.clock.ticks = int(to) * 10_000_000 + UNIX_EPOCH_TICKS


@pytest.mark.parametrize("hours", [0, 2], ids=["a moment", "two hours"])
async def test_a_clock_that_was_in_2035_for_two_starts_deletes_nothing(
    server: ArchivedServer, store: MemoryStore, hours: int
) -> None:
    """Neither while it is wrong nor when it is right again; afterwards, what is old goes as before."""
    oldest = server.last
    for wrong in (True, False, True, False):
        now = store.now
        if wrong:
            await clock_jumps(server, IN_2035)
        server = await server.again()
        await server.write(1)
        await server.catch_up()
        for _hour in range(hours):
            await look_after(server, HOUR + 10)
        if wrong:
            await clock_jumps(server, now + HOUR)
        else:
            await look_after(server, DAY)
            await server.catch_up()
    await holds(server, *range(oldest, server.last + 1))
    ends = store.names("base")
    await look_after(server, DAY + 10)  # base copies of each day go on
    await server.catch_up()
    assert len(store.names("base")) > len(ends)
    for _day in range(8):
        await look_after(server, DAY + 10)
        await server.catch_up()
    with pytest.raises(MomentRefused):
        await restored(store, server.life, to=oldest)
    await holds(server, server.last)
    await server.close()


async def test_a_base_copy_of_a_clock_that_was_behind_is_not_old(
    server: ArchivedServer, store: MemoryStore
) -> None:
    for _day in range(5):
        await look_after(server, DAY + 1)
        await server.catch_up()
    young, now = server.last, store.now
    await clock_jumps(server, 0.0)
    server.archiver.base_copies.newest_at = 0
    await server.write(1)
    await server.catch_up()
    await clock_jumps(server, now + DAY)
    await look_after(server, HOUR)
    await holds(server, young, server.last)


async def test_a_server_that_writes_seldom_deletes_what_is_old(
    server: ArchivedServer, store: MemoryStore
) -> None:
    """No leap of a clock: each of the stretches without a write is longer than the retention."""
    oldest = server.last
    for _week in range(3):
        await look_after(server, 7 * DAY)
        await server.catch_up()
    with pytest.raises(MomentRefused):
        await restored(store, server.life, to=oldest)
    await holds(server, server.last)


async def test_a_life_that_is_written_is_not_pruned_after_a_time_in_2035(
    server: ArchivedServer, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(upkeep, "unix_seconds", lambda: store.now)
    other = ArchivedServer(tmp_path / "other", store, server.clock)
    store.now, now = IN_2035, store.now
    await other.write(1)
    await other.catch_up()
    store.now = now
    for life in (server.life, other.life):
        with pytest.raises(MomentRefused, match="within ten minutes of the newest"):
            await upkeep.prune(store, [], life)
    await other.close()


async def gone_on(
    server: ArchivedServer, to: Path, number: int, retention: int | None = None
) -> ArchivedServer:
    """Another server that goes on from a record of this one, without a base copy of its own."""
    assert isinstance(server.store, MemoryStore)
    await restored(server.store, server.life, to=number, into=to)
    child = server._another(to, {"retention": retention})
    await child.write(2, b"child")
    await child.archiver.turn()
    for task in child.archiver._beside.values():
        task.cancel()
    return child


async def test_a_grandchild_needs_the_records_between_the_base_copy_and_itself(
    server: ArchivedServer, store: MemoryStore, tmp_path: Path
) -> None:
    await server.write(1)
    await server.turn()
    child = await gone_on(server, tmp_path / "child", server.last, 3 * DAY)
    await write_small(child, 2)
    between, _ = child.last, await child.write(1)
    await child.turn()
    grandchild = await gone_on(child, tmp_path / "grandchild", between)
    assert grandchild.parent == (child.life, between)
    for _day in range(8):
        for each in (child, server):
            await look_after(each, DAY + 1)
            await each.catch_up()
    number = grandchild.last
    assert await restored(store, grandchild.life) == (number, grandchild.states[number])
    for each in (child, grandchild):
        await each.close()


async def test_children_that_begin_while_base_copies_are_deleted_are_seen(
    server: ArchivedServer, store: MemoryStore, tmp_path: Path
) -> None:
    """It is restored, and begins, while the base copy before is deleted, whose age is the same."""
    await look_after(server, DAY + 1)
    await server.catch_up()
    parted = server.last
    await write_small(server, 1)
    for _day in range(2):
        await later(server, DAY + 1)
        await server.write(1)
        await server.turn()  # the base copy of the day
        await server.catch_up()
    children: list[ArchivedServer] = []
    real = store.delete

    async def delete(name: str) -> None:
        if name.endswith("/end") and not children:
            children.append(await gone_on(server, tmp_path / "child", parted))
        await real(name)

    ends = [name for name in store.names("base") if name.is_end]
    assert [name.first <= parted for name in ends].count(True) == 2
    store.delete = delete  # type: ignore[method-assign]
    await later(server, 2 * DAY)
    await look_after(server, HOUR)
    (child,) = children
    assert child.parent == (server.life, parted)
    left = [name for name in store.names("base") if name.is_end and name.life == server.life]
    assert ends[0] not in left
    assert ends[1] in left
    assert await restored(store, child.life) == (child.last, child.states[child.last])
    await child.close()


async def idle_beside_another(server: ArchivedServer, to: Path) -> ArchivedServer:
    """The server did not write for twenty minutes; another one has."""
    await later(server, 20 * 60)
    other = ArchivedServer(to, server.store, server.clock)
    await other.write(2)
    await other.catch_up()
    return other


async def test_an_idle_server_whose_life_was_pruned_begins_another(
    server: ArchivedServer, store: MemoryStore, tmp_path: Path
) -> None:
    other, life = await idle_beside_another(server, tmp_path / "other"), server.life
    objects = [name for name in store.objects if name.startswith(life)]
    assert await upkeep.prune(store, [], life) == len(objects)
    await server.write(5)
    await server.catch_up()
    assert server.life != life
    assert not any(name.startswith(life) for name in store.objects)
    assert await restored(store, server.life) == (server.last, server.rows())
    await other.close()


@pytest.mark.parametrize("at", ["terms", "base", "changes"])
async def test_a_server_that_writes_while_its_life_is_pruned_begins_another(
    server: ArchivedServer, store: MemoryStore, tmp_path: Path, at: str
) -> None:
    other, life, real = (
        await idle_beside_another(server, tmp_path / "other"),
        server.life,
        store.delete,
    )

    async def delete(name: str) -> None:
        await real(name)
        if f"/{at}/" in name and server.life == life:
            await server.write(5)
            await server.catch_up()

    store.delete = delete  # type: ignore[method-assign]
    await upkeep.prune(store, [], life)
    assert server.life != life
    assert not any(name.startswith(life) for name in store.objects)
    assert await restored(store, server.life) == (server.last, server.rows())
    await other.close()


async def test_an_old_copy_that_begins_while_its_life_is_pruned_has_no_parent_there(
    server: ArchivedServer, store: MemoryStore, tmp_path: Path
) -> None:
    """The term that its directory knows is not the newest one."""
    shutil.copytree(server.data, tmp_path / "old")
    server = await server.again()
    await write_small(server, 2)
    other, life, real = (
        await idle_beside_another(server, tmp_path / "other"),
        server.life,
        store.delete,
    )
    begun: list[ArchivedServer] = []

    async def delete(name: str) -> None:
        await real(name)
        if name.endswith("/end") and not begun:
            begun.append(old := server._another(tmp_path / "old", {}))
            await old.archiver.turn()
            await old.archiver._end_beside()

    store.delete = delete  # type: ignore[method-assign]
    await upkeep.prune(store, [], life)
    (old,) = begun
    assert old.parent is None
    assert not any(name.startswith(life) for name in store.objects)
    for each in (other, old, server):
        await each.close()


async def test_the_only_life_is_not_pruned(server: ArchivedServer, store: MemoryStore) -> None:
    await later(server, 20 * DAY)
    with pytest.raises(MomentRefused, match=f"The life {server.life} is the only one"):
        await upkeep.prune(store, [], server.life)


async def test_what_the_moments_of_another_life_need_is_not_pruned(
    server: ArchivedServer, store: MemoryStore, tmp_path: Path
) -> None:
    """Nor if its key is not given: nobody can tell."""
    keyed = ArchivedServer(tmp_path / "data2", store, server.clock, keys=[KEY])
    await keyed.catch_up()
    await write_small(keyed, 2)
    parted = keyed.last - 1
    await restored(store, keyed.life, to=parted, keys=[KEY], into=tmp_path / "child")
    await later(server, 20 * 60)
    child = server._another(tmp_path / "child", {"keys": [KEY]})
    await child.write(1, b"child")
    await child.archiver.turn()
    await child.archiver._end_beside()
    names = set(store.objects)
    with pytest.raises(
        MomentRefused, match=f"The life {child.life} goes on from the life {keyed.life}"
    ):
        await upkeep.prune(store, [KEY], keyed.life)
    with pytest.raises(ObjectRefused, match="is encrypted with a key"):
        await upkeep.prune(store, [], keyed.life)
    assert names == set(store.objects)
    for each in (child, keyed):
        await each.close()


async def test_a_large_listing_is_looked_through_beside_the_requests(
    server: ArchivedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a hundred thousand objects, each of these takes some tenths of a second."""
    mine, called = threading.get_ident(), list[str]()

    def watched(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def call(*given: object, **named: object) -> object:
            assert threading.get_ident() != mine, name
            called.append(name)
            return real(*given, **named)

        monkeypatch.setattr(owner, name, call)

    for owner, name in (
        *((Line, each) for each in ("of", "cover", "reach")),
        *((upkeep, each) for each in ("present", "_joined", "_left_over")),
        *((history, "parse_name"), (base_copy, "present")),
    ):
        watched(owner, name)
    again = await server.again()
    for _day in range(5):
        await look_after(again, DAY + 1)
        await again.catch_up()
    assert again.warnings == []
    assert {"of", "cover", "reach", "present", "_joined", "_left_over", "parse_name"} == {*called}
    await again.close()


async def test_a_term_keeps_no_listing(server: ArchivedServer) -> None:
    """It is kept for as long as the server runs."""
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, (Life, Line))]
    assert server.archiver.term is not None
