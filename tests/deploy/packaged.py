"""Builds what `deploy/image/build` and `deploy/debian/build` make of the folder, and runs podman."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import mkdtemp

import pytest

from deploy.deployed import folder_build

BUILD_SECONDS_MAX = 1200.0
SECONDS_MAX = 60.0
LIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")
"""Podman would raise the limits to those of the machine, which not everywhere may be done."""


def build(program: Path, outdir: Path, **environment: str) -> Path:
    """The file that the program makes."""
    made = subprocess.run(
        [program, folder_build(), outdir],
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS_MAX,
        check=False,
        cwd="/",
        env=os.environ | environment,
    )
    assert made.returncode == 0, made.stderr
    (found,) = outdir.iterdir()
    assert made.stdout == f"{found}\n", "it says where the file is, and leaves nothing beside it"
    return found


def built_twice(program: Path, directories: pytest.TempPathFactory) -> list[Path]:
    """The file, from two builds at once, in places with blanks."""
    folder_build()
    places = [directories.mktemp("a place") for _ in range(2)]
    with ThreadPoolExecutor() as threads:
        return list(threads.map(lambda place: build(program, place), places))


class Podman:
    """Podman with a store of its own."""

    def __init__(self, directory: Path) -> None:
        # Podman takes at most 50 characters.
        self._runroot = mkdtemp(prefix="podman.")
        self._begin = ["podman", "--root", str(directory / "store"), "--runroot", self._runroot]
        self._begin += ["--runtime", "runc", "--cgroup-manager", "cgroupfs"]

    def __call__(self, *words: str | Path, status: int = 0) -> str:
        """Both outputs of a command of podman, without podman's own complaints."""
        ended = subprocess.run(
            [*self._begin, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        # Where systemd does not run, podman cannot set a timer for the health check.
        lines = [each for each in ended.stdout.splitlines() if not each.startswith("time=")]
        assert ended.returncode == status, ended.stdout
        return "\n".join(lines)

    def end(self) -> None:
        """Remove the containers and the images."""
        self("rm", "--all", "--force", "--time=0")
        self("rmi", "--all", "--force")
        shutil.rmtree(self._runroot)
