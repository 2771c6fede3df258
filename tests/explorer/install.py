"""Installs what the tests of the explorer need: `python tests/explorer/install.py`.

That is axe-core from npm, which checks pages for accessibility. tests/sdk/browser/install.py installs the browser, and
`.[dev]` has Playwright, which drives it. The script imports nothing of this project. It exits with 0 even without npm:
the tests are then skipped with the reason.
"""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGE = "axe-core@4.14.1"
PACKAGES = Path(__file__).parent / ".packages"
AXE = PACKAGES / "node_modules" / "axe-core" / "axe.min.js"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def missing() -> str | None:
    """Why the tests in a browser cannot run now, or None."""
    if not any(map(shutil.which, BROWSERS)):
        return (
            "Chromium is not installed: run python tests/sdk/browser/install.py as root on Debian"
        )
    if importlib.util.find_spec("playwright") is None:
        return "Playwright is not installed: pip install '.[dev]'"
    return None


def axe_missing() -> str | None:
    """Why the accessibility rules cannot be checked now, or None."""
    return (
        None if AXE.exists() else "axe-core is not installed: run python tests/explorer/install.py"
    )


def main() -> int:
    if not AXE.exists() and shutil.which("npm") is not None:
        PACKAGES.mkdir(exist_ok=True)
        command = [
            "npm",
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--prefix",
            str(PACKAGES),
        ]
        subprocess.run([*command, PACKAGE], check=False)
    print(f"explorer: {missing() or axe_missing() or 'ready'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
