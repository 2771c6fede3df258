"""The bare driver executing the statements of the engine's operations, to compare a server with.

`bench.cassandra` starts it as a process: the driver's own session with its own settings, and requests that follow each
other in the driver's own callbacks; no asyncio, no HTTP, no service. Each of its places (`connections`) has one request
in flight, and writes to its own partition. The values that it writes are those that a server has stored.
"""

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
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple

from cassandra import ConsistencyLevel, ProtocolVersion
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy
from cassandra.query import BatchStatement, BatchType, tuple_factory

from bench import processes
from bench.servers import ACCOUNT
from tablestone.clock import system_clock
from tablestone.engines.cassandra import opening
from tablestone.engines.cassandra.cluster_url import ClusterAddress, parse_address
from tablestone.engines.cassandra.engine import CassandraEngine
from tablestone.engines.contract import (
    ABSENT,
    ANY,
    Change,
    Committed,
    Key,
    Put,
    StoredRow,
    WriteSet,
)
from tablestone.tables import storage_keys
from tablestone.tables.catalog import read_record

PAGE_ROWS: Final = 1000
SEEDED: Final = 20_000
ROWS: Final = {
    "point-read": 1,
    "point-read-select": 1,
    "page": PAGE_ROWS,
    "insert": 1,
    "merge": 1,
    "update": 1,
    "upsert": 1,
    "transaction": 100,
    "ycsb-a": 1,
    "ycsb-b": 1,
    "walk": PAGE_ROWS,
    "filter-nothing": PAGE_ROWS,
    "filter-nothing-bounded": PAGE_ROWS,
    "filter-percent": PAGE_ROWS,
}
"""The operations, by the name of their workload, with how many rows each moves. Reading a whole table counts each page.
"""
MERGES: Final = {"merge": 1.0, "ycsb-a": 0.5, "ycsb-b": 0.1}
"""The share of an operation's requests that are merges; the others are point reads."""
WRITES: Final = {"insert", "transaction", "update", "upsert", *MERGES}
OWN_ROWS: Final = 64
"""How many rows of each place exist beforehand, for operations that change them: as in the load generator."""

Request = tuple[Any, Any]
"""A statement and its bound values, or a batch and None."""
Program = Generator[Request, Any, bool]
"""The requests of one operation; each gets the rows of its answer. It returns whether all was as expected."""


class Driven(NamedTuple):
    """The figures of one process: operations per second, and for each operation microseconds and bytes."""

    per_second: float
    p50: float
    cpu: float
    operations: int
    machine_seconds: float
    """CPU that the whole machine used meanwhile."""
    bytes_out: float
    bytes_in: float


def open_engine(url: str, *, loads: bool = False) -> CassandraEngine:
    """An engine; with `loads`, its keyspace is new, and is filled as `tablestone cluster load` does."""
    return opening.open_cassandra(parse_address(url), system_clock, may_be_loading=loads)


def seeded_rows(engine: CassandraEngine, table: str) -> list[StoredRow]:
    """The rows of the table that the load generator has filled."""
    record = asyncio.run(engine.get(storage_keys.table_place(ACCOUNT, table)))
    assert record is not None
    everything = storage_keys.table_range(read_record(record).table_id)
    return asyncio.run(engine.scan(everything, rows_max=SEEDED))


def bare_session(address: ClusterAddress) -> Session:
    """A session as a program without Tablestone would open it."""
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
    """What the engine would send for an operation, made with the driver."""

    def __init__(
        self, engine: CassandraEngine, session: Session, table: str, operation: str, places: int
    ) -> None:
        self._session = session
        self._rows = ROWS[operation]
        self._merges = MERGES.get(operation, 0.0)
        self._numbers = itertools.count()
        self._prepared: dict[str, Any] = {}
        self._commits = engine._commits  # noqa: SLF001 - the very statements of the engine
        self._reads = engine._reads._statements  # noqa: SLF001
        seeded = seeded_rows(engine, table)
        self._keys = [Key(row.partition, row.row) for row in seeded]
        sizes = Counter(row.partition for row in seeded)
        self._partitions = [partition for partition, size in sizes.items() if size >= PAGE_ROWS]
        self._value = seeded[0].value
        self._own: list[bytes] = []
        self._versions: dict[Key, int] = {}
        self.make: Callable[[int], Program] = {
            "point-read": self._get,
            "point-read-select": self._get,
            "page": self._page,
            "insert": self._insert,
            "transaction": self._insert,
            "update": self._update,
            "upsert": self._upsert,
        }.get(operation, self._merge if operation in MERGES else self._walk)
        if operation in WRITES:
            prefix = storage_keys.ENTITIES + secrets.token_bytes(storage_keys.TABLE_ID_LENGTH)
            self._own = [prefix + b"driver-%03d" % place for place in range(places)]
            asyncio.run(self._enlist(engine))
            for expectation in (ABSENT, ANY, 1):
                next(self._write(0, [b""] * self._rows, expectation))
        next(
            self.make(0)
        )  # what is sent is prepared now: the driver's callbacks must not wait for that

    async def _enlist(self, engine: CassandraEngine) -> None:
        """Write the first row of a partition, which costs more and is not part of the operation."""
        rows = [b"own-%03d" % row for row in range(OWN_ROWS)]
        for partition in self._own:
            changes = [Change(row, ANY, Put(lambda _: self._value)) for row in rows]
            committed = await engine.commit(WriteSet(partition, changes))
            assert isinstance(committed, Committed)
            for row, version in zip(rows, committed.versions, strict=True):
                self._versions[Key(partition, row)] = version

    def _get(self, _place: int) -> Program:
        return len((yield self._statement(self._reads.get), random.choice(self._keys))) == 1

    def _page(self, _place: int) -> Program:
        return (yield from self._rows_of(random.choice(self._partitions)))

    def _walk(self, _place: int) -> Program:
        number = next(self._numbers)
        return (yield from self._rows_of(self._partitions[number % len(self._partitions)]))

    def _rows_of(self, partition: bytes) -> Program:
        bound = (partition, b"", PAGE_ROWS)
        return len((yield self._statement(self._reads.rows_from), bound)) == PAGE_ROWS

    def _insert(self, place: int) -> Program:
        first = next(self._numbers) * self._rows
        rows = [b"%010d" % (first + row) for row in range(self._rows)]
        return (yield from self._write(place, rows, ABSENT))

    def _merge(self, place: int) -> Program:
        key = self._some_own(place)
        found = yield self._statement(self._reads.get), key
        if random.random() >= self._merges:
            return len(found) == 1
        return (yield from self._replace(place, key))

    def _update(self, place: int) -> Program:
        return (yield from self._replace(place, self._some_own(place)))

    def _upsert(self, place: int) -> Program:
        if next(self._numbers) % 2:
            return (yield from self._write(place, [self._some_own(place).row], ANY))
        return (yield from self._write(place, [b"%010d" % next(self._numbers)], ANY))

    def _some_own(self, place: int) -> Key:
        return Key(self._own[place], b"own-%03d" % random.randrange(OWN_ROWS))

    def _replace(self, place: int, key: Key) -> Program:
        """Write an entity on condition that it has the version of the last write."""
        return (yield from self._write(place, [key.row], self._versions[key]))

    def _write(self, place: int, rows: list[bytes], expectation: int) -> Program:
        value = self._value
        partition = self._own[place]
        changes = [Change(row, expectation, Put(lambda _: value)) for row in rows]
        attempt = self._commits._attempt(partition, changes, None, 0)  # noqa: SLF001
        own = self._commits._outcomes.noted(partition, next(self._numbers))  # noqa: SLF001
        batch = BatchStatement(BatchType.UNLOGGED)
        for statement, bound in [attempt.calls[0], own, *attempt.calls[1:]]:
            batch.add(self._statement(statement), bound)
        is_applied = bool((yield batch, None)[0][0])
        for row, version in zip(rows, attempt.versions, strict=True):
            self._versions[Key(partition, row)] = version
        return is_applied

    def _statement(self, of_engine: Any) -> Any:
        """The same text and consistency, prepared in the bare session."""
        text = of_engine.query_string
        if text not in self._prepared:
            statement = self._session.prepare(text)
            statement.consistency_level = of_engine.consistency_level
            statement.serial_consistency_level = of_engine.serial_consistency_level
            self._prepared[text] = statement
        return self._prepared[text]


class Run:
    """Keeps one operation in flight in each place."""

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
        program = self._requests.make(place)
        self._ask(place, program, next(program), time.monotonic())

    def wait(self, places: int) -> None:
        for _ in range(places):
            self._ended.acquire()

    def _ask(self, place: int, program: Program, request: Request, begun: float) -> None:
        future = self._session.execute_async(*request)
        future.add_callbacks(
            self._answered,
            self._failed,
            callback_args=(place, program, begun),
            errback_args=(place,),
        )

    def _answered(self, rows: Any, place: int, program: Program, begun: float) -> None:
        try:
            request = program.send(rows)
        except StopIteration as ended:
            if not ended.value:
                self.wrong.append(f"another answer than expected: {str(rows)[:200]}")
            self.taken.append(time.monotonic() - begun)
            self.send(place)
        else:
            self._ask(place, program, request, begun)

    def _failed(self, error: Exception, place: int) -> None:
        self.wrong.append(str(error))
        self.send(place)


def drive(
    url: str, table: str, operation: str, seconds: float, warmup: float, places: int
) -> Driven:
    """Prepare, say so, wait for a line on standard input, and send for some seconds."""
    engine = open_engine(url)
    session = bare_session(parse_address(url))
    requests = Requests(engine, session, table, operation, places)
    asyncio.run(engine.close())
    run = Run(session, requests)
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
    url, table, operation, seconds, warmup, places = sys.argv[1:]
    driven = drive(url, table, operation, float(seconds), float(warmup), int(places))
    print(json.dumps(driven._asdict()))


if __name__ == "__main__":
    main()
