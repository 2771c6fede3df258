"""Runs `tablestone` as a process, for the tests of its commands."""

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from server_process import COMMAND, clean_environment

COMMAND_SECONDS_MAX = 120
"""The machine may be busy with other work."""


class Ended(NamedTuple):
    """The result of a command that has ended."""

    status: int
    lines: list[str]
    stderr: str


def tablestone(*arguments: str | Path, environment: dict[str, str] | None = None) -> Ended:
    """Run a command to its end."""
    ended = subprocess.run(
        [COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
        env=clean_environment() | (environment or {}),
    )
    return Ended(ended.returncode, ended.stdout.splitlines(), ended.stderr)


def commands_of(guide: Path) -> list[str]:
    """The indented lines of a guide, which are its commands, in order."""
    return re.findall(r"^    (\S.*)$", guide.read_text(encoding="utf-8"), re.MULTILINE)


def run_line(line: str, places: dict[str, Path], directory: Path) -> list[str]:
    """Run a line of a guide in a shell, with its capital names replaced; it must exit with 0. Returns its output."""
    for name, path in places.items():
        line = re.sub(rf"\b{name}\b", str(path), line)
    environment = clean_environment()
    environment["PATH"] = f"{Path(COMMAND).parent}:{environment['PATH']}"
    ended = subprocess.run(
        ["/bin/sh", "-c", line],
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
        cwd=directory,
        env=environment,
    )
    assert (ended.returncode, ended.stderr) == (0, ""), line
    return ended.stdout.splitlines()
