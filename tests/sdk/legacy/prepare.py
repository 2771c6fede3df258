"""Two old Python SDKs for the SDK tests, each in its own directory, because their packages have today's names.

azure-storage 0.20 (2015) speaks Atom at 2014-02-14; azure-cosmosdb-table 1.0 (retired) speaks JSON at 2018-03-28.
"""

import subprocess
import sys
from pathlib import Path

PACKAGES = Path(__file__).parent / ".packages"
REQUIREMENTS = {"atom": "azure-storage==0.20.3", "json": "azure-cosmosdb-table==1.0.6"}
_MODULES = {"atom": "azure/storage/table", "json": "azure/cosmosdb/table"}


def prepare() -> None:
    for name, requirement in REQUIREMENTS.items():
        target = PACKAGES / name
        if not (target / _MODULES[name]).is_dir():
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target)]
            subprocess.run([*command, requirement], check=True)


def missing() -> str | None:
    for name, requirement in REQUIREMENTS.items():
        if not (PACKAGES / name / _MODULES[name]).is_dir():
            return f"{requirement} is not installed: run python tests/sdk/install.py legacy"
    return None
