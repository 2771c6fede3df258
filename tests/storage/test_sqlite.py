"""What the SQLite engine promises beyond the contract: durability, one flush a group, recovery, plans, limits."""

import asyncio
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import apsw
import pytest
from packaging.requirements import Requirement

from storage.conftest import HeldClock
from storage.opened import close_healthy, files_no_longer_than, open_sqlite, writer_of
from storage.write_sets import WHOLE, committed, fill, insert, put, read_all, upsert
from tablestone.engines.contract import (
    ABSENT,
    ANY,
    DELETE,
    PRESENT,
    Change,
    Committed,
    Conflict,
    EngineUnavailable,
    Key,
    KeyRange,
    WriteSet,
)
from tablestone.engines.sqlite.commit import LOG_PAGES_MAX, VERSION_OF
from tablestone.engines.sqlite.data_directory import PAGE_SIZE_BYTES
from tablestone.engines.sqlite.hinted_read import walk_of
from tablestone.engines.sqlite.read import SCAN

VERSION = HeldClock().now
BIG = b"x" * 300_000


def test_this_sqlite_and_every_one_that_may_be_installed_resets_its_log_rightly() -> None:
    """Before 3.51.3, two checkpoints beside a commit could damage the database; with 3.51 no server starts."""
    assert tuple(int(part) for part in apsw.sqlite_lib_version().split(".")) >= (3, 51, 3)
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    needed = [Requirement(each) for each in project["project"]["dependencies"]]
    (sqlite,) = [each for each in needed if each.name == "apsw-sqlite3mc"]
    allowed = sqlite.specifier.filter(["3.51.2.0", "3.51.3.1", "3.53.0.0", "3.54.0.0"])
    assert list(allowed) == ["3.53.0.0", "3.54.0.0"]


@pytest.mark.asyncio
async def test_what_was_committed_is_there_after_reopening(data: Path) -> None:
    keys = [(b"p%d" % (index % 3), b"%03d" % index) for index in range(100)]
    engine = open_sqlite(data)
    await fill(engine, keys)
    stored = await engine.scan(WHOLE, rows_max=1_000)
    await close_healthy(engine)
    for suffix in ("-wal", "-shm"):
        assert not data.joinpath(f"tablestone.db{suffix}").exists()
    engine = open_sqlite(data)
    assert await engine.scan(WHOLE, rows_max=1_000) == stored
    assert len(stored) == len(keys)
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_a_scan_of_long_rows_ends_early(data: Path) -> None:
    """500 entities of 2 MiB, which a sweep removes at a time, were 3 GB in memory."""
    engine = open_sqlite(data)
    await fill(engine, [(b"p", b"%d" % row) for row in range(4)])
    for row in range(4, 10):
        await committed(engine, upsert(b"p", b"%d" % row, bytes(3 << 20)))
    rest, found = WHOLE, []
    while rows := await engine.scan(rest, rows_max=100):
        found.append([row.row for row in rows])
        rest = rest._replace(start=Key(b"p", rows[-1].row + b"\0"))
    assert found == [[b"0", b"1", b"2", b"3", b"4", b"5", b"6"], [b"7", b"8", b"9"]]
    await close_healthy(engine)


WRITER = """
import asyncio, sys
from tablestone.clock import system_clock
from tablestone.engines.contract import ABSENT, Change, Put, WriteSet
from tablestone.engines.registry import open_engine

async def write(engine, partition):
    for number in range(100_000):
        rows = [b"%06d-%d" % (number, part) for part in range(5)]
        changes = [Change(row, ABSENT, Put(lambda version: b"x" * 1400)) for row in rows]
        await engine.commit(WriteSet(partition, changes))
        print(partition.decode(), number, flush=True)

async def main():
    engine = open_engine(sys.argv[1], system_clock)
    await asyncio.gather(*(write(engine, b"p%d" % index) for index in range(8)))

asyncio.run(main())
"""


@pytest.mark.crash
@pytest.mark.parametrize("acknowledged_before_the_kill", [1, 100, 900])
def test_what_was_acknowledged_survives_a_kill_and_no_write_set_is_half_there(
    data: Path, acknowledged_before_the_kill: int
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, f"sqlite:{data}"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    acknowledged = [next(process.stdout) for _ in range(acknowledged_before_the_kill)]
    process.send_signal(signal.SIGKILL)
    acknowledged += [line for line in process.stdout if line.endswith("\n")]
    process.stdout.close()
    process.wait()

    async def look(*, read_only: bool) -> set[bytes]:
        engine = open_sqlite(data, read_only=read_only)
        stored = await engine.scan(WHOLE, rows_max=1_000_000)
        await close_healthy(engine)
        return {row.partition + b" " + row.row for row in stored}

    found = asyncio.run(look(read_only=True))
    assert asyncio.run(look(read_only=False)) == found
    for line in acknowledged:
        partition, number = line.split()
        assert f"{partition} {int(number):06d}-0".encode() in found
    whole = {key[:-1] + b"%d" % part for key in found for part in range(5)}
    assert found == whole


@pytest.mark.asyncio
async def test_write_sets_that_arrive_together_share_flushes(data: Path) -> None:
    engine = open_sqlite(data)
    await committed(engine, insert(b"p", b"taken"))
    commits: list[str] = []

    def note(_cursor: apsw.Cursor, sql: str, _bindings: object) -> bool:
        if sql == "COMMIT":
            commits.append(sql)
        return True

    writer_of(engine).set_exec_trace(note)
    outcomes = await asyncio.gather(
        *(engine.commit(insert(b"p", b"%d" % index)) for index in range(50)),
        engine.commit(insert(b"p", b"taken")),
        *(engine.commit(insert(b"p", b"%d" % index)) for index in range(50, 100)),
    )
    assert outcomes.count(Conflict(0, VERSION)) == 1
    assert outcomes.count(Committed([VERSION])) == 100
    assert len(commits) == 1
    writer_of(engine).set_exec_trace(None)
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_a_row_that_comes_back_in_the_same_group_has_another_version(data: Path) -> None:
    """A version is an ETag: whoever read the old row must not pass for a reader of the new one."""
    engine = open_sqlite(data)
    gone = WriteSet(b"p", [Change(b"r", PRESENT, DELETE)])
    outcomes = await asyncio.gather(
        engine.commit(insert(b"p", b"r")),
        engine.commit(gone),
        engine.commit(insert(b"p", b"r")),
        engine.commit(upsert(b"p", b"r")),
        engine.commit(upsert(b"p", b"r")),
        engine.commit(gone),
        engine.commit(insert(b"p", b"r")),
        engine.commit(insert(b"p", b"other")),
    )
    versions = [each.versions[0] for each in outcomes if isinstance(each, Committed)]
    assert versions == [VERSION, 0, *range(VERSION + 1, VERSION + 4), 0, VERSION + 4, VERSION + 4]
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_an_expectation_that_fails_alone_is_answered_without_a_flush(data: Path) -> None:
    engine = open_sqlite(data)
    await committed(engine, insert(b"p", b"r"))
    log = data / "tablestone.db-wal"
    size = log.stat().st_size
    assert await engine.commit(insert(b"p", b"r")) == Conflict(0, VERSION)
    assert await engine.commit(WriteSet(b"p", [Change(b"r", VERSION, None)])) == Committed([0])
    assert log.stat().st_size == size
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_reads_go_on_while_a_flush_is_under_way(data: Path) -> None:
    engine = open_sqlite(data)
    await committed(engine, insert(b"p", b"r", b"old"))
    flushing = asyncio.ensure_future(engine.commit(upsert(b"p", b"r", b"new")))
    reads = []
    while not flushing.done():
        reads += await read_all(engine)
        await asyncio.sleep(0)
    assert reads
    assert set(reads) <= {b"old", b"new"}
    assert await read_all(engine) == [b"new"]
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_a_full_disk_fails_only_what_does_not_fit_and_passes(data: Path) -> None:
    engine = open_sqlite(data)
    await committed(engine, insert(b"p", b"before", b"kept"))
    writer = writer_of(engine)
    pages = writer.pragma("page_count")
    writer.pragma("max_page_count", pages + 5)
    half_big = WriteSet(b"p", [Change(b"a", ABSENT, put(b"half")), Change(b"b", ABSENT, put(BIG))])
    outcomes = await asyncio.gather(
        engine.commit(insert(b"p", b"1", b"small")),
        engine.commit(half_big),
        engine.commit(insert(b"p", b"2", b"small")),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [Committed, EngineUnavailable, Committed]
    with pytest.raises(EngineUnavailable, match=r"Storage cannot write now: .*full"):
        await engine.commit(half_big)
    assert await read_all(engine) == [b"small", b"small", b"kept"]
    writer.pragma("max_page_count", 1 << 30)
    assert await engine.commit(half_big) == Committed([VERSION, VERSION])
    assert await read_all(engine) == [b"small", b"small", b"half", BIG, b"kept"]
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_a_commit_whose_write_fails_is_undone(data: Path) -> None:
    engine = open_sqlite(data)
    await committed(engine, insert(b"p", b"before", b"kept"))
    log = data / "tablestone.db-wal"
    with files_no_longer_than(log.stat().st_size + 100):
        outcomes = await asyncio.gather(
            *(engine.commit(upsert(b"p", b"%d" % index)) for index in range(3)),
            engine.commit(insert(b"p", b"before")),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes] == [*[EngineUnavailable] * 3, Conflict]
        assert await read_all(engine) == [b"kept"]
    await committed(engine, insert(b"p", b"after", b"works"))
    assert await read_all(engine) == [b"works", b"kept"]
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_a_lock_of_another_program_makes_commits_unavailable_and_leaves_reads(
    data: Path,
) -> None:
    engine = open_sqlite(data)
    await committed(engine, insert(b"p", b"r", b"kept"))
    other = apsw.Connection(os.fspath(data / "tablestone.db"))
    other.execute("BEGIN IMMEDIATE")
    outcomes = await asyncio.gather(
        *(engine.commit(upsert(b"p", b"%d" % index)) for index in range(30)), return_exceptions=True
    )
    assert {type(outcome) for outcome in outcomes} == {EngineUnavailable}
    assert await read_all(engine) == [b"kept"]
    other.execute("ROLLBACK")
    other.close()
    await committed(engine, insert(b"p", b"s", b"works"))
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_check_says_in_words_what_is_broken(data: Path) -> None:
    engine = open_sqlite(data)
    await fill(engine, [(b"p", b"%03d" % index) for index in range(200)])
    writer_of(engine).execute("UPDATE stored_rows SET version = 0 WHERE row = CAST('007' AS BLOB)")
    assert await engine.check() == ["the row b'007' of partition b'p' has version 0"]
    await engine.close()
    with (data / "tablestone.db").open("r+b") as database:
        database.seek(2 * PAGE_SIZE_BYTES + 100)
        database.write(b"\xff" * 3_000)
    engine = open_sqlite(data)
    assert await engine.check()
    await engine.close()


START = Key(b"p", b"r")
PLANS: list[tuple[KeyRange, str]] = [
    (KeyRange(START, Key(b"p", b"s")), "(partition=? AND row>? AND row<?)"),
    (KeyRange.of_partition(b"p"), "(partition=? AND row>?)"),
    (KeyRange(START, Key(b"p\0", b"")), "(partition=? AND row>?)"),
    (KeyRange(START, Key(b"q", b"")), "((partition,row)>(?,?) AND (partition,row)<(?,?))"),
    (KeyRange(START, Key(b"q", b"r")), "((partition,row)>(?,?) AND (partition,row)<(?,?))"),
]


def plan_of(connection: apsw.Connection, sql: str, bindings: tuple[bytes | int, ...]) -> list[str]:
    plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)
    return [str(detail) for _id, _parent, _unused, detail in plan]


@pytest.mark.asyncio
async def test_every_range_is_one_search_of_the_index_bounded_at_both_ends(data: Path) -> None:
    engine = open_sqlite(data)
    reader = engine._reader
    search = "SEARCH stored_rows USING INDEX sqlite_autoindex_stored_rows_1 "
    covering = search.replace("USING INDEX", "USING COVERING INDEX")
    for key_range, bounds in PLANS:
        walk, bindings = walk_of(key_range)
        assert plan_of(reader, walk.values, (*bindings, 10)) == [search + bounds]
        assert plan_of(reader, walk.key, (*bindings, 10)) == [covering + bounds]
    both_ends = "((partition,row)>(?,?) AND (partition,row)<(?,?))"
    assert plan_of(reader, SCAN, (b"", b"", b"q", b"", 1)) == [search + both_ends]
    assert plan_of(reader, VERSION_OF, (b"p", b"r")) == [search + "(partition=? AND row=?)"]
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_a_range_across_partitions_stops_at_its_end(data: Path) -> None:
    """The plan names both bounds; this counts the steps of SQLite's machine to be sure that it stops."""
    engine = open_sqlite(data)
    rows = [Change(b"%05d" % index, ANY, put(b"value")) for index in range(3_000)]
    for partition in (b"p", b"q", b"r"):
        await committed(engine, WriteSet(partition, rows))
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    engine._reader.set_progress_handler(count, 1)
    found = await read_all(engine, KeyRange(Key(b"p", b"02998"), Key(b"q", b"00003")))
    assert len(found) == 5
    assert steps < 200
    engine._reader.set_progress_handler(None)
    await close_healthy(engine)


@pytest.mark.asyncio
async def test_a_page_that_ended_early_leaves_no_read_open(data: Path) -> None:
    engine = open_sqlite(data)
    await fill(engine, [(b"p", b"%03d" % index) for index in range(200)])
    for ranges in ([WHOLE], [KeyRange.of_partition(b"o"), KeyRange.of_partition(b"p")]):
        for rows_max, bytes_max in ((1, 1 << 20), (10, 1), (10, 1 << 20)):
            assert (await engine.read(ranges, rows_max=rows_max, bytes_max=bytes_max)).next_key
            assert engine._reader.txn_state("main") == apsw.SQLITE_TXN_NONE
    await close_healthy(engine)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_log_stays_bounded_under_constant_reads_and_writes(data: Path) -> None:
    engine = open_sqlite(data)
    is_writing = True

    async def read() -> None:
        while is_writing:
            await engine.read([WHOLE], rows_max=100, bytes_max=1 << 20)
            await asyncio.sleep(0)

    reading = asyncio.ensure_future(read())
    rows_written = 0
    log_bytes_max = 0
    bound = LOG_PAGES_MAX * PAGE_SIZE_BYTES + 2_000_000  # checked after each of these groups
    while rows_written * 50_000 < 4 * bound:
        changes = [Change(b"%06d" % (rows_written + i), ANY, put(BIG[:50_000])) for i in range(10)]
        await committed(engine, WriteSet(b"p", changes))
        rows_written += 10
        log_bytes_max = max(log_bytes_max, (data / "tablestone.db-wal").stat().st_size)
    is_writing = False
    await reading
    assert log_bytes_max < bound
    await close_healthy(engine)
