"""Rules for compiled modules, so that they behave as they do interpreted.

pyproject.toml lists them, docs/decisions/0007-compiled.md says why. The tests of the service find other differences:
`.ci/run` runs them on the compiled modules, `.ci/long` on the source.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MODULES: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"][
    "modules"
]
CHANGED_CONSTANT = re.compile(
    r"\btablestone\.[a-z_.]+\.([A-Z][A-Z_]+)\b|setattr\(\s*\w+, \"([A-Z_]+)\""
)


@cache
def source_of(module: str) -> str:
    return (ROOT / "src" / f"{module}.py").read_text()


def test_the_list_is_in_order_and_names_what_is_there() -> None:
    assert sorted(set(MODULES)) == MODULES
    assert all(map(source_of, MODULES))


def handlers_of(function: ast.AST) -> Iterator[tuple[str, str]]:
    """The name that each handler binds its exception to, and the types it catches."""
    for node in ast.walk(function):
        if isinstance(node, ast.ExceptHandler) and node.name is not None and node.type is not None:
            yield node.name, ast.unparse(node.type)


@pytest.mark.parametrize("module", MODULES)
def test_exceptions_of_two_types_have_two_names(module: str) -> None:
    """A compiled name has the type of its first binding; binding an exception of another type raises `TypeError`."""
    for function in ast.walk(ast.parse(source_of(module))):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            found = set(handlers_of(function))
            assert len({name for name, _ in found}) == len(found), function.name


def suspended_with_an_error(tree: ast.AST) -> Iterator[int]:
    """The lines of every await that may run while an exception is handled."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncWith):
            yield node.lineno
        if isinstance(node, ast.Try):
            for part in (*node.handlers, *node.finalbody):
                for found in ast.walk(part):
                    if isinstance(found, ast.Await | ast.AsyncFor | ast.Yield | ast.YieldFrom):
                        yield found.lineno


@pytest.mark.parametrize("module", MODULES)
def test_nothing_waits_while_an_exception_is_handled(module: str) -> None:
    """While a compiled coroutine waits, its exception stays in the thread, where another task takes or loses it."""
    assert list(suspended_with_an_error(ast.parse(source_of(module)))) == []


@pytest.mark.parametrize(
    "source",
    [
        "async def f():\n async with g: pass",
        "async def f():\n try: g()\n except E: await h()",
        "async def f():\n try: g()\n finally:\n  if i: await h()",
        "async def f():\n try: g()\n except E:\n  async for i in h: pass",
        "def f():\n try: g()\n except E: yield",
    ],
)
def test_a_wait_while_an_exception_is_handled_is_found(source: str) -> None:
    assert list(suspended_with_an_error(ast.parse(source)))


@pytest.mark.parametrize("module", MODULES)
def test_no_protocol_is_asked_for_at_run_time(module: str) -> None:
    """`runtime_checkable` rejects compiled classes, so the program would not start."""
    assert "import runtime_checkable" not in source_of(module)
    assert "@runtime_checkable" not in source_of(module)


def test_no_test_changes_a_constant_that_is_compiled_in() -> None:
    """It would change nothing: the compiler puts the value of a `Final` in its place."""
    changed = {
        name
        for path in (ROOT / "tests").rglob("*.py")
        for names in CHANGED_CONSTANT.findall(path.read_text())
        for name in names
        if name
    }
    assert "BODY_READ_SECONDS_MAX" in changed
    users = [module for module in MODULES if module != "tablestone/limits"]
    used = {
        name for name in changed for user in users if re.search(rf"\b{name}\b", source_of(user))
    }
    assert not used
