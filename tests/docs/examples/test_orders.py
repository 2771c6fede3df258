"""The sample project of the test kit: its own tests pass, and fail for a service that does not retry."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testing.pytest_runs import run_pytest

ROOT = Path(__file__).parents[3]
PROJECT = ROOT / "examples" / "orders"
LIBRARY = ROOT / "patterns" / "src"
TESTS = (PROJECT / "test_orders.py").read_text("utf-8")
PATTERNS = f"pythonpath = {json.dumps(str(LIBRARY))}"


@pytest.mark.slow
def test_the_tests_of_the_sample_project_pass(tmp_path: Path) -> None:
    shutil.copy(PROJECT / "orders.py", tmp_path)
    shutil.copytree(PROJECT / "fixtures", tmp_path / "fixtures")
    run = run_pytest(tmp_path, TESTS, "-W", "error", options=PATTERNS)
    assert "15 passed" in run.output, run.output


def test_the_sample_project_needs_no_settings_of_the_checkout() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:asyncio", "--co", "-q"]
    run = subprocess.run(
        [*command, PROJECT],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(LIBRARY)},
    )
    assert "15 tests collected" in run.stdout, run.stdout + run.stderr


@pytest.mark.slow
def test_they_find_a_service_that_tries_only_once(tmp_path: Path) -> None:
    source = (PROJECT / "orders.py").read_text("utf-8")
    broken = source.replace("ATTEMPTS_MAX = 12", "ATTEMPTS_MAX = 1")
    assert broken != source
    (tmp_path / "orders.py").write_text(broken, encoding="utf-8")
    run = run_pytest(tmp_path, TESTS, options=PATTERNS)
    assert run.status == 1
    assert "FAILED test_orders.py::test_a_bad_hour_loses_nothing" in run.output, run.output
