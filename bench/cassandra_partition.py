"""One partition of very many rows in Cassandra: point reads, pages, deletes, and what the deleted rows cost later."""

import asyncio
import secrets
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tablestone.clock import system_clock
from tablestone.engines.cassandra.engine import CassandraEngine
from tablestone.engines.cassandra.loading import Load
from tablestone.engines.contract import (
    ANY,
    DELETE,
    Change,
    EngineUnavailable,
    Key,
    KeyRange,
    StorageId,
    StoredRow,
    WriteSet,
)
from tablestone.tables import storage_keys

VALUE: Final = b"x" * 1024
ROWS_PER_PIECE: Final = 2000
TIMES: Final = 50
DELETED: Final = (1_000, 10_000, 50_000, 99_000, 120_000)


def row_key(number: int) -> bytes:
    return b"%09d" % number


def measure_partition(engine: CassandraEngine, rows: int) -> None:
    """Fill a partition as `tablestone cluster load` does, in an empty keyspace, and print a table."""
    asyncio.run(_measure(engine, rows))


async def _measure(engine: CassandraEngine, rows: int) -> None:
    partition = storage_keys.ENTITIES + secrets.token_bytes(8) + b"p"
    begun = time.monotonic()
    load = Load(engine.connection, StorageId(b"bench"))
    version = system_clock()
    pieces = [
        range(first, min(first + ROWS_PER_PIECE, rows)) for first in range(0, rows, ROWS_PER_PIECE)
    ]
    for piece in pieces:
        await load.write(
            [StoredRow(partition, row_key(row), version + row, VALUE) for row in piece]
        )
    await load.finish()
    seconds = time.monotonic() - begun
    print(f"{rows:,} rows of 1 KiB in one partition, loaded in {seconds:.0f} s\n")
    print("| operation | p50 ms | largest of fifty ms |\n|---|---|---|")

    def page(first: int) -> Callable[[], Awaitable[Any]]:
        where = KeyRange(Key(partition, row_key(first)), Key(partition + b"\0", b""))
        return lambda: engine.read((where,), rows_max=1000, bytes_max=4 << 20)

    await _print("point read at the beginning", lambda: engine.get(Key(partition, row_key(7))))
    await _print("point read at the end", lambda: engine.get(Key(partition, row_key(rows - 7))))
    await _print("page of 1,000 at the beginning", page(0))
    await _print("page of 1,000 in the middle", page(rows // 2))
    await _print("page of 1,000 at the end", page(rows - 1000))
    deleted = 0
    for wanted in DELETED:
        if wanted > rows // 2:
            break
        begun = time.monotonic()
        for first in range(deleted, wanted, 500):
            changes = [
                Change(row_key(row), ANY, DELETE) for row in range(first, min(first + 500, wanted))
            ]
            await engine.commit(WriteSet(partition, changes))
        rate = (wanted - deleted) / (time.monotonic() - begun)
        deleted = wanted
        await _print(f"page from the start, {deleted:,} deleted before ({rate:,.0f}/s)", page(0), 5)
        await _print(f"page after the {deleted:,} deleted", page(deleted), 5)
    await engine.close()


async def _print(title: str, act: Callable[[], Awaitable[Any]], times: int = TIMES) -> None:
    taken = []
    for _ in range(times):
        begun = time.monotonic()
        try:
            await act()
        except EngineUnavailable as error:
            print(f"| {title} | refused: {str(error)[:60]}… | |", flush=True)
            return
        taken.append(1000 * (time.monotonic() - begun))
    print(f"| {title} | {statistics.median(taken):.1f} | {max(taken):.1f} |", flush=True)
