"""What a build compiles if one of its parts does not: the modules and the function for hints do without each other."""

import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from hint_ways import HEADERS, SOURCE, needs_compiler

pytest.importorskip("hatchling", reason="pip install '.[deploy]'")
pytest.importorskip("mypyc", reason="pip install '.[dev]'")

hatch_build: Any = import_module("hatch_build")
MODULE, FUNCTION = "tablestone/clock", "tablestone/engines/sqlite/row_hints"
NOT_LINKED = '__attribute__((visibility("hidden"))) int absent(void);\nint calls(void) { return absent(); }\n'
FAULTS: dict[str, tuple[dict[str, str], set[str], list[str]]] = {
    "none": ({}, {"clock", "librow_hints"}, []),
    "C is not understood": ({"c": "#error\n"}, {"clock"}, ["row_hints"]),
    "C does not link": ({"c": NOT_LINKED}, {"clock"}, ["row_hints"]),
    "a module has wrong types": ({"py": "NOW: int = ''\n"}, {"librow_hints"}, ["modules"]),
    "both": ({"c": "#error\n", "py": "NOW: int = ''\n"}, set(), ["modules", "row_hints"]),
}


class App:
    """What hatchling shows."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def display_info(self, message: str) -> None:
        """Of no interest here."""

    def display_warning(self, message: str) -> None:
        self.warnings.append(message)


@needs_compiler
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_one_part_that_does_not_compile_leaves_the_other(
    fault: tuple[dict[str, str], set[str], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    added, compiled, parts = fault
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    function = tmp_path / "src" / f"{FUNCTION}.c"
    function.parent.mkdir(parents=True)
    function.write_text(SOURCE.read_text("utf-8") + added.get("c", ""), "utf-8")
    shutil.copytree(HEADERS, tmp_path / "src" / "vendored" / "sqlite")
    (tmp_path / "src" / "tablestone" / "__init__.py").touch()
    (tmp_path / "src" / f"{MODULE}.py").write_text("NOW = 1\n" + added.get("py", ""), "utf-8")
    app = App()
    built: dict[str, Any] = {"force_include": {}, "pure_python": True, "infer_tag": False}
    hook = hatch_build.CompiledModules(
        str(tmp_path), {"modules": [MODULE]}, None, None, "", "wheel", app
    )
    hook.initialize("standard", built)
    names = {Path(place).name.partition(".")[0] for place in built["force_include"].values()}
    assert {name for name in names if "mypyc" not in name} == compiled
    assert all(Path(library).exists() for library in built["force_include"])
    assert [warning.partition(":")[0] for warning in app.warnings] == parts
    assert built["pure_python"] is not bool(compiled)
    assert built["infer_tag"] is bool(compiled)
    assert any((tmp_path / "cache").rglob("*.zip")) is not bool(parts), "a failure may pass"
    hook.finalize("standard", built, "")


def test_without_a_compiler_the_source_is_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/nowhere/cc")
    app = App()
    built: dict[str, Any] = {"force_include": {}, "pure_python": True, "infer_tag": False}
    hook = hatch_build.CompiledModules(
        str(tmp_path), {"modules": [MODULE]}, None, None, "", "wheel", app
    )
    hook.initialize("standard", built)
    assert app.warnings[0].startswith("Nothing is compiled: ")
    assert built == {"force_include": {}, "pure_python": True, "infer_tag": False}
    hook.finalize("standard", built, "")
