"""The folder and the one file beside it that `deploy/standalone/build DIR` made: `FOLDER_BUILD=DIR/tablestone`."""

import os
import subprocess
from pathlib import Path

import pytest

EMPTY = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
"""The environment of a user who has neither Python nor settings."""
SECONDS_MAX = 300.0


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, at a path with a blank."""
    place = tmp_path_factory.mktemp("with a blank") / "tablestone"
    subprocess.run(["cp", "--archive", made(), place], check=True)
    return place


@pytest.fixture(scope="session")
def one_file() -> Path:
    return made().with_name("tablestone-linux-x64")


def made() -> Path:
    directory = os.environ.get("FOLDER_BUILD")
    if directory is None:
        pytest.skip("deploy/standalone/build DIR, and FOLDER_BUILD=DIR/tablestone")
    return Path(directory)


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
