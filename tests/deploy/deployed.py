"""The files of `deploy/` and the programs that check them; a test without its program is skipped with the reason."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from deploy.install import missing, program

DEPLOY = Path(__file__).parents[2] / "deploy"
ROOT = DEPLOY.parent
CHART = DEPLOY / "helm" / "tablestone"
IMAGE = "localhost/tablestone"
"""Docker asks Docker Hub for a name without a registry, where it may be somebody else's."""
SECONDS_MAX = 120.0


def needs(*names: str) -> pytest.MarkDecorator:
    """Skip a test without these programs."""
    reason = missing(*names)
    return pytest.mark.skipif(reason is not None, reason=reason or "")


def folder_build() -> Path:
    """The folder that runs without Python; a test without it, or without root, is skipped."""
    made = os.environ.get("FOLDER_BUILD")
    if made is None or os.geteuid() != 0:
        pytest.skip("as root: deploy/standalone/build DIR, and FOLDER_BUILD=DIR/tablestone")
    return Path(made)


def run(
    name: str, *words: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The exit status of a program, and both of its outputs as one text."""
    path = program(name)
    assert path is not None
    return subprocess.run(
        [path, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        env=environment,
    )


def with_places(file: Path, places: Mapping[str, str], directory: Path) -> Path:
    """A copy of a file in `directory` with some texts, such as paths, replaced; each of them must occur."""
    text = file.read_text(encoding="utf-8")
    for here, there in places.items():
        assert here in text, here
        text = text.replace(here, there)
    copy = directory / file.name
    copy.write_text(text, encoding="utf-8")
    return copy
