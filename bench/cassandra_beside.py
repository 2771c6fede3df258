"""Servers on a cluster beside as many processes of the bare driver, in alternating rounds. Prints a table.

Both sides move rows of the same length, read the same rows, and have as many requests in flight. A server has one
worker, to match the driver's processes. The sides take turns at being first. Inserts and transactions go to a partition
for each connection on both sides. Other writes on a server go to entities of the whole table, so two may meet in a
partition; the driver's never do.
"""

import json
import secrets
import statistics
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from bench import generator, paths, processes, servers
from bench.cassandra_driver import ROWS
from bench.rounds import Schedule, Seeded, job_of
from bench.workloads import BY_NAME, PAGE, SEEDED, Uses, Workload

WALKS = 2
"""How often each connection reads the whole table."""
WALKERS = 2
"""How many connections of each server do that."""
FIRST_ROWS_SECONDS = 2.0
"""How much longer the warm-up is where each round writes to new partitions, because it inserts their first rows."""
HEAD = (
    "| operation | server, operations/s | p50 ms | CPU µs | nodes' CPU µs | driver, operations/s | p50 ms | CPU µs "
    "| nodes' CPU µs | bytes out | bytes in | server by driver, median (rounds) |\n"
    + "|---" * 12
    + "|"
)


@dataclass(frozen=True)
class Comparison:
    """What is compared, and for how long."""

    url: str
    servers: int
    rounds: int
    seconds: float
    warmup: float
    connections: int
    operations: Sequence[str]

    @property
    def share(self) -> int:
        """The requests that one server, or one process of the driver, has in flight."""
        return max(self.connections // self.servers, 1)


class Rate(NamedTuple):
    """One side's operations per second; per operation, microseconds: median, CPU of its processes, CPU elsewhere."""

    per_second: float
    p50: float
    cpu: float
    nodes_cpu: float
    bytes_out: float = 0.0
    bytes_in: float = 0.0


def measure_beside(compared: Comparison) -> None:
    running: list[servers.Server] = []
    try:
        running += [_start(number, compared.url) for number in range(compared.servers)]
        seeded = Seeded(lambda _: None)
        read = seeded.table(running[0], BY_NAME["point-read"], 0)
        written = [Seeded(lambda _: None, f"Server{number}") for number in range(len(running))]
        print(
            f"{compared.servers} server(s) of one worker, as many processes of the driver, {compared.connections} "
            f"requests under way, {compared.rounds} rounds of {compared.seconds:g} s\n"
        )
        print(HEAD, flush=True)
        for operation in compared.operations:
            sides = replace(compared, warmup=_warmup(operation, compared.warmup))
            print(_line(operation, running, read, [seeded, *written], sides), flush=True)
    finally:
        for server in running:
            server.stop()


def _start(number: int, url: str) -> servers.Server:
    tablestone = str(Path(sys.executable).parent / "tablestone")
    serve = [tablestone, "serve", "--port", "0", "--workers", "1", "--engine", url]
    return servers.start_announced(f"cassandra-{number}", serve, constant=False)


def _warmup(operation: str, seconds: float) -> float:
    return seconds + FIRST_ROWS_SECONDS * (BY_NAME[operation].uses is Uses.NEW)


def _line(
    operation: str,
    running: list[servers.Server],
    read: str,
    seeded: list[Seeded],
    compared: Comparison,
) -> str:
    """`read` is the table that both sides read."""
    ours: list[Rate] = []
    bare: list[Rate] = []
    for number in range(compared.rounds + 1):  # the first one is not counted
        for is_ours in (number % 2 == 0, number % 2 == 1):
            if is_ours:
                ours.append(_of_servers(running, operation, seeded, number, compared))
            else:
                bare.append(_of_drivers(operation, read, compared))
    del ours[0], bare[0]
    shares = [mine.per_second / theirs.per_second for mine, theirs in zip(ours, bare, strict=True)]
    bytes_out, bytes_in = (
        statistics.median(values)
        for values in zip(*((rate.bytes_out, rate.bytes_in) for rate in bare), strict=True)
    )
    return (
        f"| {operation} ({ROWS[operation]:,} rows) | {_medians(ours)} | {_medians(bare)} | {bytes_out:,.0f} "
        f"| {bytes_in:,.0f} | {statistics.median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%}) |"
    )


def _medians(rates: list[Rate]) -> str:
    rate, p50, cpu, nodes_cpu, *_ = (
        statistics.median(values) for values in zip(*rates, strict=True)
    )
    return f"{rate:,.0f} | {p50 / 1000:.2f} | {cpu:,.0f} | {nodes_cpu:,.0f}"


def _of_servers(
    running: list[servers.Server],
    operation: str,
    seeded: list[Seeded],
    number: int,
    compared: Comparison,
) -> Rate:
    """All servers at the same time; each has its share of the connections, and its own table to change."""
    schedule = Schedule(1, compared.seconds, compared.warmup, compared.share, number)
    workload = _workload(operation)
    jobs = []
    shared, *written = seeded
    for server, own in zip(running, written, strict=True):
        shared.adopt(
            server, running[0]
        )  # they share the cluster: what the first one created exists for all
        tables = own if workload.uses is Uses.WRITTEN else shared
        job = job_of(workload, server, tables, schedule, number)
        jobs.append(replace(job, unique=f"server-{secrets.token_hex(4)}", apart=True))
    trees = [process for server in running for process in server.tree()]
    used, busy = processes.cpu_seconds(trees), processes.busy()
    with ThreadPoolExecutor(len(jobs)) as threads:
        found = list(threads.map(generator.generate, running, jobs))
    used, busy = processes.cpu_seconds(trees) - used, processes.busy() - busy
    counted = [result["requests"] for result in found]
    answers = max(sum(result["requests_all"] for result in found), 1)
    if workload.walks:  # however many entities match, only the pages read count
        counted = [job.connections * job.walks * SEEDED / PAGE for job in jobs]
        answers = sum(counted)
    loading = sum(result["generator_seconds_all"] for result in found)
    return Rate(
        sum(each / result["elapsed"] for each, result in zip(counted, found, strict=True)),
        statistics.mean(result["latency"]["p50"] for result in found),
        1e6 * used / answers,
        1e6 * (busy - used - loading) / answers,
    )


def _workload(operation: str) -> Workload:
    """The one of `python -m bench`; a read of a whole table reads 20,000 entities, over a few connections."""
    workload = BY_NAME[operation]
    if workload.entities_per_operation == ROWS[operation]:
        return workload
    matching = SEEDED * workload.entities_per_operation // workload.entities
    return replace(
        workload,
        entities=SEEDED,
        entities_per_operation=matching,
        expect_entities=matching,
        walks=WALKS,
        connections=WALKERS,
    )


def _of_drivers(operation: str, read: str, compared: Comparison) -> Rate:
    places = compared.share if not _workload(operation).walks else WALKERS
    command = [sys.executable, "-m", "bench.cassandra_driver", compared.url, read, operation]
    command += [str(compared.seconds), str(compared.warmup), str(places)]
    drivers = [
        subprocess.Popen(
            command,
            cwd=paths.BENCH.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(compared.servers)
    ]
    for driver in drivers:
        assert driver.stdout is not None
        if driver.stdout.readline() != "ready\n":
            sys.exit("a process of the driver did not start")
    for driver in drivers:
        assert driver.stdin is not None
        driver.stdin.write("\n")
        driver.stdin.flush()
    told = [json.loads(driver.communicate()[0] or "{}") for driver in drivers]
    if not all(told):
        sys.exit("a process of the driver has failed")
    operations = max(sum(each["operations"] for each in told), 1)
    used = sum(each["cpu"] * each["operations"] for each in told) / operations
    machine = statistics.mean(each["machine_seconds"] for each in told)
    return Rate(
        sum(each["per_second"] for each in told),
        statistics.mean(each["p50"] for each in told),
        used,
        1e6 * machine / operations - used,
        statistics.mean(each["bytes_out"] for each in told),
        statistics.mean(each["bytes_in"] for each in told),
    )
