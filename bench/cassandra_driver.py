"""The bare driver, doing the statements of the engine's operations. What a server does is compared with this.

A process of its own, which `bench.cassandra` starts: the driver's own session, with the driver's own settings, and
requests that follow each other in the driver's own callbacks; no asyncio, no HTTP, no service. Each of its places
(`connections`) has one request under way, and writes to a partition of its own, as the load generator's connections
do. The values that it writes are those that a server has stored.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import secrets
import socket
import statistics
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy
from cassandra.query import BatchStatement, BatchType, tuple_factory

from bench import processes
from cassandra import ConsistencyLevel, ProtocolVersion
from tablestone.clock import system_clock
from tablestone.engines.cassandra import opening
from tablestone.engines.cassandra.cluster_url import ClusterAddress, parse_address
from tablestone.engines.cassandra.engine import CassandraEngine
from tablestone.engines.contract import (
    ABSENT,
    ANY,
    Change,
    Key,
    KeyRange,
    Put,
    StoredRow,
    WriteSet,
)
from tablestone.tables import storage_keys

PAGE_ROWS: Final = 1000
SEEDED: Final = 20_000
ROWS: Final = {"point-read": 1, "page": PAGE_ROWS, "insert": 1, "transaction": 100}
"""The operations, by the name of their workload, with the rows that one of them moves."""

Request = tuple[Any, Any]
"""A statement and what is bound to it, or a batch and None."""


class Driven(NamedTuple):
    """The figures of one process: operations a second, and for each of them microseconds and bytes."""

    per_second: float
    p50: float
    cpu: float
    operations: int
    machine_seconds: float
    """CPU that the whole machine used meanwhile."""
    bytes_out: float
    bytes_in: float


def open_engine(url: str, *, loads: bool = False) -> CassandraEngine:
    """An engine; `loads`: its keyspace is new, and to be filled as `tablestone cluster load` does."""
    return opening.open_cassandra(parse_address(url), system_clock, may_be_loading=loads)


def seeded_rows(engine: CassandraEngine) -> list[StoredRow]:
    """The rows of the table that the load generator has filled."""
    everything = KeyRange(Key(storage_keys.ENTITIES, b""), Key(b"\x03", b""))
    return asyncio.run(engine.scan(everything, rows_max=SEEDED))


def bare_session(address: ClusterAddress) -> Session:
    """A session as a program without Tablestone would have it."""
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(address.datacenter)),
        consistency_level=ConsistencyLevel.QUORUM,
        serial_consistency_level=ConsistencyLevel.SERIAL,
        row_factory=tuple_factory,
    )
    cluster = Cluster(
        list(address.hosts),
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        protocol_version=ProtocolVersion.V5,
    )
    return cluster.connect(address.keyspace)


class Requests:
    """What the engine would send for an operation, made by the means of the driver."""

    def __init__(
        self, engine: CassandraEngine, session: Session, operation: str, places: int
    ) -> None:
        self._session = session
        self._rows = ROWS[operation]
        self._numbers = itertools.count()
        self._prepared: dict[str, Any] = {}
        self._commits = engine._commits  # noqa: SLF001 - the very statements of the engine
        self._reads = engine._reads._statements  # noqa: SLF001
        seeded = seeded_rows(engine)
        self._keys = [Key(row.partition, row.row) for row in seeded]
        self._partitions = sorted({row.partition for row in seeded})
        self._value = seeded[0].value
        self._own: list[bytes] = []
        if operation in {"insert", "transaction"}:
            prefix = storage_keys.ENTITIES + secrets.token_bytes(storage_keys.TABLE_ID_LENGTH)
            self._own = [prefix + b"driver-%03d" % place for place in range(places)]
            asyncio.run(self._enlist(engine))
            for place in range(places):  # prepares what it sends
                self._write(place)
        self.make: Callable[[int], Request] = {"point-read": self._get, "page": self._page}.get(
            operation, self._write
        )
        self.is_answered: Callable[[Any], bool] = {
            "point-read": lambda rows: len(rows) == 1,
            "page": lambda rows: len(rows) == PAGE_ROWS,
        }.get(operation, _is_applied)

    async def _enlist(self, engine: CassandraEngine) -> None:
        """The first row of a partition costs more: it is no part of the operation."""
        for partition in self._own:
            await engine.commit(
                WriteSet(partition, (Change(b"", ANY, Put(lambda _: self._value)),))
            )

    def _get(self, _place: int) -> Request:
        return self._statement(self._reads.get), random.choice(self._keys)

    def _page(self, _place: int) -> Request:
        bound = (random.choice(self._partitions), b"", PAGE_ROWS)
        return self._statement(self._reads.rows_from), bound

    def _write(self, place: int) -> Request:
        number = next(self._numbers)
        value = self._value
        changes = [
            Change(b"%010d" % (number * self._rows + row), ABSENT, Put(lambda _: value))
            for row in range(self._rows)
        ]
        partition = self._own[place]
        attempt = self._commits._blind_attempt(partition, changes)  # noqa: SLF001
        own = self._commits._statements.writer, (1, number, partition)  # noqa: SLF001
        batch = BatchStatement(BatchType.UNLOGGED)
        for statement, bound in [attempt.calls[0], own, *attempt.calls[1:]]:
            batch.add(self._statement(statement), bound)
        return batch, None

    def _statement(self, of_engine: Any) -> Any:
        """The same text and consistency, prepared in the bare session."""
        text = of_engine.query_string
        if text not in self._prepared:
            statement = self._session.prepare(text)
            statement.consistency_level = of_engine.consistency_level
            statement.serial_consistency_level = of_engine.serial_consistency_level
            self._prepared[text] = statement
        return self._prepared[text]


def _is_applied(rows: Any) -> bool:
    return bool(rows[0][0])


class Run:
    """Keeps a request under way in each place."""

    def __init__(self, session: Session, requests: Requests) -> None:
        self._session = session
        self._requests = requests
        self._ended = threading.Semaphore(0)
        self.taken: list[float] = []
        self.is_over = False
        self.wrong: list[str] = []

    def send(self, place: int) -> None:
        if self.is_over:
            self._ended.release()
            return
        request, bound = self._requests.make(place)
        begun = time.monotonic()
        future = self._session.execute_async(request, bound)
        future.add_callbacks(
            self._answered, self._failed, callback_args=(place, begun), errback_args=(place,)
        )

    def wait(self, places: int) -> None:
        for _ in range(places):
            self._ended.acquire()

    def _answered(self, rows: Any, place: int, begun: float) -> None:
        if not self._requests.is_answered(rows):
            self.wrong.append(f"another answer than expected: {str(rows)[:200]}")
        self.taken.append(time.monotonic() - begun)
        self.send(place)

    def _failed(self, error: Exception, place: int) -> None:
        self.wrong.append(str(error))
        self.send(place)


def drive(url: str, operation: str, seconds: float, warmup: float, places: int) -> Driven:
    """Prepare, say so, wait for a line on the standard input, and send for some seconds."""
    engine = open_engine(url)
    session = bare_session(parse_address(url))
    requests = Requests(engine, session, operation, places)
    asyncio.run(engine.close())
    run = Run(session, requests)
    requests.make(0)
    print("ready", flush=True)
    sys.stdin.readline()
    for place in range(places):
        run.send(place)
    time.sleep(warmup)
    first, used, busy = len(run.taken), time.process_time(), processes.busy()
    bytes_before = traffic(session)
    begun = time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - begun
    taken = run.taken[first:]
    used, busy = time.process_time() - used, processes.busy() - busy
    bytes_out, bytes_in = (
        after - before for after, before in zip(traffic(session), bytes_before, strict=True)
    )
    run.is_over = True
    run.wait(places)
    session.cluster.shutdown()
    if run.wrong:
        sys.exit(f"the driver failed {len(run.wrong)} times: {run.wrong[0]}")
    count = max(len(taken), 1)
    return Driven(
        len(taken) / elapsed,
        1e6 * statistics.median(taken or [0.0]),
        1e6 * used / count,
        len(taken),
        busy,
        bytes_out / count,
        bytes_in / count,
    )


def traffic(session: Session) -> tuple[int, int]:
    """Bytes that the kernel has sent and received on the session's connections (`tcp_info`)."""
    sent = received = 0
    for pool in session._pools.values():  # noqa: SLF001
        for each in pool.get_connections():
            info = each._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)  # noqa: SLF001
            acknowledged, taken = struct.unpack_from("QQ", info, 120)
            sent, received = sent + acknowledged, received + taken
    return sent, received


def main() -> None:
    url, operation, seconds, warmup, places = sys.argv[1:]
    print(json.dumps(drive(url, operation, float(seconds), float(warmup), int(places))._asdict()))


if __name__ == "__main__":
    main()
