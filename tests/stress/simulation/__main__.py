"""Simulations of many seeds: `python -m tests.stress.simulation [--seeds N] [--first SEED]`.

Each seed is a world of its own: servers with the Cassandra engine and the table service, clients, and faults of the
network, of replicas and of clocks. A seed that fails is printed, and fails again: `--first SEED --seeds 1`. Exits with
0 if all is well, with 1 if a seed failed, with 2 without a checker or a driver.
"""

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from command_lines import missing_driver, names, whole_number
from stress.histories.checker import NoChecker, build, judge
from stress.simulation.planted_bugs import BUGS

SEEDS_AT_ONCE = 100


def failures_of_directory(first: int, seeds: int) -> list[str]:
    """The failures in the worlds of the directory alone."""
    from stress.simulation.directory_world import live_in_directory  # noqa: PLC0415 - needs the driver

    lives = map(live_in_directory, range(first, first + seeds))
    return [f"seed {life.seed}: {line}" for life in lives for line in life.wrong]


def failures(first: int, seeds: int, bug: str | None = None) -> list[str]:
    """The failures in the worlds of these seeds: a line for each history and each broken invariant."""
    from stress.simulation.world import live  # noqa: PLC0415 - needs the driver

    plant = None if bug is None else BUGS[bug]
    lives = [live(seed, plant) for seed in range(first, first + seeds)]
    found = [f"seed {life.seed}: {line}" for life in lives for line in life.broken]
    verdicts = judge(history for life in lives for history in life.histories)
    return found + [f"seed {verdict}" for verdict in verdicts if not verdict.linearizable]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress.simulation", description=__doc__)
    parser.add_argument("--seeds", type=whole_number, default=1000, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--processes", type=whole_number, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--bug", choices=BUGS, help=names(BUGS), metavar="NAME")
    parser.add_argument(
        "--directory", action="store_true", help="worlds in which the directory splits and joins"
    )
    options = parser.parse_args(arguments)
    if (reason := missing_driver()) is not None:
        print(f"{reason}.", file=sys.stderr)
        return 2
    try:
        build()
    except NoChecker as none:
        print(f"{none}.", file=sys.stderr)
        return 2
    began = time.monotonic()
    failed = 0
    done = 0
    for seeds, found in _in_processes(options):
        done += seeds
        failed += len(found)
        for line in found:
            print(line, flush=True)
        if sys.stdout.isatty():
            print(f"{done} of {options.seeds} seeds", end="\r", flush=True)
    print(
        f"{done} seeds from {options.first} on in {time.monotonic() - began:.0f} s, {failed} failures"
    )
    return 1 if failed else 0


def _in_processes(options: argparse.Namespace) -> Iterator[tuple[int, list[str]]]:
    last = options.first + options.seeds
    parts = [
        (first, min(SEEDS_AT_ONCE, last - first), options.bug, options.directory)
        for first in range(options.first, last, SEEDS_AT_ONCE)
    ]
    with multiprocessing.Pool(options.processes, initializer=_collect_seldom) as pool:
        yield from pool.imap(_part, parts)


def _collect_seldom() -> None:
    """Keep imported objects out of every garbage collection, which would otherwise take a tenth of the time."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


def _part(part: tuple[int, int, str | None, bool]) -> tuple[int, list[str]]:
    first, seeds, bug, is_directory = part
    found = failures_of_directory(first, seeds) if is_directory else failures(first, seeds, bug)
    return seeds, found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
