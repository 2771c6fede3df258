"""Histories of two servers on a cluster, with clocks an hour apart and lost answers: linearizable, and bugs are found.

Needs the cluster that ENGINE_UNDER_TEST names; one node is enough. `python -m tests.cassandra faults` takes three.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import SystemRandom

import pytest

from engines.cluster_engine import URL
from histories import on_cluster
from histories.checker import judge, missing

pytestmark = [
    pytest.mark.skipif(
        URL is None, reason="no cluster: python -m tests.cassandra up, then set ENGINE_UNDER_TEST"
    ),
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.crash,
]

SEED = os.environ.get("TABLESTONE_CRASH_SEED", str(SystemRandom().getrandbits(32)))
OPERATIONS = 600
OPERATIONS_WITH_A_BUG = 200
ROUNDS_WITH_A_BUG = 10


def test_histories_are_linearizable_whatever_becomes_of_servers_and_answers(tmp_path: Path) -> None:
    print(f"TABLESTONE_CRASH_SEED={SEED}")
    assert URL is not None
    run = on_cluster.run(URL, tmp_path, seed=SEED, operations=OPERATIONS)
    print(f"{run.operations} operations, {run.unanswered} without an answer, {run.faults}")
    assert run.operations >= OPERATIONS
    assert [str(verdict) for verdict in judge(run.histories) if not verdict.linearizable] == []


@pytest.mark.parametrize(
    "bug", ["stale read cache", "lost condition", "transaction in two commits", "blind retry"]
)
def test_a_planted_bug_is_found(tmp_path: Path, bug: str) -> None:
    """A round of operations takes some seconds, and one round is nearly always enough."""
    assert URL is not None
    for number in range(ROUNDS_WITH_A_BUG):
        run = on_cluster.run(
            URL,
            tmp_path,
            seed=f"{SEED}/{number}",
            operations=OPERATIONS_WITH_A_BUG,
            makes_faults=False,
            bug=bug,
        )
        wrong = [verdict for verdict in judge(run.histories) if not verdict.linearizable]
        if wrong:
            print(wrong[0])
            return
    pytest.fail(f"{bug} was not found")
