"""An archive whose store fails, lags, loses and damages: the server archives on, and nothing ends silently."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import cycle
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tablestone.archive import archiver, base_copy
from tablestone.archive.going_back import MomentRefused, read_histories
from tablestone.archive.objects import (
    Content,
    Kind,
    Name,
    ObjectDamaged,
    read_object,
    read_records,
    write_object,
    write_records,
)
from tablestone.archive.store import StoreUnavailable
from unit.archive.archived_server import ArchivedServer, restored
from unit.archive.stores import LyingStore, MemoryStore, cut, flipped

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.asyncio
DAY = 86_400


async def all_is_there(server: ArchivedServer) -> None:
    """Each record since the first one of the server's life and of those before can be restored."""
    histories = await read_histories(server.store, [])
    (found,) = histories[server.life].ranges
    assert found.last == server.last
    for number in (found.first, (found.first + found.last) // 2, found.last):
        assert (await restored(server.store, server.life, to=number))[1] == server.states[number]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("lag", [0, 3], ids=["errors", "lag"])
async def test_errors_before_and_after_the_write_and_listings_that_lag(
    tmp_path: Path, seed: int, lag: int
) -> None:
    random = Random(seed)
    store = LyingStore(random, errors=0.15, lag=lag)
    server = ArchivedServer(tmp_path / "data", store)
    for turn in range(30):
        await server.write(random.randrange(3))
        await server.turn()
        server.clock.move(1)
        if turn in (10, 20):
            server = await server.again()
        if turn == 25:
            server.clock.move(DAY)
    assert store.lied > 5
    store.errors = 0.0
    await server.write(1)
    await server.catch_up()
    await server.turn()
    assert server.warnings == []
    await all_is_there(server)
    again = await server.again()
    await again.write(1)
    await again.catch_up()
    assert again.life == server.life
    await all_is_there(again)
    await again.close()


async def test_a_write_that_answers_with_an_error_counts(tmp_path: Path) -> None:
    """And what the next attempt writes beside it holds the same records."""
    store = MemoryStore()
    server = ArchivedServer(tmp_path / "data", store)
    await server.catch_up()
    fails = True

    def after_the_write(what: str, _name: str) -> None:
        nonlocal fails
        if what == "read" and fails and any("/changes/" in each for each in store.objects):
            fails = False
            raise StoreUnavailable("503: Slow Down.")

    store.before = after_the_write
    await server.write(2)
    await server.turn()
    assert "503: Slow Down." in server.warnings[0]
    await server.write(1)
    await server.turn()
    assert [name[3:5] for name in store.names("changes")] == [(2, 3), (2, 4)]
    assert server.archiver.failing is None
    await all_is_there(server)
    await server.close()


async def test_a_moment_in_what_was_written_twice(tmp_path: Path) -> None:
    """By the longer object, which is named if it is damaged."""
    store = MemoryStore()
    server = ArchivedServer(tmp_path / "data", store)
    await server.catch_up()
    for number in (2, 3, 4, 5, 6):
        server.clock.move(0.1)
        await server.write(1)
        if number in (3, 6):
            store.before = once_after_a_write(store)
            await server.turn()
            await server.turn()
            server.term.archived = 1
    assert {(2, 3), (2, 6)} <= {name[3:5] for name in store.names("changes")}
    for number in (2, 3, 4, 5, 6):
        assert (await restored(store, moment=server.times[number]))[0] == number
    longer = next(name for name in store.names("changes") if name[3:5] == (2, 6))
    store.damage(longer, flipped)
    for number in (2, 5):
        with pytest.raises(ObjectDamaged, match=f"{longer} is damaged. --to 1 restores"):
            await restored(store, moment=server.times[number])
    assert (await restored(store, to=1))[0] == 1
    await server.close()


def once_after_a_write(store: MemoryStore) -> Callable[[str, str], None]:
    """The request after an object of changes was written fails."""
    there = len(store.names("changes"))
    failed: list[str] = []

    def fails(_what: str, name: str) -> None:
        if len(store.names("changes")) > there and not failed:
            failed.append(name)
            raise StoreUnavailable("503: Slow Down.")

    return fails


async def test_the_same_object_twice_is_a_success(tmp_path: Path) -> None:
    store = MemoryStore()
    server = ArchivedServer(tmp_path / "data", store)
    await server.catch_up()
    real = store.create

    async def twice(name: str, data: bytes) -> None:
        await real(name, data)
        await real(name, data)

    store.create = twice  # type: ignore[method-assign]
    await server.write(2)
    await server.turn()
    assert server.archiver.failing is None
    assert server.term.archived == server.last
    assert len(store.names("terms")) == 1
    await server.close()


async def test_a_slow_store_holds_nobody_up(tmp_path: Path) -> None:
    store = MemoryStore()
    server = ArchivedServer(tmp_path / "data", store)
    await server.catch_up()
    store.creating.clear()
    await server.write(1)
    turn = asyncio.create_task(server.turn())
    await store.waits.wait()
    for _number in range(3):
        server.clock.move(1)
        await server.write(1)  # commits go on
    assert server.archiver.lag_seconds == 3
    store.creating.set()
    await turn
    await server.catch_up()
    assert server.archiver.lag_seconds == 0
    await all_is_there(server)
    await server.close()


HOWS: dict[str, Callable[[bytes], bytes] | None] = {
    "missing": None,
    "flipped": flipped,
    "cut": cut,
    "empty": lambda _data: b"",
}


@pytest.fixture(params=HOWS)
def how(request: pytest.FixtureRequest) -> Callable[[bytes], bytes] | None:
    return HOWS[request.param]


async def three_days(path: Path, store: MemoryStore) -> tuple[ArchivedServer, list[int]]:
    """Three base copies, and after each of them five commits in five objects; the last records of each day."""
    server = ArchivedServer(path, store)
    lasts = []
    for _day in range(3):
        await server.write(1)
        await server.turn()
        await server.catch_up()
        for _object in range(5):
            await server.write(1)
            await server.turn()
        lasts.append(server.last)
        server.clock.move(DAY + 1)
    assert len([name for name in store.names("base") if name.part is None]) == 3
    return server, lasts


async def goes_on(server: ArchivedServer, *, after: float = 0) -> None:
    again = await server.again()
    await again.turn()
    again.clock.move(after)
    await again.write(2)
    await again.catch_up()
    assert (await restored(again.store, again.life))[1] == again.rows()
    await again.close()


async def test_changes_that_are_damaged(
    tmp_path: Path, how: Callable[[bytes], bytes] | None
) -> None:
    store = MemoryStore()
    server, (one, two, three) = await three_days(tmp_path / "data", store)
    damaged = next(name for name in store.names("changes") if name.first == two - 2)
    store.damage(damaged, how)
    for number in (
        one,
        two - 3,
        two + 1,
        three,
    ):  # the base copy of the third day needs no change of the second
        assert (await restored(store, to=number))[1] == server.states[number]
    with pytest.raises((ObjectDamaged, MomentRefused), match=f"{two - 3}\\b") as error:
        await restored(store, to=two)
    assert how is None or str(damaged) in str(error.value)
    await goes_on(server)


async def test_changes_in_the_place_of_others(tmp_path: Path) -> None:
    store = MemoryStore()
    server, (_one, two, three) = await three_days(tmp_path / "data", store)
    names = store.names("changes")
    damaged = next(name for name in names if name.first == two - 2)
    store.objects[str(damaged)] = store.objects[str(names[0])]
    with pytest.raises(
        ObjectDamaged, match=f"{damaged} is damaged: its content is that of {names[0]}"
    ):
        await restored(store, to=two)
    assert (await restored(store, to=two - 3))[1] == server.states[two - 3]
    assert (await restored(store, to=three))[1] == server.states[three]
    await goes_on(server)


async def test_changes_without_a_record_that_their_name_has(tmp_path: Path) -> None:
    """As a writer with a bug would leave it: whole, and with a checksum."""
    store = MemoryStore()
    server = ArchivedServer(tmp_path / "data", store)
    await server.catch_up()
    await server.write(3)
    await server.catch_up()
    name = store.names("changes")[-1]
    content = read_object(name, store.objects[str(name)][0])
    records = list(read_records(content.body))
    for lacking in range(3):
        body = write_records(records[:lacking] + records[lacking + 1 :])
        data = write_object(name, content._replace(body=body))
        store.objects[str(name)] = data, store.now
        with pytest.raises(ObjectDamaged, match=f"{name} lacks records"):
            await restored(store)
    await server.close()


@pytest.mark.parametrize("part", [1, None], ids=["part", "end"])
async def test_base_copies_that_are_damaged(
    tmp_path: Path, how: Callable[[bytes], bytes] | None, part: int | None
) -> None:
    """An older one and the changes since then restore the same."""
    store = MemoryStore()
    server, lasts = await three_days(tmp_path / "data", store)
    bases = [name for name in store.names("base") if name.part == part]
    for damaged, number in ((bases[2], lasts[2]), (bases[1], lasts[1])):
        store.damage(damaged, how)
        assert (await restored(store, to=number))[1] == server.states[number]
        assert (await restored(store))[1] == server.rows()
    store.damage(bases[0], how)
    with pytest.raises((ObjectDamaged, MomentRefused)) as error:
        await restored(store)
    assert how is None or str(bases[0]) in str(error.value)
    await goes_on(server, after=DAY + 1)


async def test_a_part_of_another_base_copy(tmp_path: Path) -> None:
    """Whole, under its name, and not what the end lists."""
    store = MemoryStore()
    server, lasts = await three_days(tmp_path / "data", store)
    for name in [name for name in store.names("base") if name.part == 1]:
        made = write_object(name, Content({"part": []}, b"?"))
        store.objects[str(name)] = made, store.now
    with pytest.raises(ObjectDamaged, match="is not the part that the base copy lists"):
        await restored(store, to=lasts[0])
    await server.close()


async def test_a_restore_goes_on_after_another_base_copy_took_over(tmp_path: Path) -> None:
    """It was interrupted after the damaged part was met; the records are applied again from the older copy on."""
    store = MemoryStore()
    server, lasts = await three_days(tmp_path / "data", store)
    newest = [name for name in store.names("base") if name.part == 1][-1]
    store.damage(newest, flipped)
    reads = 0

    def stops(what: str, name: str) -> None:
        nonlocal reads
        if what == "read" and "/changes/" in name:
            reads += 1
            if reads == 9:
                raise StoreUnavailable("Gone.")

    store.before = stops
    into = tmp_path / "restored"
    with pytest.raises(StoreUnavailable):
        await restored(store, to=lasts[2], into=into)
    store.before = lambda _what, _name: None
    number, rows = await restored(store, to=lasts[2], into=into)
    assert (number, rows) == (lasts[2], server.states[lasts[2]])
    await server.close()


@pytest.mark.parametrize("term", [1, 2, 3])
async def test_a_term_that_is_damaged(
    tmp_path: Path, how: Callable[[bytes], bytes] | None, term: int
) -> None:
    store = MemoryStore()
    server = ArchivedServer(tmp_path / "data", store)
    lasts = []
    for _term in range(3):
        await server.write(2)
        await server.catch_up()
        lasts.append(server.last)
        server = await server.again()
    name = Name(store.names("terms")[0].life, Kind.TERM, term)
    store.damage(name, how)
    for number in lasts:
        assert (await restored(store, to=number))[1] == server.states[number]
    problems = next(iter((await read_histories(store, [])).values())).problems
    assert str(name) in str(problems[0])
    await server.write(1)
    await server.catch_up()
    assert (await restored(store, server.life))[1] == server.rows()
    other = ArchivedServer(tmp_path / "other", store)  # and nobody else is held up
    await other.write(1)
    await other.catch_up()
    await other.close()
    await server.close()


async def test_objects_that_were_joined_while_a_restore_read_them(tmp_path: Path) -> None:
    """A reader that meets a missing object lists again."""
    store = MemoryStore()
    server = ArchivedServer(tmp_path / "data", store)
    await server.catch_up()
    for _object in range(6):
        await server.write(1)
        await server.turn()
    store.now += 3_600 + 1
    server.clock.move(3_600 + 1)
    await server.write(1)
    await server.turn()
    await server.catch_up()
    (joined,) = store.names("joined")
    hidden = store.objects.pop(str(joined))
    small = [name for name in store.names("changes") if name.last <= joined.last]

    def late(what: str, name: str) -> None:
        if what == "read" and name == str(small[2]) and str(joined) not in store.objects:
            store.objects[str(joined)] = hidden
            for each in small:
                store.damage(each)

    store.before = late
    assert (await restored(store))[1] == server.rows()
    assert str(joined) in store.objects
    await server.close()


@pytest.mark.parametrize("cut_one", ["000002", "end"])
async def test_a_base_copy_with_an_object_that_was_cut_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut_one: str
) -> None:
    """The store cut it, and the copy was interrupted; an idle server has no other record to begin a copy at."""
    monkeypatch.setattr(base_copy, "PART_BYTES", 1)
    monkeypatch.setattr(base_copy, "REST", 0.0)
    store = MemoryStore()
    server = ArchivedServer(tmp_path / "data", store)
    for number in range(5):
        await server.commit(b"p", {b"r%d" % number: b"v"})
    stops_at = "000003" if cut_one == "000002" else "end"
    real, is_away = store.create, True

    async def create(name: str, data: bytes) -> None:
        if is_away and "/base/" in name and name.endswith(stops_at):
            if cut_one == "end":
                await real(name, cut(data))
            raise StoreUnavailable("503.")
        await real(name, data)

    store.create = create  # type: ignore[method-assign]
    await server.archiver.turn()
    await asyncio.wait(server.archiver._beside.values())
    is_away = False
    if cut_one != "end":
        store.damage(next(name for name in store.names("base") if name.part == 2), cut)
    life = server.life
    await server.catch_up()
    assert (server.life, server.term.term.number) == (life, 2)
    assert await restored(store) == (server.last, server.rows())
    await server.close()


async def test_changes_that_the_store_cut_are_written_again(tmp_path: Path) -> None:
    """Before their name could be said to be written: a life of its own goes on."""
    store = MemoryStore()
    server = ArchivedServer(tmp_path / "data", store)
    await server.catch_up()
    life, before = server.life, await server.write(2)
    await server.turn()
    await server.write(2)
    real = store.create

    async def create(name: str, data: bytes) -> None:
        await real(name, cut(data))
        store.create = real  # type: ignore[method-assign]
        raise StoreUnavailable("503.")

    store.create = create  # type: ignore[method-assign]
    await server.catch_up()
    assert server.parent == (life, before)
    assert await restored(store, server.life) == (server.last, server.rows())
    await server.close()


async def test_a_suspended_machine_rests_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It slept for eight hours while rows were read."""
    server = ArchivedServer(tmp_path / "data", MemoryStore())
    await server.write(1)
    read = server.source.rows

    def sleeps(*given: Any) -> Any:
        server.clock.move(8 * 3_600)
        return read(*given)

    monkeypatch.setattr(server.source, "rows", sleeps)
    await asyncio.wait_for(server.catch_up(), 5)
    await server.close()


@pytest.mark.parametrize("interval", [0, 600])
async def test_a_request_that_hangs_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, interval: int
) -> None:
    """By health and, once a minute, the log, while the turn waits for it; `behind_bytes` grows meanwhile."""
    store = MemoryStore()
    server = ArchivedServer(tmp_path / "data", store)
    await server.catch_up()
    server.archiver.settings = replace(server.settings, interval=interval)
    store.creating.clear()
    await server.write(3)
    turn = asyncio.create_task(server.archiver.turn())
    await store.waits.wait()
    server.clock.move(interval + 50)
    await server.archiver.watch()
    assert server.warnings == []
    behind = [0]
    caplog.clear()
    for _second in range(130):
        server.clock.move(1)
        await server.write(1)
        await server.archiver.watch()
        behind.append(server.archiver.behind_bytes)
    late = "is behind: its store is slow, or does not answer."
    assert [late in warning for warning in server.warnings] == [True]
    assert caplog.text.count(late) == 2
    assert behind[1] == 0 < behind[20] < behind[-1]
    store.creating.set()
    await turn
    await server.turn()
    assert (server.warnings, server.archiver.behind_bytes) == ([], 0)
    await server.close()


async def test_the_watch_runs_while_a_request_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiver, "WATCH_SECONDS", 0.01)
    store = MemoryStore()
    server = ArchivedServer(tmp_path / "data", store)
    store.creating.clear()
    await server.write(1)
    running = asyncio.create_task(server.archiver.run())
    await store.waits.wait()
    server.clock.move(3_600)
    async with asyncio.timeout(10):
        while server.archiver.behind_bytes == 0:  # noqa: ASYNC110 - no event says it
            await asyncio.sleep(0.01)
    store.creating.set()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await server.engine.close()


async def test_errors_that_come_and_go_are_logged_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    server = ArchivedServer(tmp_path / "data", store)
    await server.catch_up()
    fails = cycle([True, False])

    def before(what: str, _name: str) -> None:
        if what == "create" and next(fails):
            raise StoreUnavailable("503.")

    store.before = before
    caplog.clear()
    for _second in range(120):
        await server.write(1)
        await server.archiver.turn()
        server.clock.move(1)
    assert caplog.text.count("Nothing is archived") == 2
    assert caplog.text.count("is written again") == 2
    await server.close()


@pytest.mark.parametrize(
    ("fails_at", "sentence"),
    [
        ("/base/", "The base copy in s3://bucket/tables cannot be written. 503."),
        ("/joined/", "Old changes in s3://bucket/tables cannot be joined or deleted. 503."),
    ],
)
async def test_what_fails_beside_the_changes_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fails_at: str, sentence: str
) -> None:
    """Changes are archived meanwhile, as quickly as before."""
    store = MemoryStore()
    server = ArchivedServer(tmp_path / "data", store)
    await server.catch_up()
    for _part in range(3):
        await server.write(1)
        await server.archiver.turn()
        server.clock.move(DAY / 3 + 1)
        store.now += DAY / 3 + 1

    def before(what: str, name: str) -> None:
        if what == "create" and fails_at in name:
            raise StoreUnavailable("503.")

    store.before = before
    attempts: list[float] = []
    for _second in range(70):
        server.clock.move(1)
        await server.write(1)
        errors = server.archiver.errors
        assert await server.archiver.turn() == server.settings.interval
        if under_way := list(server.archiver._beside.values()):
            await asyncio.wait(under_way)
        if server.archiver.errors > errors:
            attempts.append(server.clock.seconds)
    assert server.warnings == [sentence]
    assert (server.archiver.failing, server.term.archived) == (None, server.last)
    assert len(attempts) == 3  # it is not tried each second
    assert caplog.text.count(sentence) == 2
    assert "Nothing is archived" not in caplog.text
    store.before = lambda _what, _name: None
    await server.turn()
    await server.turn()
    assert server.warnings == []
    await server.close()
