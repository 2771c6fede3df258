"""The half without asyncio is the one that is generated from the half with it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_half_without_asyncio_is_generated() -> None:
    pytest.importorskip("unasync", reason="pip install '.[dev]'")
    command = [sys.executable, "patterns/generate_sync.py", "--check"]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0, (
        "run patterns/generate_sync.py"
    )


def test_nothing_of_tablestone_is_imported() -> None:
    program = "import sys, table_patterns, table_patterns.aio; print(sorted(sys.modules))"
    source = str(ROOT / "patterns/src")
    said = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": source},
    ).stdout
    assert "'table_patterns.sync.lock'" in said
    assert "'tablestone" not in said
