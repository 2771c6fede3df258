"""Every planted bug can still be planted: its text occurs once, and the tests that find it exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutations.planted import ROOT, SOURCE, Mutation, read_list

MUTATIONS = read_list()


def problems(mutation: Mutation, source: Path = SOURCE) -> list[str]:
    """The reasons why the mutation cannot be planted or would not be looked for."""
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


def test_what_cannot_be_planted_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\none\n")
    stale = Mutation("", "a.py", "one", "one", "", ("tests/gone.py::test",))
    assert problems(stale, tmp_path) == [
        "its text occurs 2 times in a.py",
        "it changes nothing",
        "there is no tests/gone.py::test",
    ]
