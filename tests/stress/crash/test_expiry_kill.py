"""SIGKILL while expired entities are swept and others are renewed: nothing that lives is lost, and the rest goes."""

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Final

from azure.core.exceptions import AzureError
from azure.data.tables import TableClient

from server_process import ServerProcess, start_server
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
from tablestone.tables.service import TableService

OWNER: Final = Named("devstoreaccount1")
SOON: Final = {
    "tablestone.tables.expiry_sweeping.MARGIN_SECONDS": 0.2,
    "tablestone.tables.expiry_sweeping.PAUSE_SECONDS": 0.02,
}
PARTITIONS: Final = 40
EXPIRED: Final = 3_000
LIVE: Final = 200
KILLS: Final = 3
SECONDS_MAX: Final = 30


async def fill(data: Path) -> None:
    """Entities that have expired, and some that end in an hour."""
    engine = open_engine(f"sqlite:{data}", system_clock)
    tables = TableService(engine, system_clock, lambda: 0.0, storage_keys.fresh_table_id)
    await tables.catalog.create(OWNER, "Sessions")
    policy = ExpiryPolicy(property_name="expires")
    await tables.catalog.change_expiry(OWNER, "Sessions", lambda _old: policy)
    for first in range(0, EXPIRED + LIVE, 100):
        partition = f"{first // 100 % PARTITIONS}"
        writes = []
        for number in range(first, first + 100):
            end = system_clock() + (3600 if number >= EXPIRED else -60) * TICKS_PER_SECOND
            properties = members({"expires": EdmValue(EdmType.DATE_TIME, end)})
            key = EntityKey(partition, f"{number:05}")
            writes.append(InsertEntity("Sessions", Entity(key, properties)))
        await tables.execute(OWNER, EntityGroupTransaction("Sessions", partition, writes))
    await engine.close()


async def stored(data: Path, *, checks: bool) -> set[str]:
    """The row keys on the disk, expired or not."""
    engine = open_engine(f"sqlite:{data}", system_clock, read_only=True)
    if checks:
        assert await check_rows(engine) == []
        assert await engine.check() == []
    rows = await engine.scan(storage_keys.EVERYTHING, rows_max=10_000)
    await engine.close()
    return {
        key_of(read_raw(row.value)).row_key
        for row in rows
        if row.partition.startswith(storage_keys.ENTITIES)
    }


def renew(server: ServerProcess, random: Random, renewed: set[str], over: threading.Event) -> None:
    """Give expired entities another hour, until the server is gone."""
    table = TableClient.from_connection_string(server.connection_string, "Sessions", retry_total=0)
    while not over.is_set():
        number = random.randrange(EXPIRED)
        end = datetime.now(UTC) + timedelta(hours=1)
        row = f"{number:05}"
        entity = {"PartitionKey": f"{number // 100 % PARTITIONS}", "RowKey": row, "expires": end}
        try:
            table.upsert_entity(entity)
        except AzureError:
            return
        renewed.add(row)


def test_kills_of_the_sweeper_lose_nothing_that_lives(tmp_path: Path) -> None:
    data, random = tmp_path / "data", Random(7)
    asyncio.run(fill(data))
    live = {f"{number:05}" for number in range(EXPIRED, EXPIRED + LIVE)}
    renewed: set[str] = set()
    left = [EXPIRED + LIVE]
    for run in range(KILLS + 1):
        server = start_server(data, "--workers", "1", constants=SOON)
        over = threading.Event()
        writer = threading.Thread(target=renew, args=(server, random, renewed, over))
        writer.start()
        until = time.monotonic() + SECONDS_MAX
        while len(asyncio.run(stored(data, checks=False))) > EXPIRED + LIVE - 600 * (run + 1):
            assert time.monotonic() < until, left  # else it is killed in the middle of a pass
        if run == KILLS:
            over.set()
            writer.join()
            # A renewal that was under way at a kill may be stored too.
            while len(asyncio.run(stored(data, checks=False)) - live - renewed) > KILLS:
                assert time.monotonic() < until, left
                time.sleep(0.1)
            assert server.stop() == 0
        else:
            server.kill()
            writer.join()
        found = asyncio.run(stored(data, checks=True))
        assert live | renewed <= found
        left.append(len(found))
    assert LIVE + len(renewed) + KILLS < left[1], left
