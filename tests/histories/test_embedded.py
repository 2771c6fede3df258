"""Histories of several workers of the embedded engine: linearizable in spite of kills and pauses.

The checker finds a planted bug in such a history. `python -m tests.histories embedded` is the long form.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import SystemRandom

import pytest

from histories import embedded
from histories.checker import judge, missing

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.slow,
    pytest.mark.crash,
]

SEED = os.environ.get("TABLESTONE_CRASH_SEED", str(SystemRandom().getrandbits(32)))
OPERATIONS = 3000
OPERATIONS_WITH_A_BUG = 500
ROUNDS_WITH_A_BUG = 10


def test_histories_are_linearizable_whatever_is_killed_and_paused(tmp_path: Path) -> None:
    print(f"TABLESTONE_CRASH_SEED={SEED}")
    run = embedded.run(tmp_path, seed=SEED, operations=OPERATIONS)
    print(f"{run.operations} operations, {run.unanswered} without an answer, {run.faults}")
    assert run.operations >= OPERATIONS // 2
    assert [str(verdict) for verdict in judge(run.histories) if not verdict.linearizable] == []


@pytest.mark.parametrize(
    "bug", ["stale read cache", "lost condition", "transaction in two commits"]
)
def test_a_planted_bug_is_found(tmp_path: Path, bug: str) -> None:
    """A round of operations takes a few seconds, and one round is nearly always enough."""
    for number in range(ROUNDS_WITH_A_BUG):
        run = embedded.run(
            tmp_path / str(number),
            seed=f"{SEED}/{bug}/{number}",
            operations=OPERATIONS_WITH_A_BUG,
            workers=2,
            makes_faults=False,
            bug=bug,
        )
        wrong = [verdict for verdict in judge(run.histories) if not verdict.linearizable]
        if wrong:
            print(wrong[0])
            return
    pytest.fail(f"{bug} was not found")
