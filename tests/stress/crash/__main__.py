"""Kill a server under mixed load again and again: `python -m tests.stress.crash [--kills N] [--seed S] [--encrypted]`.

Its processes are killed while clients write entities, tables, policies and accounts, and while backups are made. Exits
with 0 if nothing was wrong, with 1 otherwise.
"""

import argparse
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from random import SystemRandom

sys.path.insert(0, str(Path(__file__).parents[2]))

from command_lines import names, whole_number
from stress.crash.planted import BUGS, planted_server
from stress.crash.run import Run

PROBLEMS_SHOWN_MAX = 20


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress.crash", description=__doc__)
    parser.add_argument("--kills", type=whole_number, default=100, metavar="N")
    parser.add_argument("--seed", default=f"{SystemRandom().randrange(10**6)}", metavar="S")
    parser.add_argument("--bug", choices=BUGS, help=names(BUGS), metavar="NAME")
    parser.add_argument("--encrypted", action="store_true", help="with an encrypted data directory")
    parser.add_argument("--keep-changes", action="store_true", help="with the record of changes")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        run = Run(
            Path(directory),
            options.seed,
            *planted_server(options.bug),
            is_encrypted=options.encrypted,
            keeps_changes=options.keep_changes,
        )
        found = 0
        for problem in islice(run.problems(options.kills, print_now), PROBLEMS_SHOWN_MAX):
            print(problem, flush=True)
            found += 1
    print(run)
    print(f"{time.monotonic() - began:.0f} s, {found} problems")
    return int(bool(found))


def print_now(run: Run) -> None:
    print(run, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
