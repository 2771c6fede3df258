"""Histories of concurrent clients, checked by Porcupine: `python -m tests.stress.histories embedded [--operations N]`.

`embedded` runs clients against one server whose workers are killed and paused. `cassandra --engine URL` does the same
with two servers on a cluster that `tablestone cluster init` has prepared. `judge FILE` checks histories that a run has
written with --write. Exits with 0 if every history is linearizable, with 1 if one is not, with 2 without a checker, a
driver or the file.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import SystemRandom
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from command_lines import cluster_url, missing_driver, names, whole_number
from stress.histories import embedded, on_cluster
from stress.histories.checker import NoChecker, Verdict, build, judge_lines
from stress.histories.planted_server import ON_CLUSTER, ON_ONE_MACHINE

OPERATIONS_OF_A_ROUND: Final = 10_000
"""A long run is split into rounds, so that it needs little memory, and its figures are valid at any moment."""


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    try:
        build()
        if options.command == "judge":
            return judged_file(options.file, options.pictures)
        if options.command == "cassandra" and (reason := missing_driver()) is not None:
            print(f"{reason}.", file=sys.stderr)
            return 2
        print(f"seed {options.seed}", flush=True)
        return in_rounds(options)
    except NoChecker as none:
        print(f"{none}.", file=sys.stderr)
        return 2


def judged_file(path: Path, pictures: Path | None) -> int:
    """Check the histories in a file; returns the exit status."""
    try:
        lines = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        print(f"{path} cannot be read: {reason}.", file=sys.stderr)
        return 2
    if not lines.strip():
        print(f"{path} has no histories.", file=sys.stderr)
        return 2
    return tell(judge_lines(lines, pictures))


def in_rounds(options: argparse.Namespace) -> int:
    """Do the run in rounds, each on a new server and checked at its end; returns the exit status."""
    began = time.monotonic()
    done = unanswered = 0
    faults: Counter[str] = Counter()
    verdicts: list[Verdict] = []
    while done < options.operations:
        operations = min(OPERATIONS_OF_A_ROUND, options.operations - done)
        seed = f"{options.seed}/{done}" if done else options.seed
        with tempfile.TemporaryDirectory() as data:
            made = run(options, Path(data), seed, operations)
        lines = "".join(f"{history.line()}\n" for history in made.histories)
        if options.write is not None:
            with options.write.open("a" if done else "w") as file:
                file.write(lines)
        verdicts += judge_lines(lines, options.pictures)
        done += made.operations
        unanswered += made.unanswered
        faults.update(made.faults)
        print(
            f"{done} operations in {time.monotonic() - began:.0f} s, {unanswered} without an answer;"
            f" {', '.join(f'{name}: {times}' for name, times in sorted(faults.items()))}",
            flush=True,
        )
        if not all(verdict.linearizable for verdict in verdicts):
            break
    return tell(verdicts)


def run(options: argparse.Namespace, directory: Path, seed: str, operations: int) -> embedded.Run:
    chosen = {
        "seed": seed,
        "operations": operations,
        "clients": options.clients,
        "makes_faults": not options.quiet,
        "bug": options.bug,
    }
    if options.command == "cassandra":
        return on_cluster.run(options.engine, directory, **chosen)
    return embedded.run(directory, workers=options.workers, **chosen)


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.stress.histories", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    on_one = commands.add_parser("embedded", help="a server of several workers")
    on_one.add_argument("--workers", type=whole_number, default=3, metavar="N")
    on_many = commands.add_parser("cassandra", help="two servers on a cluster")
    on_many.add_argument("--engine", type=cluster_url, required=True, metavar="URL")
    for command, bugs in ((on_one, ON_ONE_MACHINE), (on_many, ON_CLUSTER)):
        command.add_argument("--bug", choices=bugs, help=names(bugs), metavar="NAME")
        command.add_argument("--operations", type=whole_number, default=10_000, metavar="N")
        command.add_argument("--clients", type=whole_number, default=embedded.CLIENTS, metavar="N")
        command.add_argument("--quiet", action="store_true", help="without kills and pauses")
        command.add_argument("--seed", default=f"{SystemRandom().getrandbits(32)}")
        command.add_argument("--write", type=Path, metavar="FILE", help="keep the histories")
    judge = commands.add_parser("judge", help="judge histories that were written")
    judge.add_argument("file", type=Path)
    for command in (on_one, on_many, judge):
        command.add_argument("--pictures", type=Path, metavar="DIR", help="pages about violations")
    return parser.parse_args(arguments)


def tell(verdicts: list[Verdict]) -> int:
    wrong = [verdict for verdict in verdicts if not verdict.linearizable]
    for verdict in wrong[:10]:
        print(verdict)
    operations = sum(verdict.operations for verdict in verdicts)
    print(
        f"{len(verdicts) - len(wrong)} of {len(verdicts)} histories with {operations} operations are linearizable"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    os.environ.pop("PLANTED_BUG", None)
    sys.exit(main(sys.argv[1:]))
