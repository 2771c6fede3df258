"""The folder and the one file that `deploy/standalone/build DIR` made: `STANDALONE=DIR` names them."""

import os
import subprocess
from pathlib import Path

import pytest

EMPTY = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
"""The environment of a user who has neither Python nor settings."""
SECONDS_MAX = 120.0


def made(name: str) -> Path:
    directory = os.environ.get("STANDALONE")
    if directory is None:
        pytest.skip("deploy/standalone/build DIR, and STANDALONE=DIR")
    return Path(directory, name)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked folder, at a path with a blank."""
    place = tmp_path_factory.mktemp("with a blank")
    packed = made("tablestone-linux-x64.tar.gz")
    subprocess.run(["tar", "-xzf", packed, "-C", place], check=True)
    return place / "tablestone"


@pytest.fixture(scope="session")
def one_file() -> Path:
    return made("tablestone-linux-x64")


def run(
    *words: str | Path, timeout: float = SECONDS_MAX, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, in an empty environment."""
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        stdin=subprocess.DEVNULL,
        env=EMPTY | environment,
    )
