"""Set the clock while a server runs and between starts: `python -m tests.stress.clock_steps [--steps N] [--seed S]`.

Exits with 0 if every write of an entity got a later Timestamp than the one before, with 1 if not.
"""

import argparse
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from random import SystemRandom

sys.path.insert(0, str(Path(__file__).parents[2]))

from command_lines import whole_number
from stress.clock_steps.run import Run

PROBLEMS_SHOWN_MAX = 20


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress.clock_steps", description=__doc__)
    parser.add_argument("--steps", type=whole_number, default=100, metavar="N")
    parser.add_argument("--seed", default=f"{SystemRandom().randrange(10**6)}", metavar="S")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        run = Run(Path(directory), options.seed)
        found = 0
        for problem in islice(run.problems(options.steps), PROBLEMS_SHOWN_MAX):
            print(problem, flush=True)
            found += 1
    print(run)
    print(f"{time.monotonic() - began:.0f} s, {found} problems")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
