"""The log of long runs, `docs/long-runs.csv`: a row for each, with its date, its commit, how it ended and what it said.

python -m tests.stress.long_runs add RUN STATUS "LAST LINE"    # `.ci/long` does, after each of its steps
python -m tests.stress.long_runs add RUN skipped REASON        # and for each that it skips
python -m tests.stress.long_runs last "planted bugs"           # the commit of the last one that passed
"""

import csv
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
LOG: Final = ROOT / "docs" / "long-runs.csv"
COLUMNS: Final = ("run", "date", "commit", "ended", "result")
PASSED: Final = "passed"
SKIPPED: Final = "skipped"
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
"""What some tools print to a terminal, and to a pipe."""


def add(run: str, status: str, result: str, log: Path = LOG) -> None:
    """Append a row. The commit of a tree with changes is marked: nobody else can repeat that run."""
    commit = _git("rev-parse", "--short=8", "HEAD")
    if _git("status", "--porcelain", "--untracked-files=no", "--", ":!docs/long-runs.csv"):
        commit += " with changes"
    ended = {"0": PASSED, SKIPPED: SKIPPED}.get(status, f"failed ({status})")
    with log.open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow(
            (run, datetime.now(UTC).date().isoformat(), commit, ended, _COLOURS.sub("", result))
        )


def last(run: str, log: Path = LOG) -> str:
    """The commit of the last such run that passed on a tree without changes; empty if there is none."""
    with log.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["run"] == run]
    commits = [row["commit"] for row in rows if row["ended"] == PASSED]
    return next((commit for commit in reversed(commits) if commit.isalnum()), "")


def _git(*words: str) -> str:
    ran = subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def main(arguments: list[str]) -> int:
    match arguments:
        case ["add", run, status, result] if status.isdecimal() or status == SKIPPED:
            add(run, status, result)
        case ["last", run]:
            print(last(run))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
