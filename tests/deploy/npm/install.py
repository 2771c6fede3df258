"""Installs what tests/deploy/npm needs: `python tests/deploy/npm/install.py`.

It fetches two test runners and two package managers into `node_modules` beside this file. Node and npm must be there.
The guide's tests also use the SDK of tests/sdk. The script imports nothing of this project.
"""

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
MODULES = HERE / "node_modules"
NODE_MAJOR_MIN = 20  # the SDK and the test runners require it


def missing_node() -> str | None:
    """Why the package can be neither built nor tried now, or None."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return "node and npm are not on the path"
    shown = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    major = shown.removeprefix("v").partition(".")[0]
    if not major.isdecimal() or int(major) < NODE_MAJOR_MIN:
        return f"Node {NODE_MAJOR_MIN} or newer is needed, this is {shown.strip() or 'unknown'}"
    return None


def missing(*packages: str) -> str | None:
    """Why tests that need these packages cannot run now, or None."""
    absent = [each for each in packages if not (MODULES / each / "package.json").exists()]
    if not absent:
        return missing_node()
    return f"{', '.join(absent)} is not installed: python tests/deploy/npm/install.py"


def main() -> int:
    reason = missing_node()
    if reason is None:
        flags = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
        ended = subprocess.run(["npm", "install", *flags], cwd=HERE, check=False)
        reason = f"npm ended with status {ended.returncode}" if ended.returncode else None
    print(f"npm: {reason or 'ready'}")
    return 0 if reason is None else 1


if __name__ == "__main__":
    sys.exit(main())
