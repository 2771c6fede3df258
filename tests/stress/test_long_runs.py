"""The log of long runs names the commit from which planted bugs count as found."""

import csv
from pathlib import Path

import pytest

from stress import long_runs

HEAD = "run,date,commit,ended,result\n"
ROWS = {
    "the newest that passed": ("a,d,c1,passed,x\na,d,c2,passed,x\n", "c2"),
    "one that failed is passed over": ('a,d,c1,passed,x\na,d,c2,failed (1),"x, y"\n', "c1"),
    "of another run": ("b,d,c1,passed,x\n", ""),
    "of a tree that nobody else has": ("a,d,c1 with changes,passed,x\n", ""),
    "of an unknown commit": ("a,d,c1,passed,x\na,d,,passed,x\n", "c1"),
}


@pytest.mark.parametrize(("rows", "commit"), ROWS.values(), ids=ROWS)
def test_the_commit_of_the_last_run_that_passed(rows: str, commit: str, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(HEAD + rows)
    assert long_runs.last("a", log) == commit


@pytest.mark.parametrize(
    ("status", "ended"), [("0", "passed"), ("3", "failed (3)"), ("skipped", "skipped")]
)
def test_a_run_is_added(
    status: str, ended: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A copy of the checkout has no git.
    monkeypatch.setattr(long_runs, "_git", lambda *words: "c1" * (words[0] == "rev-parse"))
    log = tmp_path / "log.csv"
    log.write_text(HEAD)
    long_runs.add("a", status, '\x1b[0m\x1b[1;31mfound 1, "all"\x1b[0m', log)
    with log.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["run"], row["ended"], row["result"]) == ("a", ended, 'found 1, "all"')
    assert row["commit"] == "c1"


def test_the_log_is_whole_and_says_where_planted_bugs_begin() -> None:
    with long_runs.LOG.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(all(row[column] for column in ("run", "date", "ended")) for row in rows)
    assert long_runs.last("planted bugs")
