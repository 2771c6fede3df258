"""`kill -9` in the steps of writing an archive: each restore holds what was archived by then, and whole commits only.

The long form is `python -m tests.stress.archive_kills --kills N`.
"""

import os
from pathlib import Path
from random import SystemRandom

import pytest

from stress.archive_kills.run import EVERY_STEP, Run

SEED = os.environ.get("TABLESTONE_CRASH_SEED", str(SystemRandom().getrandbits(32)))
STEPS = (
    ("changes", "linked"),
    ("joined", "linked"),
    ("part", "after"),
    ("end", "before"),
    ("deletion", "after"),
)
KILLS = len(EVERY_STEP) if "SLOW" in os.environ else len(STEPS)

pytestmark = pytest.mark.crash


def test_what_is_restored_after_a_kill_was_there(tmp_path: Path) -> None:
    print(f"TABLESTONE_CRASH_SEED={SEED}")
    run = Run(tmp_path, SEED, EVERY_STEP if "SLOW" in os.environ else STEPS, encrypted=True)
    assert list(run.problems(KILLS)) == [], f"seed {SEED}"
    print(run)
    assert run.kills.total() == KILLS
    assert not run.kills["any moment"], "a step was not reached under load"


@pytest.mark.slow
def test_a_planted_bug_is_found(tmp_path: Path) -> None:
    """Records that count as archived, and are not."""
    problems = Run(tmp_path, SEED, STEPS, bug="records left out").problems(20)
    try:
        assert next(problems, None) is not None
    finally:
        problems.close()  # ends the server
