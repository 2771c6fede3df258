"""Tablestone on an Apache Cassandra cluster, beside the bare driver doing the same statements. Prints tables.

    python -m tests.cassandra up [--nodes 3]                    # prints URL
    python -m bench.cassandra costs --engine URL                # round trips and bytes of each operation
    python -m bench.cassandra operations --engine URL           # rates; --servers 2 for two servers
    python -m bench.cassandra partition --engine URL            # one partition of a million rows of 1 KiB

A server has one worker, and the driver as many processes as there are servers. They take turns, so that other load on
the machine affects both alike. `pip install '.[cassandra]'` comes first.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import secrets
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench import generator, paths, processes, servers
from bench.cassandra_partition import measure_partition
from bench.generator import Job
from bench.prerequisites import build_loadgen
from bench.rounds import Schedule, Seeded, job_of
from bench.workloads import BY_NAME
from tablestone.clock import system_clock
from tablestone.engines.cassandra import opening
from tablestone.engines.cassandra.cluster_url import parse_address
from tablestone.engines.cassandra.engine import CassandraEngine
from tablestone.engines.contract import ABSENT, ANY, Change, Key, KeyRange, Put, WriteSet
from tablestone.tables import storage_keys

OPERATIONS: Final = {"point-read": 1, "page": 1000, "insert": 1, "transaction": 100}
"""The operations, by the name of their workload, with the rows that one of them moves."""
WRITES: Final = {"insert", "transaction"}
CONNECTIONS: Final = 16
VALUE: Final = b"x" * 1024
PAGE_ROWS: Final = 1000


def open_engine(url: str) -> CassandraEngine:
    return opening.open_cassandra(parse_address(url), system_clock)


def seeded_rows(engine: CassandraEngine, rows_max: int) -> list[Key]:
    """The places of rows in the cluster, of tables that the load generator has filled."""
    everything = KeyRange(Key(storage_keys.ENTITIES, b""), Key(b"\x03", b""))

    async def scan() -> list[Key]:
        rows = await engine.scan(everything, rows_max=rows_max)
        return [Key(row.partition, row.row) for row in rows]

    return asyncio.run(scan())


# The bare driver: requests that follow each other in its own callbacks, without asyncio, HTTP or a service.


def requests_of(engine: CassandraEngine, operation: str) -> Iterator[tuple[Any, Any]]:
    """What the engine would send for an operation, again and again: a statement and what is bound, or a batch."""
    reads, commits = engine._reads, engine._commits  # noqa: SLF001 - the very statements of the engine
    if operation in {"point-read", "page"}:
        keys = seeded_rows(engine, 20_000)
        partitions = sorted({key.partition for key in keys})
        while True:
            if operation == "point-read":
                yield reads._statements.get, random.choice(keys)  # noqa: SLF001
            else:
                bound = (random.choice(partitions), b"", PAGE_ROWS)
                yield reads._statements.rows_from, bound  # noqa: SLF001
    rows = OPERATIONS[operation]
    prefix = storage_keys.ENTITIES + secrets.token_bytes(8)
    partitions = [prefix + b"%d" % number for number in range(CONNECTIONS)]
    for partition in partitions:  # their first row costs more
        asyncio.run(engine.commit(WriteSet(partition, (Change(b"", ANY, Put(lambda _: b"")),))))
    for number in itertools.count():
        partition = partitions[number % CONNECTIONS]
        changes = [
            Change(b"%d-%d" % (number, row), ABSENT, Put(lambda _: VALUE)) for row in range(rows)
        ]
        attempt = commits._blind_attempt(partition, changes)  # noqa: SLF001
        writer = (commits._statements.writer, (commits._writer, number, partition))  # noqa: SLF001
        yield _batch([attempt.calls[0], writer, *attempt.calls[1:]]), None


def _batch(calls: Any) -> Any:
    from tablestone.engines.cassandra.connection import _batch as batch_of  # noqa: PLC0415

    return batch_of(calls)


def drive(url: str, operation: str, seconds: float, warmup: float) -> dict[str, float]:
    """Keep `CONNECTIONS` requests under way for some seconds; the rate, and the median time of a request."""
    engine = open_engine(url)
    session = engine.connection.session
    requests = requests_of(engine, operation)
    lock = threading.Lock()
    taken: list[float] = []
    ended = threading.Semaphore(0)
    next(requests)
    count = 0
    used = time.process_time()
    begins = time.monotonic() + warmup
    ends = begins + seconds

    def send() -> None:
        with lock:
            request, bound = next(requests)
        started = time.monotonic()
        if started >= ends:
            ended.release()
            return
        future = session.execute_async(request, bound)
        future.add_callbacks(answered, failed, (started,))

    def answered(_rows: Any, started: float) -> None:
        nonlocal count
        now = time.monotonic()
        count += 1
        if begins <= started and now <= ends:
            taken.append(now - started)
        send()

    def failed(error: Exception) -> None:
        print(f"the driver failed: {error}", file=sys.stderr)
        ended.release()

    for _ in range(CONNECTIONS):
        send()
    for _ in range(CONNECTIONS):
        ended.acquire()
    used = time.process_time() - used
    asyncio.run(engine.close())
    p50 = 1e6 * statistics.median(taken or [0.0])
    return {"per_second": len(taken) / seconds, "p50": p50, "cpu": 1e6 * used / max(count, 1)}


# Servers and drivers in turn.


def start_server(number: int, url: str) -> servers.Server:
    tablestone = str(Path(sys.executable).parent / "tablestone")
    serve = [tablestone, "serve", "--port", "0", "--workers", "1", "--engine", url]
    return servers.start_announced(f"cassandra-{number}", serve, constant=False)


class Rate(NamedTuple):
    """Operations a second; microseconds of the median, and of CPU in the process for each operation."""

    per_second: float
    p50: float
    cpu: float


def measure_operations(options: argparse.Namespace) -> None:
    build_loadgen()
    running = [start_server(number, options.engine) for number in range(options.servers)]
    try:
        print(f"{options.servers} server(s), {options.rounds} rounds of {options.seconds} s")
        print(
            "| operation | server ops/s | p50 ms | CPU µs | driver ops/s | p50 ms | CPU µs | share, rounds |"
        )
        print("|---|---|---|---|---|---|---|---|")
        seeded = Seeded(lambda _: None)
        for operation, rows in OPERATIONS.items():
            shares, ours, bare = [], [], []
            for number in range(options.rounds + 1):  # the first one is not counted
                ours.append(_of_servers(running, operation, seeded, number, options))
                bare.append(_of_drivers(operation, options))
                shares.append(ours[-1].per_second / max(bare[-1].per_second, 0.01))
            mine = statistics.median(rate.per_second for rate in ours[1:])
            theirs = statistics.median(rate.per_second for rate in bare[1:])
            print(
                f"| {operation} ({rows} rows) | {mine:,.0f} | {_medians(ours[1:])} | {theirs:,.0f} "
                f"| {_medians(bare[1:])} | {statistics.median(shares[1:]):.0%}, "
                f"{min(shares[1:]):.0%} to {max(shares[1:]):.0%} |",
                flush=True,
            )
    finally:
        for server in running:
            server.stop()


def _medians(rates: list[Rate]) -> str:
    p50 = statistics.median(rate.p50 for rate in rates) / 1000
    return f"{p50:.2f} | {statistics.median(rate.cpu for rate in rates):,.0f}"


def _of_servers(
    running: list[servers.Server],
    operation: str,
    seeded: Seeded,
    number: int,
    options: argparse.Namespace,
) -> Rate:
    """All servers at the same time; each has its part of the connections.

    The load generator writes to one partition at a time, so each connection that writes has a generator of its own.
    """
    share = max(CONNECTIONS // len(running), 1)
    writes = operation in WRITES
    schedule = Schedule(1, options.seconds, options.warmup, 1 if writes else share, number)
    loads: list[tuple[servers.Server, Job]] = []
    for server in running:
        job = job_of(BY_NAME[operation], server, seeded, schedule, number)
        loads += [
            (server, replace(job, unique=f"{job.unique}-{secrets.token_hex(4)}"))
            for _ in range(share if writes else 1)
        ]
    used = sum(processes.cpu_seconds(server.tree()) for server in running)
    with ThreadPoolExecutor(len(loads)) as threads:
        found = list(threads.map(lambda load: generator.generate(*load), loads))
    rate = sum(result["requests"] / result["elapsed"] for result in found)
    used = sum(processes.cpu_seconds(server.tree()) for server in running) - used
    answers = sum(result["requests_all"] for result in found)
    p50 = statistics.mean(result["latency"]["p50"] for result in found)
    return Rate(rate, p50, 1e6 * used / max(answers, 1))


def _of_drivers(operation: str, options: argparse.Namespace) -> Rate:
    command = [sys.executable, "-m", "bench.cassandra", "driver", "--engine", options.engine]
    command += ["--operation", operation, "--seconds", str(options.seconds)]
    command += ["--warmup", str(options.warmup)]
    drivers = [
        subprocess.Popen(command, cwd=paths.BENCH.parent, stdout=subprocess.PIPE, text=True)
        for _ in range(options.servers)
    ]
    told = [json.loads(driver.communicate()[0]) for driver in drivers]
    return Rate(
        sum(each["per_second"] for each in told),
        statistics.mean(each["p50"] for each in told),
        statistics.mean(each["cpu"] for each in told),
    )


# Round trips and bytes.


def measure_costs(options: argparse.Namespace) -> None:
    engine = open_engine(options.engine)
    connection = engine.connection
    sent = 0
    send = connection._send  # noqa: SLF001

    def counted(*arguments: Any) -> Any:
        nonlocal sent
        sent += 1
        return send(*arguments)

    vars(connection)["_send"] = counted
    prefix = storage_keys.ENTITIES + secrets.token_bytes(8)

    def put(partition: bytes, rows: int, first: int = 0) -> Any:
        changes = [
            Change(b"%06d" % (first + row), ABSENT, Put(lambda _: VALUE)) for row in range(rows)
        ]
        return engine.commit(WriteSet(prefix + partition, changes))

    async def measure() -> None:
        nonlocal sent
        print("| operation, rows of 1 KiB | round trips | bytes to the nodes | bytes from them |")
        print("|---|---|---|---|")
        page = (KeyRange.of_partition(prefix + b"p"),)
        many = (KeyRange(Key(prefix + b"q", b""), Key(prefix + b"r", b"")),)
        for title, act in (
            ("insert, the first of a partition", lambda: put(b"p", 1)),
            ("insert", lambda: put(b"p", 1, 1)),
            ("insert that is refused", lambda: put(b"p", 1, 1)),
            ("transaction of 100 inserts", lambda: put(b"p", 100, 2)),
            (None, lambda: _times(11, lambda number: put(b"p", 100, 102 + 100 * number))),
            (None, lambda: _times(100, lambda number: put(b"q%03d" % number, 1))),
            ("point read", lambda: engine.get(Key(prefix + b"p", b"000001"))),
            (
                "page of 1,000, the partition's first",
                lambda: engine.read(page, rows_max=1000, bytes_max=4 << 20),
            ),
            (
                "page of 1,000",
                lambda: engine.read(page, rows_max=1000, bytes_max=4 << 20),
            ),
            (
                "page of 100 partitions of one row",
                lambda: engine.read(many, rows_max=1000, bytes_max=4 << 20),
            ),
        ):
            sent = 0
            before = _traffic(connection)
            await act()
            to_nodes, from_nodes = (
                after - then for after, then in zip(_traffic(connection), before, strict=True)
            )
            if title is not None:
                print(f"| {title} | {sent} | {to_nodes:,} | {from_nodes:,} |")
        await engine.close()

    asyncio.run(measure())


async def _times(times: int, act: Callable[[int], Any]) -> None:
    for number in range(times):
        await act(number)


def _traffic(connection: Any) -> tuple[int, int]:
    """Bytes that the kernel has sent and received on the session's connections (`tcp_info`)."""
    sent = received = 0
    for pool in connection.session._pools.values():  # noqa: SLF001
        for each in pool.get_connections():
            info = each._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)  # noqa: SLF001
            acknowledged, taken = struct.unpack_from("QQ", info, 120)
            sent, received = sent + acknowledged, received + taken
    return sent, received


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cassandra", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("costs", "operations", "partition", "driver"):
        command = commands.add_parser(name)
        command.add_argument("--engine", required=True, help="the URL of the cluster")
        command.add_argument("--seconds", type=float, default=3.0)
        command.add_argument("--warmup", type=float, default=1.0)
        if name == "operations":
            command.add_argument("--servers", type=int, default=1)
            command.add_argument("--rounds", type=int, default=5)
        if name == "driver":
            command.add_argument("--operation", choices=OPERATIONS, required=True)
        if name == "partition":
            command.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    if options.command == "driver":  # of a run that has made the keyspace
        rate = drive(options.engine, options.operation, options.seconds, options.warmup)
        print(json.dumps(rate))
        return
    with keyspace_of_its_own(options.engine) as url:
        options.engine = url
        if options.command == "costs":
            measure_costs(options)
        elif options.command == "operations":
            measure_operations(options)
        else:
            measure_partition(open_engine(url), options.rows)


@contextmanager
def keyspace_of_its_own(url: str) -> Iterator[str]:
    """A new keyspace with up to three copies of each row, dropped at the end; its URL."""
    address = replace(parse_address(url), keyspace=f"bench_{secrets.token_hex(4)}")
    connection = opening.connect(address, in_keyspace=False)
    try:
        nodes = len(connection.cluster.metadata.all_hosts())
        opening.initialize(replace(address, replication=min(nodes, 3)))
        print(f"{nodes} node(s), {min(nodes, 3)} copies of each row\n", flush=True)
        yield url.replace(f"/{parse_address(url).keyspace}", f"/{address.keyspace}", 1)
        connection.define(f"DROP KEYSPACE IF EXISTS {address.keyspace}")
    finally:
        connection.close()


if __name__ == "__main__":
    main()
