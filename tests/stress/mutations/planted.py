"""The list of planted bugs, and a copy of the source with one of them.

Knows mutations.toml, and how to run the tests on another source.
"""

import compileall
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
SOURCE: Final = ROOT / "src" / "tablestone"
LIST: Final = Path(__file__).parent / "mutations.toml"
SECONDS_MAX: Final = 300
"""For half of all tests, on the source as it is."""
PLANTED_SECONDS_MAX: Final = 100
"""For the tests of one bug, which take some ten seconds."""
PASSED, FAILED, ENDLESS = 0, 1, -1
"""The exit statuses with which pytest judges, and that of tests which did not end in time.

Any other says that the tests could not run.
"""


@dataclass(frozen=True)
class Mutation:
    """A change of one file below src/tablestone, and the tests that have to fail: arguments of pytest, with -k."""

    name: str
    file: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...]

    def arguments(self) -> list[str]:
        """The arguments of pytest. An unquoted expression follows the file that it selects from."""
        (tests,) = self.tests
        place, dash, expression = tests.partition(" -k ")
        return [place, "-k", expression] if dash else [place]


def read_list(path: Path = LIST) -> list[Mutation]:
    listed = tomllib.loads(path.read_text("utf-8"))["mutation"]
    return [Mutation(**{**each, "tests": tuple(each["tests"])}) for each in listed]


def touched_since(commit: str, mutations: Iterable[Mutation]) -> list[Mutation]:
    """The mutations whose file, tests or row have changed since the commit; all, if git does not know it."""
    changed = _git("diff", "--name-only", commit, "--")
    earlier = _git("show", f"{commit}:{LIST.relative_to(ROOT).as_posix()}")
    if changed is None or earlier is None:
        return list(mutations)
    paths = set(changed.splitlines())
    rows = tomllib.loads(earlier)["mutation"]
    return [
        each
        for each in mutations
        if (SOURCE / each.file).relative_to(ROOT).as_posix() in paths
        or each.arguments()[0].partition("::")[0] in paths
        or asdict(each) | {"tests": list(each.tests)} not in rows
    ]


def _git(*words: str) -> str | None:
    """Git's output; None if it fails, or is not there."""
    try:
        ended = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return ended.stdout if ended.returncode == 0 else None


class CopiedSource:
    """A copy of src/tablestone with one mutation at a time."""

    def __init__(self, directory: Path) -> None:
        self._path = directory
        self._package = directory / "tablestone"
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(SOURCE, self._package, ignore=ignored)
        compileall.compile_dir(self._package, quiet=2)

    def run(self, mutation: Mutation) -> int:
        """The exit status of pytest with this mutation."""
        changed = self._package / mutation.file
        text = changed.read_text("utf-8")
        if text.count(mutation.old) != 1:
            raise ValueError(f"{mutation.name}: its text is not once in {mutation.file}")
        self._write(changed, text.replace(mutation.old, mutation.new))
        try:
            return self.tests(mutation.arguments(), PLANTED_SECONDS_MAX)
        finally:
            self._write(changed, text)

    def tests(self, arguments: Iterable[str], seconds_max: float = SECONDS_MAX) -> int:
        """The exit status of pytest on the copy as it is."""
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "pytest", "-n", "0", "-x", "-p", "no:cacheprovider"),
                *("--quiet", "--no-header", "--tb=no", *arguments),
            ],
            cwd=ROOT,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=seconds_max)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with the servers of the tests
            process.communicate()
            return ENDLESS
        if process.returncode not in (PASSED, FAILED):
            print(printed, file=sys.stderr)
        return process.returncode

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, (str(self._path), os.environ.get("PYTHONPATH"))))
        return os.environ | {
            "PYTHONPATH": path,
            # Another mutation may have the same length, and be written within the same second.
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_PROFILE": "unshrunk",
        }

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.write_text(text, "utf-8")
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()


def command_of(mutation: Mutation) -> str:
    """The command that runs a mutation's tests."""
    return f"pytest {shlex.join(mutation.arguments())}"
