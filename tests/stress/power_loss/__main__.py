"""Lose the power in recorded runs: `python -m tests.stress.power_loss [--points N] [--seed S] [--bug NAME]`.

Each run writes with its own seed, counting up from the given one. Exits with 0 if everything acknowledged was there
after every power loss, with 1 if not.
"""

import argparse
import shutil
import sys
import time
from pathlib import Path
from random import Random, SystemRandom

sys.path.insert(0, str(Path(__file__).parents[2]))

from command_lines import names, whole_number
from stress.power_loss.judging import directory_in_memory, judge
from stress.power_loss.planted import BUGS
from stress.power_loss.writers import Run

POINTS_OF_A_RUN = 2_000
PROBLEMS_SHOWN_MAX = 20
RUNS_BETWEEN_FIGURES = 2


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress.power_loss", description=__doc__)
    parser.add_argument("--points", type=whole_number, default=10_000, metavar="N")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6), metavar="S")
    parser.add_argument("--bug", choices=BUGS, help=names(BUGS), metavar="NAME")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    print(f"seed {options.seed}", flush=True)
    found = done = runs = 0
    with directory_in_memory() as directory:
        while done < options.points:
            run = Run(options.seed + runs)
            points = min(POINTS_OF_A_RUN, options.points - done)
            run.record(directory / f"run {runs}", BUGS[options.bug] if options.bug else None)
            for problem in judge(run, points, directory / "left", Random(run.seed)):
                found += 1
                if found <= PROBLEMS_SHOWN_MAX:
                    print(problem, flush=True)
            shutil.rmtree(directory / f"run {runs}")
            done += points
            runs += 1
            if runs % RUNS_BETWEEN_FIGURES == 0 or done >= options.points:
                print(
                    f"{done} losses of power in {runs} runs,"
                    f" {time.monotonic() - began:.0f} s, {found} problems",
                    flush=True,
                )
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
