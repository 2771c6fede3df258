"""Figures that may grow with the data: the memory of a server under load, and the time that it takes to start.

Each size gets a server of its own. Azurite keeps its data in memory only, so it starts empty, and it skips the sizes
that do not fit into Node's heap.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, wait
from statistics import median
from typing import TYPE_CHECKING, Any

from bench import generator, paths, processes, servers
from bench.generator import Job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.rounds import Schedule
    from bench.servers import Server

STARTS = 3
SAMPLE_SECONDS = 0.25
AZURITE_ENTITIES_MAX = 100_000
TABLE = "BenchGrowth"


def measure(
    name: str, sizes: tuple[int, ...], schedule: Schedule, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    if name == servers.AZURITE:
        sizes = tuple(size for size in sizes if size <= AZURITE_ENTITIES_MAX)
    return [measure_size(name, size, schedule, tell) for size in sizes]


def measure_size(
    name: str, size: int, schedule: Schedule, tell: Callable[[str], None]
) -> dict[str, Any]:
    data = paths.DATA / f"growth-{name}-{size}"
    server = servers.start(name, data)
    try:
        idle = processes.resident_mib(server.tree())
        generator.generate(server, Job(TABLE, {"create_table": 1}, connections=1, requests=1))
        start = time.monotonic()
        generator.generate(server, Job(TABLE, {"seed": 1}, entities=size))
        seeding = time.monotonic() - start
        busy = Job(
            TABLE,
            {"get": 50, "merge": 50},
            entities=size,
            connections=schedule.connections,
            warmup=schedule.warmup,
            seconds=schedule.seconds,
        )
        resident = resident_while(server, busy)
        disk = sum(file.stat().st_size for file in data.glob("**/*") if file.is_file()) / 2**20
    finally:
        server.stop()
    keeps = name.startswith(servers.TABLESTONE)
    starts = [start_seconds(name, data, answers=keeps) for _ in range(STARTS)]
    tell(f"  {name} {size:,}: {resident:,.0f} MiB, start {median(starts):.3f} s")
    return {
        "entities": size,
        "seeded_per_second": size / seeding,
        "idle_mib": idle,
        "resident_mib": resident,
        "disk_mib": disk,
        "start_seconds": median(starts),
        "starts_with_the_data": keeps,
    }


def resident_while(server: Server, job: Job) -> float:
    """The highest memory of the server while the job runs."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(generator.generate, server, job)
        held = [processes.resident_mib(server.tree())]
        while not running.done():
            wait([running], timeout=SAMPLE_SECONDS)
            held.append(processes.resident_mib(server.tree()))
        running.result()
    return max(held)


def start_seconds(name: str, data: Path, *, answers: bool) -> float:
    """From the command to its first answer about the data, or to the first accepted connection."""
    start = time.monotonic()
    server = servers.start(name, data)
    try:
        if answers:
            generator.generate(
                server, Job(TABLE, {"get": 1}, entities=1, connections=1, requests=1)
            )
        return time.monotonic() - start
    finally:
        server.stop()
