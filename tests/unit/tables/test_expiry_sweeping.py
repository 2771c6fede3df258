"""When a server sweeps expired entities: its first hour, a clock that jumps, the lease of several servers, errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Final

import pytest

from storage.slow_engine import MemoryOfServers
from tablestone.clock import TICKS_PER_SECOND, Moment
from tablestone.engines.contract import Engine, EngineUnavailable, Key, OutcomeUnknown
from tablestone.engines.forwarding_engine import ForwardingEngine
from tablestone.engines.memory import MemoryEngine
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import Entity
from tablestone.model.entity_json import key_of, members, read_raw
from tablestone.model.expiry import ExpiryPolicy
from tablestone.model.keys import EntityKey
from tablestone.model.operations import InsertEntity
from tablestone.server.admin.readiness import Readiness
from tablestone.tables import expiry_sweeping, storage_keys
from tablestone.tables.account_incarnation import Named, Owner
from tablestone.tables.catalog import Catalog
from tablestone.tables.expiry_sweeping import LEASE_SECONDS, ExpirySweeper
from tablestone.tables.index_building import IndexWork
from tablestone.tables.integrity import check_rows
from tablestone.tables.service import TableService
from tablestone.telemetry.worker_reports import WorkerReport, WorkerReports

pytestmark = pytest.mark.asyncio

HOUR: Final = 3600
OWNER: Final = Named("account")


class Server:
    """A server with clocks of its own."""

    def __init__(self, engine: Engine, name: str, began: Moment | None = None) -> None:
        self.wall = 638_000_000_000_000_000
        self.seconds = 1000.0
        catalog = Catalog(engine, lambda: self.wall, lambda: b"12345678")
        self.sweeper = ExpirySweeper(
            engine, catalog, self.owner, lambda: self.wall, lambda: self.seconds, name, began
        )

    async def owner(self, _name: str) -> Owner:
        return OWNER

    async def take_the_lease(self) -> None:
        self.pass_by(HOUR)
        await self.sweeper.may_sweep()
        self.pass_by(LEASE_SECONDS)
        assert await self.sweeper.may_sweep()

    def pass_by(self, seconds: float, jump: float = 0) -> None:
        self.seconds += seconds
        self.wall += int((seconds + jump) * TICKS_PER_SECOND)


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine(lambda: 5)


@pytest.fixture
def shared() -> MemoryEngine:
    return MemoryOfServers(lambda: 5)


@pytest.mark.parametrize(
    ("steps", "sweeps", "suspended"),
    [
        ([(HOUR - 1, 0)], False, False),
        ([(HOUR, 0)], True, False),
        ([(2 * HOUR, HOUR)], True, False),
        ([(2 * HOUR, -HOUR)], True, False),
        ([(2 * HOUR, HOUR + 1)], False, True),
        ([(2 * HOUR, -HOUR - 1)], False, True),
        ([(10, 365 * 24 * HOUR), (2 * HOUR, 0)], False, True),  # set right after a boot
        ([(HOUR, 40 * 60), (HOUR, 40 * 60)], False, True),  # in two steps
        ([(2 * HOUR, 2 * HOUR), (60, -2 * HOUR)], True, False),  # it is back
    ],
)
async def test_a_server_sweeps_after_an_hour_while_its_clock_has_not_jumped(
    engine: MemoryEngine, steps: list[tuple[float, float]], *, sweeps: bool, suspended: bool
) -> None:
    server = Server(engine, "one")
    may = False
    for seconds, jump in steps:
        server.pass_by(seconds, jump)
        may = await server.sweeper.may_sweep()
    assert (may, server.sweeper.is_suspended) == (sweeps, suspended)


async def test_a_worker_continues_the_life_of_its_server(engine: MemoryEngine) -> None:
    """One that replaces a worker does not forget a jump, and does not wait once more."""
    began = Server(engine, "first")
    start = Moment(began.wall, began.seconds - 2 * HOUR)
    began.wall += 2 * HOUR * TICKS_PER_SECOND
    jumped = Server(engine, "second", Moment(start.ticks - 5 * HOUR * TICKS_PER_SECOND, 0))
    assert not await jumped.sweeper.may_sweep()
    assert jumped.sweeper.is_suspended
    sound = Server(engine, "third", Moment(start.ticks - 2 * HOUR * TICKS_PER_SECOND, -6200))
    assert await sound.sweeper.may_sweep()


async def test_a_jump_is_logged_once(
    engine: MemoryEngine, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(engine, "one")
    for _ in range(3):
        server.pass_by(10, 2 * HOUR)
        await server.sweeper.may_sweep()
    server.pass_by(10, -6 * HOUR)
    await server.sweeper.may_sweep()
    assert [record.getMessage() for record in caplog.records] == [
        expiry_sweeping.CLOCK_JUMPED,
        "The clock is back: expired entities are swept again.",
    ]


async def test_health_says_that_the_clock_has_jumped() -> None:
    reports = WorkerReports(2)
    readiness = Readiness(reports, None)
    assert readiness.warnings == []
    reports.leave(1, WorkerReport(5, 0.0, {"totals": {}, "now": {"expiry_suspended": 0}}))
    assert readiness.warnings == []
    reports.leave(0, WorkerReport(4, 0.0, {"totals": {}, "now": {"expiry_suspended": 1}}))
    assert readiness.warnings == [expiry_sweeping.CLOCK_JUMPED]


async def test_one_server_of_several_holds_the_lease(shared: MemoryEngine) -> None:
    """Whatever their wall clocks show; another one takes over when the holder writes its row no longer."""
    one, other = Server(shared, "one"), Server(shared, "other")
    other.wall -= 24 * HOUR * TICKS_PER_SECOND
    other.sweeper = ExpirySweeper(
        shared,
        Catalog(shared, lambda: 5, lambda: b"12345678"),
        other.owner,
        lambda: other.wall,
        lambda: other.seconds,
        "other",
    )
    both = (one, other)

    async def pass_by(seconds: float, *servers: Server) -> list[bool]:
        for server in both:
            server.pass_by(seconds)
        return [await server.sweeper.may_sweep() for server in servers]

    assert await pass_by(HOUR, *both) == [True, False]
    written = set()
    for _ in range(10):
        assert await pass_by(60, *both) == [True, False]
        (row,) = await shared.scan(storage_keys.EVERYTHING, rows_max=2)
        written.add(row.version)
    assert len(written) == 10  # at each look
    other.pass_by(0, LEASE_SECONDS)
    assert await pass_by(0, *both) == [True, False]
    other.pass_by(0, -LEASE_SECONDS)
    assert await pass_by(LEASE_SECONDS - 1, other) == [False]
    assert await pass_by(1, other) == [True]
    assert await pass_by(60, *both) == [False, True]
    assert await check_rows(shared) == []


async def test_of_servers_that_find_the_lease_free_at_once_one_takes_it(
    shared: MemoryEngine,
) -> None:
    class Slower(ForwardingEngine):
        async def get(self, key: Key) -> bytes | None:
            found = await super().get(key)
            await asyncio.sleep(0)  # another one looks
            return found

    servers = [Server(Slower(shared), name) for name in ("one", "other", "third")]
    for seconds in (HOUR, 2 * LEASE_SECONDS):  # there is none; its holder has not written for long
        for server in servers:
            server.pass_by(seconds)
        assert sum(await asyncio.gather(*[each.sweeper.may_sweep() for each in servers])) == 1
        await Server(shared, "dead").take_the_lease()
        assert not any(await asyncio.gather(*[each.sweeper.may_sweep() for each in servers]))


async def test_a_server_that_is_suspended_gives_its_lease_up(shared: MemoryEngine) -> None:
    one, other = Server(shared, "one"), Server(shared, "other")
    for server in (one, other):
        server.pass_by(HOUR)
    assert [await each.sweeper.may_sweep() for each in (one, other)] == [True, False]
    one.pass_by(LEASE_SECONDS, 2 * HOUR)
    other.pass_by(LEASE_SECONDS)
    assert [await each.sweeper.may_sweep() for each in (one, other)] == [False, True]


async def test_a_pass_takes_what_expired_an_hour_ago(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry_sweeping, "PAUSE_SECONDS", 0)
    server = Server(engine, "one")
    server.pass_by(HOUR)
    tables = TableService(engine, lambda: server.wall, lambda: 0.0, lambda: b"12345678")
    await tables.catalog.create(OWNER, "Sessions")
    policy = ExpiryPolicy(property_name="expires")
    await tables.catalog.change_expiry(OWNER, "Sessions", lambda _old: policy)
    index = IndexWork(tables.catalog, OWNER, "Sessions", "expires")
    await index.create()
    an_hour_ago = server.wall - HOUR * TICKS_PER_SECOND
    for row, end in (("a", an_hour_ago + 1), ("b", an_hour_ago)):
        properties = members({"expires": EdmValue(EdmType.DATE_TIME, end)})
        write = InsertEntity("Sessions", Entity(EntityKey("p", row), properties))
        await tables.execute(OWNER, write)
    running = asyncio.create_task(server.sweeper.run())
    for _ in range(100):
        await asyncio.sleep(0)
    running.cancel()
    assert server.sweeper.swept == 1
    rows = await engine.scan(storage_keys.EVERYTHING, rows_max=100)
    assert [
        key_of(read_raw(row.value)).row_key
        for row in rows
        if row.partition.startswith(storage_keys.ENTITIES)
    ] == ["a"]
    assert await index.check() == (1, 0, 0)


async def test_a_pass_asks_after_each_step_whether_it_may_go_on(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server may have the lease by then."""
    server = Server(engine, "one")
    answers = [True, True, False]
    steps = []

    async def may_sweep() -> bool:
        return answers.pop(0)

    async def endless(_margin: int) -> AsyncGenerator[None, None]:
        while True:
            steps.append(answers[:])
            yield

    monkeypatch.setattr(server.sweeper, "may_sweep", may_sweep)
    monkeypatch.setattr(server.sweeper, "steps", endless)
    running = asyncio.create_task(server.sweeper.run())
    for _ in range(100):
        await asyncio.sleep(0)
    running.cancel()
    assert steps == [[True, False], [False]]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (EngineUnavailable("full"), "sweeping expired entities waits: full"),
        (OutcomeUnknown("in doubt"), "sweeping expired entities waits: in doubt"),
        (ValueError("a bug"), "sweeping expired entities failed"),
    ],
)
async def test_a_sweep_goes_on_after_an_error(
    engine: MemoryEngine,
    error: Exception,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(expiry_sweeping, "PAUSE_SECONDS", 0)
    server = Server(engine, "one")
    server.pass_by(HOUR)
    errors = [error]
    went_on = asyncio.Event()

    async def scan(*_arguments: object, **_options: object) -> list[object]:
        if errors:
            raise errors.pop()
        went_on.set()
        return []

    monkeypatch.setattr(engine, "scan", scan)
    with caplog.at_level(logging.WARNING):
        running = asyncio.create_task(server.sweeper.run())
        await went_on.wait()
        running.cancel()
    assert [record.getMessage() for record in caplog.records] == [sentence]
