"""Point reads of a cluster from asyncio: this project's engine beside other drivers for Python. Prints a table.

    python -m bench.cassandra_other_drivers --nodes 1 [--rounds 5] [--seconds 3]

Each driver is installed into a virtual environment of its own under bench/.work. Sixteen reads of rows of 1 KiB are
under way in one process; the drivers take turns. docs/decisions/0017 has the figures.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import venv
from typing import Any, Final

from bench import paths
from bench.asyncio_driver import WAYS
from bench.cassandra import cluster, keyspace_of_its_own
from bench.cassandra_driver import open_engine
from bench.options import how_many
from tablestone.engines.cassandra.cluster_url import parse_address
from tablestone.engines.contract import ANY, Change, Put, WriteSet

ENGINE: Final = "engine"
TEXT: Final = "SELECT value FROM rows WHERE partition = ? AND row = ?"
ROWS: Final = 50
PARTITIONS: Final = 20
VALUE: Final = b"x" * 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.cassandra_other_drivers", description=__doc__
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--engine", help="the URL of a cluster that runs")
    where.add_argument("--nodes", type=how_many, help="start a cluster of as many nodes here")
    parser.add_argument("--rounds", type=how_many, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    pythons = {way: _python_of(way) for way in WAYS}
    with cluster(options) as place, keyspace_of_its_own(place) as url:
        job = _job(url, options.seconds)
        found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        for number in range(options.rounds):
            ways = list(WAYS)
            for way in ways[number % len(ways) :] + ways[: number % len(ways)]:
                found[way].append(_measured(pythons[way], {**job, "way": way}))
    print(
        "| driver | point reads a second | CPU µs | by the engine, median (rounds) |\n|---|---|---|---|"
    )
    for way, rounds in found.items():
        shares = [
            each["per_second"] / engine["per_second"]
            for each, engine in zip(rounds, found[ENGINE], strict=True)
        ]
        rate, cpu = (
            statistics.median(each[name] for each in rounds) for name in ("per_second", "cpu")
        )
        print(
            f"| {way} | {rate:,.0f} | {cpu:,.0f} "
            f"| {statistics.median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%}) |"
        )


def _job(url: str, seconds: float) -> dict[str, Any]:
    address = parse_address(url)
    engine = open_engine(url)
    keys: list[tuple[str, str]] = []

    async def fill() -> None:
        for number in range(PARTITIONS):
            partition, rows = b"p%03d" % number, [b"%03d" % row for row in range(ROWS)]
            changes = [Change(row, ANY, Put(lambda _: VALUE)) for row in rows]
            await engine.commit(WriteSet(partition, changes))
            keys.extend((partition.hex(), row.hex()) for row in rows)
        await engine.close()

    asyncio.run(fill())
    host, port = address.hosts[0]
    return {
        "url": url,
        "hosts": [host],
        "port": port,
        "keyspace": address.keyspace,
        "text": TEXT,
        "keys": keys,
        "seconds": seconds,
    }


def _python_of(way: str) -> str:
    """The Python of a virtual environment with the driver."""
    if way == ENGINE:
        return sys.executable
    place = paths.WORK / "drivers" / way
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", way], check=True)
    return str(python)


def _measured(python: str, job: dict[str, Any]) -> dict[str, float]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONPATH" or job["way"] == ENGINE
    }
    ended = subprocess.run(
        [
            python,
            "-P",
            str(paths.BENCH / "asyncio_driver.py"),
        ],  # bench/cassandra.py must not pass for a driver
        input=json.dumps(job),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=environment,
    )
    told: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return told


if __name__ == "__main__":
    main()
