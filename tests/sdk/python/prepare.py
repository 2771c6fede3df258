"""The Python SDK for the SDK tests: part of the project's `test` extra, so there is rarely anything to do."""

import importlib.util
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = ("azure-data-tables>=12.6,<13", "aiohttp>=3.10,<4")


def prepare() -> None:
    if missing() is not None:
        subprocess.run([sys.executable, "-m", "pip", "install", *REQUIREMENTS], check=True)


def missing() -> str | None:
    for module in ("azure.data.tables", "aiohttp"):
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:  # a parent package is missing
            found = None
        if found is None:
            return f"{module} is not installed: run python tests/sdk/install.py python"
    return None


def interchange() -> list[str]:
    return [sys.executable, str(Path(__file__).with_name("interchange_program.py"))]
