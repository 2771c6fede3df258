"""Pages of filtered queries are the same on every engine, with and without hints; other requests run in between."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest
import pytest_asyncio

from storage.slow_engine import SlowEngine
from tablestone import limits
from tablestone.cooperative_scheduling import Turns
from tablestone.engines.capabilities import StoredIn
from tablestone.engines.contract import ANY, Change, Engine, Put, Rows, Snapshot, WriteSet
from tablestone.engines.forwarding_engine import ForwardingEngine
from tablestone.engines.memory import MemoryEngine
from tablestone.engines.registry import open_engine
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity_json import entity_renderer, key_of, members, read_raw
from tablestone.model.keys import ContinuationToken, EntityKey
from tablestone.model.operations import EntitiesPage, QueryEntities
from tablestone.tables import reads, storage_keys
from tablestone.tables.catalog import TableRecord
from unit.query.query_tables import parsed

TABLE_ID = b"\0" * storage_keys.TABLE_ID_LENGTH
TABLE = TableRecord("Table", TABLE_ID, 1, 1)
ROWS = 3_000
PARTITIONS = ("p", "q")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engines(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, Engine]]:
    """Both engines with the same 6,000 entities: n counts round to 100, d is half of it, every third has s."""
    path: Path = tmp_path_factory.mktemp("scan")
    opened = {
        name: open_engine(url, lambda: 638_000_000_000_000_000)
        for name, url in (("memory", "memory:"), ("sqlite", f"sqlite:{path / 'data'}"))
    }
    for engine in opened.values():
        for partition_key in PARTITIONS:
            changes = [_change(partition_key, number) for number in range(ROWS)]
            place = storage_keys.entity_place(TABLE_ID, EntityKey(partition_key, ""))
            await engine.commit(WriteSet(place.partition, changes))
    yield opened
    for engine in opened.values():
        await engine.close()


def _change(partition_key: str, number: int, n: int | None = None) -> Change:
    key = EntityKey(partition_key, f"{number:05}")
    properties = {
        "n": EdmValue(EdmType.INT32, number % 100 if n is None else n),
        "d": EdmValue(EdmType.DOUBLE, number % 100 / 2),
    }
    if number % 3 == 0:
        properties["s"] = EdmValue(EdmType.STRING, "é😀\\" * (2_000 if number % 999 == 0 else 1))
    row = storage_keys.entity_place(TABLE_ID, key).row
    return Change(row, ANY, Put(entity_renderer(key, members(properties).values())))


async def _page(
    engine: Engine,
    text: str,
    top: int,
    token: ContinuationToken | None,
    seconds: Callable[[], float],
) -> EntitiesPage:
    query = QueryEntities("table", parsed(text), top, None, token)
    return await reads.query_entities(engine, TABLE, query, lambda: 0, seconds, Turns(lambda: 0.0))


async def _pages(engine: Engine, text: str, top: int) -> list[EntitiesPage]:
    pages: list[EntitiesPage] = []
    token = None
    while not pages or token is not None:
        pages.append(await _page(engine, text, top, token, lambda: 0.0))
        token = pages[-1].token
    return pages


# a filter, how many entities match
FILTERS = [
    ("n eq 37", 60),
    ("n eq 99", 60),
    ("n gt 1000", 0),
    ("n lt 2 and d ge 0.5", 60),
    ("s eq 'é😀\\'", 1_992),
    ("d gt 49.0", 60),
    ("n eq 5 or d eq 3.5", 120),
    ("n ne 5", 5_940),
    ("not (n eq 5)", 5_940),
    ("RowKey ge '00010' and RowKey lt '00020' and d gt 2.0", 20),
    ("RowKey eq '00500'", 2),
    ("RowKey gt '02990' and PartitionKey ge 'b'", 18),
    ("RowKey lt '01500' and n eq 3", 30),
    ("(RowKey eq '00007' or RowKey ge '02998') and n ge 0", 6),
    ("PartitionKey eq 'q' and n eq 99", 30),
    ("PartitionKey eq 'p' and RowKey ge '02990' and n lt 95", 5),
    ("(PartitionKey eq 'p' or PartitionKey eq 'q' and RowKey gt '02000') and n eq 1", 40),
    ("Timestamp lt datetime'2000-01-01T00:00:00Z'", 0),
]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("top", [7, 30, 1000])
@pytest.mark.parametrize(("text", "matches"), FILTERS)
async def test_pages_and_tokens_are_the_same_with_and_without_hints(
    engines: dict[str, Engine], text: str, matches: int, top: int
) -> None:
    hinted = await _pages(engines["sqlite"], text, top)
    assert sum(len(page.stored) for page in hinted) == matches
    assert hinted == await _pages(engines["memory"], text, top)
    with mock.patch.object(reads, "hint_of", return_value=None):
        assert hinted == await _pages(engines["sqlite"], text, top)


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", ["memory", "sqlite"])
async def test_a_page_that_ran_out_of_time_goes_on_where_it_stopped(
    engines: dict[str, Engine], name: str
) -> None:
    """Whether or not there is a match (wire 6.6); the clock runs so fast that every reading is past the deadline."""
    for text, matches in (("n gt 1000", 0), ("n eq 37", 60)):
        found: list[bytes] = []
        token, pages = None, 0
        while pages == 0 or token is not None:
            now = iter(range(0, 1_000_000, limits.PAGE_SECONDS_MAX + 1))
            page = await _page(engines[name], text, 1_000, token, lambda now=now: float(next(now)))  # type: ignore[misc]
            found += page.stored
            token, pages = page.token, pages + 1
        assert pages > 5
        keys_found = [key_of(read_raw(stored)) for stored in found]
        assert len(keys_found) == len(set(keys_found)) == matches
        assert keys_found == sorted(keys_found)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", ["memory", "sqlite"])
async def test_a_scan_without_matches_lets_others_have_their_turn(
    engines: dict[str, Engine], name: str
) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    # Every reading of this clock is past the end of a turn.
    beside = asyncio.create_task(other())
    now = iter(range(1_000_000))
    page = await _page(
        engines[name], "n gt 1000", 1_000, None, lambda: next(now) * 2 * limits.TURN_SECONDS
    )
    beside.cancel()
    assert not page.stored
    assert turns >= 2 * ROWS / limits.SCAN_ROWS_PER_HINTED_READ - 1


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("stored_in", "expected"),
    [(StoredIn.DIRECTORY, [500] * 12), (StoredIn.SERVERS, [500, 1000, 2000, 3000])],
)
async def test_a_scan_of_other_servers_reads_more_and_more_at_a_time(
    engines: dict[str, Engine], stored_in: StoredIn, expected: list[int]
) -> None:
    asked: list[int] = []

    class Watched(ForwardingEngine):
        capabilities = replace(engines["memory"].capabilities, stored_in=stored_in, hints=False)

        async def snapshot(self) -> Snapshot:
            snapshot = await super().snapshot()
            read = snapshot.read

            async def watched(*arguments: Any, rows_max: int, **named: Any) -> Rows:
                asked.append(rows_max)
                return await read(*arguments, rows_max=rows_max, **named)

            return mock.Mock(read=watched, close=snapshot.close)

    assert not (await _page(Watched(engines["memory"]), "n gt 1000", 1_000, None, float)).stored
    assert asked == expected


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("text", "matches"), FILTERS)
async def test_pages_of_an_engine_over_a_network_join_to_the_same(
    engines: dict[str, Engine], text: str, matches: int
) -> None:
    """If a snapshot expires, pages may be shorter, and there are more of them (wire 6.6)."""
    engine = SlowEngine(engines["memory"], Random(3), passes=True)
    found = [stored for page in await _pages(engine, text, 1_000) for stored in page.stored]
    whole = [
        stored for page in await _pages(engines["memory"], text, 1_000) for stored in page.stored
    ]
    assert found == whole
    assert len(found) == matches


@pytest.mark.asyncio(loop_scope="module")
async def test_without_a_lasting_snapshot_no_page_shows_half_of_a_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A transaction writes one number into all rows of a partition; a page ends where it would show two (wire 7.1)."""
    monkeypatch.setattr(limits, "SCAN_ROWS_PER_READ", 7)
    memory = MemoryEngine(lambda: 638_000_000_000_000_000)
    engine = SlowEngine(memory, Random(4), passes=True)

    async def write(number: int) -> None:
        for partition_key in PARTITIONS:
            changes = [_change(partition_key, row, number) for row in range(20)]
            partition = storage_keys.entity_partition(TABLE_ID, partition_key)
            await engine.commit(WriteSet(partition, changes))

    async def keep_writing() -> None:
        for number in count(1):
            await write(number)

    await write(0)
    writing = asyncio.create_task(keep_writing())
    pages = [page for _ in range(20) for page in await _pages(engine, "n ge 0", 1_000)]
    writing.cancel()
    assert len(pages) > 40
    for page in pages:
        shown = {(raw["PartitionKey"], raw["n"]) for raw in map(read_raw, page.stored)}
        assert len(shown) == len({partition_key for partition_key, _ in shown})
    assert max(len(page.stored) for page in pages) >= 7


def _scan(engine: Engine, turns: Turns) -> asyncio.Task[EntitiesPage]:
    """A scan without a match; each of its clock readings is past the end of a turn."""
    now = iter(range(1_000_000))
    query = QueryEntities("table", parsed("n gt 1000"), 1_000, None, None)
    seconds = lambda: next(now) * 2 * limits.TURN_SECONDS  # noqa: E731
    return asyncio.create_task(
        reads.query_entities(engine, TABLE, query, lambda: 0, seconds, turns)
    )


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("scans", [1, 5])
async def test_others_wait_for_one_turn_of_however_many_scans(
    engines: dict[str, Engine], scans: int
) -> None:
    turn_ends, most = 0, 0
    goes_on = reads.FilteredScan._goes_on

    async def counted(scan: reads.FilteredScan, now: float) -> bool:
        nonlocal turn_ends
        turn_ends += 1
        return await goes_on(scan, now)

    async def other() -> None:
        nonlocal turn_ends, most
        while True:
            most, turn_ends = max(most, turn_ends), 0
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    turns = Turns(lambda: 0.0)
    with mock.patch.object(reads.FilteredScan, "_goes_on", counted):
        await asyncio.gather(*(_scan(engines["sqlite"], turns) for _ in range(scans)))
    beside.cancel()
    assert most == 1


@pytest.mark.asyncio(loop_scope="module")
async def test_a_scan_that_is_cancelled_leaves_the_line(engines: dict[str, Engine]) -> None:
    """Whether the scan has its turn or not, other requests run, one at a time."""
    turns = Turns(lambda: 0.0)
    for cancelled in range(4):
        scans = [_scan(engines["sqlite"], turns) for _ in range(4)]
        for _ in range(5):
            await asyncio.sleep(0)
        scans[cancelled].cancel()
        ended = await asyncio.gather(*scans, return_exceptions=True)
        assert [isinstance(each, asyncio.CancelledError) for each in ended] == [
            number == cancelled for number in range(4)
        ]
