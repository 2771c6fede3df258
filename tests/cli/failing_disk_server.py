"""`tablestone` on a disk that fails as a file says: `python tests/cli/failing_disk_server.py serve …`.

DISK_FAULT names the file. Its first line has the kind of call, the error, and whether the calls fail once or for a
while; an empty line ends the fault. Every process of the server sees a change at its next call. The log is checkpointed
after a few commits, as on a nearly full disk, so that these calls fail too. The package has none of this.
"""

import mmap
import os
import sys
from pathlib import Path
from typing import Final

from storage.failing_disk import BROKEN, NO_ROOM, NOT_FLUSHED, NOT_OPENED, Disk, Plan, failing_disk
from tablestone.cli.main import main
from tablestone.engines.sqlite.free_space import DiskRoom

LINE_BYTES: Final = 64
ERRORS: Final = {
    "ENOSPC": NO_ROOM,
    "EIO": BROKEN,
    "EIO of a flush": NOT_FLUSHED,
    "EMFILE": NOT_OPENED,
}


def write_fault(file: Path, fault: str) -> None:
    """Set the server's fault: `kind|error|once` or `kind|error|lasting`; an empty text ends it."""
    with file.open("r+b" if file.exists() else "wb") as opened:
        opened.write(fault.encode().ljust(LINE_BYTES))


def plan_of(line: bytes) -> Plan | None:
    """Parse a line of the file."""
    text = line.decode().strip()
    if not text:
        return None
    kind, error, duration = text.split("|")
    return Plan(kind, 1, ERRORS[error], is_lasting=duration == "lasting")


def steer(disk: Disk, file: Path) -> None:
    """Let the file decide which disk calls fail, in this process and the ones it forks."""
    with file.open("r+b") as opened:
        shared = mmap.mmap(opened.fileno(), LINE_BYTES)
    line = b""
    call = disk.call

    def steered(kind: str) -> None:
        nonlocal line
        if (now := shared[:]) != line:
            line = now
            disk.plan = plan_of(now)
        call(kind)

    disk.call = steered  # type: ignore[method-assign]


def always_tight(room: DiskRoom, *_: object) -> bool:
    room.is_tight = True
    return False


def run() -> int:
    DiskRoom.look = always_tight  # type: ignore[method-assign, assignment]
    with failing_disk() as disk:
        steer(disk, Path(os.environ["DISK_FAULT"]))
        return main()


if __name__ == "__main__":
    sys.exit(run())
