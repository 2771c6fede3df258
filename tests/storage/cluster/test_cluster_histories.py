"""Histories of two servers on a cluster, with clocks an hour apart and lost answers, are linearizable; bugs are found.

Each bug is found within a minute. Needs the cluster that ENGINE_UNDER_TEST names; one node is enough.
`test_forgetful_node.py` and `python -m tests.storage.cluster faults` use three.
"""

import os
from pathlib import Path
from random import SystemRandom

import pytest

from storage.cluster_engine import URL
from stress.histories import on_cluster
from stress.histories.bug_search import SECONDS_MAX, Search, runs_on, search
from stress.histories.checker import judge, missing

pytestmark = [
    pytest.mark.skipif(
        URL is None,
        reason="no cluster: python -m tests.storage.cluster up, then set ENGINE_UNDER_TEST",
    ),
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.crash,
]

SEED = os.environ.get("TABLESTONE_CRASH_SEED", str(SystemRandom().getrandbits(32)))
OPERATIONS = 600
SECONDS_WITHOUT_A_BUG = 20.0
LOSS = 0.05
"""The share of answers that a search loses: a blind retry needs some."""


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
def test_a_planted_bug_is_found_within_a_minute(tmp_path: Path, bug: str) -> None:
    found = searched(tmp_path, bug, SECONDS_MAX)
    print(f"{bug}: {found}")
    assert found.is_found, found


def test_the_same_search_finds_nothing_in_the_real_servers(tmp_path: Path) -> None:
    found = searched(tmp_path, None, SECONDS_WITHOUT_A_BUG)
    print(found)
    assert not found.wrong, found


def searched(tmp_path: Path, bug: str | None, seconds_max: float) -> Search:
    """Search on two servers, with a bug if one is named."""
    print(f"TABLESTONE_CRASH_SEED={SEED}")
    assert URL is not None
    with on_cluster.servers_on(URL, tmp_path, bug, LOSS) as servers:
        look = runs_on([server.target for server in servers], f"{SEED}/{bug}")
        return search(look, seconds_max)
