"""Round trips between a server and the nodes, and bytes in both directions, for each operation. Prints a table.

The requests are those of the benchmark workloads, signed, with entities of 1 KiB, one after the other. They go through
the server's own HTTP connection and application in this process, without a socket. Each operation counts with the
median of several requests, because few of them include what a server asks in the background.
"""

import itertools
import json
import re
import statistics
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import uvloop

from bench.cassandra_driver import traffic
from bench.in_process import (
    BATCH,
    CHANGED,
    JSON,
    PROPERTIES,
    address,
    entity,
    request,
    transaction,
)
from bench.steps import ask, connections
from bench.workloads import BY_NAME, PAGE, SEEDED
from tablestone.configuration import DEVELOPMENT_ACCOUNT, Configuration, WorkerSlot
from tablestone.server.application import Application

REQUESTS: Final = 15
"""How many requests each operation makes."""
SMALL_PARTITIONS: Final = 100
NO_CONTENT: Final = "Prefer: return-no-content\r\n"
UNCONDITIONAL: Final = "If-Match: *\r\n"
_CONTINUATION: Final = re.compile(rb"x-ms-continuation-next(partition|row)key: (.+)\r\n")
_ETAG: Final = re.compile(rb"\r\netag: (.+)\r\n")


class RequestCount:
    """Counts the requests of an engine to the nodes, from now on."""

    def __init__(self, connection: Any) -> None:
        self.sent = 0
        self._send = connection._send  # noqa: SLF001
        vars(connection)["_send"] = self._counted

    def _counted(self, *arguments: Any, **options: Any) -> Any:
        self.sent += 1
        return self._send(*arguments, **options)


class Cost(NamedTuple):
    """The cost of one request."""

    round_trips: float
    bytes_out: float
    bytes_in: float


class Costs:
    """A server in this process, on a cluster, and counts of what it sends."""

    def __init__(self, url: str) -> None:
        configuration = Configuration("", 0, None, url, (DEVELOPMENT_ACCOUNT,), "error")
        self._application = Application(configuration, WorkerSlot())

    async def start(self) -> None:
        await self._application.startup()
        engine: Any = self._application._engine  # noqa: SLF001 - where the requests pass
        self._session = engine.connection.session
        self._count = RequestCount(engine.connection)
        (self._way,) = connections(self._application, 1)

    async def end(self) -> None:
        await self._application.shutdown()

    async def ask(self, made: bytes, *, is_refused: bool = False) -> bytes:
        """The head of the answer."""
        try:
            await ask(self._way, made)
        except AssertionError:
            if not is_refused:
                raise
        head: bytes = self._way.transport.sent  # type: ignore[attr-defined]
        return head

    async def cost_of(self, made: bytes, *, is_refused: bool = False) -> tuple[Cost, bytes]:
        """The cost of a request, and the head of its answer."""
        self._count.sent = 0
        before = traffic(self._session)
        head = await self.ask(made, is_refused=is_refused)
        sent = self._count.sent
        out, into = (
            after - then for after, then in zip(traffic(self._session), before, strict=True)
        )
        return Cost(sent, out, into), head


class Operation(NamedTuple):
    """A line of the table. `make` returns the next request, given the head of the previous answer."""

    title: str
    make: Callable[[bytes], bytes]
    requests: int = REQUESTS
    is_refused: bool = False
    is_first_left_out: bool = False
    """The first request only prepares for the others."""


def measure_costs(url: str) -> None:
    uvloop.run(_measure(url))


async def _measure(url: str) -> None:
    first = Costs(url)
    await first.start()
    for table in ("bench", "small"):
        await first.ask(request("POST", "Tables", JSON, json.dumps({"TableName": table})))
    for number in range(0, SEEDED, BATCH):
        await first.ask(transaction(number % PAGE, _partition(number // PAGE)))
    for number in range(SMALL_PARTITIONS):
        await first.ask(_insert(f"small{number:03d}", 0))
    await first.end()
    costs = Costs(url)
    await costs.start()
    await costs.ask(request("GET", address(0, _partition(0))))
    print("| operation, entities of 1 KiB | round trips | bytes to the nodes | bytes from them |")
    print("|---|---|---|---|")
    for operation in _operations():
        found: list[Cost] = []
        head = b""
        for _ in range(operation.requests + operation.is_first_left_out):
            cost, head = await costs.cost_of(operation.make(head), is_refused=operation.is_refused)
            found.append(cost)
        whole = [
            statistics.median(values)
            for values in zip(*found[operation.is_first_left_out :], strict=True)
        ]
        print(
            f"| {operation.title} | {whole[0]:,.0f} | {whole[1]:,.0f} | {whole[2]:,.0f} |",
            flush=True,
        )
    await costs.end()


def _operations() -> list[Operation]:
    numbers = itertools.count()
    new = itertools.count(PAGE)

    def some_address() -> str:
        number = next(numbers) * 997 % SEEDED
        return address(number % PAGE, _partition(number // PAGE))

    def query(name: str) -> Callable[[bytes], bytes]:
        asked = BY_NAME[name].query.replace("{partition}", _partition(5))
        return lambda head: request("GET", f"bench()?{asked}{_continuation(head)}")

    def replaced(target: str, more: str = "") -> bytes:
        return request("PUT", target, JSON, json.dumps(PROPERTIES), more)

    select = f"?{BY_NAME['point-read-select'].query}"
    return [
        Operation(
            "insert, the first row of a partition, by a server that has just started",
            lambda _: _insert("first", 0),
            requests=1,
        ),
        Operation("insert, the first row of a partition", lambda _: _insert(f"new{next(new)}", 0)),
        Operation("insert", lambda _: _insert("first", next(new))),
        Operation("insert that is refused", lambda _: _insert("first", 0), is_refused=True),
        Operation("point read", lambda _: request("GET", some_address())),
        Operation(
            "point read with `$select` of three", lambda _: request("GET", some_address() + select)
        ),
        Operation(
            "merge",
            lambda _: request("PATCH", some_address(), JSON, json.dumps(CHANGED), UNCONDITIONAL),
        ),
        Operation(
            "update with ETag",
            lambda head: replaced(address(1, _partition(1)), f"If-Match: {_etag(head)}\r\n"),
            is_first_left_out=True,
        ),
        Operation(
            "insert or replace of an entity that is there", lambda _: replaced(some_address())
        ),
        Operation(
            "insert or replace of a new entity",
            lambda _: replaced(address(next(new), _partition(2))),
        ),
        Operation(
            "delete",
            lambda _: request(
                "DELETE", address(next(numbers) % PAGE, _partition(3)), more=UNCONDITIONAL
            ),
        ),
        Operation(
            "transaction of 100 inserts",
            lambda _: transaction(BATCH * next(new), _partition(4)),
        ),
        Operation("page of 1,000 entities of one partition", query("page"), is_first_left_out=True),
        Operation(
            "page of 1,000 in a walk over partitions of 1,000",
            query("walk"),
            is_first_left_out=True,
        ),
        Operation(
            "page of 100 partitions of one entity",
            lambda _: request("GET", "small()?$filter=PartitionKey%20ge%20'small'"),
            is_first_left_out=True,
        ),
        Operation("filter over 20,000, no match", query("filter-nothing"), requests=5),
        Operation(
            "the same, RowKey bounded to a tenth", query("filter-nothing-bounded"), requests=5
        ),
    ]


def _partition(number: int) -> str:
    return f"p{number:03d}"


def _insert(partition: str, number: int) -> bytes:
    return request("POST", "small", JSON, entity(number, partition), NO_CONTENT)


def _etag(head: bytes) -> str:
    """The ETag of an answer; any ETag for a first request."""
    found = _ETAG.search(head)
    return "*" if found is None else found[1].decode()


def _continuation(head: bytes) -> str:
    """Where the page after this answer begins, as query parameters."""
    return "".join(
        f"&Next{name.decode().title()}Key={quote(value)}"
        for name, value in _CONTINUATION.findall(head)
    )
