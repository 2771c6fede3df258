"""Every planted bug can still be planted: its text occurs once, and the tests that find it exist."""

import os
from pathlib import Path

import pytest

from stress.mutations import planted
from stress.mutations.planted import (
    ENDLESS,
    FAILED,
    PASSED,
    ROOT,
    SOURCE,
    CopiedSource,
    Mutation,
    read_list,
    touched_since,
)

MUTATIONS = read_list()


def problems(mutation: Mutation, source: Path = SOURCE) -> list[str]:
    """Why the mutation cannot be planted, or would not be looked for."""
    found = []
    count = (source / mutation.file).read_text("utf-8").count(mutation.old)
    if count != 1:
        found.append(f"its text occurs {count} times in {mutation.file}")
    if mutation.new == mutation.old:
        found.append("it changes nothing")
    place, _, name = mutation.arguments()[0].partition("::")
    if not (ROOT / place).is_file() or f"def {name}" not in (ROOT / place).read_text("utf-8"):
        found.append(f"there is no {place}::{name}")
    return found


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_it_can_be_planted(mutation: Mutation) -> None:
    assert problems(mutation) == []


def test_there_are_twenty_of_different_names() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) >= 20


ENDINGS = {
    # what the test does, and the status
    "it passes": ("pass", PASSED),
    "it fails": ("assert False", FAILED),
    "it runs for ever": ("while True: pass", ENDLESS),
    "its server runs for ever": ("subprocess.run(['sleep', '600'])", ENDLESS),
}


@pytest.mark.parametrize(("body", "status"), ENDINGS.values(), ids=ENDINGS)
def test_how_tests_end(
    body: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planted, "SOURCE", tmp_path / "source")
    (tmp_path / "source").mkdir()
    file = tmp_path / "test_it.py"
    file.write_text(f"import subprocess\ndef test() -> None:\n    {body}\n")
    given = ["--rootdir", str(tmp_path), "-c", os.devnull, str(file)]
    seconds_max = 3 if status == ENDLESS else 60
    assert CopiedSource(tmp_path / "copy").tests(given, seconds_max) == status


def test_what_cannot_be_planted_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\none\n")
    stale = Mutation("", "a.py", "one", "one", "", ("tests/gone.py::test",))
    assert problems(stale, tmp_path) == [
        "its text occurs 2 times in a.py",
        "it changes nothing",
        "there is no tests/gone.py::test",
    ]


ROW = """
[[mutation]]
name = "{0}"
file = "{0}.py"
old = "1"
new = "2"
why = "a reason"
tests = ["tests/test_{0}.py::test"]
"""
ROWS = ROW.format("one") + ROW.format("two")


@pytest.mark.parametrize(
    ("changed", "rows", "touched"),
    [
        ("README.md", ROWS, []),
        ("src/tablestone/one.py", ROWS, ["one"]),
        ("README.md\ntests/test_two.py", ROWS, ["two"]),
        ("", ROWS.replace("1", "0"), ["one", "two"]),
        ("", ROW.format("two"), ["one"]),
        (None, None, ["one", "two"]),
    ],
    ids=["another file", "its file", "its tests", "its text", "it is new", "an unknown commit"],
)
def test_a_bug_is_touched_by_a_change_of(
    changed: str | None,
    rows: str | None,
    touched: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = tmp_path / "mutations.toml"
    listed.write_text(ROWS)
    monkeypatch.setattr(planted, "_git", lambda *words: {"diff": changed, "show": rows}[words[0]])
    chosen = touched_since("0123abc", read_list(listed))
    assert [each.name for each in chosen] == touched


def test_every_bug_is_touched_since_a_commit_that_git_does_not_know() -> None:
    assert touched_since("no such commit", MUTATIONS) == MUTATIONS
