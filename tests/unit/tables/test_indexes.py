"""Making, checking and dropping indexes: beside writers, stopped anywhere, and what is refused."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from storage.engines_under_test import named
from tablestone.clock import TICKS_PER_SECOND
from tablestone.engines.capabilities import Capabilities, StoredIn
from tablestone.engines.contract import (
    ANY,
    Change,
    EngineUnavailable,
    Entry,
    Put,
    Reindex,
    Snapshot,
    StorageId,
    WriteSet,
)
from tablestone.engines.forwarding_engine import ForwardingEngine
from tablestone.engines.memory import MemoryEngine
from tablestone.engines.registry import open_engine
from tablestone.engines.sqlite.backup import NewDirectory
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import Entity
from tablestone.model.entity_json import members
from tablestone.model.errors import StorageError
from tablestone.model.keys import EntityKey
from tablestone.model.operations import (
    EntitiesPage,
    InsertOrReplaceEntity,
    QueryEntities,
    SetTableAcl,
)
from tablestone.query.filter_parser import parse_filter
from tablestone.query.plan import PlanKind
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Named
from tablestone.tables.catalog import Catalog, TableRecord
from tablestone.tables.index_building import (
    CLAIM_SECONDS,
    CLOCKS_APART_SECONDS,
    Checked,
    IndexGone,
    IndexRefused,
    IndexWork,
    indexes_of,
)
from tablestone.tables.indexes import Index, IndexState
from tablestone.tables.integrity import check_rows
from tablestone.tables.service import TableService
from tablestone.tables.storage_migration import move
from tablestone.tables.sweeping import Sweeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path
    from typing import Any

    from tablestone.engines.contract import (
        Committed,
        Conflict,
        Engine,
        KeyRange,
        Snapshot,
        StoredRow,
    )

pytestmark = pytest.mark.asyncio

OWNER = Named("account")


class Stopped(Exception):
    """The process was killed."""


class StoppingEngine(ForwardingEngine):
    """An engine on which a process ends before or after its nth commit."""

    def __init__(self, engine: Engine, commits: int, *, after: bool) -> None:
        super().__init__(engine)
        self._left = commits
        self._after = after

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        self._left -= 1
        if self._left == 0 and self._after:
            await super().commit(write_set)
        if self._left <= 0:
            raise Stopped
        return await super().commit(write_set)


class Tables:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.now = 638_000_000_000_000_000
        ids = itertools.count(1)
        self._ids = lambda: next(ids).to_bytes(8, "big")
        self.service = TableService(engine, self.clock, lambda: 0.0, self._ids)

    def clock(self) -> int:
        return self.now

    def index(
        self, name: str = "color", *, table: str = "Things", engine: Engine | None = None
    ) -> IndexWork:
        """An index in a process of its own."""
        catalog = Catalog(engine or self.engine, self.clock, self._ids)
        return IndexWork(catalog, OWNER, table, name)

    async def put(self, row: str, color: str, partition: str = "p") -> None:
        texts = members({"color": EdmValue(EdmType.STRING, color)})
        entity = Entity(EntityKey(partition, row), texts)
        await self.service.execute(OWNER, InsertOrReplaceEntity("Things", entity))

    async def red(self) -> tuple[list[str], str]:
        """The row keys of red things, and the plan."""
        query = QueryEntities("Things", parse_filter("color eq 'red'"), 1000, None, None)
        page = await self.service.execute(OWNER, query)
        assert isinstance(page, EntitiesPage)
        return [stored.split(b'"RowKey":"')[1].split(b'"')[0].decode() for stored in page.stored], (
            page.plan or ""
        )

    async def entries(self) -> list[Entry]:
        snapshot = await self.engine.snapshot()
        found = await snapshot.entries(
            Entry(b"", b"", b""), Entry(b"\xff", b"", b""), entries_max=9999
        )
        await snapshot.close()
        return found

    async def states(self) -> dict[str, IndexState]:
        table = await self.service.catalog.require(OWNER, "Things")
        return {index.property: index.state for index in table.indexes}


@pytest_asyncio.fixture(params=["memory", "sqlite", "slow"])
async def tables(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tables]:
    """Seven things of two colors in three partitions."""
    opened = Tables(named(request.param, lambda: opened.now, str(tmp_path)))
    await opened.service.catalog.create(OWNER, "Things")
    for number in range(7):
        await opened.put(f"r{number}", "red" if number % 2 else "blue", f"p{number % 3}")
    yield opened
    assert await check_rows(opened.engine) == []
    await opened.engine.close()


of_embedded_engines = pytest.mark.parametrize("tables", ["memory", "sqlite"], indirect=True)
"""For a test that counts commits, of which an engine with leases makes more."""

BY_INDEX = (["r3", "r1", "r5"], PlanKind.INDEX.value)
BY_SCAN = (["r3", "r1", "r5"], PlanKind.TABLE.value)


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        # Seven entries, and seven rows.
        ("color eq 'red' or color eq 'blue'", "table"),
        ("(color eq 'red' and n eq 1) or color eq 'none'", "index"),
    ],
)
async def test_as_many_rows_as_an_eq_has_entries_are_scanned_first(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, text: str, plan: str
) -> None:
    """If they are more than a few."""
    monkeypatch.setattr("tablestone.tables.index_reads.ROWS_PER_READ_MIN", 1)
    await tables.index().create()
    query = QueryEntities("Things", parse_filter(text), 1000, None, None)
    page = await tables.service.execute(OWNER, query)
    assert isinstance(page, EntitiesPage)
    assert page.plan == plan


ALL_BLUE = ["r0", "r6", "r4", "r2"]
RED_AND_GREEN = ["r3", "r1", "r5"]


@pytest.mark.parametrize(
    ("text", "top", "found", "plan", "rows_read"),
    [
        # Three rows, fewer than the seven entries.
        ("PartitionKey eq 'p0' and color ge 'blue'", 1000, ["r0", "r3", "r6"], "partition", 3),
        ("color ge 'blue'", 1000, None, "table", 7),
        # The first of four rows fills the page, or three of them.
        ("color lt 'green'", 1, ALL_BLUE[:1], "table", 1),
        ("color lt 'green'", 2, ALL_BLUE[:2], "table", 3),
        # Four rows, and then the other two entries.
        ("color lt 'green'", 1000, ALL_BLUE, "index", 6),
        ("color ge 'green'", 1000, RED_AND_GREEN, "index", 5),
        ("color gt 'red'", 1000, [], "index", 0),
    ],
)
async def test_as_many_rows_as_a_range_has_entries_are_scanned_first(
    tables: Tables, text: str, top: int, found: list[str] | None, plan: str, rows_read: int
) -> None:
    """So a range of values is read by an index only if it has fewer entries than its keys hold rows."""
    await tables.index().create()
    query = QueryEntities("Things", parse_filter(text), top, None, None)
    page = await tables.service.execute(OWNER, query)
    assert isinstance(page, EntitiesPage)
    rows = [stored.split(b'"RowKey":"')[1].split(b'"')[0].decode() for stored in page.stored]
    assert (found is None or rows == found, page.plan, page.rows_read) == (True, plan, rows_read)


@of_embedded_engines
async def test_a_server_that_is_busy_with_another_index_is_waited_for(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tablestone.tables.index_building.TAKEN_UP_SECONDS", 0.05)
    monkeypatch.setattr("tablestone.tables.index_building.POLL_SECONDS", 0.01)
    await tables.service.catalog.create(OWNER, "Other")
    server = tables.index("size", table="Other")
    await server.ask()
    await tables.index().ask()
    assert not await tables.index().is_done_by_server()
    async with server._claimed(lambda record: record.indexes[0]):
        waiting = asyncio.ensure_future(tables.index().is_done_by_server())
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await server._change(lambda old: replace(old, claim=None))
    assert not await waiting
    for table, name in (("Other", "size"), ("Things", "color")):
        await tables.index(name, table=table).go_on()


async def test_a_build_that_is_interrupted_while_it_begins_goes_on_at_once(tables: Tables) -> None:
    """Its claim is stored, and whoever waits for the commit is told to stop."""
    stored = asyncio.Event()

    class Slow(ForwardingEngine):
        async def commit(self, write_set: WriteSet) -> Committed | Conflict:
            outcome = await super().commit(write_set)
            stored.set()
            await asyncio.sleep(0.01)
            return outcome

    building = asyncio.ensure_future(tables.index(engine=Slow(tables.engine)).create())
    await stored.wait()
    building.cancel()
    with pytest.raises(asyncio.CancelledError):
        await building
    assert await tables.states() == {"color": IndexState.BUILDING}
    assert await tables.index().create() == 7
    assert await tables.red() == BY_INDEX


async def test_a_new_index_is_used_and_a_dropped_one_is_not(tables: Tables) -> None:
    assert await tables.red() == BY_SCAN
    assert await tables.index().create() == 7
    assert await tables.red() == BY_INDEX
    await tables.put("r1", "green", "p1")
    await tables.put("r0", "red", "p0")
    assert await tables.red() == (["r0", "r3", "r5"], PlanKind.INDEX.value)
    await tables.index().drop()
    assert await tables.red() == (["r0", "r3", "r5"], PlanKind.TABLE.value)
    assert await tables.entries() == []


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("commits", range(1, 9))
async def test_making_that_is_stopped_anywhere_changes_no_answer_and_goes_on(
    tables: Tables, commits: int, *, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tablestone.tables.index_building.ROWS_PER_STEP", 2)
    stopped = StoppingEngine(tables.engine, commits, after=after)
    with suppress(Stopped):
        await tables.index(engine=stopped).create()
    assert (await tables.red())[0] == BY_SCAN[0]
    assert await check_rows(tables.engine) == []
    tables.now += 2 * CLAIM_SECONDS * TICKS_PER_SECOND
    with suppress(IndexRefused):  # it was ready
        await tables.index().create()
    assert await tables.red() == BY_INDEX


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("commits", range(1, 9))
async def test_dropping_that_is_stopped_anywhere_goes_on(
    tables: Tables, commits: int, *, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tables.index().create()
    monkeypatch.setattr("tablestone.tables.index_building.ROWS_PER_STEP", 2)
    stopped = StoppingEngine(tables.engine, commits, after=after)
    with suppress(Stopped):
        await tables.index(engine=stopped).drop()
    assert (await tables.red())[0] == BY_SCAN[0]
    assert await check_rows(tables.engine) == []
    await tables.put("r9", "blue")
    tables.now += 2 * CLAIM_SECONDS * TICKS_PER_SECOND
    with suppress(IndexRefused):  # it was gone
        await tables.index().drop()
    assert await tables.entries() == []
    await tables.index().create()
    assert await tables.red() == BY_INDEX


async def test_a_server_whose_clock_is_ahead_leaves_a_build_to_the_one_that_makes_it(
    tables: Tables,
) -> None:
    class OnServers(StoppingEngine):
        @property
        def capabilities(self) -> Capabilities:
            return replace(super().capabilities, stored_in=StoredIn.SERVERS)

    commits = 2 if tables.engine.leases is None else 3  # one more marks the partition
    stopped = OnServers(tables.engine, commits, after=False)
    with pytest.raises(Stopped):
        await tables.index(engine=stopped).create()
    tables.now += CLOCKS_APART_SECONDS * TICKS_PER_SECOND
    with pytest.raises(IndexRefused, match="Another process works on the index"):
        await tables.index().create()
    tables.now += 2 * CLAIM_SECONDS * TICKS_PER_SECOND
    await tables.index().create()


async def test_a_long_build_says_how_far_it_is(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tablestone.tables.index_building.ROWS_PER_STEP", 2)

    def progress(entities: int) -> None:
        tables.now += CLAIM_SECONDS * TICKS_PER_SECOND
        if entities == 4:
            raise Stopped

    with pytest.raises(Stopped):
        await tables.index().create(progress=progress)
    tables.now += CLAIM_SECONDS * TICKS_PER_SECOND
    assert await tables.index().create() < 7  # not from the beginning
    assert await tables.red() == BY_INDEX


async def test_a_write_that_was_decided_before_the_index_was_made_has_its_entry(
    tables: Tables,
) -> None:
    held = asyncio.Event()
    waits = asyncio.Event()

    class LateEngine(ForwardingEngine):
        async def commit(self, write_set: WriteSet) -> Committed | Conflict:
            waits.set()
            await held.wait()
            return await super().commit(write_set)

    late = Tables(LateEngine(tables.engine))
    late.service.catalog = tables.service.catalog
    writing = asyncio.create_task(late.put("r9", "red", "p9"))
    await waits.wait()
    await tables.index().create()
    held.set()
    await writing
    assert await tables.red() == ([*BY_INDEX[0], "r9"], PlanKind.INDEX.value)


async def test_entries_of_a_deleted_table_are_swept(tables: Tables) -> None:
    await tables.index().create()
    await tables.service.catalog.delete(OWNER, "Things")
    await tables.service.catalog.create(OWNER, "Things")
    assert await tables.red() == ([], PlanKind.TABLE.value)
    sweeper = Sweeper(tables.engine, tables.clock, lambda: b"a server")
    while await sweeper.sweep("account"):
        pass
    assert await tables.entries() == []


async def test_a_check_finds_and_repairs_what_is_wrong(tables: Tables) -> None:
    await tables.index().create()
    table = await tables.service.catalog.require(OWNER, "Things")
    right = await tables.entries()
    of_rows = [each for each in right if each.partition.startswith(storage_keys.ENTITIES)]
    lost, moved = of_rows[0], of_rows[1]
    for entry, stale in ((lost, [lost.entry]), (moved, [moved.entry + b"x"])):
        change = Change(entry.row, ANY, Reindex(stale))
        known = [] if entry is lost else [moved.entry + b"x", moved.entry]

        def entries_of(_value: bytes, known: list[bytes] = known) -> list[bytes]:
            return known

        write_set = WriteSet(entry.partition, (change,), entries_of=entries_of)
        await tables.engine.commit(write_set)
    assert table.entries_of is not None
    assert len(await tables.entries()) == len(right)
    assert [
        fault.split(" lacks ")[1].split(":")[0] for fault in await check_rows(tables.engine)
    ] == ["1 entry and has 1 that no entity has"]
    assert await tables.index().check() == Checked(7, 1, 1)
    assert await tables.entries() == right
    assert await tables.index().check() == Checked(7, 0, 0)


async def test_rows_that_came_without_entries_are_not_looked_for_in_them(tables: Tables) -> None:
    await tables.index().create()
    version = 0
    other = Tables(MemoryEngine(lambda: version))
    for row in await tables.engine.scan(storage_keys.EVERYTHING, rows_max=99):
        version = row.version

        def render(_version: int, value: bytes = row.value) -> bytes:
            return value

        await other.engine.commit(WriteSet(row.partition, (Change(row.row, ANY, Put(render)),)))
    assert await other.red() == BY_SCAN
    await other.service.execute(OWNER, SetTableAcl("Things", ()))  # does not make it ready
    assert await other.red() == BY_SCAN
    assert await other.index().check() == Checked(7, 7, 0)
    assert await other.red() == BY_INDEX


# (what was done before, what is asked for, the sentence)
REFUSED: list[tuple[list[str], Callable[[Tables], Awaitable[object]], str]] = [
    ([], lambda t: t.index("PartitionKey").create(), "An index on PartitionKey is not possible"),
    ([], lambda t: t.index("Timestamp").create(), "An index on Timestamp is not possible"),
    ([], lambda t: t.index("odata.etag").create(), "An index on odata.etag is not possible"),
    ([], lambda t: t.index("no name").create(), "'no name' cannot be the name of a property."),
    ([], lambda t: t.index("").create(), "'' cannot be the name of a property."),
    (["color"], lambda t: t.index().create(), "Things already has an index on color."),
    (
        ["color"],
        lambda t: t.index().create(within_partition=True),
        "Things has an index on color over all partitions: drop it first.",
    ),
    (
        [f"a{n}" for n in range(16)],
        lambda t: t.index().create(),
        "Things has 16 indexes: more are not possible.",
    ),
    ([], lambda t: t.index().drop(), "Things has no index on color."),
    ([], lambda t: t.index().check(), "Things has no index on color."),
]


@pytest.mark.parametrize(("before", "act", "sentence"), REFUSED)
async def test_what_is_not_possible_is_said_in_one_sentence(
    tables: Tables, before: list[str], act: Callable[[Tables], Awaitable[object]], sentence: str
) -> None:
    for name in before:
        await tables.index(name).create()
    with pytest.raises(IndexRefused, match=sentence):
        await act(tables)
    assert await tables.states() == dict.fromkeys(before, IndexState.READY)


@of_embedded_engines
async def test_two_builds_at_once(tables: Tables) -> None:
    killed = StoppingEngine(tables.engine, 2, after=False)
    with pytest.raises(Stopped):
        await tables.index(engine=killed).create()
    second = tables.index()
    for act in (second.create, second.drop):
        with pytest.raises(IndexRefused, match="Another process works on the index on color"):
            await act()
    with pytest.raises(IndexRefused, match="The index on color is building"):
        await second.check()
    tables.now += 2 * CLAIM_SECONDS * TICKS_PER_SECOND
    await second.create()
    assert await tables.red() == BY_INDEX


@of_embedded_engines
@pytest.mark.parametrize("act", ["create", "drop", "check"])
async def test_a_disk_that_is_full_in_the_middle(
    tables: Tables, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked for fails, no answer changes, and the same goes on once there is room."""
    monkeypatch.setattr("tablestone.tables.index_building.ROWS_PER_STEP", 2)
    if act != "create":
        await tables.index().create()
    if act == "check":
        entry = next(e for e in await tables.entries() if e.partition.startswith(b"\x02"))
        lost = WriteSet(
            entry.partition,
            (Change(entry.row, ANY, Reindex((entry.entry,))),),
            entries_of=lambda _value: (),
        )
        await tables.engine.commit(lost)

    class FullDisk(ForwardingEngine):
        left = 2

        async def commit(self, write_set: WriteSet) -> Committed | Conflict:
            self.left -= not write_set.invalidates_caches
            if self.left <= (act == "check") and not write_set.invalidates_caches:
                raise EngineUnavailable("The disk is full.")
            return await super().commit(write_set)

    with pytest.raises(EngineUnavailable):
        await getattr(tables.index(engine=FullDisk(tables.engine)), act)()
    if act != "check":
        assert (await tables.red())[0] == BY_SCAN[0]
    await getattr(tables.index(), act)()
    assert await tables.red() == (BY_SCAN if act == "drop" else BY_INDEX)


@pytest.mark.parametrize("act", ["drop", "check"])
async def test_work_that_goes_on_late_touches_no_other_index(
    tables: Tables, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was suspended for longer than its claim goes on beside an index that came since."""
    monkeypatch.setattr("tablestone.tables.index_building.ROWS_PER_STEP", 2)
    await tables.index().create()

    class Suspended(ForwardingEngine):
        snapshots = 0

        async def snapshot(self) -> Snapshot:
            self.snapshots += 1
            if self.snapshots == 4:
                tables.now += 2 * CLAIM_SECONDS * TICKS_PER_SECOND
                await tables.index().drop()
                await tables.index("RowKey").create()
                await tables.index().create()
            return await super().snapshot()

    late = tables.index(engine=Suspended(tables.engine))
    with pytest.raises(IndexRefused, match="Another process works on the index on color now"):
        await getattr(late, act)()
    assert await tables.red() == BY_INDEX
    table = await tables.service.catalog.require(OWNER, "Things")
    states = {index.state for index in await indexes_of(tables.engine, table)}
    assert states == {IndexState.READY}  # and `check_rows` compares their entries


@of_embedded_engines
async def test_an_index_that_lacks_entries_is_not_used_while_it_is_repaired(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tablestone.tables.index_building.ROWS_PER_STEP", 2)
    await tables.index().create()
    for entry in await tables.entries():
        if entry.partition.startswith(storage_keys.ENTITIES):
            change = Change(entry.row, ANY, Reindex((entry.entry,)))
            lost = WriteSet(entry.partition, (change,), entries_of=lambda _value: ())
            await tables.engine.commit(lost)
    killed = StoppingEngine(tables.engine, 4, after=False)
    with pytest.raises(Stopped):
        await tables.index(engine=killed).check()
    assert await tables.red() == BY_SCAN
    tables.now += 2 * CLAIM_SECONDS * TICKS_PER_SECOND
    assert (await tables.index().check()).missing
    assert await tables.red() == BY_INDEX


@pytest.mark.parametrize("table", ["Absent", "things2"])
async def test_a_table_that_does_not_exist(tables: Tables, table: str) -> None:
    with pytest.raises(StorageError, match="TableNotFound"):
        await tables.index(table=table).create()


async def test_a_table_that_is_deleted_during_the_build(tables: Tables) -> None:
    class DeletingEngine(ForwardingEngine):
        async def scan(self, key_range: KeyRange, *, rows_max: int) -> list[StoredRow]:
            await tables.service.catalog.delete(OWNER, "Things")
            await tables.service.catalog.create(OWNER, "Things")
            return await super().scan(key_range, rows_max=rows_max)

    with pytest.raises(IndexRefused, match=r"The table Things was deleted\.|was dropped"):
        await tables.index(engine=DeletingEngine(tables.engine)).create()


async def test_a_build_whose_entries_stayed_elsewhere_begins_anew(tmp_path: Path) -> None:
    """As after `cluster load` and `unload`: the catalog came with what the build had reached, and no entry did."""
    tables = Tables(open_engine("memory:", lambda: 0))
    await tables.service.catalog.create(OWNER, "Things")
    for number in range(7):
        await tables.put(f"r{number}", "red" if number % 2 else "blue", f"p{number % 3}")
    await tables.index().create()

    def reached(_record: TableRecord) -> Mapping[str, Any]:
        index = {"property": "color", "number": 1, "state": "building", "reached": ["p1", "r4"]}
        return {"indexes": [index]}

    await tables.service.catalog.change_members(OWNER, "Things", reached)
    with NewDirectory(tmp_path / "data", StorageId(b"0" * 16)) as target:
        await move(tables.engine, target, lambda *_: None)
        target.finish()
    moved = Tables(open_engine(f"sqlite:{tmp_path / 'data'}", lambda: 0))
    assert await moved.index().create() == 7
    assert await moved.red() == BY_INDEX
    assert await check_rows(moved.engine) == []
    await moved.engine.close()


async def test_a_build_does_not_go_on_from_where_another_index_was(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the same property, dropped after the look at the indexes; then a new build began and was stopped."""
    await tables.index().create()
    await tables.index().drop()

    def begun(_record: TableRecord) -> Mapping[str, Any]:
        return {"indexes": [{"property": "color", "number": 2, "state": "building"}]}

    async def seen(*_: object) -> list[Index]:
        return [Index("color", 1, False, IndexState.BUILDING, reached=("p1", "r4"))]

    await tables.service.catalog.change_members(OWNER, "Things", begun)
    monkeypatch.setattr("tablestone.tables.index_building.indexes_of", seen)
    assert await tables.index().create() == 7


async def test_a_drop_ends_a_build(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tablestone.tables.index_building.ROWS_PER_STEP", 2)
    asked: list[asyncio.Task[None]] = []

    def progress(_entities: int) -> None:
        if not asked:
            asked.append(asyncio.ensure_future(tables.index().ask_to_drop()))

    with pytest.raises(IndexGone):
        await tables.index().create(progress=progress)
    table = await tables.service.catalog.require(OWNER, "Things")
    assert [each.state for each in table.indexes] == [IndexState.DROPPING]
    await tables.index().go_on()
    assert await tables.entries() == []
    table = await tables.service.catalog.require(OWNER, "Things")
    assert table.indexes == ()
    with pytest.raises(IndexGone):
        await tables.index().go_on()


async def test_nobody_goes_on_with_what_another_process_does(tables: Tables) -> None:
    other = tables.index()

    async def go_on_too() -> None:
        with pytest.raises(IndexGone, match="in other hands"):
            await tables.index().go_on()

    tasks: list[asyncio.Task[None]] = []
    await other.create(progress=lambda _entities: tasks.append(asyncio.ensure_future(go_on_too())))
    await asyncio.gather(*tasks)
    assert tasks
