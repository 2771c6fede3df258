"""The memory and the descriptors that processes hold, from /proc.

Linux only: elsewhere every figure is 0, and nothing is found.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")


class Resources(NamedTuple):
    """Resident memory in KiB, and open descriptors."""

    memory_kib: int
    descriptors: int


def of_this_process() -> Resources:
    return of_processes([os.getpid()])


def of_processes(processes: Iterable[int]) -> Resources:
    """The sum over these processes; one that has ended has none."""
    memory = descriptors = 0
    for process in processes:
        try:
            pages = int((_PROC / str(process) / "statm").read_text().split()[1])
            descriptors += len(list((_PROC / str(process) / "fd").iterdir()))
        except OSError:
            continue
        memory += pages * os.sysconf("SC_PAGE_SIZE") // 1024
    return Resources(memory, descriptors)


def family_of(process: int) -> list[int]:
    """The process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in _PROC.glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found = [process]
    for each in found:
        found += parents.get(each, [])
    return found
