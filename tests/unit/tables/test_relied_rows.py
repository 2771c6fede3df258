"""What a write relies on: the row of its table, and that of its account's incarnation, as they were read.

Another client acts between the read and the commit; the commit must notice it, whatever the generation says.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from tablestone.clock import TICKS_PER_SECOND
from tablestone.engines.forwarding_engine import ForwardingEngine
from tablestone.engines.leases import Leases
from tablestone.engines.memory import MemoryEngine
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import Entity
from tablestone.model.entity_json import members
from tablestone.model.errors import StorageError
from tablestone.model.expiry import ExpiryPolicy
from tablestone.model.keys import EntityKey
from tablestone.model.operations import GetEntity, InsertOrReplaceEntity
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Named
from tablestone.tables.catalog import TableRecord, relied_rows
from tablestone.tables.expiry_sweeping import ExpirySweeper
from tablestone.tables.index_building import IndexGone, IndexWork
from tablestone.tables.indexes import index_head
from tablestone.tables.service import TableService

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tablestone.engines.contract import Committed, Conflict, Entry, Key, WriteSet

pytestmark = pytest.mark.asyncio

KEY = EntityKey("p", "r")
WRITE = InsertOrReplaceEntity(
    "Orders", Entity(KEY, members({"color": EdmValue(EdmType.STRING, "red")}))
)


class Tables(ForwardingEngine):
    """A service whose engine lets another client act before the first commit of an entity's row."""

    def __init__(self) -> None:
        self.now = 1_000
        self.memory = MemoryEngine(self._clock)
        super().__init__(self.memory)
        ids = count(1)
        fresh_id: Callable[[], bytes] = lambda: next(ids).to_bytes(8, "big")  # noqa: E731
        self.service = TableService(self, self._clock, lambda: 0.0, fresh_id)
        self.other = TableService(self.memory, self._clock, lambda: 0.0, fresh_id)
        self.meanwhile: Callable[[], Awaitable[Any]] | None = None
        self.after_look: Callable[[], Awaitable[Any]] | None = None
        """Another client's act after the next look at a table's row, which a later generation would hide."""
        self.acts_after_looks = 0

    def _clock(self) -> int:
        self.now += 1
        return self.now

    async def get(self, key: Key) -> bytes | None:
        found = await super().get(key)
        if storage_keys.is_table_row(key.row) and self.after_look is not None:
            after_look, self.after_look = self.after_look, None
            self.acts_after_looks += 1
            await after_look()
        return found

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        if write_set.partition.startswith(storage_keys.ENTITIES) and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return await super().commit(write_set)


@pytest.fixture
def tables() -> Tables:
    return Tables()


def rows_of(tables: Tables, table_id: bytes) -> int:
    rest = storage_keys.table_range(table_id)
    return len(tables.memory.contents().within(rest))


def entries_left(tables: Tables, table: TableRecord) -> list[Entry]:
    """The entries of the table's first index."""
    head = index_head(table.table_id, 1)
    return [each for each in tables.memory.contents().index_entries if each.entry.startswith(head)]


async def test_a_write_goes_to_the_table_that_has_the_name_now(tables: Tables) -> None:
    owner = Named("account")
    await tables.service.catalog.create(owner, "Orders")
    old = (await tables.service.catalog.require(owner, "Orders")).table_id

    async def made_again() -> None:
        await tables.other.catalog.delete(owner, "Orders")
        await tables.other.catalog.create(owner, "Orders")

    tables.meanwhile = made_again
    await tables.service.execute(owner, WRITE)
    assert rows_of(tables, old) == 0
    assert await tables.service.execute(owner, GetEntity("Orders", KEY, None))


async def test_a_write_reads_the_generation_before_the_table(tables: Tables) -> None:
    owner = Named("account")
    await tables.service.catalog.create(owner, "Orders")
    old = (await tables.service.catalog.require(owner, "Orders")).table_id

    async def made_again() -> None:
        await tables.other.catalog.delete(owner, "Orders")
        await tables.other.catalog.create(owner, "Orders")

    await tables.other.catalog.create(owner, "Others")  # the row of Orders is read again
    tables.after_look = made_again
    await tables.service.execute(owner, WRITE)
    assert tables.acts_after_looks == 1
    assert rows_of(tables, old) == 0


async def test_a_write_fails_if_its_account_is_deleted(tables: Tables) -> None:
    """Also while the table is still there: the account's tables go one after the other."""
    incarnation, known_at = await tables.service.catalog.incarnations.known("account")
    owner = Named("account", incarnation, known_at)
    await tables.service.catalog.create(owner, "Orders")
    table_id = (await tables.service.catalog.require(owner, "Orders")).table_id
    tables.meanwhile = lambda: tables.other.catalog.incarnations.end("account")
    with pytest.raises(StorageError, match="ResourceNotFound"):
        await tables.service.execute(owner, WRITE)
    assert rows_of(tables, table_id) == 0


async def test_a_change_of_another_table_disturbs_no_write(tables: Tables) -> None:
    owner = Named("account")
    await tables.service.catalog.create(owner, "Orders")
    commits = 0

    async def changes() -> None:
        nonlocal commits
        commits += 1
        await tables.other.catalog.create(owner, f"Other{commits}")
        tables.meanwhile = changes  # before each attempt

    tables.meanwhile = changes
    await tables.service.execute(owner, WRITE)
    assert commits == 1


async def test_a_build_writes_no_entry_of_an_index_that_was_dropped(tables: Tables) -> None:
    owner = Named("account")
    await tables.service.catalog.create(owner, "Orders")
    await tables.other.execute(owner, WRITE)
    table = await tables.service.catalog.require(owner, "Orders")

    async def dropped() -> None:
        tables.now += 10**9  # the claim of the build is over
        await IndexWork(tables.other.catalog, owner, "Orders", "color").drop()

    tables.meanwhile = dropped
    with pytest.raises(IndexGone):
        await IndexWork(tables.service.catalog, owner, "Orders", "color").create()
    assert entries_left(tables, table) == []


async def test_a_build_reads_the_generation_before_the_table(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tablestone.tables.index_building.ROWS_PER_STEP", 1)
    owner = Named("account")
    await tables.service.catalog.create(owner, "Orders")
    for row in "abc":
        entity = Entity(EntityKey("p", row), members({"color": EdmValue(EdmType.STRING, "red")}))
        await tables.other.execute(owner, InsertOrReplaceEntity("Orders", entity))
    table = await tables.service.catalog.require(owner, "Orders")

    async def dropped() -> None:
        tables.now += 10**9  # the claim of the build is over
        await IndexWork(tables.other.catalog, owner, "Orders", "color").drop()

    async def changed() -> None:
        await tables.other.catalog.create(owner, "Others")  # the row of Orders is read again
        tables.after_look = dropped

    tables.meanwhile = changed
    with pytest.raises(IndexGone):
        await IndexWork(tables.service.catalog, owner, "Orders", "color").create()
    assert tables.acts_after_looks == 1
    assert entries_left(tables, table) == []


async def test_a_write_leaves_no_entry_in_an_index_that_was_dropped(tables: Tables) -> None:
    owner = Named("account")
    await tables.service.catalog.create(owner, "Orders")
    await IndexWork(tables.service.catalog, owner, "Orders", "color").create()
    tables.meanwhile = IndexWork(tables.other.catalog, owner, "Orders", "color").drop
    await tables.service.execute(owner, WRITE)
    assert entries_left(tables, await tables.service.catalog.require(owner, "Orders")) == []


async def test_a_sweep_deletes_nothing_of_an_account_that_is_deleted(tables: Tables) -> None:
    """The rows are the sweeper's for deleted tables, which keeps no record of them."""
    incarnation, known_at = await tables.service.catalog.incarnations.known("account")
    owner = Named("account", incarnation, known_at)
    await tables.service.catalog.create(owner, "Orders")
    policy = ExpiryPolicy(after=60)
    await tables.service.catalog.change_expiry(owner, "Orders", lambda _old: policy)
    await tables.other.execute(owner, WRITE)
    tables.now += 3600 * TICKS_PER_SECOND

    async def find_owner(_name: str) -> Named:
        return owner

    sweeper = ExpirySweeper(
        tables, tables.service.catalog, find_owner, lambda: tables.now, lambda: 0.0, "a server"
    )
    tables.meanwhile = lambda: tables.other.catalog.incarnations.end("account")
    async for _ in sweeper.steps(0):
        pass
    assert sweeper.swept == 0


async def test_the_generation_of_a_lease_saves_no_look(tables: Tables) -> None:
    """It tells of this server's cache only, and may have ended before the commit."""
    owner = Named("account")
    await tables.service.catalog.create(owner, "Orders")
    record = await tables.service.catalog.require(owner, "Orders")
    plain = relied_rows(tables, owner, record, 7)
    assert plain is not None
    assert plain.generation == 7
    tables.memory.leases = Leases(5.0)
    leased = relied_rows(tables, owner, record, 7)
    assert leased is not None
    assert (leased.rows, leased.generation) == (plain.rows, None)
