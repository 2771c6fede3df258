"""The report of the fault run. .ci/long has the run itself, `python -m tests.storage.cluster faults --short`."""

import pytest

from storage.cluster.faults import Phase, Report, at
from stress.histories.checker import Verdict
from stress.histories.clients import Timing

RIGHT = Verdict("right", 10, linearizable=True, undecided=False, why="")
WRONG = Verdict("wrong", 10, linearizable=False, undecided=False, why="two inserts")
LATE = Verdict("late", 10, linearizable=False, undecided=True, why="")


@pytest.mark.parametrize(
    ("verdicts", "check", "is_good"),
    [
        ([RIGHT], "", True),
        ([RIGHT, WRONG], "", False),
        ([RIGHT, LATE], "", False),
        ([RIGHT], "a partition is not in the directory", False),
    ],
)
def test_a_run_is_good_if_nothing_is_wrong(
    verdicts: list[Verdict], check: str, *, is_good: bool
) -> None:
    report = Report("7", [], [], verdicts, check)
    assert report.is_good is is_good
    told = "\n".join(report.lines())
    assert "seed 7: 1 of" in told
    assert all(verdict.linearizable or str(verdict) in told for verdict in verdicts)
    assert (check or "finds nothing") in told


def test_a_phase_has_the_requests_that_were_sent_in_it() -> None:
    phases = [Phase("calm", 10.0, 20.0), Phase("trouble", 20.0, 22.0)]
    timings = [Timing(10.0 + index / 10, 0.010, is_answered=True) for index in range(100)]
    timings += [Timing(20.5, 3.0, is_answered=True), Timing(21.0, 45.0, is_answered=False)]
    lines = list(Report("7", phases, timings, [RIGHT], "").lines())
    assert lines[2] == "| calm | 10 | 100 | 10 | 10 | 10 | 10 | 0 |"
    assert lines[3] == "| trouble | 2 | 1 | 0 | 3000 | 3000 | 3000 | 1 |"


@pytest.mark.parametrize(
    ("values", "share", "found"),
    [([], 0.5, 0.0), ([4.0], 0.99, 4.0), ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0), ([1.0, 2.0], 1.0, 2.0)],
)
def test_a_share_of_the_values_is_not_above(
    values: list[float], share: float, found: float
) -> None:
    assert at(values, share) == found
