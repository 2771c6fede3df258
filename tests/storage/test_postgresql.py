"""What only the PostgreSQL engine has to solve: long keys, cut connections, locks, clocks, and what it is opened on.

The tests start a server of their own. The contract's tests run on this engine if ENGINE_UNDER_TEST names it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import secrets
import signal
import sys
import threading
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableServiceClient

from server_process import start_server
from storage.conftest import HeldClock
from storage.postgresql_server import LATE_SECONDS, Cut, Proxy, running_server, why_not
from storage.test_hints import HOLDS, LARGE, VALUES
from storage.write_sets import committed, insert, put, read_all, upsert
from tablestone.clock import system_clock
from tablestone.engines import request_time
from tablestone.engines.contract import (
    ABSENT,
    ANY,
    DELETE,
    PRESENT,
    Change,
    Committed,
    EngineBusy,
    EngineRefused,
    EngineUnavailable,
    Entry,
    Key,
    KeyRange,
    NothingStored,
    NumberAfter,
    OutcomeUnknown,
    ReliedRows,
    RowBetween,
    StorageId,
    Update,
    WriteSet,
)
from tablestone.engines.postgresql.address import parse_address
from tablestone.engines.registry import open_engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tablestone.engines.contract import Conflict, Engine, Hint

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
WHOLE = KeyRange(Key(b"", b""), Key(b"\xff" * 8, b""))
PARTITION_BYTES, ROW_BYTES = 3081, 3072


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running_server() as port:
        yield port


@pytest.fixture
def url(port: int) -> str:
    """A schema that does not exist yet."""
    return f"postgresql://postgres@127.0.0.1:{port}/postgres?schema=s{secrets.token_hex(6)}"


@pytest.fixture(autouse=True)
def own_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    from tablestone.engines.postgresql import checks  # noqa: PLC0415 - needs the driver

    monkeypatch.setattr(checks, "CLOCK_SECONDS_MAX", math.inf)


@pytest.fixture
def proxy(port: int) -> Iterator[Proxy]:
    proxy = Proxy(port)
    yield proxy
    proxy.close()


def through(proxy: Proxy, url: str) -> str:
    return url.replace(f":{proxy.server_port}/", f":{proxy.port}/")


@asynccontextmanager
async def opened(url: str, now: int = 1_000, **how: Any) -> AsyncIterator[Engine]:
    clock = HeldClock()
    clock.now = now
    engine = open_engine(url, clock, **how)
    try:
        yield engine
        assert await engine.check() == []
    finally:
        await engine.close()


async def executed(url: str, statements: str) -> None:
    """As the owner of the database."""
    import asyncpg  # noqa: PLC0415 - the tests are skipped without it

    driver = await asyncpg.connect(url.partition("?")[0])
    await driver.execute(statements)
    await driver.close()


# Keys.


@pytest.mark.asyncio
async def test_the_longest_keys_are_stored_in_order(url: str) -> None:
    draws = random.Random(7)
    partition = draws.randbytes(PARTITION_BYTES - 2) + b"\0\0"
    common = draws.randbytes(ROW_BYTES - 2)
    rows = [common + end for end in (b"\0\0", b"\0\1", b"a", b"ab", b"b", b"\xff\xff")]
    keys = [Key(partition, row) for row in sorted(rows)]
    keys += [Key(partition[:-1] + b"\1", b""), Key(b"\xff\xfe" + b"\0" * 3000, b"\0" * 3000)]
    keys = sorted([*keys, Key(b"", b""), Key(b"\0", b""), Key(b"\0\0", b"x"), Key(b"\0\1", b"")])
    async with opened(url) as engine:
        for key in draws.sample(keys, len(keys)):
            await committed(engine, insert(key.partition, key.row, repr(key).encode()))
        expected = [repr(key).encode() for key in keys]
        assert [await engine.get(key) for key in keys] == expected
        assert await read_all(engine, WHOLE) == expected
        scanned = await engine.scan(WHOLE, rows_max=100)
        assert [Key(row.partition, row.row) for row in scanned] == keys
        for index, key in enumerate(keys[:-1]):
            page = await engine.read([KeyRange(key, WHOLE.end)], rows_max=1, bytes_max=1 << 20)
            assert (page.values, page.next_key) == ([expected[index]], keys[index + 1])


@pytest.mark.asyncio
async def test_the_longest_entries_are_stored_in_order(url: str) -> None:
    draws = random.Random(8)
    partition, entry = draws.randbytes(PARTITION_BYTES), draws.randbytes(3000)
    rows = sorted(draws.randbytes(ROW_BYTES) for _ in range(5))
    async with opened(url) as engine:
        for row in rows:
            changes = [Change(row, ABSENT, put(b"v"))]
            await committed(engine, WriteSet(partition, changes, entries_of=lambda _value: [entry]))
        snapshot = await engine.snapshot()
        start, end = Entry(entry, b"", b""), Entry(entry + b"\0", b"", b"")
        found = await snapshot.entries(start, end, entries_max=9)
        assert found == [Entry(entry, partition, row) for row in rows]
        assert await snapshot.entries(found[3], end, entries_max=9) == found[3:]
        assert await snapshot.count_entries(start, end, entries_max=9) == 5
        await snapshot.close()


@pytest.mark.asyncio
async def test_a_page_does_not_fetch_the_values_that_it_leaves_unread(
    url: str, proxy: Proxy
) -> None:
    async with opened(through(proxy, url)) as engine:
        for number in range(30):
            await committed(engine, insert(b"p", b"%02d" % number, secrets.token_bytes(100_000)))
        before = proxy.bytes_received
        page = await engine.read([WHOLE], rows_max=30, bytes_max=150_000)
        assert (len(page.values), page.next_key) == (2, Key(b"p", b"02"))
        assert proxy.bytes_received - before < 300_000


@pytest.mark.asyncio
async def test_a_scan_ends_after_some_mib(
    url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 rows of 1 MiB would fill the memory of a sweep."""
    from tablestone.engines.postgresql import read  # noqa: PLC0415 - needs the driver

    assert read.SCAN_BYTES_MAX == 8 << 20
    monkeypatch.setattr(read, "SCAN_BYTES_MAX", 800_000)
    async with opened(through(proxy, url)) as engine:
        for number in range(30):
            value = secrets.token_bytes(100_000)
            await committed(engine, insert(b"p", b"%02d" % number, value))
        before, rest, seen = proxy.bytes_received, WHOLE, list[bytes]()
        while rows := await engine.scan(rest, rows_max=1_000):
            assert proxy.bytes_received - before < 900_000
            seen += [row.row for row in rows]
            before = proxy.bytes_received
            rest = KeyRange(Key(rows[-1].partition, rows[-1].row + b"\0"), WHOLE.end)
        assert seen == [b"%02d" % number for number in range(30)]


@pytest.mark.asyncio
@pytest.mark.parametrize(("name", "hint", "held"), HOLDS, ids=[row[0] for row in HOLDS])
async def test_what_a_hint_leaves_out_does_not_cross_the_network(
    url: str, proxy: Proxy, name: str, hint: Hint, held: set[int]
) -> None:
    held = held | {LARGE} if "absent" in name else held
    filler = b',"f":"' + b"f" * 10_000 + b'"'
    async with opened(through(proxy, url)) as engine:
        for number, value in enumerate(VALUES):
            await committed(engine, insert(b"p", b"%d" % number, value + filler))
        snapshot = await engine.snapshot()
        await snapshot.read([WHOLE], rows_max=1, bytes_max=1)
        before = proxy.bytes_received
        rows = await snapshot.read([WHOLE], rows_max=100, bytes_max=1 << 20, hint=hint)
        assert {VALUES.index(value.removesuffix(filler)) for value in rows.values} == held
        assert (rows.next_key, rows.left_out) == (None, len(VALUES) - len(held))
        assert proxy.bytes_received - before < 12_000 * len(held) + 10_000
        await snapshot.close()


@pytest.mark.asyncio
async def test_no_bytes_after_a_marker_are_an_error(url: str) -> None:
    """Neither numbers that PostgreSQL cannot hold nor bytes that are no text."""
    odd = [b"1e999", b"-1E-999", b"9" * 40, b"1" + b"0" * 24, b"\0\xff\\", b"0x10", b"1.", b"--1"]
    values = [b'{"k":1,"n":' + each + end for each in odd for end in (b"}", b"", b'"}')]
    async with opened(url) as engine:
        for number, value in enumerate(values):
            await committed(engine, insert(b"p\0\0p", b"%02d" % number, value))
        snapshot = await engine.snapshot()
        for quoted in (False, True):
            hint = NumberAfter(b',"n":', 5.0, 6.0, quoted=quoted, integers=False)
            rows = await snapshot.read([WHOLE], rows_max=100, bytes_max=1 << 20, hint=hint)
            assert len(rows.values) + rows.left_out == len(values)
        inside = RowBetween(b"07", b"09")
        rows = await snapshot.read([WHOLE], rows_max=100, bytes_max=1 << 20, hint=inside)
        assert rows.values == values[7:9]
        await snapshot.close()


# Outcomes.


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("how", "is_carried_out"),
    [("before", False), ("late", False), ("during", None), ("after", True)],
)
async def test_a_commit_that_is_cut_is_applied_once(
    url: str, proxy: Proxy, how: str, *, is_carried_out: bool | None
) -> None:
    """One that was not carried out is tried again."""
    acknowledged = [b"first"]
    async with opened(through(proxy, url)) as engine:
        await committed(engine, insert(b"p", b"first", b"first"))
        for number in range(6):
            # The connection has its session and the statement: the next message is the commit.
            await committed(engine, upsert(b"other", b"r"))
            row = b"row %d" % number
            proxy.cuts = [Cut(b"commit_rows", how)]
            repeated = engine.measure()["postgresql_commits_repeated"]  # type: ignore[attr-defined]
            await committed(engine, insert(b"p", row, row))
            repeated = engine.measure()["postgresql_commits_repeated"] - repeated  # type: ignore[attr-defined]
            assert is_carried_out is None or repeated == (not is_carried_out)
            acknowledged.append(row)
            assert not proxy.cuts
            # If the answer came before the cut, the connection that is lost is an idle one.
            with contextlib.suppress(EngineBusy):
                await engine.commit(upsert(b"other", b"r"))
        await asyncio.sleep(3 * LATE_SECONDS if how == "late" else 0)
        stored = await read_all(engine, KeyRange.of_partition(b"p"))
        assert stored == acknowledged


@pytest.mark.asyncio
async def test_a_commit_that_is_lost_twice_is_given_up(url: str, proxy: Proxy) -> None:
    """Perhaps it is what ends the connections."""
    async with opened(through(proxy, url)) as engine:
        await committed(engine, upsert(b"p", b"warm"))
        proxy.cuts = [Cut(b"commit_rows", "before", is_statement=True) for _ in range(2)]
        with pytest.raises(EngineBusy, match="did not carry out the commit"):
            await engine.commit(insert(b"p", b"r"))
        assert not proxy.cuts
        await committed(engine, insert(b"p", b"r"))


@pytest.mark.asyncio
async def test_the_answer_about_an_outcome_may_get_lost_too(url: str, proxy: Proxy) -> None:
    async with opened(through(proxy, url)) as engine:
        await committed(engine, upsert(b"p", b"warm"))
        proxy.cuts = [Cut(b"commit_rows", "after"), Cut(b"sessions SET ended", "after")]
        await committed(engine, insert(b"p", b"r"))
        assert not proxy.cuts
        assert await engine.get(Key(b"p", b"r")) == b"value"


@pytest.mark.asyncio
async def test_the_outcome_is_unknown_if_the_server_stays_away(
    url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tablestone.engines.postgresql.commit.OUTCOME_SECONDS_MAX", 0.5)
    async with opened(through(proxy, url)) as engine:
        await committed(engine, upsert(b"p", b"warm"))
        proxy.cuts, proxy.away_after_cuts = [Cut(b"commit_rows", "after")], True
        with pytest.raises(OutcomeUnknown):
            await engine.commit(insert(b"p", b"r"))
        with pytest.raises(EngineBusy):
            await engine.get(Key(b"p", b"r"))
        proxy.is_away = False
        assert await engine.get(Key(b"p", b"r")) == b"value"


@pytest.mark.asyncio
async def test_a_session_that_was_forgotten_begins_again(url: str) -> None:
    schema = parse_address(url).schema
    async with opened(url) as engine:
        await committed(engine, insert(b"p", b"1"))
        await executed(url, f"DELETE FROM {schema}.sessions")
        await committed(engine, insert(b"p", b"2"))
        assert await read_all(engine, WHOLE) == [b"value"] * 2


@pytest.mark.asyncio
async def test_a_cancelled_call_leaves_no_connection_in_use(url: str) -> None:
    async with opened(url + "&connections=1") as engine:
        await committed(engine, insert(b"p", b"r", b"v" * 100_000))
        for steps in range(12):
            snapshot = await engine.snapshot()
            reads = [
                asyncio.ensure_future(engine.get(Key(b"p", b"r"))),
                asyncio.ensure_future(snapshot.read([WHOLE], rows_max=9, bytes_max=9)),
            ]
            for _ in range(steps):
                await asyncio.sleep(0.0005)
            for task in reads:
                task.cancel()
            await asyncio.gather(*reads, return_exceptions=True)
            await snapshot.close()
        async with asyncio.timeout(5):
            assert len(await read_all(engine, WHOLE)) == 1
            await committed(engine, upsert(b"p", b"r"))


@pytest.mark.asyncio
async def test_a_connection_that_does_not_answer_in_time_is_given_up(
    url: str, proxy: Proxy
) -> None:
    async def get(seconds: float) -> bytes | None:
        request_time.begin(seconds)
        return await engine.get(Key(b"p", b"r"))

    async with opened(through(proxy, url) + "&connections=1") as engine:
        await committed(engine, insert(b"p", b"r"))
        await engine.get(Key(b"p", b"r"))
        proxy.cuts = [Cut(b"SELECT value FROM rows", "hang")]
        with pytest.raises(EngineBusy):
            await asyncio.create_task(get(0.3))
        assert not proxy.cuts
        assert await asyncio.create_task(get(3)) == b"value"


@pytest.mark.asyncio
async def test_a_snapshot_that_cannot_be_ended_is_given_up(url: str, proxy: Proxy) -> None:
    async with opened(through(proxy, url) + "&connections=1") as engine, asyncio.timeout(10):
        await committed(engine, insert(b"p", b"r"))
        for cuts in ([Cut(b"BEGIN ISOLATION", "hang")], []):
            snapshot = await engine.snapshot()
            page = await snapshot.read([WHOLE], rows_max=9, bytes_max=9)
            assert page.values == [b"value"]
            proxy.cuts = cuts
            await snapshot.close()
            assert not proxy.cuts


# Locks and versions.


@pytest.mark.asyncio
async def test_writers_whose_locks_have_equal_numbers_do_not_wait_for_each_other(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each partition relies on rows of the next two, and all locks have one of two numbers."""
    from tablestone.engines.postgresql.commit import Commits  # noqa: PLC0415 - needs the driver

    monkeypatch.setattr(Commits, "lock_of", lambda _commits, partition: partition[0] % 2)

    def one_more(value: bytes | None) -> Any:
        return put(b"%d" % (int(value or b"0") + 1))

    async def write(engine: Engine, partition: int) -> Committed | Conflict:
        others = [Key(bytes([(partition + n) % 4]), b"none") for n in (1, 2)]
        relied = ReliedRows([(key, ABSENT) for key in others], None)
        changes = [Change(b"r", ANY, Update(one_more))]
        return await engine.commit(WriteSet(bytes([partition]), changes, relies_on=relied))

    async with opened(url) as one, opened(url) as other, asyncio.timeout(30):
        writes = [write(engine, n % 4) for n in range(60) for engine in (one, other)]
        for outcome in await asyncio.gather(*writes):
            assert isinstance(outcome, Committed)
        assert await read_all(one, WHOLE) == [b"30"] * 4


@pytest.mark.asyncio
async def test_a_commit_takes_64_locks_and_no_more(url: str) -> None:
    def relying_on(count: int) -> WriteSet:
        relied = ReliedRows([(Key(b"%d" % n, b"r"), ABSENT) for n in range(count)], None)
        return WriteSet(b"p", [Change(b"r", ANY, put(b"v"))], relies_on=relied)

    async with opened(url) as engine:
        await committed(engine, relying_on(63))
        with pytest.raises(EngineUnavailable, match="rows of 64 other partitions: at most 63"):
            await engine.commit(relying_on(64))


@pytest.mark.asyncio
async def test_a_commit_begins_again_after_a_deadlock(url: str) -> None:
    import asyncpg  # noqa: PLC0415

    async with opened(url) as engine:
        commits = engine._commits  # type: ignore[attr-defined]
        first, second = sorted(commits.lock_of(name) for name in (b"p", b"other"))
        driver = await asyncpg.connect(url.partition("?")[0])
        async with driver.transaction():
            await driver.execute(f"SELECT pg_advisory_xact_lock({second})")
            relied = ReliedRows([(Key(b"other", b"r"), ABSENT)], None)
            write = asyncio.ensure_future(
                engine.commit(WriteSet(b"p", [Change(b"r", ANY, put(b"v"))], relies_on=relied))
            )
            await asyncio.sleep(0.3)
            await driver.execute(f"SELECT pg_advisory_xact_lock({first})")
        assert isinstance(await write, Committed)
        assert commits.repeated == 1
        await driver.close()


@pytest.mark.asyncio
async def test_a_commit_counts_whose_relied_row_changes_while_it_waits_for_the_lock(
    url: str,
) -> None:
    """A commit that waits behind a change of the row it relies on sees the change."""
    schema = parse_address(url).schema
    async with opened(url) as one, opened(url) as other:
        [version] = await committed(one, insert(b"table", b"r"))
        commits = one._commits  # type: ignore[attr-defined]
        lock = commits.lock_of(b"table")
        import asyncpg  # noqa: PLC0415

        driver = await asyncpg.connect(url.partition("?")[0])
        async with driver.transaction():
            await driver.execute(f"SELECT pg_advisory_xact_lock({lock})")
            relied = ReliedRows([(Key(b"table", b"r"), version)], None)
            write = asyncio.ensure_future(
                other.commit(WriteSet(b"p", [Change(b"r", ANY, put(b"v"))], relies_on=relied))
            )
            await asyncio.sleep(0.3)
            assert not write.done()
            await driver.execute(f"UPDATE {schema}.rows SET version = version + 1")
        outcome = await write
        assert not isinstance(outcome, Committed)
        assert outcome.outdated
        await driver.close()


@pytest.mark.asyncio
async def test_a_clock_that_is_behind_gives_no_version_again(url: str) -> None:
    async with opened(url, now=50_000) as ahead, opened(url, now=1_000) as behind:
        [deleted] = await committed(ahead, insert(b"p", b"r"))
        await committed(ahead, WriteSet(b"p", [Change(b"r", PRESENT, DELETE)]))
        [again] = await committed(behind, insert(b"p", b"r"))
        assert (deleted, again) == (50_000, 50_001)


@pytest.mark.asyncio
async def test_old_floors_and_sessions_are_forgotten(url: str) -> None:
    import asyncpg  # noqa: PLC0415

    schema = parse_address(url).schema
    now = system_clock()
    async with opened(url, now=now) as engine:
        for partition in (b"old", b"new"):
            await committed(engine, insert(partition, b"r"))
            await committed(engine, WriteSet(partition, [Change(b"r", PRESENT, DELETE)]))
        commits = engine._commits  # type: ignore[attr-defined]
        hours = 2 * 3600 * 10**7
        await executed(
            url,
            f"UPDATE {schema}.floors SET version = version - {hours} "
            f"WHERE partition = {commits.lock_of(b'old')};"
            f"INSERT INTO {schema}.sessions (id, at) VALUES (gen_random_uuid(), now() - interval '2 days')",
        )
        watch = asyncio.ensure_future(engine.watch(leads=True))
        driver = await asyncpg.connect(url.partition("?")[0])
        try:
            async with asyncio.timeout(10):
                sessions = f"SELECT count(*) FROM {schema}.sessions"
                while await driver.fetchval(sessions) > 1:  # noqa: ASYNC110 - of another process
                    await asyncio.sleep(0.02)
            left = await driver.fetch(f"SELECT partition FROM {schema}.floors")
            assert [row[0] for row in left] == [commits.lock_of(b"new")]
        finally:
            watch.cancel()
            await driver.close()


# What it is opened on.


@pytest.mark.asyncio
async def test_two_engines_share_a_schema(url: str) -> None:
    async with opened(url) as one, opened(url) as other:
        for number in range(5):
            await committed(one, upsert(b"p", b"r", b"%d" % number))
            assert await other.get(Key(b"p", b"r")) == b"%d" % number


@pytest.mark.asyncio
async def test_an_engine_for_reading_makes_and_writes_nothing(url: str) -> None:
    with pytest.raises(NothingStored):
        open_engine(url, HeldClock(), read_only=True)
    with pytest.raises(NothingStored):
        open_engine(url, HeldClock(), read_only=True)
    async with opened(url) as engine:
        await committed(engine, insert(b"p", b"r"))
    async with opened(url, read_only=True) as engine:
        assert await engine.get(Key(b"p", b"r")) == b"value"
        with pytest.raises(EngineUnavailable, match="opened for reading only"):
            await engine.commit(insert(b"p", b"s"))


def refusal(url: str, **how: Any) -> str:
    with pytest.raises(EngineRefused) as refused:
        open_engine(url, HeldClock(), **how)
    said = str(refused.value)
    assert said.endswith(".")
    assert "\n" not in said
    return said


@pytest.mark.asyncio
async def test_another_storage_a_foreign_schema_and_a_newer_format_are_refused(url: str) -> None:
    schema = parse_address(url).schema
    await executed(url, f"CREATE SCHEMA {schema}")  # by the administrator, for this program
    async with opened(url):
        pass
    assert "is not the one that the server was started on" in refusal(
        url, storage=StorageId(b"x" * 16)
    )
    await executed(url, f"UPDATE {schema}.storage SET format = 3")
    assert "has the format 3, and this Tablestone reads 2: use the version" in refusal(url)
    foreign = f"s{secrets.token_hex(6)}"
    await executed(url, f"CREATE SCHEMA {foreign} CREATE TABLE things (id integer)")
    assert "is another program's" in refusal(url.replace(schema, foreign))


@pytest.mark.asyncio
async def test_what_cannot_be_used_is_said_in_a_sentence(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await executed(
        url,
        "DROP ROLE IF EXISTS locked; CREATE ROLE locked LOGIN PASSWORD 'right';"
        "DROP ROLE IF EXISTS poor; CREATE ROLE poor LOGIN",
    )
    monkeypatch.setenv("PGPASSWORD", "wrong")
    said = refusal(url.replace("postgres@", "locked@"))
    assert 'cannot be used: password authentication failed for user "locked" (the pass' in said
    assert "wrong" not in said
    assert 'database "none" does not exist' in refusal(url.replace("/postgres?", "/none?"))
    assert "does not exist, and this role may not make it: run `tablestone postgresql init" in (
        refusal(url.replace("postgres@", "poor@"))
    )
    port = parse_address(url).netloc.rpartition(":")[2]
    said = refusal(url.replace(port, "1"))
    assert said.endswith("there is no connection to 127.0.0.1:1 (Connection refused).")
    said = refusal(url.replace(f"127.0.0.1:{port}", "no-such-host.invalid"))
    assert "there is no connection to no-such-host.invalid:5432 (" in said
    assert "Errno" not in said
    for wrong in ("a..b", "a" * 64):
        assert "no such host or port" in refusal(url.replace("127.0.0.1", wrong))
    assert "no such host or port" in refusal(url.replace(f":{port}/", ":99999/"))
    monkeypatch.setenv("PGPORT", "none")
    assert "no such host or port" in refusal(url.replace(f":{port}/", "/"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("postgresql://u:secret@h/d", "A password has no place in the engine's URL"),
        ("postgresql://h/", "its form is"),
        ("postgresql://h/d?schema=Big", "small letters"),
        ("postgresql://h/d?schema=public", "the schema public is for all programs, and the tables"),
        ("postgresql://h/d?connections=0", "from 1 to"),
        ("postgresql://h/d?fenced=no", "fenced is yes, or left out"),
        ("postgresql://h/d?wait=1", "there is no option 'wait'"),
        ("postgresql://h:x/d", "no host with or without a port"),
        ("postgresql://h/a%0Ab", "'a\\nb' is no name of a database"),
        ("postgresql://h/a/b", "'a/b' is no name of a database"),
        ("postgresql://h/d?schema=a&schema=b", "needs one value"),
    ],
)
def test_a_url_that_is_wrong_is_refused(given: str, said: str) -> None:
    with pytest.raises(EngineRefused) as refused:
        parse_address(given)
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.asyncio
async def test_defaults_of_the_role_do_not_count(url: str) -> None:
    await executed(
        url,
        "DROP ROLE IF EXISTS strange; CREATE ROLE strange LOGIN SUPERUSER;"
        "ALTER ROLE strange SET statement_timeout = '1ms';"
        "ALTER ROLE strange SET default_transaction_isolation = 'serializable';"
        "ALTER ROLE strange SET default_transaction_read_only = on;"
        "ALTER ROLE strange SET synchronous_commit = off;"
        "ALTER ROLE strange SET client_min_messages = error",
    )
    async with opened(url.replace("postgres@", "strange@")) as engine:
        await asyncio.gather(
            *(engine.commit(upsert(b"p%d" % (n % 3), b"r%d" % n)) for n in range(30))
        )
        assert len(await read_all(engine, WHOLE)) == 30
        connections = engine._connections  # type: ignore[attr-defined]
        async with connections.one() as connection:
            for name, value in (("synchronous_commit", "on"), ("client_min_messages", "warning")):
                [(found,)] = await connection.fetch(f"SHOW {name}")
                assert found == value


# A server.


@pytest.mark.sdk
def test_storage_is_opened_without_a_thread_before_a_fork() -> None:
    """Of 25 starts with two workers, four hung: a thread that ended held a lock of OpenSSL when the worker forked."""
    from tablestone.engines.postgresql import opening  # noqa: PLC0415 - needs the driver

    async def thread() -> int:
        return threading.get_ident()

    async def on_a_loop() -> int:
        return opening._on_a_loop(thread())

    assert opening._on_a_loop(thread()) == threading.get_ident()
    assert asyncio.run(on_a_loop()) != threading.get_ident()


def test_a_server_with_two_workers_survives_the_loss_of_one(url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tablestone"]
    server = start_server(tmp_path, "--engine", url, "--workers", "2", command=command)
    try:
        service = TableServiceClient.from_connection_string(server.connection_string)
        table = service.create_table("things")
        for number in range(20):
            table.create_entity({"PartitionKey": "p", "RowKey": f"{number:02}", "n": number})
        children = f"/proc/{server.process.pid}/task/{server.process.pid}/children"
        with open(children, encoding="ascii") as listed:  # noqa: PTH123
            workers = [int(number) for number in listed.read().split()]
        os.kill(workers[0], signal.SIGKILL)
        stored, until = 20, time.monotonic() + 20
        while stored < 40 and time.monotonic() < until:
            try:
                table.create_entity({"PartitionKey": "p", "RowKey": f"{stored:02}", "n": stored})
                stored += 1
            except HttpResponseError:
                time.sleep(0.1)
        found = [entity["n"] for entity in table.query_entities("n ge 10")]
        assert found == list(range(10, 40))
    finally:
        server.kill()
