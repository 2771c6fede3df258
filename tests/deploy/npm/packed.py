"""The npm package of this checkout, and projects that have it.

`FOLDER_BUILD` names the folder of deploy/standalone/build that goes into it. Without it, the program in the package is
a script that runs the `tablestone` of the tests.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from cli.worker_processes import is_running
from deploy.deployed import DEPLOY
from deploy.npm.install import MODULES
from server_process import COMMAND, clean_environment

FOLDER_BUILD = os.environ.get("FOLDER_BUILD")
SECONDS_MAX = 300.0
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
    sdk = DEPLOY.parent / "tests" / "sdk" / "javascript" / "node_modules" / "@azure"
    for name in ("jest", "vitest", "@azure"):
        there = MODULES / name if (MODULES / name).exists() or name != "@azure" else sdk
        (directory / "node_modules" / name).symlink_to(there)
    for name, text in _BLOCK.findall(GUIDE.read_text(encoding="utf-8")):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text, encoding="utf-8")
    return directory


def skip_without_sdk(project: Path) -> None:
    if not (project / "node_modules" / "@azure" / "data-tables").exists():
        pytest.skip("@azure/data-tables is not installed: python tests/deploy/npm/install.py")


def launcher(project: Path) -> Path:
    return project / "node_modules" / ".bin" / "tablestone"


def processes_below(first: int) -> set[int]:
    """The processes that a process has started, and what those have started."""
    children: set[int] = set()
    for task in Path(f"/proc/{first}/task").iterdir():
        children |= set(map(int, (task / "children").read_text().split()))
    return children.union(*map(processes_below, children))


def servers_below(first: int) -> set[int]:
    """Those of them that are servers under control."""
    lines = {each: Path(f"/proc/{each}/cmdline") for each in processes_below(first)}
    return {each for each, line in lines.items() if b"\0--control\0" in line.read_bytes()}


def are_gone(processes: set[int]) -> bool:
    return not any(map(is_running, processes))
