"""Paired rounds: in every round each server gets the same workload in turn.

So other load on the machine affects all of them alike. Another server comes first each time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bench import generator, processes
from bench.flights import kept_flights
from bench.generator import Job
from bench.workloads import Uses

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.generator import Measured
    from bench.servers import Server
    from bench.workloads import Workload

PRACTICE = 0


@dataclass(frozen=True)
class Schedule:
    rounds: int
    seconds: float
    warmup: float
    connections: int
    seed: int


@dataclass
class Outcome:
    """One workload on one server: its rounds, and the memory that the server held after the last."""

    rounds: list[Measured] = field(default_factory=list)
    resident_mib: float = 0.0


@dataclass(frozen=True)
class Loaded:
    """A set of entities that a server was given, in transactions of up to 100, over 16 connections."""

    server: str
    what: str
    entities: int
    transactions: int
    seconds: float


class Seeded:
    """The tables that exist on each server, each created once, through the protocol itself. Names end with `suffix`."""

    def __init__(self, tell: Callable[[str], None], suffix: str = "") -> None:
        self._suffix = suffix
        self._present: set[tuple[str, str]] = set()
        self._tell = tell
        self.loaded: list[Loaded] = []

    def table(self, server: Server, workload: Workload, round_number: int) -> str:
        kind = {Uses.SEEDED: "Read", Uses.WRITTEN: "Written", Uses.NEW: "New"}[workload.uses]
        name = f"Bench{kind}{workload.data.title()}{workload.entities}{self._suffix}"
        if workload.uses is Uses.NEW:
            name = f"Bench{workload.name.title().replace('-', '')}Round{round_number}"
        if server.constant or (server.name, name) in self._present:
            return name
        generator.generate(server, Job(name, {"create_table": 1}, connections=1, requests=1))
        if workload.uses is not Uses.NEW:
            self._load(server, name, workload)
        self._present.add((server.name, name))
        return name

    def adopt(self, server: Server, from_server: Server) -> None:
        """Record that two servers share a store: what one has is also on the other."""
        self._present |= {
            (server.name, table) for name, table in self._present if name == from_server.name
        }

    def _load(self, server: Server, table: str, workload: Workload) -> None:
        job = Job(table, {"seed": 1}, entities=workload.entities, data=data_of(workload))
        start = time.monotonic()
        transactions = generator.generate(server, job)["requests"]
        seconds = time.monotonic() - start
        what = workload.data or "entities"
        self.loaded.append(Loaded(server.name, what, workload.entities, transactions, seconds))
        self._tell(f"  {server.name} has {workload.entities:,} {what} after {seconds:.1f} s")


def play(
    workload: Workload,
    servers: list[Server],
    seeded: Seeded,
    schedule: Schedule,
    tell: Callable[[str], None],
) -> dict[str, Outcome]:
    if workload.walks:  # a constant answer has no continuation to follow
        servers = [server for server in servers if not server.constant]
    outcomes = {server.name: Outcome() for server in servers}  # in the order of the command line
    for server in servers:
        # Unmeasured: a just-in-time compiler and a page cache need more than one warm-up.
        generator.run(server, job_of(workload, server, seeded, schedule, PRACTICE))
    for round_number in range(1, schedule.rounds + 1):
        for server in in_turn(servers, round_number):
            job = job_of(workload, server, seeded, schedule, round_number)
            if job.walks:
                # Uncounted, like the warm-up of timed workloads: the first page must not pay for the other servers,
                # which had the caches since the last round.
                generator.run(server, replace(job, walks=1))
            measured = generator.run(server, job)
            outcomes[server.name].rounds.append(measured)
            tell(
                f"  round {round_number} {server.name:<10} "
                f"{measured.per_second:>9,.0f}/s  p50 {measured.p50 / 1000:.2f} ms"
            )
    for server in servers:
        outcomes[server.name].resident_mib = processes.resident_mib(server.tree())
    return outcomes


def in_turn(servers: list[Server], round_number: int) -> list[Server]:
    """The servers in this round's order: each is first in turn, and the others follow."""
    first = (round_number - 1) % max(len(servers), 1)
    return servers[first:] + servers[:first]


def job_of(
    workload: Workload, server: Server, seeded: Seeded, schedule: Schedule, round_number: int
) -> Job:
    walking = workload.walks > 0
    job = Job(
        table=seeded.table(server, workload, round_number),
        mix=workload.mix,
        keys=workload.keys,
        query=workload.query,
        unique=f"{workload.name}-{round_number}",
        entities=workload.entities,
        connections=workload.connections or schedule.connections,
        seed=schedule.seed + round_number,
        warmup=0.0 if walking else schedule.warmup,
        seconds=0.0 if walking else schedule.seconds,
        walks=workload.walks,
        inserts=workload.entities_per_operation if "batch" in workload.mix else 0,
        shapes=workload.shapes,
        data=data_of(workload),
        matches=workload.matches,
        expect_entities=workload.expect_entities,
    )
    if workload.company is None:
        return job
    company = job_of(workload.company, server, seeded, schedule, round_number)
    if "page" in company.mix:  # its filter is followed to the end, again and again
        company = replace(company, walks=1)
    return replace(job, company=company)


def data_of(workload: Workload) -> str:
    """The file of entities; empty if the load generator makes them itself."""
    return str(kept_flights()) if workload.data else ""
