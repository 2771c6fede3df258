"""A table of very many partitions in Cassandra: the directory's nodes, and what reads in PartitionKey order cost."""

import asyncio
import random
import secrets
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, Final

from bench.cassandra_costs import RequestCount
from bench.cassandra_driver import open_engine
from tablestone.clock import system_clock
from tablestone.engines.cassandra.directory import ENTRIES_PER_READ, Directory
from tablestone.engines.cassandra.loading import Load
from tablestone.engines.contract import (
    ABSENT,
    Change,
    Key,
    KeyRange,
    Put,
    StorageId,
    StoredRow,
    WriteSet,
)
from tablestone.tables import storage_keys

VALUE: Final = b"x" * 100
PARTITIONS_PER_PIECE: Final = 1000
TIMES: Final = 20
BYTES_MAX: Final = 4 << 20


def measure_partitions(url: str, partitions: int) -> None:
    """Fill a table with partitions of one row, in random order, as `tablestone cluster load` does; print tables."""
    asyncio.run(_Measurement(url, partitions).run())


class _Measurement:
    def __init__(self, url: str, partitions: int) -> None:
        self._engine = open_engine(url, loads=True)
        self._partitions = partitions
        self._prefix = storage_keys.ENTITIES + secrets.token_bytes(storage_keys.TABLE_ID_LENGTH)

    async def run(self) -> None:
        await self._fill()
        await self._print_nodes()
        count = RequestCount(self._engine.connection)
        print("| operation | round trips | p50 ms | largest ms |\n|---|---|---|---|")
        half = self._partitions // 2
        first = True
        for title, begin, width in (
            ("range of 10 partitions in the middle, by a server that has just started", half, 10),
            ("the same again", half, 10),
            ("page of 1,000 partitions at the beginning", 0, 1000),
            ("page of 1,000 partitions in the middle", half, 1000),
            ("page of 1,000 partitions at the end", self._partitions - 1000, 1000),
        ):
            await _print(title, count, self._read(begin, width), 1 if first else TIMES)
            first = False
        known = Key(self._partition(half), b"r")
        await _print("point read", count, lambda: self._engine.get(known))
        await _print("insert into a partition that is known", count, self._inserts(is_new=False))
        await _print("insert of the first row of a partition", count, self._inserts(is_new=True))
        await self._engine.close()

    def _partition(self, number: int) -> bytes:
        return self._prefix + b"p%09d" % number

    async def _fill(self) -> None:
        begun = time.monotonic()
        load = Load(self._engine.connection, StorageId(b"bench"))
        order = list(range(self._partitions))
        random.Random(1).shuffle(order)
        version = system_clock()
        for first in range(0, self._partitions, PARTITIONS_PER_PIECE):
            await load.write(
                [
                    StoredRow(self._partition(number), b"r", version + number, VALUE)
                    for number in sorted(order[first : first + PARTITIONS_PER_PIECE])
                ]
            )
        await load.finish()
        seconds = time.monotonic() - begun
        print(
            f"{self._partitions:,} partitions of one row, loaded in {seconds:.0f} s\n", flush=True
        )

    async def _print_nodes(self) -> None:
        """Print the nodes of the directory, as a newly started server sees them."""
        directory = Directory(self._engine.connection, system_clock)
        entries: dict[int, list[int]] = defaultdict(list)
        sizes: dict[int, list[int]] = defaultdict(list)
        async for level, low, node in directory.nodes():
            found = await _entries(directory, level, low, node.high)
            entries[level].append(len(found))
            sizes[level].append(sum(map(len, found)))
        print(
            "| level | nodes | entries of the largest | bytes of the longest |\n|---|---|---|---|"
        )
        for level, numbers in sorted(entries.items()):
            print(f"| {level} | {len(numbers):,} | {max(numbers):,} | {max(sizes[level]):,} |")
        print()

    def _read(self, begin: int, width: int) -> Callable[[], Awaitable[Any]]:
        start = Key(self._partition(begin), b"")
        end = Key(self._partition(begin + width), b"")

        async def read() -> None:
            found = 0
            at: Key | None = start
            while at is not None and found < width:
                rows = await self._engine.read(
                    (KeyRange(at, end),), rows_max=1000, bytes_max=BYTES_MAX
                )
                found += len(rows.values)
                at = rows.next_key
            if found != width:
                raise SystemExit(f"{found} of {width} partitions came")

        return read

    def _inserts(self, *, is_new: bool) -> Callable[[], Awaitable[Any]]:
        numbers = iter(range(TIMES))

        def insert() -> Awaitable[Any]:
            number = next(numbers)
            partition = self._partition(self._partitions // 3)
            if is_new:
                partition = self._partition(number * self._partitions // TIMES) + b"new"
            change = Change(b"s%d" % number, ABSENT, Put(lambda _: VALUE))
            return self._engine.commit(WriteSet(partition, [change]))

        return insert


async def _entries(directory: Directory, level: int, low: bytes, high: bytes | None) -> list[bytes]:
    found: list[bytes] = []
    first = low
    while True:
        some = await directory._entries(level, low, first, high, ENTRIES_PER_READ)  # noqa: SLF001
        found += [row[0] for row in some]
        if len(some) < ENTRIES_PER_READ:
            return found
        first = found[-1] + b"\0"


async def _print(
    title: str, count: RequestCount, act: Callable[[], Awaitable[Any]], times: int = TIMES
) -> None:
    taken = []
    count.sent = 0
    for _ in range(times):
        begun = time.monotonic()
        await act()
        taken.append(1000 * (time.monotonic() - begun))
    trips = count.sent / times
    print(
        f"| {title} | {trips:.1f} | {statistics.median(taken):.1f} | {max(taken):.1f} |", flush=True
    )
