"""Concurrent merges of one entity run one after the other, so that few commits are wasted."""

import asyncio

import pytest
import pytest_asyncio

from tablestone import limits
from tablestone.engines import request_time
from tablestone.engines.contract import Committed, Conflict, EngineBusy, Key, WriteSet
from tablestone.engines.memory import MemoryEngine
from tablestone.engines.request_time import WriteQueues
from tablestone.model.entity import Entity
from tablestone.model.keys import EntityKey
from tablestone.model.operations import IF_MATCH_ANY, InsertEntity, MergeEntity
from tablestone.tables import storage_keys
from tablestone.tables.writes import commit_writes

pytestmark = pytest.mark.asyncio
TABLE_ID = b"\0" * storage_keys.TABLE_ID_LENGTH
CLIENTS = 16
MERGES = 5
PATIENCE_SECONDS = 10.0


def place_of(row: str) -> Key:
    return storage_keys.entity_place(TABLE_ID, EntityKey("p", row))


def merge(row: str, name: str, number: int = 0) -> MergeEntity:
    return MergeEntity(
        "table", Entity(EntityKey("p", row), {name: f'"{name}":{number}'}), IF_MATCH_ANY
    )


class YieldingEngine(MemoryEngine):
    def __init__(self) -> None:
        super().__init__(lambda: 1_000)
        self.commits = 0

    async def get(self, key: Key) -> bytes | None:
        found = await super().get(key)
        await asyncio.sleep(0)
        return found

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        self.commits += 1
        await asyncio.sleep(0)
        return await super().commit(write_set)


class Table:
    """A table with the entities `a` and `b`, and the writes of clients who do not wait for each other."""

    def __init__(self) -> None:
        self.engine = YieldingEngine()
        self.queues: WriteQueues[Key] = WriteQueues("entity")

    async def fill(self) -> None:
        for row in "ab":
            await self.write(InsertEntity("table", Entity(EntityKey("p", row), {})))
        self.engine.commits = 0

    async def write(self, *writes: InsertEntity | MergeEntity) -> None:
        await commit_writes(self.engine, self.queues, TABLE_ID, writes)

    async def stored(self, row: str) -> str:
        value = await self.engine.get(place_of(row))
        assert value is not None
        return value.decode()


@pytest_asyncio.fixture
async def table() -> Table:
    table = Table()
    await table.fill()
    return table


async def test_few_commits_are_in_vain(table: Table) -> None:
    async def client(number: int) -> None:
        for again in range(MERGES):
            await table.write(merge("a", f"c{number}", again))

    await asyncio.wait_for(asyncio.gather(*map(client, range(CLIENTS))), PATIENCE_SECONDS)
    # All begin at once, and one of them is first; from then on they take turns. Without turns there are 680 commits.
    assert table.engine.commits <= CLIENTS * (MERGES + 2)
    stored = await table.stored("a")
    for number in range(CLIENTS):
        assert f'"c{number}":{MERGES - 1}' in stored


async def test_merges_of_other_entities_do_not_wait(table: Table) -> None:
    await table.queues.begin(place_of("a"), 0.0)
    waits = asyncio.ensure_future(table.write(merge("a", "n")))
    await asyncio.wait_for(table.write(merge("b", "n")), PATIENCE_SECONDS)
    assert not waits.done()
    table.queues.end(place_of("a"))
    await asyncio.wait_for(waits, PATIENCE_SECONDS)
    assert '"n":0' in await table.stored("a")


async def test_groups_that_meet_at_two_entities_do_not_wait_for_each_other(table: Table) -> None:
    async def client(number: int) -> None:
        rows = "ab" if number % 2 else "ba"
        for again in range(MERGES):
            await table.write(*(merge(row, f"c{number}", again) for row in rows))
            await table.write(merge(rows[0], f"d{number}", again))

    await asyncio.wait_for(asyncio.gather(*map(client, range(CLIENTS))), PATIENCE_SECONDS)
    for row in "ab":
        stored = await table.stored(row)
        for number in range(CLIENTS):
            assert f'"c{number}":{MERGES - 1}' in stored


async def test_a_merge_that_is_cancelled_leaves_its_place(table: Table) -> None:
    await table.queues.begin(place_of("a"), 0.0)
    gone, waits = (asyncio.ensure_future(table.write(merge("a", name))) for name in ("x", "y"))
    await asyncio.sleep(0.01)
    gone.cancel()
    table.queues.end(place_of("a"))
    await asyncio.wait_for(waits, PATIENCE_SECONDS)
    assert place_of("a") not in table.queues
    assert '"y":0' in await table.stored("a")
    assert '"x":0' not in await table.stored("a")


async def test_a_merge_waits_no_longer_than_its_request_may(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    await table.queues.begin(place_of("a"), 0.0)
    monkeypatch.setattr(limits, "STORAGE_SECONDS_MAX", 0.05)

    async def request() -> None:
        request_time.begin()
        await table.write(merge("a", "n"))

    with pytest.raises(EngineBusy, match="Earlier writes to the same entity take too long"):
        await asyncio.wait_for(asyncio.ensure_future(request()), PATIENCE_SECONDS)
    table.queues.end(place_of("a"))
    assert place_of("a") not in table.queues
