"""An overload: `python -m tests.stress.overload [--short]`.

8,000 idle connections, 500 busy ones with every kind of request, 20 clients that pipeline, 20 slow readers and 20 slow
writers; beside them one quiet client. Exits with 0 if the 99th percentile of its point reads stays under ten times its
value without the crowd, if it is always answered, and if no client gets a server error; otherwise with 1.
"""

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from stress.overload.overloading import overload

LONG = {"idle": 8000, "busy": 500, "pipelining": 20, "slow_readers": 20, "slow_writers": 20}
SHORT = {"idle": 200, "busy": 30, "pipelining": 2, "slow_readers": 3, "slow_writers": 3}
READS_LONG, READS_SHORT = 1500, 300


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress.overload", description=__doc__)
    parser.add_argument("--short", action="store_true", help="fewer clients, as in CI")
    options = parser.parse_args(arguments)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(time.strftime("%Y-%m-%d %H:%M:%S"), flush=True)
    plan, reads = (SHORT, READS_SHORT) if options.short else (LONG, READS_LONG)
    print(", ".join(f"{number} {name}" for name, number in plan.items()))
    with tempfile.TemporaryDirectory() as data:
        found = overload(Path(data), plan, reads, "--max-connections=10000", told=print)
    print(f"p99 of a quiet client: {found.alone:.2f} ms alone, {found.beside:.2f} ms beside them")
    print(f"{found.ratio:.1f} times; answers of the quiet client: {found.quiet}")
    print(f"answers of the others: {dict(sorted(found.crowd.items()))}")
    for problem in found.problems:
        print(problem)
    return int(bool(found.problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
