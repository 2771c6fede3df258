"""Which record a moment means (`archive/going_back.py`): also with clocks that jump, in gaps, and with two lives."""

from __future__ import annotations

import re
import shutil
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tablestone.archive import base_copy
from tablestone.archive.going_back import (
    MomentRefused,
    NothingArchived,
    find_goal,
    shown,
    still,
    ticks_of_unix,
    timeline,
)
from tablestone.archive.objects import (
    Content,
    Entry,
    Kind,
    Name,
    ObjectDamaged,
    read_object,
    read_records,
    write_object,
    write_records,
)
from tablestone.archive.store import StoreUnavailable
from unit.archive.archived_server import SECOND, ArchivedServer, restored
from unit.archive.stores import MemoryStore, flipped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.asyncio
HOUR = 3_600
TO_2035 = 11 * 366 * 86_400


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest_asyncio.fixture
async def server(tmp_path: Path, store: MemoryStore) -> AsyncIterator[ArchivedServer]:
    opened = ArchivedServer(tmp_path / "data", store)
    opened.clock.ticks += 1_234  # no whole millisecond
    store.now += 0.001
    await opened.catch_up()
    opened.times[opened.last] = opened.clock()
    yield opened
    await opened.close()


async def pass_by(server: ArchivedServer, seconds: float) -> None:
    assert isinstance(server.store, MemoryStore)
    server.clock.move(seconds)
    server.store.now += seconds


async def second(server: ArchivedServer, commits: int = 3, *, apart: float = 0.2) -> None:
    """A second of commits, archived at its end."""
    for _number in range(commits):
        await pass_by(server, apart)
        await server.write(1)
    await pass_by(server, 1 - commits * apart)
    await server.turn()


async def number_at(store: MemoryStore, moment: int, life: str | None = None) -> int:
    return (await find_goal(store, [], life, None, moment, store.now + 10**9)).number


async def test_every_commit_up_to_the_moment_and_none_after(
    server: ArchivedServer, store: MemoryStore
) -> None:
    first = server.last
    for _second in range(3):
        await second(server)
    times = server.times
    for number in range(first, server.last + 1):
        for moment in (times[number] - 1, times[number], times[number] + 1):
            wanted = max(each for each, time in times.items() if time <= moment or each == first)
            if moment >= times[first]:
                assert await number_at(store, moment) == wanted
    number, rows = await restored(store, moment=times[first + 4])
    assert (number, rows) == (first + 4, server.states[first + 4])


async def test_of_equal_times_all_count_or_none(server: ArchivedServer, store: MemoryStore) -> None:
    """Within an object, and across two."""
    await second(server)
    await pass_by(server, 1)
    before = await server.write(1)
    await pass_by(server, 0.1)
    await server.write(2)
    await server.turn()
    await server.write(2)
    equal = server.last
    await pass_by(server, 1)
    await server.write(1)
    await server.turn()
    moment = server.times[before + 1]
    assert await number_at(store, moment) == equal
    assert await number_at(store, moment - 1) == before
    assert await number_at(store, moment + 1) == equal


async def test_of_equal_times_in_whole_objects_all_count_or_none(
    server: ArchivedServer, store: MemoryStore
) -> None:
    """Such as a clock that was set back by a second: the times of the objects decide."""
    await second(server)
    before = server.last
    for _object in range(2):
        await server.write(2)
        store.now += 0.4
        await server.turn()
    equal = server.last
    await second(server)
    moment = server.times[equal]
    for tenths in range(-1, 12):
        found = await number_at(store, moment + tenths * SECOND // 10 + SECOND // 100)
        assert found in {before, equal - 2, equal, *range(equal + 1, server.last + 1)}
        assert (found == before) == (tenths < 4)
        assert (found == equal - 2) == (4 <= tenths < 8)


@pytest.mark.parametrize("ahead", [HOUR, TO_2035], ids=["an hour", "2035"])
async def test_a_clock_that_jumped_ahead_and_back(
    server: ArchivedServer, store: MemoryStore, ahead: int
) -> None:
    """While the times of commits run ahead or stand still, the times of objects count, to the second."""
    moments: dict[int, int] = {}
    for turn in range(12):
        if turn == 3:
            server.clock.ticks += ahead * SECOND
        if turn == 7:
            server.clock.ticks -= ahead * SECOND
        await second(server)
        moments[ticks_of_unix(store.now)] = server.last
    for moment, number in moments.items():
        assert await number_at(store, moment) == number
    begun = [*moments][2] + 1
    assert await number_at(store, begun) == moments[begun - 1]
    goal = await find_goal(store, [], None, None, None, store.now)
    stretches = list(still(await timeline(store, goal.history, [])))
    assert len(stretches) == 1
    assert stretches[0] == (shown([*moments][3]), shown([*moments][-1]))
    if ahead == HOUR:  # when the clock has caught up, times count again
        await pass_by(server, HOUR)
        await second(server)
        await second(server)
        times = server.times
        assert await number_at(store, times[server.last - 2]) == server.last - 2
        assert await number_at(store, times[server.last - 5]) == server.last - 5
        assert await number_at(store, [*moments][5]) == moments[[*moments][5]]


async def test_a_jump_within_an_object(server: ArchivedServer, store: MemoryStore) -> None:
    """Its commits before the jump count by their own times."""
    await second(server)
    before = server.last
    await pass_by(server, 0.2)
    await server.write(2)
    moment = server.clock.ticks
    server.clock.ticks += HOUR * SECOND
    await server.write(2)
    await pass_by(server, 0.8)
    await server.turn()
    server.clock.ticks -= HOUR * SECOND
    await second(server)
    assert await number_at(store, moment - 1) == before
    assert await number_at(store, moment) == before + 2
    assert await number_at(store, ticks_of_unix(store.now - 1)) == before + 4


async def test_too_early_and_in_the_future(server: ArchivedServer, store: MemoryStore) -> None:
    await second(server)
    first = min(server.times.values())
    with pytest.raises(MomentRefused, match="too early") as error:
        await number_at(store, first - 10 * SECOND)
    named = re.findall(r"\d{4}-\S+Z", str(error.value))[-1]
    assert await number_at(store, ticks_of(named)) >= 1  # what it names can be asked for
    with pytest.raises(MomentRefused, match="in the future: without --to"):
        await find_goal(store, [], None, None, ticks_of_unix(store.now) + SECOND, store.now)
    with pytest.raises(MomentRefused, match="Record 99 is later than the newest, 4"):
        await restored(store, to=99)
    with pytest.raises(MomentRefused, match="nearest"):
        await restored(store, to=0)
    with pytest.raises(MomentRefused, match="no life"):
        await restored(store, "0" * 16)
    with pytest.raises(NothingArchived):
        await restored(MemoryStore())


def ticks_of(text: str) -> int:
    return ticks_of_unix(datetime.fromisoformat(text).timestamp())


async def test_nothing_can_be_restored_before_the_first_base_copy_ended(
    tmp_path: Path, store: MemoryStore
) -> None:
    server = ArchivedServer(tmp_path / "data", store)
    await server.write(2)

    def no_base(what: str, name: str) -> None:
        if "/base/" in name and what == "create":
            raise StoreUnavailable("Not now.")

    store.before = no_base
    await server.turn()
    for moment in (None, server.clock.ticks):
        with pytest.raises(NothingArchived, match="no base copy of it has ended"):
            await restored(store, moment=moment)
    other = ArchivedServer(tmp_path / "other", store.shared(), server.clock)
    await other.write(1)
    await other.catch_up()
    await server.write(1)
    await server.turn()
    server.store.now += 3_600  # type: ignore[attr-defined]
    await server.write(1)
    await server.turn()
    with pytest.raises(
        MomentRefused, match=f"first base copy has not ended.*restored: --life {other.life}"
    ):
        await restored(store)
    await other.close()
    await server.close()


async def gap(server: ArchivedServer) -> tuple[int, int]:
    """Two commits that are removed before they are archived, some after them, and then a base copy."""
    await second(server)
    before = server.last
    await pass_by(server, 1)
    await server.write(3)
    with closing(server.engine._directory.connect_writer()) as writer:
        writer.execute("DELETE FROM change_records WHERE number <= ?", (before + 2,))
    await second(server)
    await pass_by(server, base_copy.GAP_SECONDS + 1)
    await server.write(1)
    await server.turn()
    after = server.last
    await server.catch_up()
    await second(server)
    return before, after


async def test_a_moment_in_a_gap(server: ArchivedServer, store: MemoryStore) -> None:
    """Nothing is restored as if nothing was missing; what is named can be asked for."""
    before, after = await gap(server)
    times = server.times
    since = server.archiver.term
    assert since is not None
    for moment in (times[before + 3] - 1, times[before + 3], times[after] - 1):
        with pytest.raises(MomentRefused, match="nearest") as error:
            await number_at(store, moment)
        nearest = [
            int(each.replace(",", "")) for each in re.findall(r"([\d,]+) \(2", str(error.value))
        ]
        assert nearest == [before, after]
        for number in nearest:
            assert (await restored(store, to=number))[1] == server.states[number]
    assert await number_at(store, times[after]) == after
    assert await number_at(store, times[server.last]) == server.last


async def test_a_moment_in_a_damaged_object(server: ArchivedServer, store: MemoryStore) -> None:
    await second(server)
    before = server.last
    await second(server)
    damaged = store.names("changes")[-1]
    await second(server)
    store.damage(damaged, flipped)
    times = server.times
    assert await number_at(store, times[before] + 1) == before
    for moment in (times[before + 2], times[server.last]):
        with pytest.raises(ObjectDamaged, match=f"{damaged} is damaged.*--to {before} restores"):
            await restored(store, moment=moment)
    assert (await restored(store, to=before))[1] == server.states[before]


async def test_what_a_lost_term_wrote_says_nothing_about_moments(
    tmp_path: Path, server: ArchivedServer, store: MemoryStore
) -> None:
    """Also if the first of its records count."""
    await second(server)
    copied = server.last
    copy = tmp_path / "copy"
    await pass_by(server, 0.2)
    await server.write(2)
    shutil.copytree(server.data, copy)
    taken = server.last
    await server.write(4)
    await (
        server.turn()
    )  # one object with the two records that are in the copy, and four that are not
    name = Name(server.life, Kind.CHANGES, 1, copied + 1, taken + 4)
    data, modified = store.objects.pop(str(name))
    content = read_object(name, data)
    two = name._replace(last=taken)
    entries = [Entry(*content.facts["entries"][0])._replace(last=taken)]
    part = [record for record in read_records(content.body) if record.number <= taken]
    short = Content({"entries": entries, "run": "x"}, write_records(part))
    store.objects[str(two)] = write_object(two, short), modified
    taker = server._another(copy, {})
    await taker.catch_up()
    assert taker.life == server.life
    del store.objects[str(two)]
    store.objects[str(name)] = data, modified
    await pass_by(server, 1)
    await second(taker)
    await second(taker)
    goal = await find_goal(store, [], server.life, taken, None, store.now)
    entries = [each.entry for each in await timeline(store, goal.history, [])]
    assert [entry.last for entry in entries if entry.first == copied + 1] == [taken]
    assert await number_at(store, server.times[taken] + 1, server.life) == taken
    await taker.close()


async def test_a_moment_that_two_lives_have(
    tmp_path: Path, server: ArchivedServer, store: MemoryStore
) -> None:
    await second(server)
    await second(server)
    old, parted = server.life, server.last - 3
    shared = server.times[parted]
    await restored(store, to=parted, into=tmp_path / "child")
    both = ticks_of_unix(store.now)
    await second(server)
    child = server._another(tmp_path / "child", {})
    await second(child)
    await second(child)
    assert child.parent == (old, parted)
    assert await number_at(store, shared) == parted
    assert (await find_goal(store, [], None, parted, None, store.now)).number == parted
    for to, moment in ((parted + 1, None), (None, both)):
        with pytest.raises(MomentRefused, match="More than one life") as error:
            await find_goal(store, [], None, to, moment, store.now)
        assert set(re.findall(r"--life (\w+)", str(error.value))) == {old, child.life}
    assert (await restored(store, child.life, to=parted + 1))[1] == child.states[parted + 1]
    assert (await restored(store, old, to=parted + 1))[1] == server.states[parted + 1]
    # The other is not written any more: it was before the child began.
    assert (await restored(store))[1] == child.rows()
    await second(server)
    with pytest.raises(MomentRefused, match="More than one life"):
        await restored(store)  # two lives are being written
    await pass_by(child, HOUR)
    await second(child)
    assert (await restored(store))[1] == child.rows()
    assert await number_at(store, child.times[child.last]) == child.last  # the other had ended
    await child.close()


async def test_a_moment_of_before_the_life_that_was_written_last(
    tmp_path: Path, server: ArchivedServer, store: MemoryStore
) -> None:
    """The refusal names the life that has it."""
    await second(server)
    moment, old = server.times[server.last], server.life
    await pass_by(server, HOUR)
    fresh = ArchivedServer(tmp_path / "fresh", store, server.clock)
    await second(fresh)
    await fresh.catch_up()
    with pytest.raises(MomentRefused, match=f"--life {old}"):
        await number_at(store, moment)
    assert await number_at(store, moment, old) == server.last
    await fresh.close()
