"""In which life a directory is archived after a start: its own, a child of it, or a new one."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import closing, suppress
from copy import copy
from typing import TYPE_CHECKING
from unittest.mock import Mock

import apsw
import pytest
import pytest_asyncio

from storage.encrypted_directory import KEY, OTHER, untold
from tablestone.archive import archiver, base_copy, upkeep
from tablestone.archive.going_back import MomentRefused
from tablestone.archive.history import read_lives
from tablestone.archive.objects import (
    Content,
    Entry,
    Kind,
    Name,
    ObjectDamaged,
    ObjectRefused,
    write_object,
    write_records,
)
from tablestone.archive.store import DirectoryStore, StoreUnavailable
from tablestone.engines.sqlite.archive_source import ArchiveSource, leave_life
from tablestone.engines.sqlite.backup import copy_database, end_record
from tablestone.engines.sqlite.data_directory import DATABASE_NAME
from unit.archive.archived_server import ArchivedServer, restored
from unit.archive.stores import BEGAN, MemoryStore, flipped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tablestone.engines.kind import EncryptionKey
HOUR = 3_600

pytestmark = pytest.mark.asyncio


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest_asyncio.fixture
async def server(tmp_path: Path, store: MemoryStore) -> AsyncIterator[ArchivedServer]:
    """Archived up to its last record."""
    opened = ArchivedServer(tmp_path / "data", store)
    await opened.write(5)
    await opened.catch_up()
    await opened.write(5)
    await opened.catch_up()
    yield opened
    with suppress(Exception):
        await opened.close()


async def holds(server: ArchivedServer, *numbers: int) -> None:
    """The archive restores what the server had at these records, and at its last one."""
    for number in (*numbers, server.last):
        assert await restored(server.store, server.life, to=number) == (
            number,
            server.states[number],
        )


def trim(server: ArchivedServer, number: int) -> None:
    """Remove the records up to this one from the directory."""
    with closing(server.engine._directory.connect_writer()) as writer:
        writer.execute("DELETE FROM change_records WHERE number <= ?", (number,))


async def test_a_restart_goes_on_in_the_life(server: ArchivedServer) -> None:
    life, last = server.life, server.last
    await server.write(3)
    again = await server.again()
    await again.write(2)
    await again.catch_up()
    assert (again.life, again.parent) == (life, None)
    assert again.term.term.first == last + 1
    await holds(again, last, last + 1, last + 3)
    await again.close()


async def test_a_restart_before_anything_was_written_goes_on_in_the_life(
    tmp_path: Path, store: MemoryStore
) -> None:
    server = ArchivedServer(tmp_path / "data", store)
    await server.turn()
    life = server.life
    again = await server.again()
    await again.write()
    await again.catch_up()
    assert again.life == life
    await holds(again)
    await again.close()


async def test_a_start_counts_what_waits_since_before_it(server: ArchivedServer) -> None:
    await server.write(1)
    server.clock.move(100)
    again = await server.again()
    assert again.archiver.lag_seconds == 100
    await again.catch_up()
    assert again.archiver.lag_seconds == 0
    await again.close()


async def test_two_kills_in_two_starts(
    server: ArchivedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one after its term was created, the second one before."""
    life = server.life
    for where, step in ((ArchiveSource, "begin_run"), (server.store, "create")):
        await server.write(2)
        server = await server.again()
        with monkeypatch.context() as patched:
            patched.setattr(where, step, Mock(side_effect=StoreUnavailable("killed")))
            with suppress(StoreUnavailable):
                await server.turn()
    server = await server.again()
    await server.catch_up()
    assert server.life == life
    await holds(server)
    await server.close()


@pytest.mark.parametrize("step", ["store_next", "create", "begin_run"])
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("is_first", [False, True], ids=["restart", "first"])
async def test_a_kill_between_the_steps_of_a_start(
    tmp_path: Path,
    store: MemoryStore,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    *,
    is_done: bool,
    is_first: bool,
) -> None:
    class Killed(BaseException):
        pass

    server = ArchivedServer(tmp_path / "data", store)
    last = await server.write(4)
    if not is_first:
        await server.catch_up()
        await server.write(2)
        server = await server.again()
    with monkeypatch.context() as patched:
        where = store if step == "create" else ArchiveSource
        real = getattr(where, step)

        def killed(*given: object) -> object:
            if is_done:
                real(*given)
            raise Killed

        async def killed_creation(*given: object) -> object:
            if is_done:
                await real(*given)
            raise Killed

        patched.setattr(where, step, killed_creation if step == "create" else killed)
        with pytest.raises(Killed):
            await server.turn()
    again = await server.again()
    await again.write(2)
    await again.catch_up()
    assert len({name.life for name in store.names("terms")}) == 1
    assert again.archiver.base_copies.gap is None
    await holds(again, *([] if is_first else [last]))
    await again.close()


async def test_a_directory_that_was_restored_goes_on(
    tmp_path: Path, server: ArchivedServer
) -> None:
    life, last = server.life, server.last
    await server.close()
    await restored(server.store, life, into=tmp_path / "new")
    moved = server._another(tmp_path / "new", {})
    assert moved.rows() == server.states[last]
    await moved.write(3)
    await moved.catch_up()
    assert (moved.life, moved.parent) == (life, None)
    await holds(moved, last, last + 1)
    await moved.close()


async def test_a_directory_that_went_back_begins_a_child(
    tmp_path: Path, server: ArchivedServer
) -> None:
    life, last = server.life, server.last
    number = last - 3
    await restored(server.store, life, to=number, into=tmp_path / "new")
    back = server._another(tmp_path / "new", {})
    await back.write(2, b"other")
    await back.turn()
    assert back.parent == (life, number)
    assert back.archiver.base_copies.is_restorable
    await back.catch_up()
    assert back.archiver.term is not None
    await holds(back, number, number + 1)
    await holds(server, last)
    await back.close()


async def test_a_directory_from_an_older_copy_begins_a_child(
    tmp_path: Path, server: ArchivedServer, store: MemoryStore
) -> None:
    """As after `restore`, an old copy, or a snapshot of the disk within the run: the run's id is the same."""
    life, last = server.life, server.last
    copy = await server.copied(tmp_path / "copy")
    server = server._another(server.data, {})
    await server.write(4)
    await server.catch_up()
    await server.close()
    old = server._another(copy, {})
    assert old.last == last
    await old.write(6, b"other")
    await old.turn()
    assert old.parent == (life, last)
    assert old.archiver.base_copies.is_restorable
    await old.catch_up()
    await holds(old, last - 1, last, last + 1)
    assert (await restored(store, life))[1] == server.states[last + 4]
    await old.close()


@pytest.mark.parametrize("more", [0, 3], ids=["the newest", "an older"])
async def test_a_backup_that_was_restored(
    tmp_path: Path,
    server: ArchivedServer,
    store: MemoryStore,
    caplog: pytest.LogCaptureFixture,
    more: int,
) -> None:
    """It has no records, and begins a life with a base copy, even if nothing was archived since."""
    life, last = server.life, server.last
    (tmp_path / "backup").mkdir()
    copy_database(server.data, tmp_path / "backup" / DATABASE_NAME, untold)
    end_record(tmp_path / "backup" / DATABASE_NAME)
    await server.write(more)
    await server.catch_up()
    rows = server.rows()
    await server.close()
    back = server._another(tmp_path / "backup", {})
    await back.write(2, b"other")
    await back.catch_up()
    assert (back.life != life, back.parent, back.archiver.base_copies.gap) == (True, None, None)
    assert ("is an older state." if more else "removed before they were archived.") in caplog.text
    await holds(back)
    assert (await restored(store, life, to=last + more))[1] == rows
    await back.close()


async def snapshot(server: ArchivedServer, to: Path) -> Path:
    """A copy of the disk while the server runs."""
    shutil.copytree(server.data, to)
    return to


async def test_a_snapshot_of_the_disk_within_the_run(
    tmp_path: Path, server: ArchivedServer, store: MemoryStore
) -> None:
    life, last = server.life, server.last
    await server.write(2)  # not archived at the time of the snapshot
    copy = await snapshot(server, tmp_path / "copy")
    await server.write(3)
    await server.catch_up()
    newest = server.last
    await server.close()
    old = server._another(copy, {})
    assert old.last == last + 2
    await old.write(9, b"other")
    await old.turn()
    assert old.parent == (life, last + 2)
    await old.catch_up()
    await holds(old, last, last + 2, last + 3)
    assert (await restored(store, life))[0] == newest
    await old.close()


async def test_a_snapshot_that_was_continued_elsewhere_by_nobody_goes_on(
    tmp_path: Path, server: ArchivedServer
) -> None:
    """The same state on another node, however it came there."""
    life = server.life
    copy = await server.copied(tmp_path / "node")
    shutil.rmtree(server.data)
    moved = server._another(copy, {})
    await moved.write(2)
    await moved.catch_up()
    assert moved.life == life
    await holds(moved)
    await moved.close()


async def test_two_clones_write_in_two_lives(tmp_path: Path, server: ArchivedServer) -> None:
    life, last = server.life, server.last
    copy = await server.copied(tmp_path / "clone")
    one, two = server._another(server.data, {}), server._another(copy, {})
    for each, value in ((one, b"one"), (two, b"two")):
        await each.write(2, value)
        await each.turn()
    for each, value in ((one, b"one"), (two, b"two")):
        await each.write(2, value)
        await each.catch_up()
    assert one.life == life
    assert two.parent == (life, last)
    for each in (one, two):
        await holds(each, last, last + 1, last + 2)
        await each.close()


async def test_two_clones_of_before_anything_was_written(
    tmp_path: Path, store: MemoryStore
) -> None:
    server = ArchivedServer(tmp_path / "data", store)
    await server.turn()
    life = server.life
    one = server._another(await server.copied(tmp_path / "clone"), {})
    two = server._another(server.data, {})
    await one.catch_up()
    await two.catch_up()
    assert one.life == life
    assert two.life != life
    for each in (one, two):
        await each.write(2)
        await each.catch_up()
        await holds(each)
        await each.close()


async def test_another_server_begins_the_same_term_first(
    tmp_path: Path, server: ArchivedServer, store: MemoryStore
) -> None:
    life, last = server.life, server.last
    copy = await server.copied(tmp_path / "copy")
    other = server._another(copy, {"store": store.shared()})
    again = server._another(server.data, {})
    looked = asyncio.Event()
    goes_on = asyncio.Event()
    real = store.create

    async def create(name: str, data: bytes) -> None:
        if "/terms/" in name:
            looked.set()
            await goes_on.wait()
        await real(name, data)

    store.create = create  # type: ignore[method-assign]
    beginning = asyncio.create_task(again.turn())
    await looked.wait()
    await other.write(2, b"other")
    await other.catch_up()
    goes_on.set()
    await beginning
    await again.write(2)
    await again.catch_up()
    assert (other.life, again.parent) == (life, (life, last))
    for each in (other, again):
        await holds(each, last)
        await each.close()


async def test_an_object_of_somebody_else_in_the_way(
    server: ArchivedServer, store: MemoryStore
) -> None:
    """A child life begins before it."""
    life, last = server.life, server.last
    name = Name(life, Kind.CHANGES, 1, last + 1, last + 2)
    for run, value in (("another", b"same"), (store.names("terms")[0].life, b"")):
        content = Content({"entries": [], "run": run}, value)
        store.objects[str(name)] = write_object(name, content), store.now
    await server.write(2)
    await server.turn()
    await server.catch_up()
    assert server.parent == (life, last)
    await holds(server, last)


async def test_a_child_of_a_life_that_cannot_be_restored_has_no_parent(
    tmp_path: Path, store: MemoryStore
) -> None:
    server = ArchivedServer(tmp_path / "data", store)

    def no_base(what: str, name: str) -> None:
        if what == "create" and "/base/" in name:
            raise StoreUnavailable("Not now.")

    store.before = no_base
    for _turn in range(3):
        await server.write(1)
        await server.turn()
    copy = await snapshot(server, tmp_path / "copy")
    await server.write(2)
    await server.turn()
    old = server._another(copy, {})
    await old.write(1, b"other")
    await old.turn()
    assert (old.life != server.life, old.parent) == (True, None)
    assert "Nothing can be restored" in " ".join(old.warnings)
    store.before = lambda _what, _name: None
    await old.catch_up()
    await holds(old)
    await old.close()
    await server.close()


async def test_a_server_that_was_away_begins_a_child_where_another_took_over(
    tmp_path: Path, server: ArchivedServer, store: MemoryStore
) -> None:
    """SIGSTOP within a request to the store, and return after another node has the disk's copy."""
    life, last = server.life, server.last
    copy = await snapshot(server, tmp_path / "copy")
    await server.write(3, b"away")
    server.clock.move(archiver.NOTE_SECONDS)  # it would note what it has written
    store.creating.clear()
    writing = asyncio.create_task(server.turn())
    await store.waits.wait()
    taker = server._another(copy, {"store": store.shared()})
    await taker.write(5, b"taker")
    await taker.catch_up()
    store.creating.set()
    await writing
    late = Name(life, Kind.CHANGES, 1, last + 1, last + 3)
    assert str(late) in store.objects
    assert server.source.state().archived == last  # what does not count is not noted
    await server.write(2, b"away")
    await server.catch_up()
    assert (taker.life, taker.parent) == (life, None)
    assert server.parent == (life, last)
    for each in (server, taker):
        await holds(each, last, last + 1, last + 3)
    await taker.close()


async def test_a_worker_that_was_replaced_while_its_upload_hung(
    server: ArchivedServer, store: MemoryStore
) -> None:
    """The old one continues in the same directory: its object does not count, and it notes nothing."""
    life, last = server.life, server.last
    await server.write(3)
    store.creating.clear()
    old = server.archiver
    writing = asyncio.create_task(old.turn())
    await store.waits.wait()
    server.store = store.shared()
    server.archiver = server.new_archiver()
    await server.catch_up()
    await server.write(2)
    store.creating.set()
    await writing
    assert old.term is None
    assert server.source.state().archived == last + 3
    await server.catch_up()
    assert server.life == life
    await holds(server, last, last + 1, last + 3)


async def test_what_a_lost_term_wrote_never_counts(
    tmp_path: Path, server: ArchivedServer, store: MemoryStore
) -> None:
    """Also if it is longer than what counts, or came first."""
    copy = await snapshot(server, tmp_path / "copy")
    await server.write(6, b"lost")
    lost = server.archiver
    taker = server._another(copy, {})
    last = taker.last
    await taker.write(4, b"kept")
    await taker.catch_up()
    assert lost.term is not None
    records = server.source.records(last, None, 1 << 20)
    entry = Entry(records[0].number, records[-1].number, 0, 0, 0, 0.0)
    name = Name(lost.term.life, Kind.CHANGES, 1, entry.first, entry.last)
    content = Content({"entries": [entry], "run": "lost"}, write_records(records))
    store.objects[str(name)] = write_object(name, content), store.now
    await holds(taker, last, last + 1, last + 4)
    with pytest.raises(MomentRefused):
        await restored(store, taker.life, to=last + 5)
    await taker.close()


async def test_the_archive_is_away_at_the_start(server: ArchivedServer, store: MemoryStore) -> None:
    life, last = server.life, server.last
    again = await server.again()

    def away(_what: str, _name: str) -> None:
        raise StoreUnavailable("No route to host.")

    store.before = away
    await again.write(3)
    for _turn in range(3):
        await again.turn()
    assert again.archiver.failing == "No route to host."
    assert again.archiver.errors == 3
    assert "Nothing is archived" in again.warnings[0]
    store.before = lambda _what, _name: None
    await again.catch_up()
    assert again.life == life
    assert again.warnings == []
    await holds(again, last, last + 1)
    await again.close()


async def test_another_url_begins_a_life_with_a_base_copy(server: ArchivedServer) -> None:
    life = server.life
    other = MemoryStore()
    moved = await server.again(url="s3://other", store=other)
    await moved.write(2)
    await moved.turn()
    assert not moved.archiver.base_copies.is_restorable or moved.archiver.base_copies.newest_at
    await moved.catch_up()
    assert moved.life != life
    assert moved.parent is None
    await holds(moved)
    await moved.close()


@pytest.mark.parametrize("while_it_runs", [False, True], ids=["restart", "running"])
async def test_an_emptied_bucket(
    server: ArchivedServer, store: MemoryStore, *, while_it_runs: bool
) -> None:
    life = server.life
    store.objects.clear()
    if not while_it_runs:
        server = await server.again()
    await server.write(2)
    await server.turn()
    if while_it_runs:  # the next look after the archive sees it
        server.clock.move(upkeep.EVERY_SECONDS + 1)
        await server.turn()
    await server.catch_up()
    assert (server.life != life, server.parent) == (True, None)
    await holds(server)
    await server.close()


async def test_a_gap_is_told_and_closed_by_a_base_copy(
    server: ArchivedServer, caplog: pytest.LogCaptureFixture
) -> None:
    last = server.last
    await server.write(4)
    trim(server, last + 2)
    await server.write(2)
    await server.turn()
    assert server.archiver.base_copies.gap == (last + 1, last + 2)
    assert f"lacks the records {last + 1} to {last + 2}" in " ".join(server.warnings)
    assert "cannot be restored" in caplog.text
    await holds_not(server, last + 1, last + 2, last + 3)
    server.clock.move(base_copy.GAP_SECONDS + 1)
    await server.write(1)
    await server.turn()
    await server.catch_up()
    assert server.warnings == []
    await holds(server, last)
    again = await server.again()
    await again.write(1)
    await again.catch_up()
    assert again.life == server.life
    await holds(again, last)
    await again.close()


async def test_a_moment_in_a_gap_that_a_base_copy_ends_is_refused(server: ArchivedServer) -> None:
    """The first record that can be restored after it has the copy's time, not that of the record before the gap."""
    last = server.last
    for _number in range(4):
        server.clock.move(60)
        await server.write(1)
    newest = server.last
    with closing(server.engine._directory.connect_writer()) as writer:
        writer.execute("DELETE FROM change_records WHERE number < ?", (newest,))
        writer.execute("UPDATE change_records SET rows = x'' WHERE number = ?", (newest,))
    server.clock.move(base_copy.GAP_SECONDS + 1)
    server.store.now = BEGAN + server.clock.seconds  # type: ignore[attr-defined]
    await server.catch_up()
    await server.write(2)
    await server.catch_up()
    assert server.warnings == []
    for number in range(last + 1, newest):
        with pytest.raises(MomentRefused, match=f"nearest .* {last} .* {newest} "):
            await restored(server.store, server.life, moment=server.times[number])
    for number in (newest, newest + 2):
        found = await restored(server.store, server.life, moment=server.times[number])
        assert found == (number, server.states[number])


async def holds_not(server: ArchivedServer, *numbers: int) -> None:
    for number in numbers:
        with pytest.raises(MomentRefused, match="nearest"):
            await restored(server.store, server.life, to=number)


@pytest.mark.parametrize("keys", [(OTHER,), (OTHER, KEY)], ids=["the new key", "both keys"])
async def test_a_key_that_changed(
    tmp_path: Path, store: MemoryStore, keys: tuple[EncryptionKey, ...]
) -> None:
    server = ArchivedServer(tmp_path / "data", store, keys=[KEY])
    await server.write(5)
    await server.catch_up()
    life, last = server.life, server.last
    again = await server.again(keys=keys)
    await again.write(3)

    def no_base(what: str, name: str) -> None:
        if what == "create" and "/base/" in name:
            raise StoreUnavailable("Not now.")

    store.before = no_base
    await again.turn()
    assert again.life == life
    assert "needs the old key" in " ".join(again.warnings)
    store.before = lambda _what, _name: None
    while again.archiver.base_copies.needs_old_key:
        await again.turn()
    await again.catch_up()
    assert again.warnings == []
    assert (await restored(store, keys=[OTHER]))[1] == again.rows()
    assert (await restored(store, to=last, keys=[KEY, OTHER]))[1] == again.states[last]
    with pytest.raises((MomentRefused, ObjectRefused)):
        await restored(store, to=last, keys=[OTHER])
    ends = len([name for name in store.names("base") if name.part is None])
    third = await again.again()
    await third.write(1)
    await third.catch_up()
    assert third.life == life
    assert len([name for name in store.names("base") if name.part is None]) == ends
    await third.close()


async def test_a_start_without_the_key_puts_nothing_in_clear_beside(
    tmp_path: Path, store: MemoryStore
) -> None:
    """The option was left out once."""
    server = ArchivedServer(tmp_path / "data", store, keys=[KEY])
    await server.write(2)
    await server.catch_up()
    again = await server.again(keys=())
    await again.write(3)
    await again.turn()
    assert "is encrypted: name the key" in (again.archiver.failing or "")
    assert all(name.term == 1 for name in (*store.names("changes"), *store.names("base")))
    third = await again.again(keys=[KEY])
    await third.catch_up()
    assert (await restored(store, keys=[KEY]))[1] == third.rows()
    await third.close()


async def test_an_older_state_with_another_key_begins_a_life(
    tmp_path: Path, store: MemoryStore
) -> None:
    """Its records cannot be compared: only what the directory has noted says that nothing is newer."""
    server = ArchivedServer(tmp_path / "data", store, keys=[KEY])
    await server.write(2)
    await server.catch_up()
    life = server.life
    copy = await snapshot(server, tmp_path / "copy")
    await server.write(2)
    await server.catch_up()
    old = server._another(copy, {"keys": [OTHER]})
    await old.write(5, b"other")
    await old.catch_up()
    assert (old.life != life, old.parent) == (True, None)
    assert (await restored(store, life, keys=[KEY]))[1] == server.rows()
    assert (await restored(store, old.life, keys=[OTHER]))[1] == old.rows()
    await old.close()
    await server.close()


async def test_a_start_after_the_newest_object_was_damaged(
    server: ArchivedServer, store: MemoryStore
) -> None:
    """Nobody stays unprotected: a child begins at the last record that can be read."""
    life, last = server.life, server.last
    await server.write(2)
    await server.catch_up()
    store.damage(store.names("changes")[-1], flipped)
    again = await server.again()
    await again.write(2)
    await again.catch_up()
    assert again.parent == (life, last)
    await holds(again, last, last + 1, last + 3)
    await again.close()


async def test_a_start_after_the_changes_were_deleted_with_age(
    server: ArchivedServer, store: MemoryStore
) -> None:
    """A server that was idle for longer than the archive keeps: only a base copy is left."""
    life, last = server.life, server.last
    server.clock.move(base_copy.EVERY_SECONDS + 1)
    await server.turn()
    await server.catch_up()
    for name in store.names("changes"):
        store.damage(name)
    trim(server, last - 1)
    again = await server.again()
    await again.write(2)
    await again.catch_up()
    assert again.archiver.base_copies.gap is None
    assert again.life == life
    await holds(again, last, last + 1)
    await again.close()


async def test_a_real_directory_as_the_archive(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "archive")
    server = ArchivedServer(tmp_path / "data", store)
    await server.write(3)
    await server.catch_up()
    again = await server.again()
    await again.write(3)
    await again.catch_up()
    assert again.life == server.life
    await holds(again, 4)
    await again.close()


@pytest.mark.parametrize("while_it_runs", [False, True], ids=["restart", "running"])
async def test_a_disk_that_is_not_mounted_is_no_emptied_archive(
    tmp_path: Path, *, while_it_runs: bool
) -> None:
    """The root of the archive is the mount point. A new life would lie below it, on the wrong disk."""
    archive = tmp_path / "archive"
    server = ArchivedServer(tmp_path / "data", DirectoryStore(archive), url=str(archive))
    await server.write(3)
    await server.catch_up()
    life, last = server.life, server.last
    archive.rename(tmp_path / "disk")
    archive.mkdir()
    if not while_it_runs:
        server = await server.again(store=DirectoryStore(archive))
    for _hour in range(3):
        server.clock.move(upkeep.EVERY_SECONDS + 1)
        await server.turn()
        await server.turn()
    warning = server.warnings[0]
    assert "is empty, and this server has archived there: mount its disk" in warning
    await server.write(1)
    await server.turn()
    assert list(archive.iterdir()) == []
    archive.rmdir()
    (tmp_path / "disk").rename(archive)
    await server.turn()
    await server.catch_up()
    assert (server.life, server.warnings) == (life, [])
    await holds(server, last, last + 1)
    await server.close()


async def test_a_key_for_an_archive_in_clear_begins_a_life(
    tmp_path: Path, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """A restore reads with keys or without: no moment may need objects of both kinds."""
    server = ArchivedServer(tmp_path / "data", store)
    await server.catch_up()
    clear, last = server.life, await server.write(3)
    await server.catch_up()
    server = await server.again(keys=[KEY])

    def no_base(what: str, name: str) -> None:
        if what == "create" and "/base/" in name:
            raise StoreUnavailable("Not now.")

    store.before = no_base
    await server.turn()
    assert (server.life != clear, server.parent) == (True, None)
    assert f"the life {clear} is not encrypted" in caplog.text
    assert "Nothing can be restored" in " ".join(server.warnings)
    assert "old key" not in " ".join(server.warnings)
    assert await restored(store, clear) == (last, server.states[last])
    store.before = lambda _what, _name: None
    await server.catch_up()
    began = server.last
    life = server.life
    for _start in range(2):
        await server.write(2)
        await server.catch_up()
        server = await server.again()
    await server.catch_up()
    assert server.life == life
    for number in range(began, server.last + 1):
        rows = (await restored(store, life, to=number, keys=[KEY]))[1]
        assert rows == server.states[number]
    assert await restored(store, clear) == (last, server.states[last])
    assert all(name.life == life for name in store.names("changes") if name.first > last)
    await server.close()


async def test_rows_that_changed_without_records_have_no_parent_by_a_damaged_term(
    tmp_path: Path, store: MemoryStore
) -> None:
    """Both have no run: the directory that left its life, and the term."""
    server = ArchivedServer(tmp_path / "data", store)
    await server.catch_up()
    await server.write(3)
    await server.catch_up()
    store.damage(store.names("terms")[0], flipped)
    life = server.life
    await server.close()
    with closing(apsw.Connection(str(server.data / DATABASE_NAME))) as writer:
        leave_life(writer)
        writer.execute("UPDATE stored_rows SET value = x'78'")
    server = server._another(server.data, {})
    await server.catch_up()
    assert (server.life != life, server.parent) == (True, None)
    assert await restored(store, server.life) == (server.last, server.rows())
    await server.close()


async def test_a_machine_that_is_resumed_twice(tmp_path: Path, store: MemoryStore) -> None:
    """Both copies of it have the run and the term. What they wrote is never mixed, also when it was joined."""
    one = ArchivedServer(tmp_path / "data", store)
    await one.catch_up()
    await one.write(3)
    await one.catch_up()
    shutil.copytree(one.data, tmp_path / "copy")
    other = one._another(tmp_path / "copy", {})
    other.archiver.term, other.archiver._run = copy(one.archiver.term), one.archiver._run
    other.archiver.base_copies.is_restorable = True
    other.archiver.base_copies.newest_at = other.clock.elapsed()
    common = one.last
    await one.commit(b"one", {b"a": b"1", b"b": b"1"})
    await one.commit(b"one", {b"a": b"2"})
    await one.turn()
    for row in (b"a", b"b", b"c"):
        await other.commit(b"other", {row: b"1"})
    await other.turn()
    for value in (b"3", b"4", b"5"):
        await one.commit(b"one", {b"a": value})
        await one.turn()
    for _look in range(2):
        with pytest.raises(
            ObjectDamaged, match=rf"does not go on from record {common + 3}.*--to {common + 3} "
        ):
            await restored(store)
        assert (await restored(store, to=common + 3))[1] == other.rows()
        one.clock.move(HOUR + 10)
        store.now += HOUR + 10
        await one.commit(b"one", {b"a": b"6"})
        await one.turn()
    await one.turn()
    assert store.names("joined")
    await one.close()
    await other.close()


async def test_nothing_in_clear_beside_what_is_encrypted(
    tmp_path: Path, store: MemoryStore
) -> None:
    """Not in a new life either."""
    encrypted = ArchivedServer(tmp_path / "data", store, keys=[KEY])
    await encrypted.write(2)
    await encrypted.catch_up()
    fresh = ArchivedServer(tmp_path / "fresh", store)
    await fresh.write(1)
    await fresh.turn()
    assert "is encrypted: name the key of the archive" in str(fresh.archiver.failing)
    assert len(await read_lives(store)) == 1
    await fresh.close()
    await encrypted.close()


async def test_back_to_a_key_of_before(tmp_path: Path, store: MemoryStore) -> None:
    """A base copy with it begins at once: the newest moment needs the other key until then."""
    server = ArchivedServer(tmp_path / "data", store, keys=[KEY])
    for keys in ([KEY], [OTHER, KEY], [KEY, OTHER], [OTHER], [KEY, OTHER]):
        server = await server.again(keys=keys)
        await server.archiver.turn()
        await server.catch_up()
        await server.write(2)
        await server.catch_up()
        assert (await restored(store, keys=keys[:1]))[1] == server.rows()
    await server.close()
