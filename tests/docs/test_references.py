"""References resolve: to sections of the specification and to cases, and never to tasks outside the project."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from docs.references import (
    PROTOCOL,
    ROOT,
    all_anchors,
    anchors,
    cases,
    links,
    references,
    sections,
    text_files,
)

_TEXT_FILES = text_files()
_NOT_RULES: dict[str, str] = tomllib.loads(
    (Path(__file__).parent / "not_rules.toml").read_text(encoding="utf-8")
)
_TASK = re.compile(r"(?<![\w/.#-])issue:? ?#?\d+|[\"(]issue[;:,\"]", re.IGNORECASE)
"""A task number of a tracker that readers cannot see, or the bare word as a source."""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def unresolved(text: str) -> list[str]:
    """The references in a text to sections that do not exist."""
    return [written for written, anchor in references(text) if anchor not in all_anchors()]


def tasks(text: str) -> list[str]:
    """References to a task that a reader cannot look up; a public one reads `owner/repository#10973`."""
    return [match[0] for match in _TASK.finditer(text)]


def found_in_files(search: Callable[[str], list[str]]) -> dict[str, list[str]]:
    """What `search` finds, by file. It skips this file, which plants such texts."""
    found = {
        name_of(path): search(path.read_text(encoding="utf-8"))
        for path in _TEXT_FILES
        if path != Path(__file__)
    }
    return {name: lines for name, lines in found.items() if lines}


def test_every_section_that_is_named_exists() -> None:
    assert found_in_files(unresolved) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("as in wire 6.4, and auth 1.5", []),
        ("wire 6.99", ["wire 6.99"]),
        ("(wire 6.6, 6.99)", ["wire 6.99"]),
        ("wire 8, 9 and 99", ["wire 99"]),
        ("# the rules of wire\n# 77.1 say so", ["wire 77.1"]),
        ("wire 5.3-5.5", []),
        ("wire 14 row 3", []),
        ("wire 14 row 999", ["wire 14 row 999"]),
        ("wire 0.2-1", []),
        ("wire 0.2-99", ["wire 0.2-99"]),
        ("auth A.1", ["auth A.1"]),
        ("wire A.1", []),
    ],
)
def test_a_section_that_does_not_exist_is_found(text: str, expected: list[str]) -> None:
    assert unresolved(text) == expected


def test_the_references_are_found_at_all() -> None:
    """More than two thousand: a pattern that finds nothing would pass every other test here."""
    found = sum(len(list(references(path.read_text(encoding="utf-8")))) for path in _TEXT_FILES)
    assert found > 2000


@pytest.mark.parametrize("name", PROTOCOL)
def test_every_heading_has_an_anchor_of_its_number_and_none_comes_twice(name: str) -> None:
    text = PROTOCOL[name].read_text(encoding="utf-8")
    anchored = re.findall(r'<a id="([^"]+)"></a>\n\n#+ (?:Appendix )?([A\d][\d.]*)', text)
    numbered = re.findall(r"^#+ (?:Appendix )?([A\d][\d.]*) ", text, re.MULTILINE)
    assert [number for _, number in anchored] == numbered
    assert [anchor for anchor, _ in anchored] == [
        f"{name}-" + number.strip(".").replace(".", "-").lower() for number in numbered
    ]
    every = re.findall(r'<a id="([^"]+)"></a>', text)
    assert len(every) == len(set(every))


@pytest.mark.parametrize(
    "document", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=name_of
)
def test_every_link_to_a_section_resolves(document: Path) -> None:
    into_the_specification = [
        (target, anchor) for target, anchor in links(document) if target in PROTOCOL.values()
    ]
    assert [
        anchor for target, anchor in into_the_specification if anchor not in anchors(target)
    ] == []


def test_every_section_of_a_rule_has_a_case() -> None:
    """A section with a text of its own states rules, unless not_rules.toml names it."""
    counted = cases()
    assert [section for section in sections() if not counted.get(section, 0)] == list(_NOT_RULES)


def test_what_is_no_rule_says_why() -> None:
    assert [anchor for anchor, why in _NOT_RULES.items() if len(why) < len("a list of links")] == []


def test_no_task_of_another_place_is_a_reason() -> None:
    assert found_in_files(tasks) == {}


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ('source = "issue 4: our choice"', True),
        ("(Issue 5) one command", True),
        ('BadRequest("torn", "issue; RFC 9112 8")', True),
        ("issue #12", True),
        ("Azure/azure-sdk-for-js#10973", False),
        ("a public issue with a trace", False),
        ("the token issuer", False),
    ],
)
def test_a_task_is_found(text: str, *, is_one: bool) -> None:
    assert bool(tasks(text)) is is_one
