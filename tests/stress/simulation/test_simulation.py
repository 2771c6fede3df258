"""The Cassandra engine and its leases in a simulated cluster: a few hundred seeds, and planted bugs that are found.

`python -m tests.stress.simulation --seeds 100000` is the long form.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from command_lines import missing_driver
from stress.histories.bug_search import search
from stress.histories.checker import build, judge
from stress.histories.checker import missing as no_checker
from stress.simulation.__main__ import failures

REASON: Final = missing_driver() or no_checker()
pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.slow]
SEEDS: Final = 200
SEEDS_WITH_A_BUG: Final = 25
"""Run so many at a time, until one fails or the search's minute is over."""
ROOT: Final = Path(__file__).parents[3]
PRINT_DIGEST: Final = (
    "import sys; from stress.simulation.world import live; print(live(int(sys.argv[1])).digest)"
)


def test_what_clients_saw_is_linearizable_in_every_world() -> None:
    assert failures(0, SEEDS) == []


@pytest.mark.parametrize(
    "bug",
    [
        "blind retry",
        "read at consistency ONE",
        "a lease that is too long",
        "a lease that is renewed blindly",
        "a partition that is listed late",
    ],
)
def test_a_planted_bug_is_found_within_a_minute_and_its_seed_fails_again(bug: str) -> None:
    build()

    def look(number: int, _seconds_left: float) -> list[str]:
        return failures((number - 1) * SEEDS_WITH_A_BUG, SEEDS_WITH_A_BUG, bug)

    found = search(look, clock=processor_seconds)
    print(f"{bug}: {found}")
    assert found.is_found, found
    seed = int(found.wrong.removeprefix("seed ").partition("-")[0].partition(":")[0])
    assert found.wrong in failures(seed, 1, bug)


def processor_seconds() -> float:
    """Measure a simulation's minute without other work on the machine: it only computes."""
    return sum(os.times()[:4])


def test_a_seed_repeats_exactly_in_any_process() -> None:
    """Neither the order of sets nor the time of day matters."""
    from stress.simulation.world import live  # noqa: PLC0415 - needs the driver

    for seed in range(3):
        digests = {live(seed).digest}
        for hash_seed in ("1", "2"):
            told = subprocess.run(
                [sys.executable, "-c", PRINT_DIGEST, str(seed)],
                env=os.environ
                | {
                    "PYTHONHASHSEED": hash_seed,
                    "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *sys.path]),
                },
                capture_output=True,
                text=True,
                check=True,
            )
            digests.add(told.stdout.strip())
        assert len(digests) == 1


def test_worlds_differ_and_do_what_they_are_for() -> None:
    """Most operations are answered, and some are not; different seeds lead to different histories."""
    from stress.simulation.world import live  # noqa: PLC0415 - needs the driver

    lives = [live(seed) for seed in range(20)]
    operations = [each for life in lives for one in life.histories for each in one.operations]
    unanswered = [each for each in operations if each.returned is None]
    assert len({life.digest for life in lives}) == len(lives)
    assert len(operations) > 20 * 20
    assert 0 < len(unanswered) < len(operations) / 10
    assert any(each.error is not None for each in operations)
    assert any(each.is_list and each.rows for each in operations)
    assert all(verdict.linearizable for verdict in judge(lives[0].histories))
