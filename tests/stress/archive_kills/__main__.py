"""Kill a server that writes an archive: `python -m tests.stress.archive_kills [--kills N] [--seed S]`.

It is killed in every step of writing objects, joining, copying and deleting, under load. After each kill moments are
restored and judged. Half of the kills are of an encrypted directory. Exits with 0 if nothing was wrong, with 1
otherwise.
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
from stress.archive_kills.run import Run

PROBLEMS_SHOWN_MAX = 20


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.stress.archive_kills", description=__doc__
    )
    parser.add_argument("--kills", type=whole_number, default=100, metavar="N")
    parser.add_argument("--seed", default=f"{SystemRandom().randrange(10**6)}", metavar="S")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    print(f"seed {options.seed}", flush=True)
    found = 0
    for kills, encrypted in ((options.kills // 2, True), (-(-options.kills // 2), False)):
        with tempfile.TemporaryDirectory() as directory:
            run = Run(Path(directory), options.seed, encrypted=encrypted)
            for problem in islice(run.problems(kills, print_now), PROBLEMS_SHOWN_MAX):
                print(problem, flush=True)
                found += 1
        print(f"{'encrypted' if encrypted else 'in clear'}: {run}")
    print(f"{time.monotonic() - began:.0f} s, {found} problems")
    return int(bool(found))


def print_now(run: Run) -> None:
    print(run, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
