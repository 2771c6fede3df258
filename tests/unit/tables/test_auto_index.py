"""Automatic indexes: which filters get one, on which property, and when it goes (`tables/auto_index.py`)."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tablestone.clock import TICKS_PER_SECOND
from tablestone.engines.forwarding_engine import ForwardingEngine
from tablestone.engines.memory import MemoryEngine
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import Entity
from tablestone.model.entity_json import members
from tablestone.model.keys import ContinuationToken, EntityKey
from tablestone.model.operations import (
    CreateTable,
    DeleteEntity,
    EntitiesPage,
    EntityGroupTransaction,
    InsertOrReplaceEntity,
    QueryEntities,
)
from tablestone.query.filter_parser import parse_filter
from tablestone.tables import auto_index, index_building
from tablestone.tables.account_incarnation import Named
from tablestone.tables.auto_index import SCANS, WITHIN_SECONDS, AutoIndex, QueryCounts
from tablestone.tables.index_building import IndexRefused, IndexWork
from tablestone.tables.service import TableService
from tablestone.tables.table_work import TableWork
from tablestone.telemetry.request_record import RequestRecord
from tablestone.telemetry.worker_reports import WorkerReports

if TYPE_CHECKING:
    from tablestone.engines.contract import Engine
    from tablestone.tables.indexes import Automatic

pytestmark = pytest.mark.asyncio

OWNER = Named("account")
WEEK, DAY = 8, 4
"""In these tests a week and a day have so many hours."""
ENTITIES = 300


class Server:
    """Two workers, of which the first leads, with a clock that stands still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 1_000.0
        monkeypatch.setattr(auto_index, "EXAMINED_MIN", 200)
        monkeypatch.setattr(auto_index, "IDLE_HOURS", WEEK)
        monkeypatch.setattr(auto_index, "HOURS_OF_DAY", DAY)
        monkeypatch.setattr(auto_index, "BARRED_TICKS", WEEK * 3600 * TICKS_PER_SECOND)
        for module in (auto_index, index_building):
            monkeypatch.setattr(module, "monotonic_seconds", lambda: self.seconds)
        self.now = 638_000_000_000_000_000
        ids = itertools.count(1)
        self.engine: Engine = MemoryEngine(self.clock)
        self.service = TableService(
            self.engine, self.clock, lambda: 0.0, lambda: next(ids).to_bytes(8, "big")
        )
        self.start()

    def start(self) -> None:
        """Start the processes, with what is stored."""
        reports = WorkerReports(3)
        self.workers = [QueryCounts(reports, number) for number in range(2)]
        self.catalog = self.service.catalog
        self.leader = AutoIndex(self.engine, self.catalog, find_owner, reports)
        self.work = TableWork(self.engine, self.catalog, self.service.counts, find_owner)

    def clock(self) -> int:
        return self.now

    async def fill(self) -> None:
        await self.service.execute(OWNER, CreateTable("Things"))
        for first in range(0, ENTITIES, 100):
            writes = [
                InsertOrReplaceEntity("Things", Entity(EntityKey("p", f"{n:04}"), texts(n)))
                for n in range(first, first + 100)
            ]
            await self.service.execute(OWNER, EntityGroupTransaction("Things", "p", writes))

    async def query(
        self,
        text: str,
        times: int = 1,
        worker: int = 0,
        *,
        tool: bool = False,
        token: ContinuationToken | None = None,
    ) -> str:
        """Send a query so often; the plan of the last one."""
        plan = ""
        for _ in range(times):
            record = RequestRecord(self.seconds)
            record.account, record.from_tools = OWNER.name, tool
            record.operation = QueryEntities("things", parse_filter(text), 1000, None, token)
            record.result = await self.service.execute(OWNER, record.operation)
            assert isinstance(record.result, EntitiesPage)
            plan = record.result.plan
            self.workers[worker].note(record)
        return plan

    async def write(self, times: int) -> None:
        for number in range(times):
            record = RequestRecord(self.seconds)
            record.account = OWNER.name
            record.operation = InsertOrReplaceEntity(
                "THINGS", Entity(EntityKey("q", "r"), texts(number))
            )
            await self.service.execute(OWNER, record.operation)
            self.workers[1].note(record)

    async def look(self) -> None:
        """What the server does within seconds."""
        for worker in self.workers:
            worker.report()
        await self.leader.look()
        for worker in self.workers:  # they hear of new indexes
            worker.report()
        await self.work.once()
        await self.leader.look()
        for worker in self.workers:
            worker.report()

    async def hours(self, number: int) -> None:
        for _ in range(number):
            self.seconds += 3600
            self.now += 3600 * TICKS_PER_SECOND
            await self.look()

    async def indexes(self) -> dict[str, Automatic | None]:
        table = await self.catalog.require(OWNER, "Things")
        return {each.property: each.automatic for each in table.indexes}

    def index(self, name: str) -> IndexWork:
        return IndexWork(self.catalog, OWNER, "Things", name)


def texts(number: int) -> dict[str, str]:
    values = {"color": number % 3, "size": number % 10, "code": number, "unit": number // 2}
    return members({name: EdmValue(EdmType.INT32, value) for name, value in values.items()})


async def find_owner(name: str) -> Named | None:
    return OWNER if name == OWNER.name else None


@pytest_asyncio.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server(monkeypatch)
    await made.fill()
    return made


CODE = "code eq 7"


async def test_a_filter_that_keeps_scanning_gets_an_index(server: Server) -> None:
    assert await server.query(CODE, SCANS // 2) == "table"
    await server.query("code eq 8", SCANS // 2 - 1, worker=1)  # of the same shape
    await server.look()
    assert await server.indexes() == {}
    await server.query(CODE)
    await server.look()
    assert list(await server.indexes()) == ["code"]
    automatic = (await server.indexes())["code"]
    assert automatic is not None
    assert automatic.scanned == ENTITIES
    assert await server.query(CODE) == "index"


@pytest.mark.parametrize(
    "text",
    [
        "code ge 0",  # finds too much
        "code ge 290",  # more than one in a hundred
        "PartitionKey eq 'p' and RowKey eq '0001' and code eq 7",  # examines one
        "code ne 7 and code lt 2 and code gt 0 and not (size lt 10)",  # no property alone leaves few
        "PartitionKey eq 'z' and code eq 7",
    ],
)
async def test_others_do_not(server: Server, text: str) -> None:
    if "not (" in text:
        text = "not (code eq 7) and not (code lt 7) and not (code gt 7)"
    await server.query(text, 2 * SCANS)
    await server.look()
    assert await server.indexes() == {}


async def test_queries_of_our_tools_do_not_count(server: Server) -> None:
    await server.query(CODE, 2 * SCANS, tool=True)
    await server.look()
    assert await server.indexes() == {}


async def test_pages_of_one_query_count_once(server: Server) -> None:
    await server.query(CODE, 2 * SCANS, token=ContinuationToken("p", "0001"))
    await server.query(CODE, SCANS - 1)
    await server.look()
    assert await server.indexes() == {}
    await server.query(CODE)
    await server.look()
    assert list(await server.indexes()) == ["code"]


async def test_scans_of_long_ago_do_not_count(server: Server) -> None:
    await server.query(CODE, SCANS - 1)
    server.seconds += WITHIN_SECONDS + 1
    await server.query(CODE, SCANS - 1, worker=1)
    await server.look()
    assert await server.indexes() == {}


async def test_the_property_that_leaves_the_fewest(server: Server) -> None:
    await server.query("color eq 1 and unit eq 3 and size eq 7 and code gt 280", SCANS)
    await server.look()
    assert list(await server.indexes()) == ["unit"]


async def test_a_property_that_leaves_many_gets_none(server: Server) -> None:
    await server.query("color eq 1 and size lt 0 and code lt 400", SCANS)
    await server.look()
    assert list(await server.indexes()) == ["size"]
    await server.query("color eq 2 and not (code lt 400)", SCANS)
    await server.look()
    assert list(await server.indexes()) == ["size"]


async def test_four_of_a_table(server: Server) -> None:
    for name in ("code", "unit", "a", "b", "c", "d"):
        await server.query(f"{name} eq 700", SCANS)
        await server.look()
    assert list(await server.indexes()) == ["code", "unit", "a", "b"]


async def test_a_user_adopts_one_even_while_it_is_built(server: Server) -> None:
    await server.query(CODE, SCANS)
    for worker in server.workers:
        worker.report()
    await server.leader.look()
    await server.index("code").ask()
    await server.work.once()
    assert await server.indexes() == {"code": None}
    await server.query("unit eq 700", SCANS)
    await server.look()
    assert (await server.indexes())["unit"] is not None
    assert await server.index("unit").create() == 0  # it is there
    assert await server.indexes() == {"code": None, "unit": None}
    with pytest.raises(IndexRefused, match="already has an index on unit"):
        await server.index("unit").create()
    await server.hours(WEEK + 1)
    assert list(await server.indexes()) == ["code", "unit"]


async def test_a_drop_forbids_it_until_a_user_makes_it(server: Server) -> None:
    await server.query(CODE, SCANS)
    await server.look()
    await server.index("code").drop()
    await server.hours(WEEK * 3)
    await server.query(CODE, SCANS)
    await server.look()
    assert await server.indexes() == {}
    await server.index("code").create()
    await server.index("code").drop()
    assert await server.indexes() == {}


async def test_one_that_is_not_used_goes_and_comes_again_after_a_week(server: Server) -> None:
    await server.query(CODE, SCANS)
    await server.look()
    await server.hours(WEEK - 2)
    assert await server.query(CODE) == "index"
    await server.hours(2)
    automatic = (await server.indexes())["code"]
    assert automatic is not None
    assert automatic.idle == 1
    await server.hours(WEEK - 2)
    server.start()  # nothing is forgotten
    assert list(await server.indexes()) == ["code"]
    await server.hours(1)
    assert await server.indexes() == {}
    await server.query(CODE, SCANS)
    await server.look()
    assert await server.indexes() == {}
    await server.hours(WEEK)
    await server.query(CODE, SCANS)
    await server.look()
    assert list(await server.indexes()) == ["code"]


@pytest.mark.parametrize(("uses", "stays"), [(1, False), (3, True)])
async def test_one_that_costs_more_than_it_saves_goes(
    server: Server, *, uses: int, stays: bool
) -> None:
    await server.query(CODE, SCANS)
    await server.look()
    await server.query(CODE, uses)
    await server.write(2 * ENTITIES)
    await server.hours(DAY - 1)
    assert list(await server.indexes()) == ["code"]
    await server.hours(1)
    assert bool(await server.indexes()) is stays
    if stays:
        automatic = (await server.indexes())["code"]
        assert automatic is not None
        assert (automatic.hours, automatic.wrote, automatic.saved) == (0, 0, 0)


async def test_a_deletion_writes_an_entry_too(server: Server) -> None:
    await server.query(CODE, SCANS)
    await server.look()
    record = RequestRecord(server.seconds)
    record.account = OWNER.name
    record.operation = DeleteEntity("Things", EntityKey("p", "0001"), -1)
    server.workers[0].note(record)
    await server.hours(1)
    automatic = (await server.indexes())["code"]
    assert automatic is not None
    assert automatic.wrote == 1


async def test_an_automatic_one_gives_way(server: Server) -> None:
    for name in ("code", "unit"):
        await server.query(f"{name} eq 700", SCANS)
        await server.look()
    await server.hours(1)
    await server.query("unit eq 3")
    await server.hours(1)
    for number in range(15):
        await server.index(f"p{number}").ask()
    await server.work.once()
    assert "code" not in await server.indexes()
    assert len(await server.indexes()) == 16
    await server.index("p15").ask()
    await server.work.once()
    assert [name for name, found in (await server.indexes()).items() if found] == []
    with pytest.raises(IndexRefused, match="has 16 indexes"):
        await server.index("p16").ask()
    await server.query("code eq 700", SCANS)
    await server.look()
    assert "code" not in await server.indexes()


async def test_never_on_a_nearly_full_disk(server: Server) -> None:
    class Full(ForwardingEngine):
        is_nearly_full = True

    server.engine = Full(server.engine)
    server.start()
    await server.query(CODE, SCANS)
    await server.look()
    assert await server.indexes() == {}


async def test_a_worker_that_is_replaced_begins_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.query(CODE, SCANS)
    await server.look()
    await server.query(CODE, 3)
    await server.hours(1)
    monkeypatch.setattr("os.getpid", lambda: 7)
    reports = server.workers[0]._reports
    server.workers[0] = QueryCounts(reports, 0)
    server.workers[0].report()
    await server.query(CODE)
    await server.hours(1)
    automatic = (await server.indexes())["code"]
    assert automatic is not None
    assert automatic.saved == 4 * ENTITIES - 4


async def test_only_the_index_that_was_used_counts(server: Server) -> None:
    await server.query("unit eq 700", SCANS)
    await server.look()
    await server.index("code").create()
    assert await server.query("code eq 7 and unit ge 0", SCANS) == "index"
    assert await server.query("code eq 7 and unit ne 1", SCANS) == "index"
    await server.hours(1)
    automatic = (await server.indexes())["unit"]
    assert automatic is not None
    assert (automatic.idle, automatic.saved) == (1, 0)


async def test_a_leader_that_is_replaced_counts_from_then_on(server: Server) -> None:
    await server.query(CODE, SCANS)
    await server.look()
    await server.query(CODE, 3, worker=1)
    await server.hours(1)
    before = (await server.indexes())["code"]
    reports = server.leader._reports
    server.leader = AutoIndex(server.engine, server.catalog, find_owner, reports)
    await server.query(CODE, 1, worker=1)
    await server.hours(1)
    automatic = (await server.indexes())["code"]
    assert before is not None
    assert automatic is not None
    assert automatic.saved == before.saved + ENTITIES - 1


async def test_a_worker_counts_few_filters(server: Server) -> None:
    for number in range(200):
        await server.query(f"a{number} eq 1")
        server.seconds += 1
    server.workers[0].report()
    report = server.workers[0]._reports.newest(0)
    assert report is not None
    assert len(report.content["scans"]) == auto_index.FILTERS_MAX
    assert "a199 eq 1" in [scan[3] for scan in report.content["scans"]]


async def test_a_server_leaves_what_a_user_has_just_adopted(server: Server) -> None:
    await server.query(CODE, SCANS)
    await server.look()
    automatic = (await server.indexes())["code"]
    assert automatic is not None
    await server.index("code").ask()
    with pytest.raises(IndexRefused):
        await server.index("code").note_use(automatic)
    with pytest.raises(IndexRefused):
        await server.index("code").ask_to_drop(barred_until=server.now)
    assert await server.indexes() == {"code": None}
