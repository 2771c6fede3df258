"""The checker's own tests, in Go: right and wrong histories, each with its verdict."""

import subprocess

import pytest

from stress.histories.checker import SOURCE, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def test_the_checker_passes_its_own_tests() -> None:
    told = subprocess.run(
        ["go", "test", "./..."], cwd=SOURCE, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr
