"""The style as a test: sizes, calls that belong to one module, places that may wait, names, and docstrings.

ratchet.toml lists files and functions that are too long already; an entry may only shrink, and is removed in the end.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path, PurePath

import pytest

import tablestone

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tablestone"

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
DOCSTRING_LINES_MAX = 10

CLOCKS = {
    *("datetime.now", "datetime.utcnow", "datetime.today", "date.today"),
    *("time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter"),
    "time.clock_gettime",
}
"""Only clock.py asks the machine for the time: everything else is handed a clock."""
RANDOM_MODULE = "random"
"""Nowhere in the source: what must not be guessed comes from `secrets`, where the server is put together."""

ASYNC_PLACES = {
    "server",
    "testing",
    "identity",
    "engines",
    "explorer/explorer_application.py",
    "explorer/account_switch.py",
    "explorer/page_guard.py",
    "turns.py",
    "tables/service.py",
    "tables/reads.py",
    "tables/table_list.py",
    "tables/cached_rows.py",
    "tables/catalog.py",
    "tables/documents.py",
    "tables/entity_group.py",
    "tables/properties_documents.py",
    "tables/account_incarnation.py",
    "tables/integrity.py",
    "tables/invalidating_change.py",
    "tables/moving.py",
    "tables/storage_probe.py",
    "tables/sweeper.py",
    "tables/sweeping.py",
    "cli/soundness.py",
    "cli/commands/cluster_moving.py",
    "cli/commands/cluster_status.py",
    "cli/commands/role.py",
    "cli/stored_data.py",
    "cli/commands/token.py",
}
"""Everything else can be called from a plain unit test with no loop."""

NAMES_THAT_SAY_NOTHING = {
    *("utils", "util", "helpers", "helper", "common", "misc", "base", "core"),
    *("manager", "managers", "handler", "handlers", "tools", "shared", "lib"),
}

ENGINES_PARTS = {"engine.py", "kind.py", "capabilities.py"}
"""Files that each engine's directory may have, under the same names (docs/decisions/0011-modules.md)."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_files(*directories: str) -> list[Path]:
    return sorted(
        path
        for directory in directories
        for path in (ROOT / directory).rglob("*.py")
        if not {"node_modules", ".packages"} & set(path.parts)
    )


EVERY_FILE = python_files("src", "tests", "bench", "examples", "docs")
SOURCE_FILES = python_files("src")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(tree: ast.AST, outer: str = "") -> Iterator[tuple[str, Function]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield f"{outer}{node.name}", node
        if isinstance(node, Function | ast.ClassDef):
            yield from functions(node, f"{outer}{node.name}.")
        else:
            yield from functions(node, outer)


def own_lines(function: Function) -> int:
    """Lines of a function without those of the functions inside it, which are counted by themselves."""
    inner = [node for _, node in functions(function)]
    nested = sum(own_lines(node) for node in inner)
    return (function.end_lineno or function.lineno) - function.lineno + 1 - nested


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), name_of(path))


def found_in_source(
    search: Callable[[ast.Module], list[str]], but_in: Collection[str] = ()
) -> dict[str, list[str]]:
    """The finds of `search`, by the module; modules and packages of `but_in` are left out."""
    found: dict[str, list[str]] = {}
    for path in SOURCE_FILES:
        place = path.relative_to(SOURCE)
        if place.parts[0] not in but_in and place.as_posix() not in but_in:
            found[name_of(path)] = search(parsed(path))
    return {name: lines for name, lines in found.items() if lines}


def over_the_limit(sizes: dict[str, int], limit: int, ratchet: dict[str, int]) -> list[str]:
    """Files and functions that are longer than the limit and the ratchet allow, and entries that are not needed."""
    wrong = [
        f"{name}: {size} lines, allowed are {ratchet.get(name, limit)}"
        for name, size in sizes.items()
        if size > ratchet.get(name, limit)
    ]
    wrong += [
        f"{name}: the ratchet allows {allowed} lines, needed are {sizes.get(name, 0)}"
        for name, allowed in ratchet.items()
        if allowed > max(sizes.get(name, 0), limit) or sizes.get(name, 0) <= limit
    ]
    return wrong


RATCHET = tomllib.loads((Path(__file__).parent / "ratchet.toml").read_text(encoding="utf-8"))


def test_no_file_is_too_long() -> None:
    sizes = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in EVERY_FILE}
    assert over_the_limit(sizes, FILE_LINES_MAX, RATCHET["file_lines"]) == []


def test_no_function_is_too_long() -> None:
    sizes = {
        f"{name_of(path)}::{name}": own_lines(function)
        for path in EVERY_FILE
        for name, function in functions(parsed(path))
    }
    assert over_the_limit(sizes, FUNCTION_LINES_MAX, RATCHET["function_lines"]) == []


def test_the_ratchet_only_shrinks() -> None:
    sizes = {"short": 70, "grown": 81, "shrunk": 75, "kept": 80}
    ratchet = {"short": 80, "grown": 80, "shrunk": 80, "kept": 80, "gone": 80}
    assert over_the_limit(sizes, 70, ratchet) == [
        "grown: 81 lines, allowed are 80",
        "short: the ratchet allows 80 lines, needed are 70",
        "shrunk: the ratchet allows 80 lines, needed are 75",
        "gone: the ratchet allows 80 lines, needed are 0",
    ]


def test_a_module_says_what_it_knows() -> None:
    lines = {
        path: len((ast.get_docstring(parsed(path)) or "").splitlines()) for path in SOURCE_FILES
    }
    assert [name_of(path) for path in lines if not 0 < lines[path] <= DOCSTRING_LINES_MAX] == []


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
            root, _, rest = ast.unparse(node).partition(".")
            name = ".".join(filter(None, (imported.get(root, root), rest)))
            if any(name == clock or name.endswith(f".{clock}") for clock in CLOCKS):
                found.append(f"{name} in line {node.lineno}")
    return found


def modules_of_one_name(paths: Iterable[PurePath]) -> list[str]:
    """The names that several modules have. Parts of engines and commands do not count."""
    named = [
        path.name
        for path in paths
        if path.name not in {"__init__.py", "__main__.py"}
        and not (path.parts[0] == "engines" and path.name in ENGINES_PARTS)
        and path.parts[:2] != ("cli", "commands")
    ]
    return sorted(name for name, number in Counter(named).items() if number > 1)


def test_no_two_modules_have_one_name() -> None:
    assert modules_of_one_name(path.relative_to(SOURCE) for path in SOURCE_FILES) == []


def test_modules_of_one_name_are_found() -> None:
    paths = (
        "model/keys.py",
        "auth/keys.py",
        "engines/a/kind.py",
        "engines/b/kind.py",
        "auth/kind.py",
    )
    assert modules_of_one_name(map(PurePath, paths)) == ["keys.py"]
    others = ("cli/commands/entity.py", "model/entity.py", "engines/a/read.py", "engines/b/read.py")
    assert modules_of_one_name(map(PurePath, others)) == ["read.py"]


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
    ],
)
def test_a_banned_call_is_found(source: str) -> None:
    assert banned_calls(ast.parse(source)) != []


def compared_signatures(tree: ast.AST) -> list[str]:
    """`==` and `!=` on anything called a signature: only a constant-time comparison may judge one."""
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


def coroutines(tree: ast.Module) -> list[str]:
    return [name for name, node in functions(tree) if isinstance(node, ast.AsyncFunctionDef)]


def test_waiting_is_done_where_it_may_be() -> None:
    assert found_in_source(coroutines, but_in=ASYNC_PLACES) == {}


def test_the_places_for_waiting_exist() -> None:
    assert [place for place in ASYNC_PLACES if not (SOURCE / place).exists()] == []


def test_a_name_says_something() -> None:
    for path in EVERY_FILE:
        names = {path.stem, *path.relative_to(ROOT).parent.parts}
        assert names & NAMES_THAT_SAY_NOTHING == set(), name_of(path)


def test_the_changelog_starts_with_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[([^]]+)\]", changelog, re.MULTILINE)
    assert versions[0] == tablestone.__version__
