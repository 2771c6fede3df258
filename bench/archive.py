"""What an archive costs the writers: `python -m bench.archive [--entities N] [--turns 5] [--seconds 10]`.

In turns, a server with a record of changes alone, and one that archives it to a directory on the same disk, take
inserts over 16 connections. Neither trims the record. With `--entities`, both begin with so many entities, and the
archive has no base copy yet, so the server writes one all the time. Prints the medians.

Exits with 1 if the archive costs more than it may.
"""

import argparse
import asyncio
import shutil
import statistics
import sys
from pathlib import Path
from typing import Final

from bench import generator, machine, paths, servers
from bench.generator import Job, Measured
from bench.options import how_many, seconds
from tablestone.clock import system_clock
from tablestone.engines.contract import ANY, Change, Put, WriteSet
from tablestone.engines.registry import open_engine

RECORD: Final = ("--keep-changes", "7d,100GiB")
INSERTS_LEAST: Final = 0.95
"""The least inserts a second with an archive, as a share of those without, beside each other."""
P999_MOST: Final = 1.5
ROWS_OF_A_COMMIT: Final = 1_000
VALUE: Final = bytes(range(32, 127)) * 11
"""About 1 KiB."""


async def _fill(directory: Path, rows: int) -> None:
    """Rows of no table: to a base copy they are as any others."""
    engine = open_engine(f"sqlite:{directory}", system_clock)
    for start in range(0, rows, ROWS_OF_A_COMMIT):
        changes = [
            Change(b"%09d" % row, ANY, Put(lambda _version: VALUE))
            for row in range(start, min(start + ROWS_OF_A_COMMIT, rows))
        ]
        await engine.commit(WriteSet(b"\x02filling" + b"%06d" % (start // 100_000), changes))
    await engine.close()


def turn(name: str, filled: Path | None, options: argparse.Namespace) -> Measured:
    """Start a server on a copy of what is filled, load it, and stop it."""
    data = paths.DATA / name
    archive = data.with_name("archive-of-the-turn")
    for each in (data, archive):
        shutil.rmtree(each, ignore_errors=True)
    if filled is not None:
        shutil.copytree(filled, data)
    more = RECORD if name == "record" else (*RECORD, "--archive", str(archive))
    server = servers.start_tablestone(name, data, "", *more)
    try:
        generator.generate(server, Job("Bench", {"create_table": 1}, connections=1, requests=1))
        job = Job("Bench", {"insert": 1}, unique=name, warmup=0.5, seconds=options.seconds)
        measured = generator.run(server, job)
        if filled is not None and name == "archive" and any(archive.glob("*/base/*/*/end")):
            print("  the base copy ended before the load: give more --entities")
    finally:
        server.stop()
    print(
        f"  {name:<8} {measured.per_second:>7,.0f}/s  p50 {measured.p50 / 1000:.2f} ms"
        f"  p99.9 {measured.p999 / 1000:.1f} ms  {measured.server_cpu:.0f} µs of processor time",
        flush=True,
    )
    return measured


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.archive", description=__doc__)
    parser.add_argument("--entities", type=how_many, default=0)
    parser.add_argument("--turns", type=how_many, default=5)
    parser.add_argument("--seconds", type=seconds, default=10.0)
    options = parser.parse_args()
    print(f"commit {machine.commit()}")
    filled = None
    if options.entities:
        filled = paths.DATA / "filled"
        shutil.rmtree(filled, ignore_errors=True)
        filled.parent.mkdir(parents=True, exist_ok=True)
        asyncio.run(_fill(filled, options.entities))
    found: dict[str, list[Measured]] = {"record": [], "archive": []}
    for number in range(options.turns):
        for name in sorted(found, reverse=number % 2 == 0):
            found[name].append(turn(name, filled, options))
    medians = {
        name: (
            statistics.median(each.per_second for each in turns),
            statistics.median(each.p999 for each in turns),
            statistics.median(each.server_cpu for each in turns),
        )
        for name, turns in found.items()
    }
    alone, alone_p999, alone_cpu = medians["record"]
    archived, archived_p999, archived_cpu = medians["archive"]
    # Of turns beside each other: what slows the machine for a while slows both.
    share = statistics.median(
        with_archive.per_second / without.per_second
        for with_archive, without in zip(found["archive"], found["record"], strict=True)
    )
    print(
        f"inserts a second {alone:,.0f} and {archived:,.0f}: {share:.3f} of it; "
        f"p99.9 {alone_p999 / 1000:.1f} and {archived_p999 / 1000:.1f} ms; "
        f"{alone_cpu:.0f} and {archived_cpu:.0f} µs of processor time for each"
    )
    return int(share < INSERTS_LEAST or archived_p999 > P999_MOST * alone_p999)


if __name__ == "__main__":
    sys.exit(main())
