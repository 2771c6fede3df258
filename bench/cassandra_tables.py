"""Tables of one account that are created and deleted in Cassandra, and what the deleted ones cost later requests."""

import asyncio
import secrets
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tablestone import limits
from tablestone.clock import TICKS_PER_SECOND, system_clock
from tablestone.engines.cassandra.engine import CassandraEngine
from tablestone.engines.contract import EngineUnavailable
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Named
from tablestone.tables.catalog import Catalog
from tablestone.tables.sweeping import Sweeper

OWNER: Final = Named("bench")
AT_ONCE: Final = 32
"""How many tables are deleted at the same time, because a deletion waits for a lease."""
TIMES: Final = 30


def measure_tables(engine: CassandraEngine, tables: int) -> None:
    """Create, delete and sweep so many tables beside one that stays, in an empty keyspace, and print a table."""
    asyncio.run(_measure(engine, tables))


async def _measure(engine: CassandraEngine, tables: int) -> None:
    catalog = Catalog(engine, system_clock, lambda: secrets.token_bytes(8))
    later = Sweeper(engine, _later, lambda: secrets.token_bytes(8))
    await catalog.create(OWNER, "zzzStays")
    print("| tables deleted before | operation | p50 ms | largest ms |\n|---|---|---|---|")
    deleted = 0
    await _print(engine, catalog, deleted)
    for wanted in [*(step for step in (1_000, 10_000, 50_000) if step < tables), tables]:
        while deleted < wanted:
            first, deleted = deleted, min(deleted + AT_ONCE, wanted)
            names = [f"table{number:07}" for number in range(first, deleted)]
            await asyncio.gather(*[_create_and_delete(catalog, name) for name in names])
            if deleted % (2 * AT_ONCE) == 0 or deleted == wanted:
                while await later.sweep(OWNER.name):
                    pass
        await _print(engine, catalog, deleted)
    await engine.close()


def _later() -> int:
    """When the record of a table that is deleted now is removed."""
    return system_clock() + (limits.SWEEP_AGAIN_SECONDS + 1) * TICKS_PER_SECOND


async def _create_and_delete(catalog: Catalog, name: str) -> None:
    await catalog.create(OWNER, name)
    await catalog.delete(OWNER, name)


async def _print(engine: CassandraEngine, catalog: Catalog, deleted: int) -> None:
    partition = storage_keys.catalog_partition(OWNER.name)
    marks = (storage_keys.marks(partition),)
    notes = storage_keys.deleted_rows(OWNER.name)
    leases = engine.leases
    assert leases is not None
    moment_of = leases.moment_of
    assert moment_of is not None
    acts: dict[str, Callable[[], Awaitable[Any]]] = {
        "the catalog's moment": lambda: moment_of(partition),
        "the marks of changes": lambda: engine.read(marks, rows_max=1, bytes_max=1),
        "the sweeper's look": lambda: engine.scan(notes, rows_max=limits.PAGE_ENTITIES_MAX),
        "List Tables": lambda: catalog.page(OWNER, "", limits.PAGE_ENTITIES_MAX),
    }
    for title, act in acts.items():
        taken = []
        try:
            for _ in range(TIMES):
                begun = time.monotonic()
                await act()
                taken.append(1000 * (time.monotonic() - begun))
            figures = f"{statistics.median(taken):.1f} | {max(taken):.1f}"
        except EngineUnavailable as error:
            figures = f"refused: {str(error)[:60]}… | "
        print(f"| {deleted:,} | {title} | {figures} |", flush=True)
