"""The npm package of this checkout, and projects that have it.

`FOLDER_BUILD` names the folder of deploy/standalone/build that goes into it. Without it, the program in the package is
a script that runs the `tablestone` of the tests.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from cli.worker_processes import is_running
from deploy.deployed import DEPLOY
from deploy.npm.install import MODULES
from server_process import COMMAND, clean_environment

FOLDER_BUILD = os.environ.get("FOLDER_BUILD")
SECONDS_MAX = 300.0
SDK = DEPLOY.parent / "tests" / "sdk" / "javascript"
GUIDE = DEPLOY.parent / "docs" / "guides" / "node.md"
_BLOCK = re.compile(r"^```javascript\n// (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def folder(directory: Path) -> Path:
    """The folder build, or one that stands in for it."""
    if FOLDER_BUILD:
        return Path(FOLDER_BUILD)
    program = directory / "folder" / "lib" / "tablestone-program"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{COMMAND}" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return directory / "folder"


def build(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    return run(DEPLOY / "npm" / "build", source, out)


def run(
    *command: str | Path,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """A command to its end, with both of its outputs."""
    return subprocess.run(
        list(map(str, command)),
        cwd=directory,
        env=clean_environment() | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def make_project(directory: Path, package: Path) -> Path:
    """A directory with the installed package, with the tests of the guide and with what those need."""
    directory.mkdir(parents=True)
    (directory / "package.json").write_text("{}", encoding="utf-8")
    flags = ("--no-package-lock", "--no-audit", "--no-fund", "--offline")
    installed = run("npm", "install", *flags, package, directory=directory)
    assert installed.returncode == 0, installed.stderr
    for there in (MODULES / "jest", MODULES / "vitest", SDK / "node_modules" / "@azure"):
        (directory / "node_modules" / there.name).symlink_to(there)
    for name, text in _BLOCK.findall(GUIDE.read_text(encoding="utf-8")):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text, encoding="utf-8")
    return directory


def launcher(project: Path) -> Path:
    return project / "node_modules" / ".bin" / "tablestone"


def processes_below(first: int) -> set[int]:
    """The processes that a process has started, and what those have started."""
    children: set[int] = set()
    with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
        for task in Path(f"/proc/{first}/task").iterdir():
            children |= set(map(int, (task / "children").read_text().split()))
    return children.union(*map(processes_below, children))


def servers_below(first: int) -> set[int]:
    """Those of them that are servers under control."""
    found = set()
    for each in processes_below(first):
        with suppress(FileNotFoundError, ProcessLookupError):
            if b"\0--control\0" in Path(f"/proc/{each}/cmdline").read_bytes():
                found.add(each)
    return found


def are_gone(processes: set[int]) -> bool:
    return not any(map(is_running, processes))
