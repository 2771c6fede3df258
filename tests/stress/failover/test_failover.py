"""A short run of failovers, and that a run finds what is wrong. .ci/long has the long one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from storage.postgresql_pair import running_pair
from storage.postgresql_server import why_no_pair
from stress.failover.run import FailoverRun, Inserter, Report
from stress.histories.checker import Verdict, missing

if TYPE_CHECKING:
    from pathlib import Path

RIGHT = Verdict("right", 10, linearizable=True, undecided=False, why="")
WRONG = Verdict("wrong", 10, linearizable=False, undecided=False, why="two inserts")


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.skipif(why_no_pair() is not None, reason=str(why_no_pair()))
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_a_failover_a_killed_server_and_cut_connections_lose_and_double_nothing(
    tmp_path: Path,
) -> None:
    with running_pair() as pair:
        report = FailoverRun(pair, tmp_path, "1").run(["cut", "kill a server", "failover"])
    assert report.is_good, "\n".join(report.lines())
    assert report.operations > 300
    assert report.inserted > 100


@pytest.mark.parametrize(
    ("verdicts", "problems", "is_good"),
    [([RIGHT], [], True), ([RIGHT, WRONG], [], False), ([RIGHT], ["a/1 is lost"], False)],
)
def test_a_run_is_good_if_nothing_is_wrong(
    verdicts: list[Verdict], problems: list[str], *, is_good: bool
) -> None:
    report = Report("7", Counter(failover=2), 10, 5, 0, 0.5, verdicts, problems)
    assert report.is_good is is_good
    told = "\n".join(report.lines())
    assert all(problem in told for problem in problems)


def test_what_is_there_is_compared_with_the_answers() -> None:
    class Table:
        @staticmethod
        def query_entities(_filter: str) -> list[dict[str, str]]:
            return [{"RowKey": str(row)} for row in (1, 3, 4, 5, 5)]

    inserter = Inserter(0, [], None)  # type: ignore[arg-type]
    inserter.acknowledged, inserter.refused, inserter.unanswered = {1, 2, 5}, {3}, set()
    assert list(inserter.judge(Table())) == [  # type: ignore[arg-type]
        "inserts-0/2 was acknowledged and is lost",
        "inserts-0/3 is there, and the server said that nothing was done",
        "inserts-0/4 is there, and nobody made it",
        "inserts-0/5 is there twice",
    ]
