"""Fetches the program that tests/monitoring asks: `python tests/monitoring/install.py`.

It is promtool of Debian's package prometheus. Only this program is taken from the package: nothing is installed, and no
server is started. It runs as a script, so it imports nothing of this project. Its exit status is 0 even if it cannot
fetch promtool: the tests are then skipped with the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROMTOOL = Path(__file__).parent / ".packages" / "promtool"


def promtool() -> str | None:
    """The path of a promtool on this machine, None if there is none."""
    return str(PROMTOOL) if PROMTOOL.exists() else shutil.which("promtool")


def missing() -> str | None:
    """Why the tests cannot run now, or None."""
    if promtool() is not None:
        return None
    return "promtool is not installed: run python tests/monitoring/install.py on Debian, or install it yourself"


def main() -> int:
    if promtool() is None and shutil.which("apt-get") is not None:
        with tempfile.TemporaryDirectory() as directory:
            if os.geteuid() == 0:
                subprocess.run(["apt-get", "-qq", "update"], check=False)
            fetching = ["apt-get", "-qq", "download", "prometheus"]
            if subprocess.run(fetching, cwd=directory, check=False).returncode == 0:
                for package in Path(directory).glob("*.deb"):
                    taken = Path(directory) / "files"
                    subprocess.run(["dpkg-deb", "--extract", package, taken], check=True)
                    PROMTOOL.parent.mkdir(exist_ok=True)
                    shutil.copy2(taken / "usr/bin/promtool", PROMTOOL)
    print(f"promtool: {missing() or 'ready'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
