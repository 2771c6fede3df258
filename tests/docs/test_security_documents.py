"""The ASVS page answers every requirement of level 2 once, and the tests that it and the threat model name exist."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "docs" / "asvs.md", ROOT / "docs" / "threat-model.md")

LEVEL_2 = """
1.1.2 1.2.9 1.3.11 1.4.3 1.5.2 2.1.3 2.2.3 2.3.4 2.4.1 3.2.2 3.3.4 3.4.6 3.5.5 3.7.2 4.1.3 4.2.1 4.3.2 4.4.4 5.1.1
5.2.3 5.3.2 5.4.3 6.1.3 6.2.12 6.3.4 6.4.4 6.5.5 6.6.3 6.8.4 7.1.3 7.2.4 7.3.2 7.4.5 7.5.2 7.6.2 8.1.2 8.2.3 8.3.1
8.4.1 9.1.3 9.2.4 10.1.2 10.2.2 10.3.4 10.4.11 10.5.5 10.6.2 10.7.3 11.1.2 11.2.3 11.3.3 11.4.4 11.5.1 11.6.1 12.1.3
12.2.2 12.3.4 13.1.1 13.2.5 13.3.2 13.4.5 14.1.2 14.2.4 14.3.3 15.1.3 15.2.3 15.3.7 16.1.1 16.2.5 16.3.4 16.4.3 16.5.3
17.1.1 17.2.4 17.3.2
"""
"""The last requirement of level 1 or 2 in each section of ASVS 5.0.0; those before it belong to these levels too."""

Number = tuple[int, int, int]
ROW = re.compile(r"^\| (\d[\d., to]*) \| .*? \| (yes|none|no) \| (.*) \|$", re.MULTILINE)
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def number_of(text: str) -> Number:
    chapter, section, requirement = map(int, text.split("."))
    return chapter, section, requirement


REQUIREMENTS = [
    (chapter, section, requirement)
    for chapter, section, last in map(number_of, LEVEL_2.split())
    for requirement in range(1, last + 1)
]


def answered(page: str) -> list[Number]:
    """The requirements of the rows, in order; "1.2.6 to 1.2.8" is three."""
    found: list[Number] = []
    for numbers, _, _ in ROW.findall(page):
        for part in numbers.split(","):
            first, _, last = part.strip().partition(" to ")
            bounds = number_of(first), number_of(last or first)
            found += [each for each in REQUIREMENTS if bounds[0] <= each <= bounds[1]]
    return found


def unknown_tests(page: str) -> list[str]:
    """The tests in backticks that do not exist."""
    return [
        f"{path}::{name}"
        for path, name in NAMED.findall(page)
        if not (ROOT / path).is_file()
        or (name and f"def {name}(" not in (ROOT / path).read_text("utf-8"))
    ]


def test_every_requirement_is_answered_once() -> None:
    # 70 of level 1 and 183 of level 2, as the standard says: a section that LEVEL_2 lacked would not be missed.
    assert len(REQUIREMENTS) == 253
    assert sorted(answered(PAGES[0].read_text("utf-8"))) == REQUIREMENTS


def test_what_does_not_hold_says_why() -> None:
    rows = ROW.findall(PAGES[0].read_text("utf-8"))
    assert [numbers for numbers, answer, why in rows if answer != "none" and len(why) < 5] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    assert NAMED.search(text)
    assert unknown_tests(text) == []


def test_a_test_that_does_not_exist_is_found() -> None:
    here = "tests/unit/test_clocks_and_signatures.py"
    gone = f"`{here}::test_gone` `tests/gone.py` `{here}`"
    assert unknown_tests(gone) == [f"{here}::test_gone", "tests/gone.py::"]


def test_a_missing_requirement_is_found() -> None:
    page = "| 1.1.1 | a | yes | b |\n| 1.2.1 to 1.2.8, 1.5.1 | a | none | - |\n"
    found = answered(page)
    assert (1, 1, 2) not in found
    assert len(found) == 1 + 8 + 1
    assert all(one < other for one, other in pairwise(found))
