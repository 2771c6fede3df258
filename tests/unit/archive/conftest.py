"""Fixtures for tests of the archive: data directories in memory, since each commit would wait for the disk."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from unit.archive.archived_server import MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    if not MEMORY.is_dir():
        yield tmp_path
        return
    directory = Path(tempfile.mkdtemp(dir=MEMORY))
    yield directory
    shutil.rmtree(directory)
