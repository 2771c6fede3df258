"""Round trips of a server to the nodes, and bytes to them and from them, for each operation. Prints a table."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, Final

from bench.cassandra_driver import open_engine, traffic
from tablestone.engines.contract import ABSENT, Change, Key, KeyRange, Put, WriteSet
from tablestone.tables import storage_keys

VALUE: Final = b"x" * 1024
BYTES_MAX: Final = 4 << 20


class RequestCount:
    """Counts the requests of an engine to the nodes, from now on."""

    def __init__(self, connection: Any) -> None:
        self.sent = 0
        self._send = connection._send  # noqa: SLF001
        vars(connection)["_send"] = self._counted

    def _counted(self, *arguments: Any, **options: Any) -> Any:
        self.sent += 1
        return self._send(*arguments, **options)


def measure_costs(url: str) -> None:
    engine = open_engine(url)
    connection = engine.connection
    count = RequestCount(connection)
    prefix = storage_keys.ENTITIES + secrets.token_bytes(8)

    def put(partition: bytes, rows: int, first: int = 0) -> Any:
        changes = [
            Change(b"%06d" % (first + row), ABSENT, Put(lambda _: VALUE)) for row in range(rows)
        ]
        return engine.commit(WriteSet(prefix + partition, changes))

    def page(partitions: KeyRange) -> Any:
        return engine.read((partitions,), rows_max=1000, bytes_max=BYTES_MAX)

    async def measure() -> None:
        print("| operation, rows of 1 KiB | round trips | bytes to the nodes | bytes from them |")
        print("|---|---|---|---|")
        one = KeyRange.of_partition(prefix + b"p")
        many = KeyRange(Key(prefix + b"q", b""), Key(prefix + b"r", b""))
        for title, act in (
            ("insert, the first of a partition", lambda: put(b"p", 1)),
            ("insert", lambda: put(b"p", 1, 1)),
            ("insert that is refused", lambda: put(b"p", 1, 1)),
            ("transaction of 100 inserts", lambda: put(b"p", 100, 2)),
            (None, lambda: _times(11, lambda number: put(b"p", 100, 102 + 100 * number))),
            (None, lambda: _times(100, lambda number: put(b"q%03d" % number, 1))),
            ("point read", lambda: engine.get(Key(prefix + b"p", b"000001"))),
            ("page of 1,000, the partition's first", lambda: page(one)),
            ("page of 1,000", lambda: page(one)),
            ("page of 100 partitions of one row", lambda: page(many)),
        ):
            count.sent = 0
            before = traffic(connection.session)
            await act()
            to_nodes, from_nodes = (
                after - then
                for after, then in zip(traffic(connection.session), before, strict=True)
            )
            if title is not None:
                print(f"| {title} | {count.sent} | {to_nodes:,} | {from_nodes:,} |")
        await engine.close()

    asyncio.run(measure())


async def _times(times: int, act: Callable[[int], Any]) -> None:
    for number in range(times):
        await act(number)
