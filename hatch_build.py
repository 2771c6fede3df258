"""How a wheel is built: mypyc compiles the modules that run for each request to C, if there is a C compiler.

The compiler also makes the function that decides hints for SQLite (`engines/sqlite/row_hints.c`).

The wheel contains the typed source either way; docs/decisions/0007-compiled.md says why, and what compiling gains. If
the modules or the function do not compile, the wheel has the other, or the source alone. An editable installation is
never compiled; `HATCH_BUILD_NO_HOOKS=true` turns compiling off for any other. The user's cache directory keeps what was
compiled whole, so that the same source is compiled once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import version as version_of
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    from setuptools import Extension


class CompiledModules(BuildHookInterface[Any]):
    """Compiles `modules`, which pyproject.toml lists, and puts the results into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds a wheel."""
        if version == "editable":
            return
        self._directory = tempfile.TemporaryDirectory(prefix="tablestone-build-")
        try:
            work = Path(self._directory.name)
            source, modules = Path(self.root, "src"), self.config["modules"]
            built = work / "so"
            kept = cache_entry(source, modules)
            if taken(kept, built):
                self.app.display_info(f"{len(modules)} modules are compiled already: {kept}")
            else:
                self.app.display_info(f"Compiling {len(modules)} modules")
                shutil.copytree(
                    source, work / "src", ignore=shutil.ignore_patterns("__pycache__", "*.so")
                )
                failures = [*_compile(work, MODULES, modules), *_compile(work, HINTS, [])]
                for failure in failures:
                    self.app.display_warning(failure)
                if not failures:
                    keep(built, kept)
            compiled = {
                str(path): path.relative_to(built).as_posix()
                for path in sorted(built.rglob("*.so"))
            }
        except Exception as error:  # noqa: BLE001 - the source runs on a machine that lacks a compiler
            self.app.display_warning(f"Nothing is compiled: {error}")
            return
        if not compiled:
            return
        build_data["force_include"].update(compiled)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, _version: str, _build_data: dict[str, Any], _artifact_path: str) -> None:
        """Called when the wheel exists."""
        if hasattr(self, "_directory"):
            self._directory.cleanup()


ENTRIES_MAX = 4
"""How many entries the cache keeps: those that were used last."""


def cache_entry(source: Path, modules: list[str]) -> Path:
    """The cache entry for these modules; its name covers everything that the result depends on."""
    compiler = _compiler()
    depends = hashlib.sha256()
    for text in (
        Path(__file__).read_text("utf-8"),
        *(version_of("mypy"), sys.version, sysconfig.get_platform()),
        *(*compiler.compiler_so, *compiler.linker_so),
        subprocess.check_output([compiler.compiler_so[0], "--version"], text=True),  # noqa: S603 - the compiler
        *modules,
    ):
        depends.update(text.encode() + b"\0")
    # Modules that are not compiled count too: mypy reads the types in them.
    for path in sorted(each for each in source.rglob("*") if each.suffix in {".py", ".c", ".h"}):
        depends.update(path.relative_to(source).as_posix().encode() + b"\0")
        depends.update(hashlib.sha256(path.read_bytes()).digest())
    directory = platformdirs.user_cache_path("tablestone-build", appauthor=False)
    return directory / f"{depends.hexdigest()}.zip"


def taken(entry: Path, built: Path) -> bool:
    """Copy the entry's shared libraries below `built`; returns whether the cache has it."""
    try:
        if entry.stat().st_uid != os.getuid():  # under sudo, the cache may be another user's
            return False
        shutil.unpack_archive(entry, built)
        entry.touch()
    except Exception:  # noqa: BLE001 - each damage of an archive has an exception of its own
        shutil.rmtree(built, ignore_errors=True)
        return False
    for library in built.rglob("*.so"):
        library.chmod(0o755)  # as the linker leaves it; unpacking an archive loses that
    return True


def keep(built: Path, entry: Path) -> None:
    """Put the shared libraries below `built` into the cache, atomically; do nothing if there is no cache."""
    with suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        handle, written = tempfile.mkstemp(".zip", dir=entry.parent)
        os.close(handle)
        shutil.make_archive(written.removesuffix(".zip"), "zip", built)
        Path(written).replace(entry)
        entries = sorted(entry.parent.glob("*.zip"), key=lambda each: each.stat().st_mtime)
        for oldest in entries[:-ENTRIES_MAX]:
            oldest.unlink()


MODULES, HINTS = "modules", "row_hints"
"""What is compiled. Each does without the other: without the modules the source runs, without the function SQL does."""


def _compile(work: Path, what: str, modules: list[str]) -> list[str]:
    """Put the shared libraries below `work / "so"`, at their places in the wheel; returns why there are none.

    A wheel must have the same bytes each time, and mypyc writes C in the order of sets of names and paths. So a process
    of its own compiles, with a fixed hash seed, a copy whose paths are always the same.
    """
    ended = subprocess.run(  # noqa: S603 - this file
        [sys.executable, __file__, what, *modules],
        cwd=work,
        env={name: value for name, value in os.environ.items() if name != "MYPYPATH"}
        | {"PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if ended.returncode == 0:
        shutil.copytree(work / what, work / "so", dirs_exist_ok=True)
        return []
    reason = ended.stdout.strip().rpartition("\n")[2] or "the compiler ended"
    return [f"{what}: not compiled: {reason}"]


def _compile_modules(modules: list[str]) -> None:
    from mypyc.build import mypycify  # noqa: PLC0415 - its absence must not stop a build

    extensions = mypycify(
        [
            "--config-file=",
            "--no-namespace-packages",  # a checkout below somebody's package would become a part of that
            "--cache-dir=cache",
            # A wheel that is built in an environment of its own has none of the libraries. Where they are present,
            # their types would change the result.
            "--no-site-packages",
            "--ignore-missing-imports",
            *(f"src/{module}.py" for module in modules),
        ],
        # A higher level takes longer to compile, and the result is no faster.
        opt_level="1",
        debug_level="0",
        multi_file=True,
        target_dir="c",
        group_name="tablestone",
    )
    strangers = [each.name for each in extensions if not each.name.startswith("tablestone")]
    if strangers:
        raise ValueError(f"{strangers[0]} is not a module of ours")
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for extension in extensions:
        _link(extension, Path(MODULES, extension.name.replace(".", "/") + suffix))


def _compile_hints() -> None:
    from setuptools import Extension  # noqa: PLC0415 - its absence must not stop a build

    place = f"tablestone/engines/sqlite/{HINTS}"
    hints = Extension(
        place,
        [f"src/{place}.c"],
        include_dirs=["src/vendored/sqlite"],
        # What debuggers read names the temporary directory.
        extra_compile_args=["-O2", "-g0", "-fvisibility=hidden"],
    )
    _link(hints, Path(HINTS, place).with_name(f"lib{HINTS}.so"))


def _link(extension: Extension, library: Path) -> None:
    """Compiles the files of an extension in parallel, which setuptools does not, and links them."""

    def compiled(file: str) -> list[str]:
        return _compiler().compile(
            [file],
            output_dir="o",
            include_dirs=[*extension.include_dirs, sysconfig.get_path("include")],
            extra_postargs=extension.extra_compile_args,
        )

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        made = [name for names in threads.map(compiled, extension.sources) for name in names]
    _compiler().link_shared_object(made, str(library), extra_postargs=extension.extra_link_args)


def _compiler() -> Any:
    """The compiler that Python was built with, or that CC names; if it is missing, the system's own."""
    from distutils.ccompiler import new_compiler  # noqa: PLC0415
    from distutils.sysconfig import customize_compiler  # noqa: PLC0415

    import setuptools  # noqa: PLC0415, F401 - brings distutils, which Python has no more

    if shutil.which(sysconfig.get_config_var("CC").split()[0]) is None:
        os.environ.setdefault("CC", "cc")
    compiler = new_compiler()
    customize_compiler(compiler)
    return compiler


if __name__ == "__main__":
    if sys.argv[1] == MODULES:
        _compile_modules(sys.argv[2:])
    else:
        _compile_hints()
