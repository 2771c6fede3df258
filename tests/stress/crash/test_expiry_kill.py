"""SIGKILL while expired entities are swept and others are renewed: nothing that lives is lost, and the rest goes.

On SQLite, and on the cluster that ENGINE_UNDER_TEST names: there two servers share the storage, and one has the lease.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest
from azure.core.exceptions import AzureError
from azure.data.tables import TableClient

from server_process import ServerProcess, start_server
from storage.cluster.keyspaces import made_keyspace, on_a_cluster
from tablestone import limits
from tablestone.clock import TICKS_PER_SECOND, system_clock
from tablestone.engines.registry import open_engine
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import Entity
from tablestone.model.entity_json import key_of, members, read_raw
from tablestone.model.expiry import ExpiryPolicy
from tablestone.model.keys import EntityKey
from tablestone.model.operations import EntityGroupTransaction, InsertEntity
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Named
from tablestone.tables.integrity import check_rows
from tablestone.tables.metadata import DocumentKind, read_document
from tablestone.tables.service import TableService

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping
    from pathlib import Path

    from tablestone.engines.contract import Engine

OWNER: Final = Named("devstoreaccount1")
SWEEPING: Final = "tablestone.tables.expiry_sweeping"
CONSTANTS: Final = {
    f"{SWEEPING}.MARGIN_SECONDS": 0.2,
    f"{SWEEPING}.PAUSE_SECONDS": 0.02,
    f"{SWEEPING}.LEASE_SECONDS": 2,
    # One commit after the other, and a step right after the one before: a kill meets a step.
    f"{SWEEPING}.REST": 0,
    f"{SWEEPING}.AT_ONCE": 1,
    f"{SWEEPING}.AT_ONCE_REMOTE": 1,
}
IN_A_PARTITION: Final = 10
RESTING: Final = CONSTANTS | {f"{SWEEPING}.REST": 30}
"""On SQLite a pass takes less than a second, and this process may have to wait as long for a processor."""
KILLS: Final = 3 if "SLOW" in os.environ else 2
EXPIRED: Final = limits.SWEEP_ROWS_PER_STEP * (KILLS + 2)
SWEPT_BY_A_KILL: Final = limits.SWEEP_ROWS_PER_STEP // 2
"""So many are swept at least from one kill to the next, unless that was all: half a step."""
LIVE: Final = 100
SECONDS_MAX: Final = 30


class Storage:
    """What the servers keep, seen by another client of it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._loop = asyncio.Runner()
        self._engine: Engine | None = None

    def do(self, act: Callable[[Engine], Coroutine[Any, Any, Any]], *, writes: bool = False) -> Any:
        async def acting() -> Any:
            engine = self._engine or open_engine(self.url, system_clock, read_only=not writes)
            if self.url.startswith("cassandra:"):
                self._engine = engine  # it takes half a second to open
            try:
                return await act(engine)
            finally:
                if self._engine is None:
                    await engine.close()

        return self._loop.run(acting())

    def close(self) -> None:
        if self._engine is not None:
            self._loop.run(self._engine.close())
        self._loop.close()


async def fill(engine: Engine) -> None:
    """Entities that have expired, and some that end in an hour."""
    tables = TableService(engine, system_clock, lambda: 0.0, storage_keys.fresh_table_id)
    await tables.catalog.create(OWNER, "Sessions")
    for first in range(0, EXPIRED + LIVE, IN_A_PARTITION):
        partition = f"{first // IN_A_PARTITION}"
        writes = []
        for number in range(first, first + IN_A_PARTITION):
            end = system_clock() + (3600 if number >= EXPIRED else -60) * TICKS_PER_SECOND
            properties = members({"expires": EdmValue(EdmType.DATE_TIME, end)})
            key = EntityKey(partition, f"{number:05}")
            writes.append(InsertEntity("Sessions", Entity(key, properties)))
        await tables.execute(OWNER, EntityGroupTransaction("Sessions", partition, writes))


async def set_policy(engine: Engine) -> None:
    tables = TableService(engine, system_clock, lambda: 0.0, storage_keys.fresh_table_id)
    policy = ExpiryPolicy(property_name="expires")
    await tables.catalog.change_expiry(OWNER, "Sessions", lambda _old: policy)


async def stored(engine: Engine) -> set[str]:
    """The row keys of all entities, expired or not."""
    rows = await engine.scan(storage_keys.EVERYTHING, rows_max=10_000)
    return {
        key_of(read_raw(row.value)).row_key
        for row in rows
        if row.partition.startswith(storage_keys.ENTITIES)
    }


async def checked(engine: Engine) -> set[str]:
    """The same, where nothing is wrong with the storage."""
    assert await check_rows(engine) == []
    assert await engine.check() == []
    return await stored(engine)


async def holder(engine: Engine) -> str | None:
    """The server that holds the lease of the sweepers."""
    row = await engine.get(storage_keys.document_place(DocumentKind.LEASES.value, "expiry"))
    return None if row is None else str(read_document(row)[1]["holder"])


class Renewing:
    """Gives expired entities another hour through one server, until that is gone."""

    def __init__(self, server: ServerProcess, random: Random, renewed: set[str]) -> None:
        self._server, self._random, self._renewed = server, random, renewed
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew)
        self._thread.start()

    def _renew(self) -> None:
        text = self._server.connection_string
        table = TableClient.from_connection_string(text, "Sessions", retry_total=0)
        while not self._over.is_set():
            number = self._random.randrange(EXPIRED)
            end = datetime.now(UTC) + timedelta(hours=1)
            row = f"{number:05}"
            partition = f"{number // IN_A_PARTITION}"
            try:
                table.upsert_entity({"PartitionKey": partition, "RowKey": row, "expires": end})
            except AzureError:
                return
            self._renewed.add(row)

    def end(self) -> None:
        self._over.set()
        self._thread.join()


@pytest.fixture(params=["sqlite", pytest.param("cluster", marks=on_a_cluster)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "sqlite":
        storage = Storage(f"sqlite:{tmp_path / 'data'}")
        yield storage
        storage.close()
    else:
        with made_keyspace("swept") as url:
            storage = Storage(url)
            yield storage
            storage.close()


def test_kills_of_the_sweeper_lose_nothing_that_lives(storage: Storage, tmp_path: Path) -> None:
    is_shared = storage.url.startswith("cassandra:")
    random = Random(7)
    live = {f"{number:05}" for number in range(EXPIRED, EXPIRED + LIVE)}
    renewed: set[str] = set()
    running: list[tuple[ServerProcess, Renewing]] = []
    holders: list[str | None] = []

    def start(constants: Mapping[str, float]) -> None:
        where = ("--engine", storage.url) if is_shared else ()
        server = start_server(tmp_path / "data", "--workers", "1", *where, constants=constants)
        running.append((server, Renewing(server, random, renewed)))

    def wait_for(what: Callable[[], bool]) -> None:
        until = time.monotonic() + SECONDS_MAX
        while not what():
            assert time.monotonic() < until, (left, holders)
            time.sleep(0.02)

    storage.do(fill, writes=True)
    left = [EXPIRED + LIVE]
    if is_shared:
        # The first one holds the lease before the second one asks for it, and before there is anything to sweep.
        start(CONSTANTS)
        wait_for(lambda: storage.do(holder) is not None)
    else:
        storage.do(set_policy, writes=True)
    try:
        for run in range(KILLS + 1):
            # On a cluster the second kill is of the server that has taken over.
            if not (is_shared and run == 1):
                start(CONSTANTS if is_shared or run == KILLS else RESTING)
            if is_shared and run == 0:
                storage.do(set_policy, writes=True)
            limit = left[-1] - SWEPT_BY_A_KILL
            wait_for(lambda: len(storage.do(stored)) <= max(limit, LIVE + len(renewed) + KILLS))  # noqa: B023
            if is_shared:  # the one before may have swept more before its kill than it had to
                wait_for(lambda: storage.do(holder) not in holders)
            holders.append(storage.do(holder))
            server, renewing = running[0]
            if run == KILLS:
                renewing.end()
                # A renewal that was under way at a kill may be stored too.
                wait_for(lambda: len(storage.do(stored) - live - renewed) <= KILLS)
                assert server.stop() == 0
            else:
                server.kill()
                renewing.end()
            del running[0]
            there = live | renewed  # before the look: another server may be renewing more
            found = storage.do(checked)
            assert there <= found
            left.append(len(found))
    finally:
        for server, renewing in running:
            server.kill()
            renewing.end()
    assert LIVE + len(renewed) + KILLS < left[1], left  # it was killed in the middle of a pass
    assert len(set(holders)) == (KILLS + 1 if is_shared else 1), holders
