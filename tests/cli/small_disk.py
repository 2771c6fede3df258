"""A small disk in memory, for tests of full and of read-only disks."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[Path]:
    """Mount a disk of this many bytes at the new directory `place`; skip the test where that is not possible."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def make_read_only(disk: Path) -> None:
    """Remount the small disk read-only."""
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
