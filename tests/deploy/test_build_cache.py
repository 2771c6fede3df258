"""The cache of compiled modules: which builds share an entry, and which entries are not used."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("hatchling", reason="pip install '.[deploy]'")
pytest.importorskip("mypy", reason="pip install '.[dev]'")

hatch_build: Any = import_module("hatch_build")
MODULES = ["tablestone/clock"]
COMPILER = SimpleNamespace(compiler_so=[sys.executable, "-O1"], linker_so=["ld"])
"""Answers the one question that the build asks a compiler: --version."""


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(hatch_build, "_compiler", lambda: COMPILER)


def source(directory: Path, **changed: str) -> Path:
    """Two modules, one of them compiled, and any more."""
    package = directory / "tablestone"
    package.mkdir(parents=True, exist_ok=True)
    for name, text in {"clock": "NOW = 1\n", "limits": "MOST = 1\n", **changed}.items():
        (package / (name if "." in name else f"{name}.py")).write_text(text)
    return directory


def test_the_same_source_in_another_place_has_the_same_entry(tmp_path: Path) -> None:
    one, other = source(tmp_path / "a"), source(tmp_path / "b" / "c")
    (other / "tablestone" / "__pycache__").mkdir()
    (other / "tablestone" / "__pycache__" / "clock.pyc").write_text("no source")
    assert hatch_build.cache_entry(one, MODULES) == hatch_build.cache_entry(other, MODULES)


@pytest.mark.parametrize(
    "changed",
    [{"clock": "NOW = 2\n"}, {"limits": "MOST = 2\n"}, {"added": ""}, {"hints.c": ""}],
    ids=["a compiled module", "one whose types are read", "another module", "C"],
)
def test_another_source_has_another_entry(tmp_path: Path, changed: dict[str, str]) -> None:
    one, other = source(tmp_path / "a"), source(tmp_path / "b", **changed)
    assert hatch_build.cache_entry(one, MODULES) != hatch_build.cache_entry(other, MODULES)


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        (COMPILER, "compiler_so", [sys.executable, "-O2"]),
        (COMPILER, "linker_so", ["ld", "-s"]),
        (sys, "version", "3.99"),
        (hatch_build, "version_of", lambda package: f"another {package}"),
        (hatch_build, "__file__", __file__),
        (sysconfig, "get_platform", lambda: "another machine"),
        (subprocess, "check_output", lambda *_, **__: "another compiler"),
    ],
)
def test_another_way_to_compile_has_another_entry(
    place: object, name: str, value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = hatch_build.cache_entry(source(tmp_path), MODULES)
    assert hatch_build.cache_entry(source(tmp_path), [*MODULES, "tablestone/limits"]) != before
    monkeypatch.setattr(place, name, value)
    assert hatch_build.cache_entry(source(tmp_path), MODULES) != before


LIBRARY = Path("tablestone", "clock.so")


def kept(tmp_path: Path, name: str = "entry") -> Path:
    """An entry with one library."""
    library = tmp_path / "built" / LIBRARY
    library.parent.mkdir(parents=True, exist_ok=True)
    library.write_bytes(bytes(range(256)) * 64)
    library.chmod(0o755)
    entry = tmp_path / "cache" / "builds" / f"{name}.zip"
    hatch_build.keep(tmp_path / "built", entry)
    return entry


def test_what_is_kept_is_taken(tmp_path: Path) -> None:
    assert hatch_build.taken(kept(tmp_path), tmp_path / "taken")
    library, copy = tmp_path / "built" / LIBRARY, tmp_path / "taken" / LIBRARY
    assert copy.read_bytes() == library.read_bytes()
    assert os.access(copy, os.X_OK), "the wheel has its mode, too"


def test_what_is_not_there_is_not_taken(tmp_path: Path) -> None:
    assert not hatch_build.taken(tmp_path / "none.zip", tmp_path / "taken")


@pytest.mark.parametrize(
    "damaged",
    [
        lambda whole: whole[:0],
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:-1],
        lambda whole: whole[:200] + bytes(16) + whole[216:],
        lambda whole: bytes(len(whole)),
    ],
    ids=["empty", "half", "without its end", "with a hole", "all zeros"],
)
def test_a_damaged_entry_is_not_taken(damaged: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """A power failure may leave one."""
    entry = kept(tmp_path)
    entry.write_bytes(damaged(entry.read_bytes()))
    assert not hatch_build.taken(entry, tmp_path / "taken")
    assert not (tmp_path / "taken").exists()


def test_an_entry_of_another_user_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = kept(tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: entry.stat().st_uid + 1)
    assert not hatch_build.taken(entry, tmp_path / "taken")


def test_a_cache_that_cannot_be_written_is_not_needed(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the directory would be")
    assert not hatch_build.taken(kept(tmp_path), tmp_path / "taken")


def test_the_entries_that_were_used_last_stay(tmp_path: Path) -> None:
    for number in range(hatch_build.ENTRIES_MAX):
        entry = kept(tmp_path, f"{number}")
        os.utime(entry, (number, number))
    assert hatch_build.taken(tmp_path / "cache" / "builds" / "0.zip", tmp_path / "taken")
    newest = kept(tmp_path, "newest")
    stayed = {each.stem for each in newest.parent.iterdir()}
    assert stayed == {"0", "2", "3", "newest"}
