"""A soak: `python -m tests.stress.soak [--minutes 60] [--rate R] [--seed S] [--leak NAME]`.

A server of two workers handles a mixed load at a fixed rate. Exits with 0 if memory, descriptors and processor time per
request are at the end as at the start, with 1 if not. `measures.py` has the tolerances. A run of less than ten minutes
does not judge the processor time.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from random import SystemRandom

sys.path.insert(0, str(Path(__file__).parents[2]))

from command_lines import names, number_above_zero
from stress.soak.leaking_server import LEAKS
from stress.soak.soaking import soak

MINUTES_MIN = 0.1


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress.soak", description=__doc__)
    parser.add_argument("--minutes", type=number_above_zero, default=60.0, metavar="M")
    parser.add_argument(
        "--rate", type=number_above_zero, default=30.0, metavar="R", help="pieces of work a second"
    )
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6), metavar="S")
    parser.add_argument("--leak", choices=LEAKS, help=names(LEAKS), metavar="NAME")
    options = parser.parse_args(arguments)
    if options.minutes < MINUTES_MIN:
        parser.error(f"argument --minutes: a run under {MINUTES_MIN} minutes compares nothing")
    print(f"seed {options.seed}, {time.strftime('%Y-%m-%d %H:%M:%S')}", flush=True)
    with tempfile.TemporaryDirectory() as data:
        soaked = soak(Path(data), 60 * options.minutes, options.rate, options.seed, options.leak)
    print(f"start: {soaked.start}")
    print(f"end:   {soaked.end}")
    for problem in soaked.problems:
        print(problem)
    print(
        f"{soaked.requests} pieces of work in {options.minutes:g} minutes, {len(soaked.problems)} problems"
    )
    return int(bool(soaked.problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
