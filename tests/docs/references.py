"""References to the specification: its sections, what refers to them, and the sections that a case covers.

A reference reads "wire 6.4", "auth 1.5 and 1.8", "wire 5.3-5.5", "wire 0.2-1" (an item of a list) or "wire 14 row 3" (a
row of a table). A section is an anchor of docs/protocol/wire.md or auth.md: `wire-6-4`. A case names its sections in
the `source` of a row in tests/spec, or in a string of a Python test, such as its docstring; a comment does not count.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROTOCOL = {name: ROOT / "docs" / "protocol" / f"{name}.md" for name in ("wire", "auth")}

_PLACES = ("src", "tests", "bench", "docs", "examples", ".ci", ".github")
_SUFFIXES = {".py", ".toml", ".md", ".go", ".js", ".mjs", ".ts", ".java", ".yml", ".yaml", ".txt"}
_NOT_OURS = {"node_modules", ".packages", "target", "site"}

_NUMBER = r"(?:[A-Z]\.)?\d+(?:\.\d+)*"
_ONE = rf"{_NUMBER}(?:-\d+(?![\d.])| rows? \d+)?"
_REFERENCE = re.compile(
    rf"\b(wire|auth) ({_ONE}(?:(?:, (?:and )?| and | or | to |-|–)(?:{_ONE}))*)(?!\w)"
)
_PART = re.compile(rf"({_NUMBER})(?:-(\d+)(?![\d.])| rows? (\d+))?")
_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
_LINK = re.compile(r"\]\((?:(?P<file>[^)#\s:]+\.md))?#(?P<anchor>[^)\s]+)\)")


def text_files() -> list[Path]:
    """Every file in the project that may refer to a section."""
    found = [path for path in ROOT.iterdir() if path.is_file()]
    for place in _PLACES:
        found += [path for path in (ROOT / place).rglob("*") if path.is_file()]
    return sorted(
        path for path in found if path.suffix in _SUFFIXES and not _NOT_OURS & set(path.parts)
    )


def running_text(text: str) -> str:
    """The text with each line break, and the comment sign after it, as one blank."""
    return re.sub(r"\s*\n\s*(?:#+ |// |\* )?\s*", " ", text)


def references(text: str) -> Iterator[tuple[str, str]]:
    """Each reference as written ("wire 5.3") and the anchor that it means ("wire-5-3")."""
    for match in _REFERENCE.finditer(running_text(text)):
        document = match[1]
        for part in _PART.finditer(match[2]):
            section = "-".join((document, *part[1].lower().split(".")))
            yield f"{document} {part[1]}", section
            if item := part[2] or part[3]:
                yield f"{document} {part[0]}", f"{section}-{item}"


@cache
def anchors(document: Path) -> frozenset[str]:
    """The anchors of a document."""
    return frozenset(_ANCHOR.findall(document.read_text(encoding="utf-8")))


@cache
def all_anchors() -> frozenset[str]:
    """The anchors of both documents."""
    return frozenset().union(*(anchors(path) for path in PROTOCOL.values()))


def links(document: Path) -> Iterator[tuple[Path, str]]:
    """The links from a document to an anchor: the document they lead to, and the anchor."""
    for match in _LINK.finditer(document.read_text(encoding="utf-8")):
        file = match["file"]
        yield (document.parent / file).resolve() if file else document, match["anchor"]


def sections() -> dict[str, str]:
    """The sections with a text of their own, by anchor, without those that only contain others."""
    found: dict[str, str] = {}
    for path in PROTOCOL.values():
        pieces = re.split(r'^<a id="([^"]+)"></a>\n', path.read_text("utf-8"), flags=re.MULTILINE)
        for anchor, text in zip(pieces[1::2], pieces[2::2], strict=True):
            body = re.sub(r"^#.*|^---$", "", text, flags=re.MULTILINE).strip()
            if body:
                found[anchor] = body
    return found


def _sources(value: Any) -> Iterator[str]:
    """The `source` of every row in a file of cases, at any depth."""
    if isinstance(value, dict):
        if isinstance(value.get("source"), str):
            yield value["source"]
        for inner in value.values():
            yield from _sources(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _sources(inner)


def _strings(tree: ast.AST) -> Iterator[str]:
    """Every string of a Python test."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _case_texts() -> Iterator[str]:
    for path in sorted((ROOT / "tests").rglob("*")):
        if _NOT_OURS & set(path.parts):
            continue
        if path.suffix == ".toml" and path.parent.name == "spec":
            yield from _sources(tomllib.loads(path.read_text(encoding="utf-8")))
        elif path.suffix == ".py" and path.parent != Path(__file__).parent:
            yield from _strings(ast.parse(path.read_text(encoding="utf-8")))


def cases() -> dict[str, int]:
    """How many cases name each section."""
    counted: dict[str, int] = {}
    for text in _case_texts():
        for anchor in {anchor for _, anchor in references(text)}:
            counted[anchor] = counted.get(anchor, 0) + 1
    return counted
