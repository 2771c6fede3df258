"""Random queries beside a twin that reads the whole table.

`python -m tests.stress.query_twin [--queries N] [--seed S]`. Tables are on the engine that ENGINE_UNDER_TEST names,
else on memory and SQLite in turn. Exits with 0 if every answer was the twin's, with 1 if not.
"""

import argparse
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random, SystemRandom

sys.path.insert(0, str(Path(__file__).parents[2]))

from command_lines import whole_number
from storage.engines_under_test import URL
from stress.query_twin.twin import ENGINES, QUERIES_OF_A_TABLE, run

TELL_SECONDS = 60


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress.query_twin", description=__doc__)
    parser.add_argument("--queries", type=whole_number, default=1_000, metavar="N")
    parser.add_argument("--seed", default=f"{SystemRandom().randrange(10**6)}", metavar="S")
    options = parser.parse_args(arguments)
    engines = ENGINES if URL is None else (URL,)
    began = told = time.monotonic()
    print(f"seed {options.seed}", flush=True)
    done: Counter[str] = Counter()
    asked = number = 0
    while asked < options.queries:
        engine = engines[number % len(engines)]
        queries = min(QUERIES_OF_A_TABLE, options.queries - asked)
        try:
            done += run(engine, Random(f"{options.seed}/{number}"), queries)
        except Exception:  # noqa: BLE001 - an assertion, or an error of the server
            traceback.print_exc()
            print(f"table {number} of seed {options.seed} on {engine} failed", flush=True)
            return 1
        asked, number = asked + queries, number + 1
        if time.monotonic() - told > TELL_SECONDS:
            told = time.monotonic()
            print(f"{asked} queries in {told - began:.0f} s", flush=True)
    print(", ".join(f"{name}: {times}" for name, times in sorted(done.items())))
    print(f"{asked} queries of {number} tables, {time.monotonic() - began:.0f} s, 0 problems")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
