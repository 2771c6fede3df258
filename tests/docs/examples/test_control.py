"""The examples with a server under control: the tests of each language pass, and fail for a program that is wrong.

Each runs as a reader would run it, in a copy of its directory. It uses the packages of the SDK tests (`python
tests/sdk/install.py`), so nothing is fetched twice.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sdk.install import LANGUAGES
from sdk.test_interchange import skip_unless_prepared
from server_process import COMMAND, clean_environment

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "control"
SDK = ROOT / "tests" / "sdk"
SECONDS_MAX = 300
TESTS = 6
"""Every language has the same ones."""

pytestmark = [pytest.mark.sdk, pytest.mark.slow]


def commands(language: str, copy: Path) -> list[list[str]]:
    """The commands that build and run the tests in a copy of the example."""
    if language == "python":
        loaded = ["-p", "no:cacheprovider", "-q"]
        return [[sys.executable, "-m", "pytest", *loaded]]
    if language == "javascript":
        (copy / "node_modules").symlink_to(SDK / "javascript" / "node_modules")
        return [["node", "--test", "--test-reporter=tap"]]
    if language == "go":
        return [["go", "test", "-buildvcs=false", "-count=1", "-v", "./..."]]
    libraries = str(SDK / "java" / "build" / "libraries" / "*")
    sources = map(str, sorted(copy.glob("src/**/*.java")))
    return [
        ["javac", "--release", "11", "-cp", libraries, "-d", str(copy / "classes"), *sources],
        [
            *("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
            *("-cp", os.pathsep.join((str(copy / "classes"), libraries))),
            *("org.junit.platform.console.ConsoleLauncher", "execute", "--disable-banner"),
            *(f"--scan-classpath={copy / 'classes'}", "--disable-ansi-colors"),
        ],
    ]


PASSED = {
    "python": r"\b(\d+) passed",
    "javascript": r"^# pass (\d+)$",
    "go": r"^--- PASS: ",
    "java": r"\[\s*(\d+) tests successful\s*\]",
}
"""How the output reports passed tests: a number, or a line for each test."""


def run(language: str, copy: Path) -> tuple[int, str]:
    """The exit status of the last command, and the output of all."""
    environment = clean_environment() | {"TABLESTONE": COMMAND}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "GOFLAGS": "-mod=mod", "GOPROXY": "off"}
    environment.pop("PYTEST_ADDOPTS", None)
    output, status = "", 0
    for command in commands(language, copy):
        ended = subprocess.run(
            command,
            cwd=copy,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=SECONDS_MAX,
            check=False,
        )
        output, status = output + ended.stdout, ended.returncode
        if status:
            break
    return status, output


def passed(language: str, output: str) -> int:
    found = re.findall(PASSED[language], output, re.MULTILINE)
    return len(found) if language == "go" else sum(map(int, found))


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_tests_of_the_example_pass(language: str, tmp_path: Path) -> None:
    skip_unless_prepared(language)
    copy = shutil.copytree(EXAMPLES / language, tmp_path / language)
    status, output = run(language, copy)
    assert status == 0, output
    assert passed(language, output) == TESTS, output


def test_they_find_a_program_that_ignores_other_writers(tmp_path: Path) -> None:
    copy = shutil.copytree(EXAMPLES / "python", tmp_path / "python")
    source = (copy / "placed_orders.py").read_text("utf-8")
    condition = 'etag=order.metadata["etag"],'
    assert condition in source
    (copy / "placed_orders.py").write_text(source.replace(condition, 'etag="*",'), encoding="utf-8")
    status, output = run("python", copy)
    assert status == 1
    assert passed("python", output) == TESTS - 1, output
