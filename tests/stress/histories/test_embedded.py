"""Histories of several workers on the embedded engine are linearizable in spite of kills and pauses.

The checker finds each planted bug within a minute. `python -m tests.stress.histories embedded` is the long form.
"""

import os
from pathlib import Path
from random import SystemRandom

import pytest

from stress.histories import embedded
from stress.histories.bug_search import SECONDS_MAX, Search, runs_on, search
from stress.histories.checker import judge, missing

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.slow,
    pytest.mark.crash,
]

SEED = os.environ.get("TABLESTONE_CRASH_SEED", str(SystemRandom().getrandbits(32)))
OPERATIONS = 3000
SECONDS_WITHOUT_A_BUG = 20.0


def test_histories_are_linearizable_whatever_is_killed_and_paused(tmp_path: Path) -> None:
    print(f"TABLESTONE_CRASH_SEED={SEED}")
    run = embedded.run(tmp_path, seed=SEED, operations=OPERATIONS)
    print(f"{run.operations} operations, {run.unanswered} without an answer, {run.faults}")
    assert run.operations >= OPERATIONS // 2
    assert [str(verdict) for verdict in judge(run.histories) if not verdict.linearizable] == []


@pytest.mark.parametrize(
    "bug", ["stale read cache", "lost condition", "transaction in two commits"]
)
def test_a_planted_bug_is_found_within_a_minute(tmp_path: Path, bug: str) -> None:
    found = searched(tmp_path, bug, SECONDS_MAX)
    print(f"{bug}: {found}")
    assert found.is_found, found


def test_the_same_search_finds_nothing_in_the_real_server(tmp_path: Path) -> None:
    found = searched(tmp_path, None, SECONDS_WITHOUT_A_BUG)
    print(found)
    assert not found.wrong, found


def searched(tmp_path: Path, bug: str | None, seconds_max: float) -> Search:
    """Search on a server of two workers, with a bug if one is named."""
    print(f"TABLESTONE_CRASH_SEED={SEED}")
    server = embedded.EmbeddedServer(tmp_path, workers=2, bug=bug)
    try:
        return search(runs_on([server.target], f"{SEED}/{bug}"), seconds_max)
    finally:
        server.end()
