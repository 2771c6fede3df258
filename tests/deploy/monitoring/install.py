"""Fetches the programs that the tests of monitoring need: `python tests/deploy/monitoring/install.py`.

It takes promtool and prometheus out of Debian's package prometheus, and neither installs nor starts anything. The
script imports nothing of this project. It exits with 0 even if it cannot fetch them: the tests are then skipped with
the reason.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGES = Path(__file__).parent / ".packages"
PROGRAMS = ("promtool", "prometheus")


def program(name: str) -> str | None:
    """The path of one of the programs, None if it is not there."""
    own = PACKAGES / name
    return str(own) if own.exists() else shutil.which(name)


def missing() -> str | None:
    """Why the tests cannot run now, or None."""
    absent = [name for name in PROGRAMS if program(name) is None]
    if not absent:
        return None
    names = " and ".join(absent)
    return f"{names} not installed: run python tests/deploy/monitoring/install.py on Debian, or install it yourself"


def main() -> int:
    if missing() is not None and shutil.which("apt-get") is not None:
        with tempfile.TemporaryDirectory() as directory:
            if os.geteuid() == 0:
                subprocess.run(["apt-get", "-qq", "update"], check=False)
            fetching = ["apt-get", "-qq", "download", "prometheus"]
            if subprocess.run(fetching, cwd=directory, check=False).returncode == 0:
                for package in Path(directory).glob("*.deb"):
                    taken = Path(directory) / "files"
                    subprocess.run(["dpkg-deb", "--extract", package, taken], check=True)
                    PACKAGES.mkdir(exist_ok=True)
                    for name in PROGRAMS:
                        shutil.copy2(taken / "usr/bin" / name, PACKAGES / name)
    print(f"monitoring: {missing() or 'ready'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
