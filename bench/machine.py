"""The machine of a run: what a reader needs to know before comparing it with another run."""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.prerequisites import AZURITE_VERSION
from bench.servers import AZURITE, TABLESTONE
from tablestone.cli.main import HOW_IT_RUNS
from tablestone.engines.sqlite.row_hints import way


def machine() -> dict[str, Any]:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(pages / 2**30),
        "system": platform.platform(),
        "load_average": round(os.getloadavg()[0], 1),
    }


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def versions(servers: list[str]) -> dict[str, str]:
    found = {"Python": platform.python_version(), "httptools": metadata.version("httptools")}
    if any(name.startswith(TABLESTONE) for name in servers):
        how = f"{commit()}, {HOW_IT_RUNS}, filters in {way()}"
        found["Tablestone"] = f"{metadata.version('tablestone')} ({how})"
    if AZURITE in servers:
        found["Azurite"] = AZURITE_VERSION
        found["Node"] = output_of("node", "--version").lstrip("v")
    return found


def commit() -> str:
    name = output_of("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty")
    return name or "no git"


def output_of(*command: str) -> str:
    try:
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return finished.stdout.strip()
