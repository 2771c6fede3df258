"""Fail over from one primary to its standby again and again: `python -m tests.stress.failover [--faults N] [--seed S]`.

With --patroni, Patroni promotes the standbys, and brings primaries that were killed back as standbys.
Exits with 0 if nothing was lost, doubled or half done, with 1 otherwise, with 2 if PostgreSQL or the checker is
missing. POSTGRESQL chooses the version of PostgreSQL.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from random import Random, SystemRandom

sys.path.insert(0, str(Path(__file__).parents[2]))

from command_lines import whole_number
from storage.patroni_pair import running_patroni, why_no_patroni
from storage.postgresql_pair import running_pair
from storage.postgresql_server import why_no_pair
from stress.failover.run import FAULTS, FAULTS_UNDER_PATRONI, FailoverRun
from stress.histories.checker import NoChecker, build


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress.failover", description=__doc__)
    parser.add_argument("--faults", type=whole_number, default=60, metavar="N")
    parser.add_argument("--seed", default=f"{SystemRandom().getrandbits(32)}", metavar="S")
    parser.add_argument("--patroni", action="store_true")
    options = parser.parse_args(arguments)
    try:
        build()
    except NoChecker as none:
        print(f"{none}.", file=sys.stderr)
        return 2
    if (reason := why_no_patroni() if options.patroni else why_no_pair()) is not None:
        print(f"{reason}.", file=sys.stderr)
        return 2
    print(f"seed {options.seed}", flush=True)
    random = Random(f"{options.seed}/which")
    # A third of them are failovers.
    kinds = FAULTS_UNDER_PATRONI if options.patroni else FAULTS
    faults = [random.choice(kinds) if n % 3 else "failover" for n in range(options.faults)]
    running = running_patroni() if options.patroni else running_pair()
    with tempfile.TemporaryDirectory() as directory, running as pair:
        run = FailoverRun(pair, Path(directory), options.seed, lambda text: print(text, flush=True))
        report = run.run(faults)
    for line in report.lines():
        print(line)
    return 0 if report.is_good else 1


if __name__ == "__main__":
    os.environ.pop("PLANTED_BUG", None)
    sys.exit(main(sys.argv[1:]))
