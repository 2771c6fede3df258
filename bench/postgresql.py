"""The engine over PostgreSQL beside the bare driver, and what a commit costs: `python -m bench.postgresql WHAT`.

    operations    asyncpg, the engine in process, and a server of one worker, on PostgreSQL and in memory: the same
                  statements, and as many connections
    partition     commits of one partition, whose lock is held while a standby answers, beside commits of many
    bloat         sizes and dead rows while 20,000 entities are merged, for --seconds, with --fillfactor, --per-second
    flushes       how many commits of different partitions PostgreSQL flushes together (up to version 17)
    drivers       the call that commits, by asyncpg and by psycopg 3; a point read, alone and with catalogue rows

It starts PostgreSQL itself, and writes to the disk as PostgreSQL does by default. POSTGRESQL chooses its version.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import secrets
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))


import asyncpg
import uvloop

from bench import generator, servers
from bench.options import how_many, seconds
from bench.rounds import Schedule, Seeded, job_of
from bench.workloads import BY_NAME
from storage.postgresql_pair import running_pair
from storage.postgresql_server import running_server
from tablestone.clock import system_clock
from tablestone.engines.contract import (
    ABSENT,
    ANY,
    Change,
    Committed,
    Key,
    KeyRange,
    Put,
    ReliedRows,
    WriteSet,
)
from tablestone.engines.postgresql.address import CONNECTIONS, parse_address
from tablestone.engines.postgresql.commit import BEGIN_SESSION, COMMIT, FOUND, Commits
from tablestone.engines.postgresql.connections import connect
from tablestone.engines.postgresql.read import GET
from tablestone.engines.postgresql.schema import stored_key
from tablestone.engines.registry import open_engine

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

VALUE: Final = b"v" * 1024
IN_FLIGHT: Final = 16
ROWS: Final = 20_000
OPERATIONS: Final = ("point-read", "insert", "transaction")
DURABLE: Final = {"fsync": "on", "shared_buffers": "256MB", "max_connections": "200"}
DELAYS_MS: Final = (0.0, 1.0)
CATALOGUE_ROWS: Final = 4
TOLD: Final = 10
"""Lines about bloat."""


def write_set(partition: bytes, count: int = 1) -> WriteSet:
    """Inserts of new rows, which rely on the row of their table."""
    changes = [
        Change(secrets.token_bytes(8), ABSENT, Put(lambda _version: VALUE)) for _ in range(count)
    ]
    relied = ReliedRows([(Key(b"catalogue", b"table"), ABSENT)], None)
    return WriteSet(partition, changes, relies_on=relied)


@contextlib.contextmanager
def database() -> Iterator[str]:
    with running_server(**DURABLE) as port:
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"


async def rate(tasks: int, during: float, once: Callable[[int], Awaitable[Any]]) -> float:
    """Calls a second, of so many tasks that call one after the other."""
    done, until = 0, time.perf_counter() + during

    async def repeat(number: int) -> None:
        nonlocal done
        while time.perf_counter() < until:
            await once(number)
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*map(repeat, range(tasks)))
    return done / (time.perf_counter() - began)


class BareDriver:
    """As many connections as a worker has, with the statements of the engine and nothing around them."""

    def __init__(self, url: str) -> None:
        self.address = parse_address(url)

    async def open(self) -> None:
        self._commits = Commits(None, system_clock, b"bare")  # type: ignore[arg-type]
        self.drivers = [await connect(self.address, writes=True) for _ in range(CONNECTIONS)]
        self.sessions = [secrets.token_hex(16) for _ in self.drivers]
        self.numbers = [0] * CONNECTIONS
        for driver, session in zip(self.drivers, self.sessions, strict=True):
            await driver.fetch(BEGIN_SESSION, session)
        self.keys = [
            tuple(row)
            for row in await self.drivers[0].fetch("SELECT head, digest FROM rows LIMIT 5000")
        ]

    def arguments(self, number: int, count: int) -> list[object]:
        self.numbers[number] += 1
        sets = write_set(b"bare %d" % number, count)
        versions = [system_clock()] * count
        values = self._commits._arguments(sets, versions, {})  # noqa: SLF001 - the very same
        return [self.sessions[number], self.numbers[number], *values]

    async def commit(self, number: int, count: int = 1) -> None:
        row = await self.drivers[number].fetchrow(COMMIT, *self.arguments(number, count))
        assert row["outcome"] == b"a", row

    async def get(self, number: int) -> None:
        key = self.keys[(number * 631 + self.numbers[number]) % len(self.keys)]
        self.numbers[number] += 1
        assert await self.drivers[number].fetch(GET, *key)

    async def close(self) -> None:
        for driver in self.drivers:
            await driver.close()


class EngineItself:
    """The calls of `BareDriver`, by an engine in this process."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def open(self) -> None:
        self.engine = open_engine(self.url, system_clock)
        everything = KeyRange(Key(b"", b""), Key(b"\xff", b""))
        found = await self.engine.scan(everything, rows_max=5000)
        self.keys = [Key(row.partition, row.row) for row in found]
        self.read = 0

    async def commit(self, number: int, count: int = 1) -> None:
        outcome = await self.engine.commit(write_set(b"engine %d" % number, count))
        assert isinstance(outcome, Committed), outcome

    async def get(self, number: int) -> None:
        self.read += 1
        assert await self.engine.get(self.keys[(number * 631 + self.read) % len(self.keys)])

    async def close(self) -> None:
        await self.engine.close()


LAYERS: Final[dict[str, Callable[[str], BareDriver | EngineItself]]] = {
    "bare": BareDriver,
    "engine": EngineItself,
}


def operations(options: argparse.Namespace) -> None:
    """Each round measures the four one after the other, and a share is of its own round."""
    seeded = Seeded(lambda _line: None)
    schedule = Schedule(options.rounds, options.seconds, 0.5, IN_FLIGHT, 1)
    serve = [sys.executable, "-m", "tablestone", "serve", "--port", "0", "--workers", "1"]

    with database() as url, contextlib.ExitStack() as started:

        def start(name: str, engine: str) -> Callable[[str, int], float]:
            server = servers.start_announced(name, [*serve, "--engine", engine], constant=False)
            started.callback(server.stop)
            return lambda operation, number: (
                generator.run(
                    server, job_of(BY_NAME[operation], server, seeded, schedule, number)
                ).per_second
            )

        def in_process(layer: str) -> Callable[[str, int], float]:
            command = [sys.executable, "-m", "bench.postgresql", layer, "--url", url]
            command += ["--seconds", str(options.seconds), "--operation"]
            return lambda operation, _number: float(
                subprocess.run([*command, operation], check=True, stdout=subprocess.PIPE).stdout
            )

        measured = {
            "server": start("postgresql", url),
            "bare driver": in_process("bare"),
            "engine": in_process("engine"),
            "server in memory": start("memory", "memory:"),
        }
        print("A second, and the share of the bare driver: the median of the rounds.\n")
        print(f"| operation | {' | '.join(measured)} |\n|---|{'---|' * len(measured)}")
        for operation in OPERATIONS:
            rounds = [
                [measure(operation, number) for measure in measured.values()]
                for number in range(options.rounds + 1)
            ][1:]  # the first round is not counted
            bare_at = [*measured].index("bare driver")
            cells = [
                f"{statistics.median(each):,.0f} ({statistics.median(shares):.0%})"
                for each, shares in zip(
                    zip(*rounds, strict=True),
                    zip(*([a / one[bare_at] for a in one] for one in rounds), strict=True),
                    strict=True,
                )
            ]
            print(f"| {operation} | {' | '.join(cells)} |", flush=True)


async def in_this_process(layer: BareDriver | EngineItself, options: argparse.Namespace) -> None:
    await layer.open()
    calls = {
        "point-read": layer.get,
        "insert": layer.commit,
        "transaction": lambda number: layer.commit(number, 100),
    }
    call = calls[options.operation]
    await rate(CONNECTIONS, 0.5, call)
    print(await rate(CONNECTIONS, options.seconds, call))
    await layer.close()


def partition(options: argparse.Namespace) -> None:
    """The proxy delays what the standby says, so each commit takes as much longer."""

    async def measured(url: str) -> tuple[float, float]:
        engine = open_engine(url, system_clock)
        one = await rate(IN_FLIGHT, options.seconds, lambda _: engine.commit(write_set(b"one")))
        many = await rate(
            IN_FLIGHT, options.seconds, lambda number: engine.commit(write_set(b"%d" % number))
        )
        await engine.close()
        return one, many

    print("| the standby answers later by, ms | commits a second, one partition | 16 partitions |")
    print("|---|---|---|")
    with running_pair(**DURABLE) as pair:
        for delay in DELAYS_MS:
            pair.replication.delay_seconds = delay / 1000
            one, many = asyncio.run(measured(pair.url()))
            print(f"| {delay:g} | {one:,.0f} | {many:,.0f} |", flush=True)


async def flushes(url: str, options: argparse.Namespace) -> None:
    engine = open_engine(url, system_clock)
    admin = await asyncpg.connect(url)
    print("| commits at once | commits a second | flushes for each commit |\n|---|---|---|")
    for at_once in (1, 2, 4, CONNECTIONS):
        before = await admin.fetchval("SELECT wal_sync FROM pg_stat_wal")
        began = time.perf_counter()
        per_second = await rate(
            at_once, options.seconds, lambda number: engine.commit(write_set(b"%d" % number))
        )
        commits = per_second * (time.perf_counter() - began)
        await asyncio.sleep(2)  # statistics come about once a second
        flushed = await admin.fetchval("SELECT wal_sync FROM pg_stat_wal") - before
        print(f"| {at_once} | {per_second:,.0f} | {flushed / commits:.2f} |", flush=True)
    await admin.close()
    await engine.close()


async def drivers(url: str, options: argparse.Namespace) -> None:
    import psycopg  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415 - only this needs it

    engine = open_engine(url, system_clock)
    for _ in range(50):
        await engine.commit(write_set(b"read", 100))
    await engine.close()
    bare = BareDriver(url)
    await bare.open()
    address = bare.address
    others = [
        await psycopg.AsyncConnection.connect(
            address.dsns(writes=True)[0].replace("target_session_attrs=read-write", ""),
            autocommit=True,
            options=f"-c search_path={address.schema}",
            prepare_threshold=0,
        )
        for _ in range(CONNECTIONS)
    ]
    numbered = COMMIT
    for n in range(20, 0, -1):
        numbered = numbered.replace(f"${n}", f"%({n})b::{TYPES[n - 1]}")

    async def by_psycopg(number: int) -> None:
        values: dict[str, Any] = {
            str(n): value for n, value in enumerate(bare.arguments(number, 1), 1)
        }
        values["12"] = [kind.decode() for kind in values["12"]]
        found = await (await others[number].execute(numbered, values, binary=True)).fetchone()
        assert found is not None
        assert found[0] in ("a", b"a"), found

    catalogue = [stored_key(b"catalogue", b"%d" % n) for n in range(CATALOGUE_ROWS)]

    async def with_catalogue(number: int) -> None:
        key = bare.keys[number]
        keys = [*catalogue, key]
        found = await bare.drivers[number].fetch(
            FOUND, [each[0] for each in keys], [each[1] for each in keys], [True] * len(keys)
        )
        assert len(found) == CATALOGUE_ROWS + 1

    calls = {
        "commit, asyncpg": bare.commit,
        "commit, psycopg 3": by_psycopg,
        "point read": bare.get,
        f"point read with {CATALOGUE_ROWS} rows of the catalogue": with_catalogue,
    }
    rates: dict[str, list[float]] = {name: [] for name in calls}
    cpu: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(options.rounds):
        for name, call in calls.items():
            began = time.process_time()
            rates[name].append(await rate(CONNECTIONS, options.seconds, call))
            spent = time.process_time() - began
            cpu[name].append(1e6 * spent / (rates[name][-1] * options.seconds))
    print("| call | a second | this process's CPU µs |\n|---|---|---|")
    for name, each in rates.items():
        print(f"| {name} | {statistics.median(each):,.0f} | {statistics.median(cpu[name]):,.0f} |")
    await bare.close()
    for other in others:
        await other.close()


async def bloat(url: str, options: argparse.Namespace) -> None:
    """Rows of changing length are written again and again, as merges do."""
    engine = open_engine(url, system_clock)
    names = [b"%05d" % number for number in range(ROWS)]
    for first in range(0, ROWS, 100):
        changes = [Change(name, ANY, Put(lambda _: VALUE)) for name in names[first : first + 100]]
        await engine.commit(WriteSet(b"%d" % (first // 1000), changes))
    admin = await asyncpg.connect(url)
    schema = parse_address(url).schema
    if options.fillfactor:
        await admin.execute(f"ALTER TABLE {schema}.rows SET (fillfactor = {options.fillfactor})")
        await admin.execute(f"VACUUM FULL {schema}.rows")

    due = time.perf_counter()

    async def merge(_number: int) -> None:
        nonlocal due
        if options.per_second:
            due = max(due, time.perf_counter() - 1) + 1 / options.per_second
            await asyncio.sleep(due - time.perf_counter())
        at = secrets.randbelow(ROWS)
        value = b"m" * (800 + secrets.randbelow(448))
        change = Change(names[at], ANY, Put(lambda _version: value))
        await engine.commit(WriteSet(b"%d" % (at // 1000), [change]))

    print(
        "| s | merges/s | rows, MiB | index, MiB | dead rows | on their page | vacuums | sessions, MiB |"
    )
    print("|---|---|---|---|---|---|---|---|")
    began = time.monotonic()
    for part in range(TOLD + 1):
        per_second = await rate(IN_FLIGHT, options.seconds / TOLD, merge) if part else 0
        size, index, sessions = await admin.fetchrow(
            f"SELECT pg_table_size('{schema}.rows'), pg_indexes_size('{schema}.rows'), "
            f"pg_total_relation_size('{schema}.sessions')"
        )
        dead, hot, vacuums = await admin.fetchrow(
            "SELECT n_dead_tup, 100 * n_tup_hot_upd / greatest(n_tup_upd, 1), autovacuum_count "
            "FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = 'rows'",
            schema,
        )
        mib = [f"{each / 2**20:.1f}" for each in (size, index, sessions)]
        print(
            f"| {time.monotonic() - began:.0f} | {per_second:,.0f} | {mib[0]} | {mib[1]} | {dead:,} "
            f"| {hot} % | {vacuums} | {mib[2]} |",
            flush=True,
        )
    await admin.close()
    await engine.close()


TYPES: Final = (
    *("uuid", "bigint", "bigint[]", "bigint[]", "bytea[]", "bytea[]", "bigint[]", "bigint"),
    *("bytea[]", "bytea[]", "bytea[]", 'text[]::"char"[]', "bigint[]", "bigint[]", "bytea[]"),
    *("bytea[]", "bytea[]", "bytea[]", "bytea[]", "bytea[]"),
)
"""Of the parameters of `commit_rows`."""


ON_ONE: Final = {"bloat": bloat, "flushes": flushes, "drivers": drivers}
"""What needs no more than a server of PostgreSQL."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.postgresql",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("operations", "partition", *ON_ONE, *LAYERS))
    parser.add_argument("--rounds", type=how_many, default=5)
    parser.add_argument("--seconds", type=seconds, default=2.0)
    parser.add_argument("--fillfactor", type=how_many)
    parser.add_argument(
        "--per-second", type=how_many, help="merges; without it as many as possible"
    )
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--operation", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.what == "operations":
        operations(options)
    elif options.what == "partition":
        partition(options)
    elif options.what in LAYERS:
        uvloop.run(in_this_process(LAYERS[options.what](options.url), options))
    else:
        with database() as url:
            asyncio.run(ON_ONE[options.what](url, options))


if __name__ == "__main__":
    main()
