"""What an archive reads from a data directory, what is kept for it, and what it stores (`sqlite/archive_source.py`)."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING

import apsw
import pytest
import pytest_asyncio

from storage.encrypted_directory import KEY, OTHER, open_with, untold
from storage.test_change_record import keep, kept, log_of, records, rows, write
from storage.write_sets import committed, put
from tablestone.engines.change_record import At, Retention, read_rows
from tablestone.engines.contract import ABSENT, EngineDamaged, EngineUnavailable, Key
from tablestone.engines.registry import open_engine
from tablestone.engines.sqlite.archive_source import ArchiveSource, ArchiveState
from tablestone.engines.sqlite.backup import copy_database, end_record
from tablestone.engines.sqlite.change_log import SqliteChangeLog
from tablestone.engines.sqlite.engine import SqliteEngine
from tablestone.engines.sqlite.free_space import compact
from tablestone.engines.sqlite.reencryption import reencrypt
from tablestone.engines.sqlite.upgrade import upgrade

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from storage.conftest import HeldClock
    from tablestone.engines.contract import Engine
    from tablestone.engines.kind import EncryptionKey

asynchronous = pytest.mark.asyncio
URL = "s3://bucket/tables"
MIB = 1 << 20


def source_of(engine: Engine) -> ArchiveSource:
    assert isinstance(engine, SqliteEngine)
    return engine.archive_source()


@pytest_asyncio.fixture
async def engine(data: Path, clock: HeldClock) -> AsyncIterator[Engine]:
    opened = open_engine(f"sqlite:{data}", clock)
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def source(engine: Engine) -> AsyncIterator[ArchiveSource]:
    with closing(source_of(engine)) as made:
        yield made


async def write_some(engine: Engine, *names: str, size: int = 1) -> None:
    for name in names:
        await committed(engine, write(name.encode(), put(b"x" * size)))


def archived(source: ArchiveSource) -> list[str]:
    """The names of all records that are there for the archive; "" for one without rows."""
    found = source.records(source.ends().first - 1, None, MIB)
    return ["".join(row.row.decode() for row in read_rows(each.rows)) for each in found]


async def shown(engine: Engine) -> list[str]:
    return [each[0].row.decode() for each in await rows(engine)]


def trim(engine: Engine, *, makes_room: bool = False) -> None:
    log = engine.changes
    assert isinstance(log, SqliteChangeLog)
    while log.has_surplus(makes_room=makes_room):
        log.trim(makes_room=makes_room)


def archive_up_to(source: ArchiveSource, number: int, run: str = "r1") -> None:
    source.begin_run(URL, "life", run, number)


@asynchronous
async def test_the_state_is_what_was_stored_last(
    data: Path, engine: Engine, source: ArchiveSource
) -> None:
    assert source.state() == ArchiveState("", "", "", None, 0, 0)
    source.rest(5)
    source.keep()
    assert source.state() == ArchiveState("", "", "", None, 0, 0)
    source.store_next("r1")
    assert source.state() == ArchiveState("", "", "", "r1", 0, 0)
    source.begin_run(URL, "a", "r1", 7)
    assert source.state() == ArchiveState(URL, "a", "r1", None, 7, 0)
    assert source.note("r1", 9)
    source.store_next("r2")
    assert not source.note("r2", 11)
    assert source.state() == ArchiveState(URL, "a", "r1", "r2", 9, 0)
    source.begin_run(URL, "b", "r2", 9)
    assert not source.note("r1", 12)
    source.rest(1_000)
    source.keep()
    source.rest(2_000)
    program = open_engine(f"sqlite:{data}", lambda: 1, shared=True)
    with closing(source_of(program)) as other:
        assert other.state() == ArchiveState(URL, "b", "r2", None, 9, 1_000)
    await program.close()
    source.store_next("r3")
    source.begin_run(URL, "b", "r3", 9)
    assert source.state() == ArchiveState(URL, "b", "r3", None, 9, 0)
    source.rest(3_000)
    assert source.state().since == 3_000
    source.rest(4_000, ends=True)
    assert source.state() == ArchiveState("", "b", "r3", None, 9, 3_000)
    assert await engine.check() == []


@asynchronous
async def test_what_the_archive_reads(engine: Engine, source: ArchiveSource) -> None:
    await write_some(engine, "before")
    with pytest.raises(EngineUnavailable, match="No record"):
        source.ends()
    source.keep()
    began = source.ends()
    assert began.first == began.last + 1
    await write_some(engine, *"abcde", size=1_000)
    source.keep()
    assert source.ends()[:2] == (began.first, began.first + 4)
    assert archived(source) == list("abcde")
    first = source.records(began.last, None, 1_500)
    assert [each.number for each in first] == [began.first, began.first + 1]
    assert source.records(began.first, began.first + 2, MIB) == [
        source.record(began.first + number) for number in (1, 2)
    ]
    assert source.records(began.first + 4, None, MIB) == []
    assert source.records(began.last - 1, None, MIB) == []
    assert [source.record(number) for number in (began.last, began.first + 5)] == [None, None]
    (stored,) = read_rows(first[0].rows)
    assert (stored.row, stored.value) == (b"a", b"x" * 1_000)
    assert (first[0].time, first[0].subject, first[0].about, first[0].partition) == (
        1_000,
        b"subject",
        b"about",
        b"p",
    )


@asynchronous
async def test_rows_come_in_the_order_of_keys(engine: Engine, source: ArchiveSource) -> None:
    await write_some(engine, *"cabd", size=1_000)
    first = source.rows(None, 1_500)
    assert [row.row for row in first] == [b"a", b"b"]
    assert (first[0].partition, first[0].version, len(first[0].value)) == (b"p", 1_000, 1_000)
    assert [row.row for row in source.rows(Key(b"p", b"b"), MIB)] == [b"c", b"d"]
    assert source.rows(Key(b"p", b"d"), MIB) == []


@asynchronous
async def test_every_process_keeps_records_for_the_archive_at_once(
    data: Path, engine: Engine, source: ArchiveSource, clock: HeldClock
) -> None:
    program = open_engine(f"sqlite:{data}", clock, shared=True)
    await committed(program, write(b"a", put(b"1"), expectation=ABSENT))
    source.keep()
    await committed(program, write(b"b", put(b"1"), expectation=ABSENT))
    assert archived(source) == ["b"]
    source.rest(1)
    await committed(program, write(b"c", put(b"1"), expectation=ABSENT))
    source.keep()
    await write_some(engine, "d")
    assert archived(source) == ["d"]
    await program.close()


@asynchronous
async def test_no_record_is_handed_out_across_a_pause(
    engine: Engine, source: ArchiveSource
) -> None:
    """Numbers go on after a pause in which commits left no record."""
    source.keep()
    await write_some(engine, "a", "b")
    before = source.ends()
    source.rest(1)
    await write_some(engine, "lost")
    source.keep()
    await write_some(engine, "c")
    after = source.ends()
    assert source.records(before.last - 1, None, MIB) == []
    assert source.records(before.last, None, MIB) == []
    assert source.record(before.last) is None
    assert after.first > before.last + 1
    assert archived(source) == ["c"]


# (records for the feed too, archived up to, trimmed by what) -> what is left for the archive and for the feed, of 5
# records, of which the last two are young enough for the feed
FLOORS: list[tuple[str, bool, int, str, str, str | None]] = [
    ("archive alone, nothing archived", False, 0, "age", "abcde", None),
    ("archive alone, the newest archived one stays", False, 2, "age", "bcde", None),
    ("archive alone, all archived", False, 5, "age", "e", None),
    ("archive alone, beyond the bytes", False, 0, "bytes", "de", None),
    ("archive alone, on a full disk", False, 0, "room", "", None),
    ("both, nothing archived", True, 0, "age", "abcde", "abcde"),
    ("both, what is too old and not archived", True, 2, "age", "bcde", "bcde"),
    ("both, what is archived and not too old", True, 5, "age", "de", "de"),
    ("both, beyond the bytes", True, 0, "bytes", "de", "de"),
    ("both, on a full disk", True, 0, "room", "", ""),
]


@pytest.mark.parametrize("case", [case[1:] for case in FLOORS], ids=[case[0] for case in FLOORS])
@asynchronous
async def test_what_is_not_archived_is_kept_up_to_the_bytes(
    data: Path,
    engine: Engine,
    source: ArchiveSource,
    clock: HeldClock,
    case: tuple[bool, int, str, str, str | None],
) -> None:
    is_feed, newest_archived, trimmed_by, for_archive, for_feed = case
    if is_feed:
        await keep(engine, Retention(100, None))
    source.keep()
    began = source.ends().last
    for clock.now, name in zip((1_000, 1_001, 1_002, 1_200, 1_201), "abcde", strict=True):
        await write_some(engine, name, size=1_000)
    if newest_archived:
        archive_up_to(source, began + newest_archived)
    clock.now = 1_250
    if trimmed_by == "bytes":
        with closing(apsw.Connection(str(data / "tablestone.db"))) as writer:
            writer.execute("UPDATE change_log SET bytes_max = 2000")
    trim(engine, makes_room=trimmed_by == "room")
    assert "".join(archived(source)) == for_archive
    log = log_of(engine)
    assert (log.kept() is None) is (for_feed is None)
    assert "".join(await shown(engine)) == (for_feed or "")
    assert source.ends().last == began + 5 + (trimmed_by == "room")
    assert await engine.check() == []


@asynchronous
async def test_a_gap_shows_in_the_ends(engine: Engine, source: ArchiveSource) -> None:
    source.keep()
    await write_some(engine, *"abc")
    archive_up_to(source, source.ends().first)
    trim(engine, makes_room=True)
    state = source.state()
    assert source.ends().first > state.archived + 1
    assert source.records(state.archived, None, MIB) == []
    await write_some(engine, "d")
    assert archived(source) == ["d"]


@asynchronous
async def test_the_feed_has_an_epoch_of_its_own(
    engine: Engine, source: ArchiveSource, clock: HeldClock, caplog: pytest.LogCaptureFixture
) -> None:
    source.keep()
    await write_some(engine, "a")
    log, began = log_of(engine), source.ends()
    assert log.kept() is None
    assert await log.read(At(0), subject=None, rows_max=9, bytes_max=9) is None
    clock.now = 2_000
    await keep(engine, Retention(None, MIB))
    first = kept(engine)
    assert (first.first, first.last, first.is_complete) == (first.last + 1, first.last, False)
    assert first.whole_since == 2_000
    await write_some(engine, "b")
    assert await shown(engine) == ["b"]
    await keep(engine, None)
    assert caplog.messages == [
        "The feed of changes ends, no cursor is valid any more. Records are kept until they are archived."
    ]
    assert log.kept() is None
    await write_some(engine, "c")
    await keep(engine, Retention(5, None))
    second = kept(engine)
    await write_some(engine, "d")
    assert await shown(engine) == ["d"]
    assert first.epoch != second.epoch
    assert first.storage == second.storage == source.ends().storage
    assert second.retention.ticks == 5
    assert (second.retention.bytes or 0) > MIB  # again a tenth of the disk
    source.keep()
    assert kept(engine) == second._replace(last=second.last + 1, bytes=kept(engine).bytes)
    assert archived(source) == ["a", "", "b", "c", "", "d"]
    assert source.ends().first == began.first


@asynchronous
async def test_a_position_without_rows_is_compared_too(
    engine: Engine, source: ArchiveSource
) -> None:
    """The last record that is archived may be the one with which a feed began."""
    source.keep()
    await write_some(engine, "a")
    await keep(engine)
    last = source.ends().last
    archive_up_to(source, last)
    trim(engine)
    found = source.record(last)
    assert found is not None
    assert found.rows == b""
    assert source.ends().first == last + 1


@asynchronous
async def test_an_archive_that_joins_a_feed_has_its_records(
    engine: Engine, source: ArchiveSource
) -> None:
    await keep(engine)
    await write_some(engine, "a")
    before = kept(engine)
    source.keep()
    assert kept(engine) == before
    assert archived(source) == ["a"]
    source.rest(1)
    await write_some(engine, "b")
    assert (kept(engine).epoch, await shown(engine)) == (before.epoch, ["a", "b"])
    source.keep()
    assert archived(source) == ["a", "b"]


@pytest.mark.parametrize("is_feed", [True, False], ids=["with a feed", "alone"])
@asynchronous
async def test_rest_drops_the_floor(
    engine: Engine, source: ArchiveSource, clock: HeldClock, *, is_feed: bool
) -> None:
    source.keep()
    await write_some(engine, "a")
    if is_feed:
        await keep(engine, Retention(100, None))
        await write_some(engine, "b")
    source.rest(7)
    with pytest.raises(EngineUnavailable, match="No record"):
        source.records(0, None, MIB)
    assert (log_of(engine).kept() is not None) is is_feed
    assert await shown(engine) == ["b"] * is_feed
    clock.now = 5_000
    trim(engine)
    assert await records(engine) == []
    await write_some(engine, "c")
    assert await shown(engine) == ["c"] * is_feed


@asynchronous
async def test_tables_of_an_earlier_build_are_taken_over(
    data: Path, engine: Engine, source: ArchiveSource
) -> None:
    await keep(engine)
    await write_some(engine, "a")
    with closing(apsw.Connection(str(data / "tablestone.db"))) as writer:
        writer.execute("ALTER TABLE change_log DROP COLUMN kept_for")
    trim(engine)
    source.rest(1)
    source.keep()
    assert archived(source) == await shown(engine) == ["a"]


@asynchronous
async def test_what_an_earlier_build_switches_is_not_mistaken(
    data: Path, engine: Engine, source: ArchiveSource
) -> None:
    """It knows of no archive: it ends the record of both, or begins a feed with a new epoch."""
    await keep(engine)
    source.keep()
    await write_some(engine, "a")
    before = source.ends()
    with closing(apsw.Connection(str(data / "tablestone.db"))) as writer:
        writer.execute("UPDATE change_log SET epoch = NULL")
    with pytest.raises(EngineUnavailable, match="No record"):
        source.records(before.last - 1, None, MIB)
    source.keep()
    assert source.ends().first > before.last + 1
    assert log_of(engine).kept() is None


async def filled(data: Path, key: EncryptionKey | None = None) -> None:
    engine = open_with(data, key)
    with closing(source_of(engine)) as source:
        source.keep()
        await write_some(engine, *"abc", size=9_000)
        archive_up_to(source, source.ends().first + 1)
        source.store_next("r2")
    await engine.close()


async def found_in(data: Path, key: EncryptionKey | None = None) -> tuple[object, ...]:
    engine = open_with(data, key)
    with closing(source_of(engine)) as source:
        found = (source.state(), source.ends(), archived(source), source.ends().storage)
    assert await engine.check() == []
    await engine.close()
    return found


@pytest.mark.parametrize(
    ("key", "new", "run"),
    [
        pytest.param(None, None, lambda data: compact(data, untold), id="compact"),
        pytest.param(None, None, upgrade, id="upgrade"),
        pytest.param(None, KEY, lambda data: reencrypt(data, None, KEY, untold), id="encrypt"),
        pytest.param(KEY, OTHER, lambda data: reencrypt(data, KEY, OTHER, untold), id="rekey"),
    ],
)
def test_what_writes_the_database_again_keeps_the_state(
    data: Path, key: EncryptionKey | None, new: EncryptionKey | None, run: Callable[[Path], object]
) -> None:
    asyncio.run(filled(data, key))
    before = asyncio.run(found_in(data, key))
    run(data)
    assert asyncio.run(found_in(data, new)) == before
    assert before[2] == ["a", "b", "c"]


@asynchronous
async def test_a_restored_backup_has_the_state_and_none_of_the_records(
    data: Path, tmp_path: Path
) -> None:
    await filled(data)
    state, ends, *_ = await found_in(data)
    (tmp_path / "restored").mkdir()
    restored = tmp_path / "restored" / "tablestone.db"
    copy_database(data, restored, untold)
    end_record(restored)
    engine = open_with(restored.parent, None)
    with closing(source_of(engine)) as source:
        assert source.state() == state
        assert isinstance(state, ArchiveState)
        source.keep()
        assert source.record(state.archived) is None
        assert source.ends().first > ends.last + 1  # type: ignore[attr-defined]
        await write_some(engine, "later")
        trim(engine)
        assert archived(source) == ["later"]
    await engine.close()


@asynchronous
async def test_errors_of_sqlite_are_those_of_the_contract(
    data: Path, engine: Engine, source: ArchiveSource
) -> None:
    await write_some(engine, "a")
    source.keep()
    holder = apsw.Connection(str(data / "tablestone.db"))
    holder.execute("BEGIN IMMEDIATE")
    calls: list[Callable[[], object]] = [
        lambda: source.store_next("r"),
        lambda: source.begin_run(URL, "a", "r", 1),
        lambda: source.note("r", 1),
        lambda: source.rest(1),
    ]
    for call in calls:
        with pytest.raises(EngineUnavailable, match=r"cannot write now.*locked"):
            call()
    holder.close()
    with closing(apsw.Connection(str(data / "tablestone.db"))) as writer:
        writer.execute("DROP TABLE archive_state")
        writer.execute("DROP TABLE change_records")
    calls = [source.ends, lambda: source.records(0, None, 1), lambda: source.record(1)]
    for read in calls:
        with pytest.raises(EngineUnavailable, match=r"cannot read now.*no such table"):
            read()
    source.close()
    calls = [source.state, lambda: source.rows(None, 1), source.ends]
    for read in calls:
        with pytest.raises(EngineUnavailable, match="cannot read now"):
            read()


@asynchronous
async def test_damage_is_named_as_such(data: Path, clock: HeldClock) -> None:
    engine = open_engine(f"sqlite:{data}", clock)
    await write_some(engine, *"abcdefgh", size=9_000)
    await engine.close()
    with (data / "tablestone.db").open("r+b") as file:
        file.seek(3 * 8192)
        file.write(b"\xff" * 8192)
    engine = open_engine(f"sqlite:{data}", clock)
    with closing(source_of(engine)) as source, pytest.raises(EngineDamaged):
        source.rows(None, MIB)
    await engine.close()
