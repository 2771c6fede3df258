"""Random programs on a server and the model: `python -m tests.stress.property [--steps N] [--seed S] [--engine NAME]`.

The steps are those of the Hypothesis test, chosen by a seed, without its overhead. Each program has its own server, on
the engine that ENGINE_UNDER_TEST names, else on memory and SQLite in turn. Exits with 0 if every answer was that of the
model, with 1 if not, with 2 if the engine cannot run here.
"""

import argparse
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from command_lines import missing_driver, whole_number
from storage.engines_under_test import URL
from stress.property.door import SIMULATED
from stress.property.owners import ALWAYS_ALLOWED, STEPS
from stress.property.program import Program

ENGINES: Final = ("memory", "sqlite") if URL is None else (URL,)
STEPS_OF_A_PROGRAM: Final = 300
TELL_SECONDS: Final = 60


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress.property", description=__doc__)
    parser.add_argument("--steps", type=whole_number, default=10_000, metavar="N")
    parser.add_argument("--seed", default=f"{SystemRandom().randrange(10**6)}", metavar="S")
    parser.add_argument(
        "--steps-of-a-program", type=whole_number, default=STEPS_OF_A_PROGRAM, metavar="N"
    )
    parser.add_argument("--engine", choices=(*ENGINES, SIMULATED))
    options = parser.parse_args(arguments)
    if options.engine == SIMULATED and (reason := missing_driver()) is not None:
        print(f"{reason}.", file=sys.stderr)
        return 2
    began = told = time.monotonic()
    print(f"seed {options.seed}", flush=True)
    done: Counter[str] = Counter()
    number = 0
    while done.total() < options.steps:
        engine = options.engine or ENGINES[number % len(ENGINES)]
        steps = min(options.steps_of_a_program, options.steps - done.total())
        try:
            done += run(engine, Random(f"{options.seed}/{number}"), steps)
        except Exception:  # noqa: BLE001 - an assertion, or an error of the server
            traceback.print_exc()
            print(f"program {number} of seed {options.seed} on {engine} failed", flush=True)
            return 1
        number += 1
        if time.monotonic() - told > TELL_SECONDS:
            told = time.monotonic()
            print(f"{done.total()} steps in {told - began:.0f} s", flush=True)
    print(", ".join(f"{name}: {times}" for name, times in sorted(done.items())))
    print(
        f"{done.total()} steps in {number} programs, {time.monotonic() - began:.0f} s, 0 problems"
    )
    return 0


def run(engine: str, random: Random, steps: int) -> Counter[str]:
    """One program of that many steps, from a random part of the kinds; how often each was taken."""
    others = sorted(set(STEPS) - ALWAYS_ALLOWED)
    names = [*ALWAYS_ALLOWED, *random.sample(others, random.randint(2, len(others)))]
    names.sort()
    program = Program(engine, random)
    done: Counter[str] = Counter()
    try:
        for _ in range(steps):
            name = random.choice(names)
            done[name] += 1
            STEPS[name](program, random)
    except BaseException:
        program.door.release()
        raise
    program.close()
    return done


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
