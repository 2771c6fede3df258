"""Runs pytest on a user's test file, in its own directory and process, with the plugin of the test kit."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

PLUGIN = "tablestone.testing.plugin"


class Run(NamedTuple):
    """The exit status and the output of pytest."""

    status: int
    output: str


def run_pytest(
    directory: Path,
    test_file: str,
    *arguments: str,
    options: str = "",
    plugins: tuple[str, ...] = (),
) -> Run:
    """Run pytest on one file; `options` are lines of `[tool.pytest.ini_options]`.

    Only the plugins named here are loaded, so that the run is the same whether Tablestone is installed or not.
    """
    (directory / "test_orders.py").write_text(dedent(test_file), encoding="utf-8")
    (directory / "pyproject.toml").write_text(f"[tool.pytest.ini_options]\n{options}\n")
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    loaded = [argument for plugin in (PLUGIN, *plugins) for argument in ("-p", plugin)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *loaded, *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Run(done.returncode, done.stdout + done.stderr)
