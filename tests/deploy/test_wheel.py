"""The wheel and the sdist have the same bytes when they are built again."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from deploy.deployed import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.network]
SECONDS_MAX = 1800.0
"""Compiling takes fifteen seconds of processor time, and minutes on a busy machine."""


def copied(directory: Path) -> Path:
    """A copy of the checkout in the directory, without what git ignores."""
    source = directory / "source"
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, tracked.split("\0")):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    return source


def built(directory: Path, *words: str, **more: str) -> Path:
    """The file that `python -m build` makes from a copy of the checkout in this directory."""
    source = copied(directory)
    made = subprocess.run(
        [sys.executable, "-m", "build", *words, "--outdir", str(directory / "dist"), str(source)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | more,
    )
    assert made.returncode == 0, made.stdout
    (found,) = (directory / "dist").iterdir()
    return found


WAYS = {
    "a": ("-m", "pip", "wheel", "--no-deps", "--wheel-dir=out", "."),
    "b/of-another-length": ("-m", "build", "--outdir=out", "."),
}
"""Two ways to build a wheel, in different directories; the second goes through the sdist, as a release does."""


def test_the_compiled_wheel_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    """Whether the libraries are installed must not matter either: pip's environment shows them to mypy."""
    caches = {place: tmp_path / place / "cache" for place in WAYS}
    builds = {place: wheel_build(tmp_path / place, WAYS[place], caches[place]) for place in WAYS}
    printed = [build.communicate(timeout=SECONDS_MAX)[0] for build in builds.values()]
    assert all("Compiling" in each for each in printed), "each build has compiled"
    first, second = (made_wheel(tmp_path / place) for place in WAYS)
    assert "-cp3" in first.name, "it is compiled"
    assert second.name == first.name
    assert differences(first, second) == []
    assert second.read_bytes() == first.read_bytes()
    again = wheel_build(tmp_path / "again", WAYS["a"], caches["a"])
    printed.append(again.communicate(timeout=SECONDS_MAX)[0])
    assert "are compiled already" in printed[-1], "the third build has not"
    assert made_wheel(tmp_path / "again").read_bytes() == first.read_bytes()


def wheel_build(directory: Path, words: tuple[str, ...], cache: Path) -> subprocess.Popen[str]:
    """Build a copy of the checkout in this directory, with this cache of compiled modules."""
    source = copied(directory)
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    own = {"XDG_CACHE_HOME": str(cache), "PIP_NO_CACHE_DIR": "1", "PIP_VERBOSE": "1"}
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=source,
        env=kept | own,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def made_wheel(directory: Path) -> Path:
    """The wheel of a finished build."""
    (wheel,) = (directory / "source" / "out").glob("*.whl")
    return wheel


def differences(one: Path, other: Path) -> list[str]:
    """The names of the files that differ between two wheels."""
    with zipfile.ZipFile(one) as first, zipfile.ZipFile(other) as second:
        names = first.namelist()
        assert names == second.namelist()
        return [name for name in names if first.read(name) != second.read(name)]


def test_the_sdist_has_the_same_bytes_and_what_a_wheel_is_made_of(tmp_path: Path) -> None:
    first, second = (built(tmp_path / place, "--sdist") for place in ("a", "b/c"))
    assert second.read_bytes() == first.read_bytes()
    changed = built(tmp_path / "d", "--sdist", SOURCE_DATE_EPOCH="1700000000")
    assert changed.read_bytes() != first.read_bytes(), "the time of the source is in the file"
    shutil.unpack_archive(first, tmp_path / "unpacked")
    (root,) = (tmp_path / "unpacked").iterdir()
    for name in ("hatch_build.py", "pyproject.toml", "LICENSE", "deploy/Dockerfile"):
        assert (root / name).exists(), name
