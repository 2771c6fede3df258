"""Fuzzing: `python -m tests.stress.fuzz KIND [--inputs N | --minutes N] [--seed S] [--keep]`.

The kinds: `parsers` calls the pure parsers, with coverage guidance where atheris is installed; `requests` sends
requests from a grammar, with valid signatures, to a real server; `sockets` sends bytes that are nearly HTTP;
`connection` gives such bytes to a connection in this process, cut at random places; `growth` shows what inputs of
growing length cost; `hints` calls the C function that decides hints, with sanitizers. `--keep` writes findings to
`corpus/` and `crashes/` beside this file. Exits with 0 if there was no problem, with 1 otherwise.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import SystemRandom
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[2]))

from command_lines import whole_number
from stress.fuzz import connection_runs, growth, hint_runs, parser_runs, request_runs, socket_runs

PROBLEMS_SHOWN_MAX = 20


INPUTS_OF_A_ROUND = 50_000


def _to_connections(options: argparse.Namespace) -> Iterator[str]:
    """The problems of connections. If the time is given, the rounds begin until it has passed."""
    if options.minutes is None:
        yield from connection_runs.run(options.inputs, options.seed)
        return
    ends, options.inputs = time.monotonic() + 60 * options.minutes, 0
    for seed in count(options.seed):
        yield from connection_runs.run(INPUTS_OF_A_ROUND, seed)
        options.inputs += INPUTS_OF_A_ROUND
        if time.monotonic() >= ends:
            return


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress.fuzz", description=__doc__)
    kinds = ("parsers", "requests", "sockets", "connection", "growth", "hints")
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("--inputs", type=whole_number, default=20_000, metavar="N")
    parser.add_argument(
        "--minutes", type=whole_number, metavar="N", help="go on for so long; of `connection`"
    )
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6), metavar="S")
    parser.add_argument("--progress", type=Path, metavar="FILE", help="where to go on after an end")
    parser.add_argument("--keep", action="store_true", help="write the corpus and the crashes")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    print(f"seed {options.seed}", flush=True)
    if options.kind == "parsers":
        print("guided by atheris" if parser_runs.is_guided() else "not guided: no atheris here")
        progress = parser_runs.Progress(options.progress)
        problems = parser_runs.run(options.inputs, options.seed, progress, keeps=options.keep)
    elif options.kind == "requests":
        problems = request_runs.run(options.inputs, options.seed, keeps=options.keep)
    elif options.kind == "connection":
        problems = _to_connections(options)
    elif options.kind == "growth":
        problems = growth.shown()
    elif options.kind == "hints":
        with TemporaryDirectory() as directory:
            drivers = hint_runs.build(Path(directory))
            problems = iter(list(hint_runs.run(options.inputs, options.seed, drivers)))
    else:
        problems = socket_runs.run(options.inputs, options.seed)
    found = 0
    for found, problem in enumerate(problems, 1):
        if found <= PROBLEMS_SHOWN_MAX:
            print(problem, flush=True)
    print(f"{options.inputs:,} inputs, {time.monotonic() - began:.0f} s, {found} problems")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
