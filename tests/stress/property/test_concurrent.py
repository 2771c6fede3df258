"""Many clients of one service at once, on every engine; their histories are checked afterwards.

Storage pauses at random around every call, so the clients interleave in every order, even on an engine that would
answer at once. The clock jitters in both directions.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random

import pytest
import pytest_asyncio

from storage.engines_under_test import STORAGES, engines_for
from stress.property.histories import (
    Done,
    History,
    inserts_and_deletes_alternate,
    nothing_goes_back,
    nothing_outlives_its_table,
    one_success_per_version,
    versions_are_given_once,
    what_is_written_is_read,
)
from stress.property.pausing import JitteringClock, PausingEngine
from tablestone import limits
from tablestone.clock import TICKS_PER_SECOND
from tablestone.engines.contract import Engine, Key, KeyRange, StoredRow, WriteSet
from tablestone.model.entity import Entity
from tablestone.model.entity_json import read_raw, typed_properties, version_of
from tablestone.model.errors import StorageError
from tablestone.model.keys import EntityKey
from tablestone.model.operations import (
    IF_MATCH_ANY,
    CreateTable,
    DeleteEntity,
    DeleteTable,
    EntitiesPage,
    EntityFound,
    EntityGroupTransaction,
    EntityInserted,
    EntityWrite,
    EntityWritten,
    GetEntity,
    InsertEntity,
    InsertOrMergeEntity,
    InsertOrReplaceEntity,
    MergeEntity,
    Operation,
    QueryEntities,
    Result,
)
from tablestone.query.filter_parser import parse_filter
from tablestone.tables.account_incarnation import Named
from tablestone.tables.integrity import check_rows
from tablestone.tables.service import TableService
from tablestone.tables.storage_keys import TABLE_ID_LENGTH, entity_partition, is_for_leases
from tablestone.tables.sweeping import Sweeper
from tablestone.tables.writes import change_of
from tablestone.wire.json_payload import decode_entity

ACCOUNT = Named("histories")
TABLE = "Water"
KEY = EntityKey("a", "b")
CLIENTS = 6
ROUNDS = 12
BUSY_TURNS_MAX = 1000  # of all clients together, while a table is deleted and created again once
EVERYTHING = KeyRange(Key(b"", b""), Key(b"\xff" * 16, b""))


class Scene:
    """A service with one empty table, a history, and what clients do with them.

    With several engines it is several services, as in a server of several processes: each request goes to any of them.
    """

    def __init__(self, engines: list[Engine], clock: JitteringClock, random: Random) -> None:
        self.engine = engines[0]
        self.clock = clock
        self.random = random
        self.history = History()
        ids = iter(range(1, 1 << 32))
        self.services = [
            TableService(
                engine, clock, lambda: 0.0, lambda: next(ids).to_bytes(TABLE_ID_LENGTH, "big")
            )
            for engine in engines
        ]
        self._sweepers = [
            Sweeper(engine, clock, lambda: next(ids).to_bytes(8, "big")) for engine in engines
        ]

    @property
    def service(self) -> TableService:
        return self.random.choice(self.services)

    @property
    def sweeper(self) -> Sweeper:
        return self.random.choice(self._sweepers)

    async def execute(self, operation: Operation) -> Result:
        return await self.service.execute(ACCOUNT, operation)

    async def at_once(
        self, client: Callable[[int], Awaitable[None]], clients: int = CLIENTS
    ) -> None:
        await asyncio.gather(*[client(number) for number in range(clients)])

    async def write(
        self, kind: str, write: EntityWrite, condition: int | None = None, label: int = 0
    ) -> Done:
        """A recorded write; a refusal that the protocol allows is an outcome."""

        async def call() -> Done:
            try:
                result = await self.execute(write)
            except StorageError as error:
                if error.status not in (404, 409, 412):
                    raise
                return Done(None, condition)
            version = result.version if isinstance(result, EntityWritten | EntityInserted) else 0
            return Done(version, condition, label=label)

        return await self.history.record(kind, call)

    async def get(self) -> tuple[int, dict[str, int]]:
        """The entity's version and its integers, recorded as a read."""
        found: dict[str, int] = {}

        async def call() -> Done:
            result = await self.execute(GetEntity(TABLE, KEY, None))
            assert isinstance(result, EntityFound)
            found.update(integers(result.stored))
            return Done(version_of(result.stored))

        done = await self.history.record("read", call)
        assert done.outcome is not None
        return done.outcome, found

    async def stored(self) -> list[StoredRow]:
        """All rows but those that only leases need."""
        rows = await self.engine.scan(EVERYTHING, rows_max=10_000)
        return [row for row in rows if not is_for_leases(Key(row.partition, row.row))]

    async def entities(self, filter_text: str = "") -> list[bytes]:
        query = QueryEntities(TABLE, parse_filter(filter_text), 1000, None, None)
        result = await self.execute(query)
        assert isinstance(result, EntitiesPage)
        return list(result.stored)


def integers(stored: bytes) -> dict[str, int]:
    found = {}
    for name, typed in typed_properties(read_raw(stored)).items():
        assert isinstance(typed.value, int)
        found[name] = typed.value
    return found


def entity(key: EntityKey, **given: int) -> Entity:
    body = {"PartitionKey": key.partition_key, "RowKey": key.row_key, **given}
    return Entity(*decode_entity(json.dumps(body).encode(), None))


@pytest_asyncio.fixture(params=[(engine, seed) for engine in STORAGES for seed in (1, 2)], ids=str)
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    """A scene on each engine with several seeds; storage must be consistent at the end."""
    name, seed = request.param
    random = Random(seed)
    clock = JitteringClock(random)
    url, servers = STORAGES[name]
    engines = engines_for(url, clock, servers, directory=os.fspath(tmp_path))
    scene = Scene([PausingEngine(engine, random) for engine in engines], clock, random)
    await scene.execute(CreateTable(TABLE))
    yield scene
    for engine in engines:
        assert await check_rows(engine) == []
        assert await engine.check() == []
        await engine.close()


@pytest.mark.asyncio
async def test_counters_incremented_under_an_etag_lose_nothing(scene: Scene) -> None:
    await scene.execute(InsertEntity(TABLE, entity(KEY, n=0)))

    async def client(_number: int) -> None:
        for _ in range(ROUNDS):
            version, found = await scene.get()
            merge = MergeEntity(TABLE, entity(KEY, n=found["n"] + 1), version)
            await scene.write("write", merge, version)

    await scene.at_once(client)
    writes = scene.history.successes("write")
    assert len(writes) < CLIENTS * ROUNDS, "nobody lost: the clients never met"
    assert one_success_per_version(writes) == []
    assert versions_are_given_once(writes) == []
    assert nothing_goes_back(scene.history.successes("write", "read")) == []
    assert (await scene.get())[1] == {"n": len(writes)}


@pytest.mark.asyncio
async def test_merges_of_different_properties_lose_nothing(scene: Scene) -> None:
    await scene.execute(InsertEntity(TABLE, entity(KEY, n=0)))

    async def client(number: int) -> None:
        for value in range(1, ROUNDS + 1):
            given = entity(KEY, **{f"p{number}": value})
            upsert = InsertOrMergeEntity(TABLE, given)
            merge = MergeEntity(TABLE, given, IF_MATCH_ANY)
            await scene.write("write", scene.random.choice((upsert, merge)))
            _version, found = await scene.get()
            assert found[f"p{number}"] == value, "a client does not see its own write"

    await scene.at_once(client)
    writes = scene.history.successes("write")
    assert len(writes) == CLIENTS * ROUNDS
    assert versions_are_given_once(writes) == []
    assert nothing_goes_back(scene.history.successes("write", "read")) == []
    expected = {f"p{number}": ROUNDS for number in range(CLIENTS)}
    assert (await scene.get())[1] == {"n": 0, **expected}


@pytest.mark.asyncio
async def test_an_insert_succeeds_once_between_deletes(scene: Scene) -> None:
    async def client(_number: int) -> None:
        for _ in range(ROUNDS):
            if scene.random.random() < 0.6:
                await scene.write("insert", InsertEntity(TABLE, entity(KEY, n=1)))
            else:
                await scene.write("delete", DeleteEntity(TABLE, KEY, IF_MATCH_ANY))

    await scene.at_once(client)
    inserts, deletes = scene.history.successes("insert"), scene.history.successes("delete")
    assert min(len(inserts), len(deletes)) > 1
    assert inserts_and_deletes_alternate(inserts + deletes) == []
    assert len(inserts) - len(deletes) == len(await scene.entities())


@pytest.mark.asyncio
async def test_a_transaction_is_seen_whole(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every transaction writes the same number into five rows, or deletes all five.

    A page shows one moment even where a filter makes the service read it piece by piece: two rows at a time here. Where
    a snapshot expires, a page ends between two pieces instead, as it may anywhere else.
    """
    if not scene.engine.capabilities.snapshots_pass:
        monkeypatch.setattr("tablestone.limits.SCAN_ROWS_PER_READ", 2)
    rows = [EntityKey("a", str(number)) for number in range(5)]
    sizes: set[int] = set()
    writing = True

    async def client(number: int) -> None:
        for value in range(ROUNDS):
            stamp = number * ROUNDS + value
            kind = scene.random.choice((InsertOrReplaceEntity, InsertOrMergeEntity))
            writes: list[EntityWrite] = [kind(TABLE, entity(row, n=stamp)) for row in rows]
            if scene.random.random() < 0.3:
                writes = [DeleteEntity(TABLE, row, IF_MATCH_ANY) for row in rows]
            try:
                await scene.execute(EntityGroupTransaction(TABLE, "a", writes))
            except StorageError as error:
                if (error.code, error.operation_index) != ("ResourceNotFound", 0):
                    raise

    async def reader(number: int) -> None:
        while writing:
            filter_text = ("", "n ge 0", "PartitionKey eq 'a' and n ge 0")[number]
            found = [integers(stored)["n"] for stored in await scene.entities(filter_text)]
            sizes.add(len(found))
            assert len(found) in (0, 5)
            assert len(set(found)) <= 1

    async def write_all(_number: int) -> None:
        nonlocal writing
        await scene.at_once(client)
        writing = False

    await asyncio.gather(scene.at_once(write_all, 1), scene.at_once(reader, 3))
    assert 5 in sizes, "the readers never met a transaction"


@pytest.mark.slow
@pytest.mark.asyncio
async def test_nothing_of_a_deleted_table_comes_back(scene: Scene) -> None:
    """The table is deleted and created again while clients write, and is swept meanwhile and afterwards."""
    labels = iter(range(1, 1 << 32))
    going, turns = True, 0

    async def turn() -> None:
        """A missing table may be cached, without any wait; this loop must not spin while a disk is slow."""
        nonlocal turns
        turns += 1
        await asyncio.sleep(0 if turns < BUSY_TURNS_MAX else 0.005)

    async def writer(number: int) -> None:
        while going:
            label = next(labels)
            key = EntityKey(str(number % 2), str(label))
            kind = scene.random.choice((InsertOrReplaceEntity, InsertOrMergeEntity))
            await turn()
            await scene.write("write", kind(TABLE, entity(key, label=label)), label=label)

    async def reader(_number: int) -> None:
        while going:
            await turn()
            await scene.history.record("read", read)

    async def read() -> Done:
        try:
            found = [integers(stored)["label"] for stored in await scene.entities()]
        except StorageError as error:
            if error.code != "TableNotFound":
                raise
            return Done(None)
        return Done(0, seen=frozenset(found))

    async def delete() -> Done:
        return Done(await tried(scene.execute(DeleteTable(TABLE))))

    async def make_again(_number: int) -> None:
        """Two clients do this: a deletion may come while one looks for the table that the other has just made."""
        nonlocal turns
        for _ in range(2 * ROUNDS):
            turns = 0
            await scene.history.record("delete table", delete)
            await tried(scene.execute(CreateTable(TABLE)))
            await scene.sweeper.sweep(ACCOUNT.name)
            for _ in range(scene.random.choice((0, 1, 3, 30))):
                await asyncio.sleep(0)

    async def make_again_and_end(_number: int) -> None:
        nonlocal going
        await scene.at_once(make_again, 2)
        going = False

    await asyncio.gather(
        scene.at_once(writer), scene.at_once(reader, 2), scene.at_once(make_again_and_end, 1)
    )
    reads = [event for event in scene.history.successes("read") if event.seen]
    assert len(scene.history.successes("write")) > ROUNDS
    assert len(reads) > ROUNDS
    assert nothing_outlives_its_table(scene.history.events) == []
    assert what_is_written_is_read(scene.history.events) == []
    await sweep_all(scene)
    stored = await scene.stored()
    if scene.engine.capabilities.checks_relied_rows:  # else a late write is swept a minute later
        # The table, its entities and nothing else.
        assert len(stored) == 1 + len(await scene.entities())


async def tried(call: Awaitable[object]) -> int | None:
    """0 if it succeeded, None if the table existed already, or no longer."""
    try:
        await call
    except StorageError as error:
        if error.code not in ("TableAlreadyExists", "ResourceNotFound"):
            raise
        return None
    return 0


async def sweep_all(scene: Scene) -> None:
    """The second sweep, a minute later, finds rows that were written during the deletion."""
    sweeper = scene.sweeper  # another one would leave the table to it
    while await sweeper.sweep(ACCOUNT.name):
        pass
    scene.clock.now += (limits.SWEEP_AGAIN_SECONDS + 1) * TICKS_PER_SECOND
    while await sweeper.sweep(ACCOUNT.name):
        pass


@pytest.mark.asyncio
async def test_a_write_that_lands_after_the_sweep_is_swept_a_minute_later(scene: Scene) -> None:
    """A writer had found the table just before it was deleted, and commits after the first sweep."""
    record = await scene.service.catalog.require(ACCOUNT, TABLE)
    await scene.execute(DeleteTable(TABLE))
    assert not await scene.sweeper.sweep(ACCOUNT.name)
    straggler = InsertEntity(TABLE, entity(KEY, n=1))
    await scene.engine.commit(straggling(record.table_id, straggler))
    assert await check_rows(scene.engine) == []
    await sweep_all(scene)
    assert await scene.stored() == []


@pytest.mark.asyncio
@pytest.mark.parametrize("turns", range(8))
async def test_a_deletion_whose_client_gave_up_is_not_half_known(scene: Scene, turns: int) -> None:
    """Clients continue to write: the cached entry of the table must go with the table, however late."""
    deletion = asyncio.create_task(scene.execute(DeleteTable(TABLE)))
    for _ in range(turns):
        await asyncio.sleep(0)
    deletion.cancel()
    await asyncio.gather(deletion, return_exceptions=True)
    for number in range(ROUNDS):
        await scene.write("write", InsertEntity(TABLE, entity(EntityKey("a", str(number)), n=1)))
    await asyncio.sleep(0.01)
    listed, _following = await scene.service.catalog.page(ACCOUNT, "", 10)
    found = await scene.service.catalog.find(ACCOUNT, TABLE)
    assert listed == ([] if found is None else [found])


def straggling(table_id: bytes, insert: InsertEntity) -> WriteSet:
    partition = entity_partition(table_id, insert.entity.key.partition_key)
    return WriteSet(partition, [change_of(insert, limits.OF_SERVICE)])
