"""A long run: `python -m tests.stress.long_life [--requests N] [--workers N] [--tls] [--seed S]`.

One client sends requests of every kind on one connection to a real server, and checks each answer. Exits with 1 if one
is wrong, if the server logged a warning, or if it ends with more memory than it had after the first requests.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from random import SystemRandom

sys.path.insert(0, str(Path(__file__).parents[2]))

from command_lines import number_above_zero
from stress.long_life.living import live


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress.long_life", description=__doc__)
    parser.add_argument("--requests", type=number_above_zero, default=30_000, metavar="N")
    parser.add_argument("--workers", type=int, default=1, metavar="N")
    parser.add_argument("--tls", action="store_true", help="over TLS")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6), metavar="S")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}, {time.strftime('%Y-%m-%d %H:%M:%S')}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as data:
        lived = live(
            Path(data),
            int(options.requests),
            options.seed,
            workers=options.workers,
            tls=options.tls,
        )
    for problem in lived.problems:
        print(problem)
    kinds = ", ".join(f"{number} of {kind}" for kind, number in lived.kinds.most_common())
    print(
        f"{lived.requests} requests on one connection in {time.monotonic() - began:.0f} s: {kinds}"
    )
    return int(bool(lived.problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
