"""The short form of the soak: a server's figures stay as they were, and a planted leak is found."""

from pathlib import Path

import pytest

from stress.soak.leaking_server import LEAKS
from stress.soak.soaking import soak

SEED = 1
RATE = 60.0
pytestmark = pytest.mark.slow


def test_memory_and_descriptors_stay_as_they_were(tmp_path: Path) -> None:
    assert soak(tmp_path, 15.0, RATE, SEED).problems == []


@pytest.mark.parametrize("leak", LEAKS)
def test_a_planted_leak_is_found(tmp_path: Path, leak: str) -> None:
    problems = soak(tmp_path, 10.0, RATE, SEED, leak).problems
    assert len(problems) == 1
    assert problems[0].startswith(f"{leak} grew")
