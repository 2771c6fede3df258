"""The source asks one module for the time, draws no guessable numbers, and compares signatures in constant time."""

import ast
import re
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tablestone"
SOURCE_FILES = sorted(SOURCE.rglob("*.py"))

CLOCKS = (
    *(".datetime.now", ".datetime.utcnow", ".datetime.today", ".date.today"),
    *(".time.time", ".time.time_ns", ".time.monotonic", ".time.monotonic_ns"),
    *(".time.perf_counter", ".time.clock_gettime"),
)
"""Only clock.py asks the machine for the time; everything else is handed a clock."""
RANDOM_MODULE = "random"
"""Nowhere in the source: what must not be guessed comes from `secrets`, where the server is put together."""


def found_in_source(
    search: Callable[[ast.Module], list[str]], but_in: Collection[str] = ()
) -> dict[str, list[str]]:
    """What `search` finds, by module, without the modules in `but_in`."""
    found: dict[str, list[str]] = {}
    for path in SOURCE_FILES:
        if path.relative_to(SOURCE).as_posix() not in but_in:
            found[path.relative_to(ROOT).as_posix()] = search(tree_of(path))
    return {name: lines for name, lines in found.items() if lines}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def dotted(node: ast.expr) -> str:
    """A name with its attributes, such as `time.time`; of another expression, only its attributes."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def banned_calls(tree: ast.AST) -> list[str]:
    """Calls that ask for the time, and anything of `random`, however it was imported."""
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {
                alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names
            }
    found = [name for name in imported.values() if name.split(".")[0] == RANDOM_MODULE]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            root, _, rest = dotted(node).partition(".")
            name = ".".join(filter(None, (imported.get(root, root), rest)))
            if f".{name}".endswith(CLOCKS):
                found.append(f"{name} in line {node.lineno}")
    return found


def test_time_and_chance_are_arguments() -> None:
    assert found_in_source(banned_calls, but_in=("clock.py",)) == {}


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.time()",
        "import time as t\nt.monotonic()",
        "from time import time_ns\ntime_ns()",
        "from datetime import datetime\ndatetime.now(tz)",
        "import datetime as d\nd.datetime.now(tz)",
        "from datetime import datetime as moment\nlater = moment.utcnow",
        "import random",
        "from random import choice",
        "import time\nclock = zones[0](time.time)",
        "modules().time.time()",
    ],
)
def test_a_banned_call_is_found(source: str) -> None:
    assert banned_calls(ast.parse(source)) != []


def compared_signatures(tree: ast.AST) -> list[str]:
    """`==` and `!=` on anything called a signature, which needs a constant-time comparison."""
    return [
        f"{ast.unparse(node)} in line {node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and any(isinstance(operator, ast.Eq | ast.NotEq) for operator in node.ops)
        and any(
            re.search(r"\b(\w*signature|sig)\b(?!\()", ast.unparse(operand))
            for operand in (node.left, *node.comparators)
            if not isinstance(operand, ast.Constant)
        )
    ]


def test_signatures_are_compared_in_constant_time() -> None:
    assert found_in_source(compared_signatures) == {}


def test_a_compared_signature_is_found() -> None:
    assert compared_signatures(ast.parse("given.signature == expected")) != []
    assert compared_signatures(ast.parse("x != sig")) != []
    assert compared_signatures(ast.parse("kind == 'signature'")) == []
