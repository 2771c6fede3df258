"""Installs the browser that tests/sdk/browser needs: `python tests/sdk/browser/install.py`.

That is Debian's Chromium without a window, from Debian's package manager, if root runs this and it is not there yet.
The script imports nothing of this project. It exits with 0 even if it cannot install the browser: the tests then run in
another Chromium, or are skipped with the reason.
"""

import os
import shutil
import subprocess
import sys

# The one without a window first: a new page takes a quarter of the processor time.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def browser() -> str | None:
    """The path of a Chromium on this machine, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def missing() -> str | None:
    """Why the tests cannot run now, or None."""
    if browser() is not None:
        return None
    return "Chromium is not installed: run python tests/sdk/browser/install.py as root on Debian, or install it"


def main() -> int:
    wanted = NAMES[0]
    if shutil.which(wanted) is None and shutil.which("apt-get") is not None and os.geteuid() == 0:
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "--yes", "--no-install-recommends", wanted]):
            ended = subprocess.run(["apt-get", "-qq", *command], env=environment, check=False)
            if ended.returncode != 0:
                break
    print(f"browser: {missing() or 'ready'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
