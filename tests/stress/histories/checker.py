"""The checker of histories: a Go program, built from `historychecker/`, that prints a verdict for each history.

`historychecker/model.go` has the rules.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stress.histories.recording import History

SOURCE: Final = Path(__file__).parent / "historychecker"
PROGRAM: Final = Path(__file__).parent / ".packages" / "historychecker"
HISTORY_SECONDS_MAX: Final = 60.0
"""For how long the checker may look for an order of one history."""


class NoChecker(Exception):
    """The checker cannot be built here; the text says why."""


@dataclass(frozen=True)
class Verdict:
    """The checker's answer for one history."""

    name: str
    operations: int
    linearizable: bool
    undecided: bool
    why: str

    def __str__(self) -> str:
        if self.linearizable:
            return f"{self.name}: linearizable, {self.operations} operations"
        if self.undecided:
            return f"{self.name}: not decided in time, {self.operations} operations"
        return f"{self.name}: NOT linearizable: {self.why}"


def missing() -> str | None:
    """Why there is no checker here, or None if there is one. Builds nothing."""
    return (
        None
        if shutil.which("go")
        else "no Go, which builds the checker of histories: https://go.dev/doc/install"
    )


def build() -> Path:
    """The program, rebuilt if its source is newer. Raises `NoChecker`."""
    sources = [*SOURCE.glob("*.go"), SOURCE / "go.mod"]
    if PROGRAM.exists() and PROGRAM.stat().st_mtime > max(path.stat().st_mtime for path in sources):
        return PROGRAM
    if (reason := missing()) is not None:
        raise NoChecker(reason)
    PROGRAM.parent.mkdir(exist_ok=True)
    fresh = PROGRAM.with_suffix(f".{threading.get_native_id()}")  # other processes build too
    built = subprocess.run(
        ["go", "build", "-o", str(fresh), "."],
        cwd=SOURCE,
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        raise NoChecker(f"the checker of histories does not build: {built.stderr.strip()}")
    fresh.replace(PROGRAM)
    return PROGRAM


def judge(
    histories: Iterable[History], *, history_seconds_max: float = HISTORY_SECONDS_MAX
) -> list[Verdict]:
    """The verdict on each history, wrong ones first. Raises `NoChecker`."""
    lines = "".join(f"{history.line()}\n" for history in histories)
    return judge_lines(lines, history_seconds_max=history_seconds_max)


def judge_lines(
    lines: str, pictures: Path | None = None, *, history_seconds_max: float = HISTORY_SECONDS_MAX
) -> list[Verdict]:
    """The verdict on each history in a file that a run has written, in the same order."""
    command = [str(build()), f"-limit={history_seconds_max:.3f}s"]
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
        command.append(f"-pictures={pictures}")
    told = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    if told.returncode > 1:
        raise NoChecker(f"the checker of histories failed: {told.stderr.strip()}")
    verdicts = [Verdict(**json.loads(line)) for line in told.stdout.splitlines()]
    return sorted(verdicts, key=lambda verdict: (verdict.linearizable, verdict.name))
