"""A world of one seed: servers, clients and faults on a simulated cluster, and the histories of the clients.

`live` is a pure function of its seed and the planted bug. The checker of tests/stress/histories judges the histories.
"""

import asyncio
import itertools
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from stress.histories.choices import Choices
from stress.histories.recording import ANY_VERSION, Found, History, Operation, Refusal, Write
from stress.simulation.simulated_cluster import SimulatedCluster, Trouble
from stress.simulation.simulated_loop import SimulatedLoop
from stress.simulation.simulated_server import SimulatedServer, simulated_time
from tablestone.engines.cassandra.directory import make_root
from tablestone.engines.contract import EngineUnavailable, OutcomeUnknown
from tablestone.model.entity import Entity
from tablestone.model.entity_json import key_of, read_raw, typed_properties, version_of
from tablestone.model.errors import StorageError
from tablestone.model.keys import ContinuationToken, EntityKey
from tablestone.model.operations import (
    IF_MATCH_ANY,
    CreateTable,
    DeleteEntity,
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
    QueryEntities,
    TransactionCommitted,
    UpdateEntity,
    WriteResult,
)
from tablestone.query.filter_parser import parse_filter
from tablestone.tables.account_incarnation import Named
from tablestone.tables.metadata import DocumentKind
from tablestone.wire.json_payload import decode_entity

ACCOUNT: Final = Named("simulation")
TABLE: Final = "Worlds"
CLIENTS: Final = 4
OPERATIONS: Final = 12
"""The operations of each client."""
PARTITIONS: Final = 4
ROWS: Final = 2
WALK: Final = 0.08
"""The share of queries of the whole table, whose answer shows something of every partition."""
DOCUMENT: Final = 0.15
"""The share of reads and changes of a document, which servers cache under leases."""
CHANGE: Final = 0.3
READ_EVERY_SECONDS: Final = (None, 0.01, 0.05)
"""How often each server also reads the document for other clients. Only a row in use has its lease renewed."""
READS_MAX: Final = 100
"""The most such reads, because a world may last for hours."""
TROUBLES_MAX: Final = 20
AHEAD_SECONDS: Final = (0.0, 0.0, 0.01, -1.0, 60.0, 3600.0, -3600.0)
PAUSE_SECONDS: Final = (0.02, 0.3, 0.3, 0.3, 4.0, 4.0, 30.0, 4000.0)
"""Shorter and longer than a lease, a request, a commit, and how long the number of an engine's last commit is kept."""
REFUSALS: Final = {
    "EntityAlreadyExists": "exists",
    "ResourceNotFound": "missing",
    "UpdateConditionNotSatisfied": "condition",
}
Plant = Callable[[SimulatedServer], None]


@dataclass(frozen=True)
class Life:
    """The end of a world: its histories, what is wrong with its storage, and a fingerprint of all that happened."""

    seed: int
    histories: list[History]
    broken: list[str]
    digest: str


def live(seed: int, plant: Plant | None = None) -> Life:
    """The world of a seed, with a bug in every server if one is planted."""
    loop = SimulatedLoop()
    try:
        with simulated_time(Random(f"{seed}/uuid")):
            world = _World(seed, loop, plant)
            try:
                return loop.run_until_complete(world.live())
            finally:
                loop.run_until_complete(world.end())
    finally:
        loop.close()


class _World:
    def __init__(self, seed: int, loop: SimulatedLoop, plant: Plant | None) -> None:
        self._seed = seed
        self._random = Random(seed)
        self._loop = loop
        self._plant = plant
        self._values = itertools.count(1)
        self._servers: list[SimulatedServer] = []
        self._all_servers: list[SimulatedServer] = []
        names = [f"{seed}-{number}" for number in range(PARTITIONS)]
        self._histories = [History(name, self._now) for name in names]
        self._failures: list[str] = []
        self._document = History(f"{seed}-document", self._now)
        self._read_every = Random(f"{seed}/readers").choice(READ_EVERY_SECONDS)
        self._has_clients = True

    def _now(self) -> int:
        return int(self._loop.time() * 1e9)

    async def live(self) -> Life:
        self._cluster = SimulatedCluster(self._random, Trouble())
        first = self._server()
        await first.start(make_root(first.engine.connection))
        await first.start(first.service.execute(ACCOUNT, CreateTable(TABLE)))
        self._servers = [first, *(self._server() for _ in range(self._random.randint(1, 2)))]
        share = self._random.choice((0.0, 0.002, 0.02))
        self._cluster.trouble = Trouble(
            share, share, share, share, self._random.choice((5e-4, 5e-3))
        )
        troubles = self._loop.create_task(self._make_trouble())
        await asyncio.gather(*(self._client(number) for number in range(CLIENTS)))
        self._has_clients = False
        troubles.cancel()
        return await self._look_at_it()

    async def end(self) -> None:
        for server in self._all_servers:
            server.engine.connection.close()
            server.bury()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

    async def _look_at_it(self) -> Life:
        """Heal everything, deliver what is still on its way, and read all of it on a new server."""
        cluster = self._cluster
        cluster.away.clear()
        cluster.trouble = Trouble()
        for server in self._servers:
            if server.is_paused:
                server.resume()
        await asyncio.sleep(60)
        cluster.replicate_everything()
        last = self._server()
        await self._walk(last, CLIENTS)
        await self._carry_out(last, self._document, self._document.begin(CLIENTS, get=0))
        broken = self._failures + await last.start(last.engine.check()) + cluster.faults
        histories = [*self._histories, self._document]
        lines = json.dumps([history.line() for history in histories])
        cluster.note(lines)
        return Life(self._seed, histories, broken, cluster.digest)

    def _server(self) -> SimulatedServer:
        number = next(self._values)
        server = SimulatedServer(
            f"server {number}",
            self._cluster,
            Random(self._random.random()),
            ahead=self._random.choice(AHEAD_SECONDS),
            rate=self._random.choice((1.0, 1.009, 0.991)),
        )
        if self._plant is not None:
            server.context.run(self._plant, server)
        self._all_servers.append(server)
        if self._read_every is not None:
            server.start(self._read_often(server, self._read_every))
        return server

    async def _read_often(self, server: SimulatedServer, seconds: float) -> None:
        for _ in range(READS_MAX):
            if not self._has_clients:
                return
            with suppress(EngineUnavailable):
                await server.documents.get(DocumentKind.ROLES, "name", dict)
            await asyncio.sleep(seconds)

    async def _make_trouble(self) -> None:
        random = self._random
        often = random.choice((0.02, 0.1, 0.5))
        for _ in range(TROUBLES_MAX):
            await asyncio.sleep(random.expovariate(1 / often))
            index = random.randrange(len(self._servers))
            what = random.choice(("pause", "pause", "kill", "away", "away"))
            if what == "kill":
                self._servers[index].kill()
                self._servers[index] = self._server()
            elif what == "pause" and not self._servers[index].is_paused:
                server = self._servers[index]
                server.pause()
                self._loop.call_later(random.choice(PAUSE_SECONDS), server.resume)
            elif what == "away" and not self._cluster.away:
                self._cluster.away.add(random.randrange(3))
                self._loop.call_later(random.choice((0.05, 0.5, 5.0)), self._cluster.away.clear)

    async def _client(self, number: int) -> None:
        random = Random(self._random.random())
        choices = Choices(number, random, self._values, ROWS)
        for _ in range(OPERATIONS):
            await asyncio.sleep(random.expovariate(200))
            server = random.choice(self._servers)
            draw = random.random()
            if draw < WALK:
                await self._walk(server, number)
                continue
            if draw < WALK + DOCUMENT:
                history = self._document
                if random.random() < CHANGE:
                    write = Write("upsert", 0, next(self._values))
                    operation = history.begin(number, writes=(write,))
                else:
                    operation = history.begin(number, get=0)
            else:
                history = random.choice(self._histories)
                operation = choices.draw(history)
            if await self._carry_out(server, history, operation):
                choices.learn(history.name, operation)

    async def _carry_out(
        self, server: SimulatedServer, history: History, operation: Operation
    ) -> bool:
        """Whether there was an answer, which is then in the operation."""
        work = self._on_document if history is self._document else self._on_entities
        try:
            answered = await _answer_of(server, work(server, history, operation))
        except EngineUnavailable:
            return False  # nothing was applied
        except OutcomeUnknown:
            answered = False
        except Exception as error:  # noqa: BLE001 - a bug of the server, which the end of the world reports
            self._failures.append(f"{history.name}: {error!r}")
            answered = False
        if answered:
            history.answered(operation)
        else:
            history.unanswered(operation)
        return answered

    async def _on_document(
        self, server: SimulatedServer, _history: History, operation: Operation
    ) -> None:
        if operation.get is not None:
            members = await server.documents.get(DocumentKind.ROLES, "name", dict)
            operation.rows = [] if members is None else [Found(0, members["n"], 0, 0)]
            return
        value = operation.writes[0].value
        await server.documents.change(DocumentKind.ROLES, "name", lambda _: {"n": value})
        operation.done = [0]

    async def _on_entities(
        self, server: SimulatedServer, history: History, operation: Operation
    ) -> None:
        partition = history.name
        try:
            if operation.get is not None:
                key = EntityKey(partition, str(operation.get))
                result = await server.service.execute(ACCOUNT, GetEntity(TABLE, key, None))
                assert isinstance(result, EntityFound)
                operation.rows = [_found(result.stored)]
            elif operation.is_list:
                query = parse_filter(f"PartitionKey eq '{partition}'")
                page = await server.service.execute(
                    ACCOUNT, QueryEntities(TABLE, query, 1000, None, None)
                )
                assert isinstance(page, EntitiesPage)
                operation.rows = [_found(stored) for stored in page.stored]
                if page.token is not None:
                    operation.until = operation.rows[-1].row + 1 if operation.rows else 0
            else:
                writes = [_entity_write(partition, write) for write in operation.writes]
                group = EntityGroupTransaction(TABLE, partition, writes)
                done = await server.service.execute(ACCOUNT, group)
                assert isinstance(done, TransactionCommitted)
                operation.done = [_version(result) for result in done.results]
        except StorageError as error:
            if operation.get is not None and error.code == "ResourceNotFound":
                return
            operation.error = Refusal(error.operation_index or 0, REFUSALS[error.code])

    async def _walk(self, server: SimulatedServer, client: int) -> None:
        """Query the whole table, page by page; each page shows something of the partitions that it has passed."""
        token: ContinuationToken | None = None
        first = 0
        while True:
            asked = [history.begin(client) for history in self._histories]
            query = QueryEntities(TABLE, parse_filter(""), 1000, None, token)
            try:
                pages: list[EntitiesPage] = []
                if not await _answer_of(server, _page(server, query, pages)):
                    return
            except EngineUnavailable:
                return
            (page,) = pages
            token = page.token
            rows = [(key_of(read_raw(stored)), _found(stored)) for stored in page.stored]
            for index in range(first, PARTITIONS):
                history, operation = self._histories[index], asked[index]
                if token is not None and history.name > token.next_partition_key:
                    break
                operation.rows = [found for key, found in rows if key[0] == history.name]
                if token is not None and history.name == token.next_partition_key:
                    operation.until = operation.rows[-1].row + 1 if operation.rows else 0
                history.answered(operation)
                first = index + 1
            if token is None:
                return


async def _page(server: SimulatedServer, query: QueryEntities, pages: list[EntitiesPage]) -> None:
    page = await server.service.execute(ACCOUNT, query)
    assert isinstance(page, EntitiesPage)
    pages.append(page)


async def _answer_of(server: SimulatedServer, work: Any) -> bool:
    """Whether the server finished the work; False if it died first. Raises what the work raised."""
    if server.is_dead:
        work.close()
        raise EngineUnavailable("The server is dead.")
    task: asyncio.Task[None] = server.start(work)
    await asyncio.wait((task, server.died), return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        return False
    task.result()
    return True


def _entity(partition: str, row: int, **given: int) -> Entity:
    body = {"PartitionKey": partition, "RowKey": str(row), **given}
    return Entity(*decode_entity(json.dumps(body).encode(), None))


def _entity_write(partition: str, write: Write) -> EntityWrite:
    kind, row, value, version = write
    if_match = IF_MATCH_ANY if version == ANY_VERSION else version
    if kind == "delete":
        return DeleteEntity(TABLE, EntityKey(partition, str(row)), if_match)
    name = "m" if "merge" in kind else "n"
    entity = _entity(partition, row, **{name: value})
    if kind == "insert":
        return InsertEntity(TABLE, entity)
    if kind == "upsert":
        return InsertOrReplaceEntity(TABLE, entity)
    if kind == "insert or merge":
        return InsertOrMergeEntity(TABLE, entity)
    if kind == "merge":
        return MergeEntity(TABLE, entity, if_match)
    return UpdateEntity(TABLE, entity, if_match)


def _found(stored: bytes) -> Found:
    raw = read_raw(stored)
    given: dict[str, Any] = {name: typed.value for name, typed in typed_properties(raw).items()}
    return Found(int(key_of(raw).row_key), given.get("n", 0), given.get("m", 0), version_of(stored))


def _version(result: WriteResult) -> int:
    return result.version if isinstance(result, EntityWritten | EntityInserted) else 0
