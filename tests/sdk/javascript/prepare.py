"""The JavaScript SDK for the SDK tests: Node from the system, packages from npm into node_modules, no lock file."""

import shutil
import subprocess
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
NODE_MAJOR_MIN = 20  # @azure/data-tables 13 requires it (its package.json, "engines")


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise FileNotFoundError(
            f"{name} is not on the path (Node {NODE_MAJOR_MIN} or newer is needed)"
        )
    return path


def prepare() -> None:
    _tool("node")
    # --ignore-scripts: nothing the tests need is built; --no-package-lock: a lock file records download addresses.
    subprocess.run(
        [
            _tool("npm"),
            "install",
            "--no-package-lock",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
        ],
        cwd=HERE,
        check=True,
    )


@cache
def _version(node: str) -> str:
    shown = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    return shown.stdout.strip().removeprefix("v")


def missing() -> str | None:
    try:
        node = _tool("node")
    except FileNotFoundError as error:
        return str(error)
    version = _version(node)
    major = version.split(".", 1)[0]
    if not major.isdecimal() or int(major) < NODE_MAJOR_MIN:
        return f"Node {NODE_MAJOR_MIN} or newer is needed, this is {version or 'unknown'}"
    if not (HERE / "node_modules" / "@azure" / "data-tables" / "package.json").exists():
        return "@azure/data-tables is not installed: run python tests/sdk/install.py javascript"
    return None


def interchange() -> list[str]:
    return [_tool("node"), str(HERE / "interchange.mjs")]
