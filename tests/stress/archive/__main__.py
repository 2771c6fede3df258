"""Restore what random programs wrote: `python -m tests.stress.archive [--steps N] [--seed S]`.

Programs on rows of the engine, and programs of the property suite on a server, in turns. Exits with 0 if each restored
record was the model's state at that commit, with 1 if not.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from random import Random, SystemRandom

sys.path.insert(0, str(Path(__file__).parents[2]))

from command_lines import whole_number
from stress.archive.run import Run
from stress.archive.served import ServedRun
from unit.archive.archived_server import MEMORY

PROBLEMS_SHOWN_MAX = 20
STEPS_OF_A_RUN = 500
STEPS_OF_A_SERVER = 200
"""After each run, as many with the steps of the property suite."""


def run(steps: int, seed: str) -> int:
    found = 0
    for number in range(-(-steps // STEPS_OF_A_RUN)):
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
            found += asyncio.run(_rows(Path(directory), number, min(steps, STEPS_OF_A_RUN), seed))
        served = ServedRun(Random(f"{seed}-{number}"))  # has a loop of its own
        for problem in served.problems(STEPS_OF_A_SERVER):
            print(f"server {number}, {problem}", flush=True)
            found += 1
        print(f"server {number}: {served}", flush=True)
        if found >= PROBLEMS_SHOWN_MAX:
            break
    return found


async def _rows(directory: Path, number: int, steps: int, seed: str) -> int:
    program, found = Run(directory, Random(f"{seed}-{number}")), 0
    async for problem in program.problems(steps):
        print(f"run {number}, {problem}", flush=True)
        found += 1
    print(f"run {number}: {program}", flush=True)
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress.archive", description=__doc__)
    parser.add_argument("--steps", type=whole_number, default=10_000, metavar="N")
    parser.add_argument("--seed", default=f"{SystemRandom().randrange(10**6)}", metavar="S")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    print(f"seed {options.seed}", flush=True)
    found = run(options.steps, options.seed)
    print(f"{options.steps:,} steps, {time.monotonic() - began:.0f} s, {found} problems")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
