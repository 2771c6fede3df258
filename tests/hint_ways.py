"""Both ways in which a connection decides hints: by the C function, and in SQL."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final
from unittest import mock

import pytest

from tablestone.engines.sqlite import row_hints

SOURCE: Final = Path(__file__).parents[1] / "src/tablestone/engines/sqlite/row_hints.c"
HEADERS: Final = Path(__file__).parents[1] / "src/vendored/sqlite"
COMPILER: Final = shutil.which("cc")
needs_compiler: Final = pytest.mark.skipif(COMPILER is None, reason="it needs a C compiler")
HAS_C: Final = COMPILER is not None or row_hints.LIBRARY.exists()
needs_c: Final = pytest.mark.skipif(not HAS_C, reason="it needs a C compiler")
WAYS: Final = (pytest.param("C", marks=needs_c), "SQL")


@cache
def library() -> Path:
    """The library of this installation; of an editable one, which has none, a new one."""
    if row_hints.LIBRARY.exists():
        return row_hints.LIBRARY
    made = Path(_directory().name, row_hints.LIBRARY.name)
    assert COMPILER is not None
    strict = (
        "-O2",
        "-fvisibility=hidden",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Wconversion",
        "-Werror",
    )
    subprocess.run(
        [COMPILER, *strict, "-shared", "-fPIC", f"-I{HEADERS}", "-o", made, SOURCE], check=True
    )
    return made


@cache
def _directory() -> tempfile.TemporaryDirectory[str]:
    """Removed at the end of the process."""
    return tempfile.TemporaryDirectory(prefix="tablestone-hints-")


@contextmanager
def deciding_in(way: str) -> Iterator[None]:
    """Connections that are opened in this block decide hints in this way."""
    path = library() if way == "C" else Path("/nowhere/librow_hints.so")
    with mock.patch.object(row_hints, "LIBRARY", path):
        yield
