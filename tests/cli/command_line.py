"""Runs `tablestone`, as a process or in this one, for the tests of its commands."""

import io
import os
import re
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from server_process import COMMAND, clean_environment
from tablestone.cli.main import main

COMMAND_SECONDS_MAX = 120
"""The machine may be busy with other work."""


class Ended(NamedTuple):
    """The result of a command that has ended."""

    status: int
    lines: list[str]
    stderr: str


def tablestone(
    *arguments: str | Path, environment: dict[str, str] | None = None, as_process: bool = False
) -> Ended:
    """Run a command to its end: in a process of its own if it would start others, or if it is asked for."""
    line = list(map(str, arguments))
    as_process = as_process or "PROGRAM_UNDER_TEST" in os.environ
    if as_process or line[0] in {"serve", "demo"}:
        ended = subprocess.run(
            [COMMAND, *line],
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
            env=clean_environment() | (environment or {}),
        )
        status, printed, errors = ended.returncode, ended.stdout, ended.stderr
    else:
        status, printed, errors = in_this_process(*line, environment=environment)
    return Ended(status, printed.splitlines(), errors)


def in_this_process(
    *arguments: str, given: str = "", environment: dict[str, str] | None = None
) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command that starts no server; `given` is its input.

    It takes a tenth of the time of a process. What `main` changes for its whole process stays as it is.
    """
    with (
        mock.patch("tablestone.cli.main._leave_no_core_dump"),
        mock.patch("tablestone.cli.main.hide_secrets"),
        mock.patch("tablestone.cli.main.prepare_streams"),
        mock.patch.dict(os.environ, clean_environment() | (environment or {}), clear=True),
        mock.patch("sys.stdin", io.StringIO(given)),
        redirect_stdout(io.StringIO()) as printed,
        redirect_stderr(io.StringIO()) as told,
    ):
        status = main(arguments)
    return status, printed.getvalue(), told.getvalue()


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
