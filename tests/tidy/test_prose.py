"""Plain English in documents, docstrings and comments: a noun is the subject, and some turns of phrase are refused.

The rules are regular expressions, so they find the usual slips and no others. `ALLOWED` names what they find wrongly.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IGNORED = {"node_modules", ".packages", ".work", ".cache", ".venv", "venv"}
DOCUMENTS = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not IGNORED & set(path.relative_to(ROOT).parts) and not path.parts[-2].startswith(".")
)
MODULES = sorted(
    path
    for place in ("src", "tests")
    for path in (ROOT / place).rglob("*.py")
    if not IGNORED & set(path.relative_to(ROOT).parts)
)

CLAUSE_AS_SUBJECT = re.compile(
    r"(?:^|(?<=[.!?] ))(?:[-*] |\d+\. )?(?:\*\*)?(?:Who|What|Whoever|Whatever)\b[^.?!]*[.:](?= |\*|$)"
    r"|(?<=; )(?:who|what)\b[^.?!]*[.:](?= |$)"
)
"""A sentence, or its part after a semicolon, that begins with who or what, and is no question and no label."""
PHRASES = re.compile(
    r"\b(?:but for|anew|nobody|somebody|whoever|meanwhile|had over|without a word|so it is (?:while|with)|be it"
    r"|stands here|(?:is|are) believed)\b",
    re.IGNORECASE,
)
ALLOWED: frozenset[str] = frozenset()
"""Findings, as the tests print them, that are good English all the same."""

_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_INDENTED = re.compile(r"(?:^|\n\n)(?:(?: {4}|\t).*\n?)+")
_CODE = re.compile(r"``.+?``|`[^`]*`", re.DOTALL)
_MARKER = re.compile(r"^(?:noqa: [A-Z0-9, ]+(?: - )?|type: ignore\S*)")
_QUOTED = re.compile(r'"[^"]*"')


def paragraphs(markdown: str) -> Iterator[str]:
    """The prose of a document, each paragraph, item of a list and cell of a table on one line; without headings."""
    text = _COMMENT.sub("", _FENCED.sub("", markdown))
    text = _CODE.sub("CODE", _INDENTED.sub("\n\n", text))
    text = re.sub(r"^#.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\n(?=\s*(?:[-*>] |\d+\. |\|))", "\n\n", text)
    for block in re.split(r"\n\s*\n", text):
        line = " ".join(_QUOTED.sub('"QUOTED"', block).split())
        if line.startswith("|"):
            yield from (cell.strip() for cell in line.strip("|").split("|"))
        elif line:
            yield line


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def prose_of(source: str) -> str:
    """The docstrings and comments of a Python file, as paragraphs; successive lines of comments are one."""
    found = [
        inspect.cleandoc(node.value.value)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        comment = _MARKER.sub("", token.string.lstrip("#! "))
        if token.start[0] == last + 1:
            found[-1] += f"\n{comment}"
        else:
            found.append(comment)
        last = token.start[0]
    return "\n\n".join(found)


def findings(markdown: str) -> list[str]:
    """The sentences and phrases that the rules refuse, as they are written in the text."""
    found = []
    for paragraph in paragraphs(markdown):
        for rule in (CLAUSE_AS_SUBJECT, PHRASES):
            found += [match[0].strip() for match in rule.finditer(paragraph)]
    return [each for each in found if each not in ALLOWED]


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_a_document_is_plain_english(document: Path) -> None:
    assert findings(document.read_text(encoding="utf-8")) == []


def test_every_module_is_plain_english() -> None:
    found = {path: findings(prose_of(path.read_text(encoding="utf-8"))) for path in MODULES}
    assert {name_of(path): sentences for path, sentences in found.items() if sentences} == {}


@pytest.mark.parametrize(
    "planted",
    [
        "Who meets its lock sleeps and asks again.",
        "It has a lock. What only inserts is one statement.",
        "- **What is stored** is the answer.",
        "It is fair; who comes first is served first.",
        "Rows go; nobody reads them.",
        "| a cell | The certificate is made anew. |",
        "They are written\nmeanwhile.",
        "The rule stands here.",
        "# A heading\nWho reads this is a reader.",
    ],
)
def test_a_planted_sentence_is_found(planted: str) -> None:
    assert len(findings(f"# What a heading may say\n\n{planted}\n\nWhat is a question?\n")) == 1


@pytest.mark.parametrize(
    "plain",
    [
        "The page says who may do what, and what the server never does.",
        "`nobody` is code.\n\n    nobody = indented code\n",
        "What does it cost?",
        "## What is tested, and how",
        "| What is tested, and how | [Testing](testing.md) |",
    ],
)
def test_plain_english_passes(plain: str) -> None:
    assert findings(plain) == []


@pytest.mark.parametrize(
    "planted",
    [
        '"""What a module holds."""',
        'LIMIT = 1\n"""Seconds.\n\nWho waits, waits so long."""',
        "limit = 1  # it is made anew",
        "# A comment begins here and\n# nobody reads its end.",
        "call()  # noqa: BLE001 - nobody reads this",
        'def f():\n    """Wait.\n\n    What is left is for others.\n    """',
    ],
)
def test_a_sentence_that_is_planted_in_a_module_is_found(planted: str) -> None:
    assert len(findings(prose_of(f'"""A module."""\n\n{planted}\n'))) == 1


def test_code_is_no_prose() -> None:
    assert findings(prose_of('nobody = "Who is it."\nmeanwhile = "What it is."\n')) == []
