"""The programs that the benchmarks install themselves: the load generator, built with Go, and Azurite, from npm.

Everything goes into the work directory; a missing tool is reported by name.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING

from bench import paths

if TYPE_CHECKING:
    from pathlib import Path

AZURITE_VERSION = "3.37.0"


class PrerequisiteError(Exception):
    """The benchmarks cannot run here; the message is one sentence that says why."""


def require_tool(name: str, purpose: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise PrerequisiteError(f"bench needs {name} on the path, {purpose}.")
    return found


@cache
def build_loadgen() -> Path:
    if platform.system() != "Linux":
        raise PrerequisiteError("bench needs Linux: it reads /proc, and its load generator epoll.")
    go = require_tool("go", "to build its load generator (bench/loadgen)")
    paths.WORK.mkdir(exist_ok=True)
    built = subprocess.run(
        [go, "build", "-o", str(paths.LOADGEN), "."],
        cwd=paths.LOADGEN_SOURCE,
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode != 0:
        raise PrerequisiteError(f"bench could not build its load generator: {built.stderr.strip()}")
    return paths.LOADGEN


def install_azurite() -> list[str]:
    """The command that starts Azurite's table service; installs it first if necessary."""
    node = require_tool("node", "to run Azurite (or leave it out: --servers tablestone,floor)")
    npm = require_tool("npm", "to install Azurite (or leave it out: --servers tablestone,floor)")
    package = paths.AZURITE / "node_modules" / "azurite"
    if installed_version(package) != AZURITE_VERSION:
        print(f"installing azurite {AZURITE_VERSION} with npm into {paths.AZURITE}", flush=True)
        paths.AZURITE.mkdir(parents=True, exist_ok=True)
        (paths.AZURITE / "package.json").write_text('{"private": true}\n')
        wanted = f"azurite@{AZURITE_VERSION}"
        installed = subprocess.run(
            [npm, "install", "--no-audit", "--no-fund", "--loglevel=error", wanted],
            cwd=paths.AZURITE,
            capture_output=True,
            text=True,
            check=False,
        )
        if installed.returncode != 0:
            raise PrerequisiteError(
                f"bench could not install Azurite: {installed.stderr.strip()[-300:]}"
            )
    manifest = json.loads((package / "package.json").read_text())
    return [node, str(package / manifest["bin"]["azurite-table"])]


def installed_version(package: Path) -> str | None:
    manifest = package / "package.json"
    if not manifest.exists():
        return None
    return str(json.loads(manifest.read_text())["version"])
