"""The record of changes (`src/tablestone/engines/change_record.py`), on every engine that has one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.engines_under_test import on_engines_that
from storage.two_engines import TwoEngines
from storage.write_sets import committed, put
from tablestone.cli.options import parse_retention
from tablestone.clock import TICKS_PER_SECOND
from tablestone.engines.capabilities import StoredIn
from tablestone.engines.change_record import (
    FIRST,
    After,
    At,
    ChangedRow,
    ChangeLog,
    ChangeRecord,
    ChangesRead,
    KeptChanges,
    Note,
    Retention,
    not_taken,
    read_rows,
    with_size,
    write_rows,
)
from tablestone.engines.contract import (
    ABSENT,
    ANY,
    DELETE,
    PRESENT,
    Change,
    Conflict,
    Put,
    Update,
    WriteSet,
)
from tablestone.engines.registry import open_engine
from tablestone.engines.sqlite.change_log import SqliteChangeLog
from tablestone.tables.changes import scopes_of
from tablestone.tables.service import TableService

if TYPE_CHECKING:
    from pathlib import Path

    from storage.conftest import HeldClock
    from tablestone.engines.contract import Engine, Mutation

asynchronous = pytest.mark.asyncio
of_keeping_engines = on_engines_that(lambda can: can.keeps_changes)

NOTE = Note(b"subject", b"about")
OTHER = Note(b"other", b"")
ALL = Retention(None, 1_000_000)


def write(
    row: bytes, mutation: Mutation, note: Note | None = NOTE, expectation: int = ANY
) -> WriteSet:
    return WriteSet(b"p", [Change(row, expectation, mutation)], note=note)


def log_of(engine: Engine) -> ChangeLog:
    assert engine.changes is not None
    return engine.changes


async def keep(engine: Engine, retention: Retention | None = ALL) -> None:
    await log_of(engine).keep(retention)


def kept(engine: Engine) -> KeptChanges:
    """What is kept, once everything is trimmed that is not to be kept."""
    log = log_of(engine)
    while isinstance(log, SqliteChangeLog) and log.has_surplus():
        log.trim()
    found = log.kept()
    assert found is not None
    return found


async def read(
    engine: Engine,
    place: After | At = FIRST,
    subject: bytes | None = None,
    rows_max: int = 100,
    bytes_max: int = 1_000_000,
) -> ChangesRead:
    found = await log_of(engine).read(
        place, subject=subject, rows_max=rows_max, bytes_max=bytes_max
    )
    assert found is not None
    return found


async def records(engine: Engine, subject: bytes | None = None) -> list[ChangeRecord]:
    """All records but the empty ones, in pages of two; none if no changes are kept."""
    found: list[ChangeRecord] = []
    place, has_more = FIRST, True
    while has_more:
        page = await log_of(engine).read(place, subject=subject, rows_max=2, bytes_max=1_000_000)
        if page is None:
            break
        found += page.records
        place, has_more = After(page.reached), page.has_more
    return [record for record in found if record.rows]


async def rows(engine: Engine) -> list[list[ChangedRow]]:
    return [list(record.rows) for record in await records(engine)]


@of_keeping_engines
@asynchronous
async def test_no_record_until_changes_are_kept(engine: Engine) -> None:
    await committed(engine, write(b"a", put(b"1")))
    assert log_of(engine).kept() is None
    assert await log_of(engine).read(FIRST, subject=None, rows_max=1, bytes_max=1) is None
    await keep(engine)
    assert await records(engine) == []


UPDATE = Update(
    lambda value: put(b"+") if value is None else Put(lambda _: value + b"+", lambda: value[:2])
)
# (write sets after row "old" of version 1,000 with the value "old") -> the rows of the records
RECORDED: list[tuple[str, list[WriteSet], list[list[ChangedRow]]]] = [
    ("an insert", [write(b"a", put(b"1"), expectation=ABSENT)], [[ChangedRow(b"a", 1000, b"1")]]),
    ("a replacement", [write(b"old", put(b"1"))], [[ChangedRow(b"old", 1001, b"1")]]),
    (
        "an update has what it keeps of the value before",
        [write(b"old", UPDATE, expectation=PRESENT)],
        [[ChangedRow(b"old", 1001, b"old+", b"ol")]],
    ),
    ("an update of nothing", [write(b"a", UPDATE)], [[ChangedRow(b"a", 1000, b"+")]]),
    (
        "a deletion has the version found",
        [write(b"old", DELETE, expectation=PRESENT)],
        [[ChangedRow(b"old", 1000, None)]],
    ),
    ("a deletion of nothing", [write(b"a", DELETE)], []),
    ("only a condition", [write(b"old", None, expectation=PRESENT)], []),
    ("no note", [write(b"a", put(b"1"), None)], []),
    (
        "one record for one write set",
        [WriteSet(b"p", [Change(b"a", ABSENT, put(b"1")), Change(b"old", ANY, DELETE)], note=NOTE)],
        [[ChangedRow(b"a", 1000, b"1"), ChangedRow(b"old", 1000, None)]],
    ),
    (
        "many inserts in one write set",
        [WriteSet(b"p", [Change(b"%d" % n, ABSENT, put(b"1")) for n in range(3)], note=NOTE)],
        [[ChangedRow(b"%d" % n, 1000, b"1") for n in range(3)]],
    ),
    (
        "two commits",
        [write(b"a", put(b"1")), write(b"a", put(b"2"))],
        [[ChangedRow(b"a", 1000, b"1")], [ChangedRow(b"a", 1001, b"2")]],
    ),
]


@of_keeping_engines
@pytest.mark.parametrize(
    ("write_sets", "expected"), [case[1:] for case in RECORDED], ids=[case[0] for case in RECORDED]
)
@asynchronous
async def test_what_is_recorded(
    engine: Engine, write_sets: list[WriteSet], expected: list[list[ChangedRow]]
) -> None:
    await committed(engine, write(b"old", put(b"old"), None))
    await keep(engine)
    for write_set in write_sets:
        await committed(engine, write_set)
    assert await rows(engine) == expected


@of_keeping_engines
@asynchronous
async def test_a_conflict_is_not_recorded(engine: Engine) -> None:
    await keep(engine)
    await committed(engine, write(b"a", put(b"1"), expectation=ABSENT))
    outcome = await engine.commit(write(b"a", put(b"2"), expectation=ABSENT))
    assert isinstance(outcome, Conflict)
    changes = [Change(b"b", ANY, put(b"1")), Change(b"a", ABSENT, put(b"2"))]
    outcome = await engine.commit(WriteSet(b"p", changes, note=NOTE))
    assert isinstance(outcome, Conflict)
    assert await rows(engine) == [[ChangedRow(b"a", 1000, b"1")]]


@of_keeping_engines
@asynchronous
async def test_records_are_numbered_without_holes_also_in_a_group(engine: Engine) -> None:
    await keep(engine)
    before = kept(engine).last
    some = [write(b"%d" % (n % 40), put(b"1"), expectation=ABSENT) for n in range(50)]
    some += [write(b"u%d" % n, UPDATE) for n in range(20)]
    outcomes = await asyncio.gather(*map(engine.commit, some))
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 10
    assert [record.number - before for record in await records(engine)] == list(range(1, 61))
    changed = {(record.partition, record.rows[0].row) for record in await records(engine)}
    assert len(changed) == 60
    assert kept(engine).last == before + 60


@of_keeping_engines
@asynchronous
async def test_times_never_step_back(engine: Engine, clock: HeldClock) -> None:
    await keep(engine)
    for clock.now in (5_000, 4_000, 6_000):
        await committed(engine, write(b"a", put(b"1")))
    assert [record.time for record in await records(engine)] == [5_000, 5_000, 6_000]
    first, _, last = (record.number for record in await records(engine))
    since = [await read(engine, At(time)) for time in (5_000, 5_001, 6_000, 6_001)]
    assert [[record.number for record in each.records[:1]] for each in since] == [
        [first],
        [last],
        [last],
        [],
    ]
    after = [await read(engine, After(number)) for number in (first, last, last + 1)]
    assert [each.begun_time for each in after] == [5_000, 6_000, None]
    assert {(each.reached, each.reached_time) for each in after + since} == {(last, 6_000)}
    assert {each.kept.newest_time for each in after} == {6_000}


@of_keeping_engines
@asynchronous
async def test_records_of_one_subject(engine: Engine) -> None:
    await keep(engine)
    for n in range(7):
        await committed(engine, write(b"%d" % n, put(b"1"), OTHER if n % 3 else NOTE))
    found = await records(engine, subject=NOTE.subject)
    assert [record.rows[0].row for record in found] == [b"0", b"3", b"6"]
    assert {(record.note, record.partition) for record in found} == {(NOTE, b"p")}
    nothing = await read(engine, subject=b"nobody's")
    assert (list(nothing.records), nothing.reached) == ([], kept(engine).last)


@of_keeping_engines
@asynchronous
async def test_a_read_stops_after_the_record_that_reaches_its_bytes(engine: Engine) -> None:
    await keep(engine)
    for n in range(5):
        await committed(engine, write(b"%d" % n, put(b"x" * 1_000)))
    first = (await records(engine))[0].number
    page = await read(engine, After(first - 1), bytes_max=2_000)
    assert (len(page.records), page.reached, page.has_more) == (2, first + 1, True)
    assert page.reached_time == page.records[-1].time
    rest = await read(engine, After(page.reached))
    assert (len(rest.records), rest.reached, rest.has_more) == (3, first + 4, False)
    last = await read(engine, After(first + 2), rows_max=2)
    assert (len(last.records), last.reached, last.has_more) == (2, first + 4, False)


@of_keeping_engines
@asynchronous
async def test_the_oldest_go_beyond_the_bytes(engine: Engine) -> None:
    await keep(engine, Retention(None, 5_000))
    assert kept(engine).is_complete
    for n in range(20):
        await committed(engine, write(b"%d" % n, put(b"x" * 1_000)))
    left = kept(engine)
    found = await records(engine)
    assert [record.rows[0].row for record in found] == [b"%d" % n for n in range(20)][-len(found) :]
    assert 3 <= len(found) <= 5
    assert (left.first, left.last) == (found[0].number, found[-1].number)
    assert left.bytes <= 5_000
    assert not left.is_complete


@of_keeping_engines
@asynchronous
async def test_the_oldest_go_by_their_age_and_numbers_go_on(
    engine: Engine, clock: HeldClock
) -> None:
    await keep(engine, Retention(100, None))
    for clock.now in (1_000, 1_050, 1_100, 1_149):
        await committed(engine, write(b"a", put(b"%d" % clock.now)))
    clock.now = 1_150
    assert (kept(engine).oldest_time, kept(engine).is_complete) == (1_050, False)
    assert [record.rows[0].value for record in await records(engine)] == [b"1050", b"1100", b"1149"]
    clock.now = 9_000
    empty = kept(engine)
    assert (empty.first, await records(engine)) == (empty.last + 1, [])
    await committed(engine, write(b"a", put(b"again")))
    (record,) = await records(engine)
    assert record.number > empty.last


@of_keeping_engines
@asynchronous
async def test_news_are_the_notes_after_a_number(engine: Engine) -> None:
    await keep(engine)
    log, last = log_of(engine), kept(engine).last
    assert await log.news(last, 0.01) == []
    waiting = asyncio.create_task(log.news(last, 10))
    await asyncio.sleep(0.01)
    started = asyncio.get_running_loop().time()
    for note in (NOTE, OTHER):
        await committed(engine, write(b"a", put(b"1"), note))
    if not isinstance(engine, TwoEngines):  # there, it may have been the other process
        found = await waiting
        assert found[0] == (last + 1, NOTE)
        assert asyncio.get_running_loop().time() - started < 5
    else:
        waiting.cancel()
    assert list(await log.news(last, 0)) == [(last + 1, NOTE), (last + 2, OTHER)]
    assert list(await log.news(last + 1, 0)) == [(last + 2, OTHER)]


@asynchronous
async def test_news_have_an_empty_record_in_place_of_all_that_was_trimmed(
    data: Path, clock: HeldClock
) -> None:
    engine = open_engine(f"sqlite:{data}", clock)
    await keep(engine, Retention(100, None))
    await committed(engine, write(b"a", put(b"1")))
    last = kept(engine).last
    clock.now = 9_000
    assert kept(engine).last == last + 1
    news = await log_of(engine).news(last, 0)
    assert list(news) == [(last + 1, Note(b"", b""))]
    assert scopes_of(news[0][1]) == ()
    await engine.close()


@of_keeping_engines
@asynchronous
async def test_from_which_time_on_all_records_are_kept(engine: Engine, clock: HeldClock) -> None:
    """Several commits have one time, and only some of their records are trimmed."""
    await keep(engine, Retention(None, 5_000))
    assert kept(engine).whole_since <= clock.now
    for n in range(20):
        await committed(engine, write(b"%d" % n, put(b"x" * 1_000)))
    left = kept(engine)
    assert left.oldest_time == left.newest_time == clock.now
    assert left.whole_since > clock.now
    clock.now += 10
    await committed(engine, write(b"later", put(b"1")))
    assert kept(engine).whole_since <= clock.now


@of_keeping_engines
@asynchronous
async def test_each_beginning_has_an_epoch_of_its_own(engine: Engine) -> None:
    await keep(engine)
    await committed(engine, write(b"a", put(b"1")))
    first = kept(engine)
    await keep(engine, Retention(5, 1_000_000))
    assert kept(engine).epoch == first.epoch
    await keep(engine, None)
    assert log_of(engine).kept() is None
    await committed(engine, write(b"a", put(b"2")))
    await keep(engine)
    second = kept(engine)
    assert second.epoch != first.epoch
    assert second.storage == first.storage
    assert second.last >= first.last
    assert (first.is_complete, second.is_complete) == (True, False)
    assert await rows(engine) == []
    await committed(engine, write(b"b", put(b"3")))
    assert [record.rows[0].value for record in await records(engine)] == [b"3"]


@asynchronous
async def test_it_is_stored_and_other_programs_follow_it(data: Path, clock: HeldClock) -> None:
    server = open_engine(f"sqlite:{data}", clock)
    program = open_engine(f"sqlite:{data}", clock, shared=True)
    try:
        await committed(program, write(b"a", put(b"1"), expectation=ABSENT))
        await keep(server)
        before = kept(server)
        await committed(program, write(b"b", put(b"2"), expectation=ABSENT))
        await committed(program, write(b"b", put(b"3")))
        assert [record.rows[0].value for record in await records(server)] == [b"2", b"3"]
        await keep(server, None)
        await committed(program, write(b"b", put(b"4")))
        await committed(program, write(b"c", put(b"5"), expectation=ABSENT))
        await keep(server)
        assert await records(server) == []
    finally:
        await program.close()
        await server.close()
    again = open_engine(f"sqlite:{data}", clock)
    try:
        await keep(again)
        assert kept(again).storage == before.storage
        await committed(again, write(b"d", put(b"6"), expectation=ABSENT))
        assert [record.rows[0].value for record in await records(again)] == [b"6"]
    finally:
        await again.close()


NOW = 1_100
STORED = Retention(500, 1_000_000)
# (stored, asked for, accepted, in force): the records are from 1,000 to 1,004 and have 1,000 bytes each and some more
SETTINGS: dict[str, tuple[Retention, Retention, Retention | None, Retention]] = {
    "the same": (STORED, STORED, None, STORED),
    "the same age": (STORED, Retention(500, None), None, STORED),
    "a longer age": (STORED, Retention(600, None), None, Retention(600, 1_000_000)),
    "no age": (STORED, Retention(None, 1_000_000), None, Retention(None, 1_000_000)),
    "a shorter age": (STORED, Retention(100, None), None, Retention(100, 1_000_000)),
    "an age that trims": (STORED, Retention(99, None), None, STORED),
    "an age that trims, accepted": (
        STORED,
        Retention(99, None),
        Retention(99, None),
        Retention(99, 1_000_000),
    ),
    "an age that trims, another accepted": (STORED, Retention(99, None), STORED, STORED),
    "an age where none was": (
        Retention(None, 1_000_000),
        Retention(99, None),
        None,
        Retention(None, 1_000_000),
    ),
    "a larger size": (STORED, Retention(500, 2_000_000), None, Retention(500, 2_000_000)),
    "a smaller size": (STORED, Retention(500, 6_000), None, Retention(500, 6_000)),
    "a size that trims": (STORED, Retention(500, 3_000), None, STORED),
    "a size that trims, accepted": (
        STORED,
        Retention(500, 3_000),
        Retention(500, 3_000),
        Retention(500, 3_000),
    ),
    "a longer age, and a size that trims": (STORED, Retention(900, 3_000), None, STORED),
    "a larger size, and an age that trims": (STORED, Retention(99, 2_000_000), None, STORED),
}


@on_engines_that(lambda can: can.keeps_changes and can.stored_in is not StoredIn.PROCESS)
@pytest.mark.parametrize("case", SETTINGS.values(), ids=SETTINGS)
@asynchronous
async def test_a_setting_that_would_trim_at_once_is_only_taken_if_accepted(
    engine: Engine, clock: HeldClock, case: tuple[Retention, Retention, Retention | None, Retention]
) -> None:
    stored, asked, accepted, in_force = case
    await keep(engine, stored)
    for clock.now in range(1_000, 1_005):
        await committed(engine, write(b"%d" % clock.now, put(b"x" * 1_000)))
    clock.now = NOW
    await log_of(engine).keep(asked, accepted)
    found = log_of(engine).kept()
    assert found is not None
    assert found.retention == in_force
    says = not_taken(found, asked)
    assert (says is None) is (with_size(asked, 1_000_000) == in_force)
    kept(engine)  # trims
    assert (len(await records(engine)) < 5) is (accepted == asked)


@pytest.mark.parametrize("size", range(4_200, 4_400, 4))
@asynchronous
async def test_what_is_taken_trims_nothing_to_the_byte(
    data: Path, clock: HeldClock, size: int
) -> None:
    engine = open_engine(f"sqlite:{data}", clock)
    await keep(engine)
    for number in range(5):
        await committed(engine, write(b"%d" % number, put(b"x" * 1_000)))
    await keep(engine, Retention(None, size))
    was_taken = kept(engine).retention.bytes == size
    assert len(await rows(engine)) == 5
    await log_of(engine).keep(Retention(None, size), Retention(None, size))
    assert kept(engine).retention.bytes == size
    assert (len(await rows(engine)) == 5) is was_taken
    await engine.close()


@asynchronous
async def test_only_what_is_kept_for_the_feed_is_a_feed(data: Path, clock: HeldClock) -> None:
    """Also in the tables of an earlier build, which do not say for whom: for the feed."""
    engine = open_engine(f"sqlite:{data}", clock)
    await keep(engine)
    await committed(engine, write(b"a", put(b"1")))
    feeds = TableService(engine, clock, lambda: 0.0, lambda: b"").feeds
    database = apsw.Connection(str(data / "tablestone.db"))
    assert feeds.are_kept
    database.execute("UPDATE change_log SET kept_for = 'archive'")
    assert (log_of(engine).kept(), feeds.are_kept, await records(engine)) == (None, False, [])
    database.execute("ALTER TABLE change_log DROP COLUMN kept_for")
    assert (feeds.are_kept, len(await records(engine))) == (True, 1)
    await keep(engine)
    columns = database.execute("SELECT name FROM pragma_table_info('change_log')").fetchall()
    assert ("kept_for",) not in columns
    await keep(engine, Retention(None, 2_000_000))
    assert database.execute("SELECT kept_for FROM change_log").get == "feed"
    assert kept(engine).retention == Retention(None, 2_000_000)
    database.close()
    await engine.close()


SHOWN = {
    Retention(7 * 86_400 * TICKS_PER_SECOND, 20 << 30): "7d,20GiB",
    Retention(36 * 3600 * TICKS_PER_SECOND, None): "36h",
    Retention(90 * 60 * TICKS_PER_SECOND, 1536 << 20): "90m,1536MiB",
    Retention(61 * TICKS_PER_SECOND, 1 << 10): "61s,1KiB",
    Retention(None, 10_523_485_185): "10523485185B",
}


@pytest.mark.parametrize("retention", SHOWN, ids=SHOWN.values())
def test_a_setting_is_shown_as_the_option_takes_it(retention: Retention) -> None:
    assert str(retention) == SHOWN[retention]
    if not SHOWN[retention].endswith("5B"):
        assert parse_retention(SHOWN[retention]) == retention


@asynchronous
async def test_a_directory_that_keeps_changes_has_a_format_of_its_own(
    data: Path, clock: HeldClock
) -> None:
    """An older version refuses it: `test_sqlite_directory`."""
    engine = open_engine(f"sqlite:{data}", clock)
    await keep(engine)
    await engine.close()
    assert apsw.Connection(str(data / "tablestone.db")).pragma("user_version") == 2


TEXTS = st.binary(max_size=20)


@given(
    st.lists(
        st.tuples(TEXTS, st.integers(1, 2**62), st.none() | TEXTS, st.none() | TEXTS), max_size=5
    )
)
def test_rows_are_read_as_they_were_written(
    changed: list[tuple[bytes, int, bytes | None, bytes | None]],
) -> None:
    assert [tuple(row) for row in read_rows(write_rows(changed))] == changed
