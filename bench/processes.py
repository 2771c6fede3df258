"""The cost of a server's processes, read from /proc: the CPU they used and the memory they hold.

A server is its first process and every descendant (node and npm start some).
"""

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


def process_tree(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            fields = stat_fields(int(entry.name))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    tree = [root]
    for process in tree:
        tree.extend(children.get(process, []))
    return tree


def stat_fields(process: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on; empty when the process is gone."""
    try:
        text = (PROC / str(process) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    # The second field is the command's name in parentheses, and may itself contain blanks.
    return text.rpartition(")")[2].split()


def cpu_seconds(tree: list[int]) -> float:
    ticks = 0
    for process in tree:
        fields = stat_fields(process)
        if fields:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


def busy() -> float:
    """How many seconds all cores together were busy since the machine started."""
    fields = [int(field) for field in (PROC / "stat").read_text().splitlines()[0].split()[1:]]
    user, nice, system, _idle, _waiting, interrupts, soft_interrupts, stolen = fields[:8]
    return (user + nice + system + interrupts + soft_interrupts + stolen) / TICKS


def resident_mib(tree: list[int]) -> float:
    """The resident memory of all processes; shared memory counts once (PSS)."""
    kib = 0
    for process in tree:
        try:
            lines = (PROC / str(process) / "smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        kib += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kib / 1024
