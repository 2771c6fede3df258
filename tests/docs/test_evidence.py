"""Every rule of the specification has evidence: one of four tags, beside it or before its list or table.

A piece of a section is a paragraph, an item of a list with its inner items, or a table. It needs a tag of its own, or
one in the paragraph that introduces it (for a table also in the paragraph after it). A piece needs none if it says what
Tablestone does where nothing is known, or refers to another section.
"""

import re
import tomllib
from pathlib import Path

import pytest

from docs.references import PROTOCOL, sections

TAGS = ("recorded", "documented", "SDK source", "inferred")
_NOT_RULES = tomllib.loads((Path(__file__).parent / "not_rules.toml").read_text(encoding="utf-8"))
_TAG = re.compile(r"\[(?:" + "|".join(TAGS) + r")\]")
_EVIDENCE = re.compile(_TAG.pattern + r"|\bTablestone\b|\]\((?:wire\.md|auth\.md)?#(?:wire|auth)-")
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`]*`")
_BRACKETED = re.compile(r"\[([^\]\[]+)\](?!\()")
_ITEM = re.compile(r"\n(?=[*-] |\d+\. )")


def pieces(section: str) -> list[str]:
    """The paragraphs, items and tables of a section, in order, without fenced blocks."""
    found: list[str] = []
    for block in re.split(r"\n\s*\n", _FENCED.sub("", section)):
        found += [piece.strip() for piece in _ITEM.split(block) if piece.strip()]
    return found


def without_evidence(section: str) -> list[str]:
    """The pieces of a section without evidence."""
    found: list[str] = []
    lead = ""
    every = pieces(section)
    for piece, following in zip(every, [*every[1:], ""], strict=True):
        is_item, is_table = re.match(r"[*-] |\d+\. ", piece), piece.startswith("|")
        if not is_item and not is_table:
            lead = piece
            # A paragraph that ends with a colon introduces a list or table, which has the evidence.
            known = piece if not piece.endswith(":") else piece + following
        else:
            known = f"{piece} {lead} {following if is_table else ''}"
        if not _EVIDENCE.search(known):
            found.append(piece)
    return found


@pytest.mark.parametrize("anchor", [anchor for anchor in sections() if anchor not in _NOT_RULES])
def test_every_rule_has_evidence(anchor: str) -> None:
    assert without_evidence(sections()[anchor]) == []


@pytest.mark.parametrize(
    ("section", "bare"),
    [
        ("* A rule. [recorded]\n* Another.", ["* Another."]),
        ("All of these: [documented]\n\n* A rule.\n* Another.", []),
        ("| a | b |\n|---|---|\n| c | d |\n\n[documented]", []),
        ("| a | b |\n|---|---|\n| c | d |", ["| a | b |\n|---|---|\n| c | d |"]),
        ("* Nothing is known. Tablestone: 400.", []),
        ("A paragraph.", ["A paragraph."]),
    ],
)
def test_a_rule_without_evidence_is_found(section: str, bare: list[str]) -> None:
    assert without_evidence(section) == bare


@pytest.mark.parametrize("name", PROTOCOL)
def test_there_are_four_tags(name: str) -> None:
    """Anything else in brackets that is not a link would be a fifth."""
    text = _CODE.sub("", _FENCED.sub("", PROTOCOL[name].read_text(encoding="utf-8")))
    assert set(_BRACKETED.findall(text)) - set(TAGS) == set()
