"""@azure/data-tables under Node: each `test(...)` of tests/sdk/javascript/*.test.mjs is a test here."""

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sdk.endpoint import Endpoint, environment_for
from sdk.install import language

pytestmark = pytest.mark.sdk

HERE = Path(__file__).parent / "javascript"
FILE_SECONDS_MAX = 600
# A name may end in a loop variable, `test("update: " + mode, ...`: then it is the beginning of several names.
DECLARED = re.compile(r'^\s*test\("([^"]+)"( \+ )?', re.MULTILINE)


def declared() -> list[tuple[str, str, bool]]:
    """(file, name, whether the name is only a beginning) of every test at the top level of a file."""
    return [
        (path.name, name, bool(joined))
        for path in sorted(HERE.glob("*.test.mjs"))
        for name, joined in DECLARED.findall(path.read_text(encoding="utf-8"))
    ]


@cache
def outcome_of(file: str, endpoint: Endpoint) -> tuple[list[dict[str, Any]], str]:
    """Every finished test of one file, subtests before their parent; and Node's output."""
    command = [language("javascript").interchange()[0], "--test-reporter", "./reporter.mjs", file]
    ended = subprocess.run(
        command,
        cwd=HERE,
        env=environment_for(endpoint),
        capture_output=True,
        encoding="utf-8",
        timeout=FILE_SECONDS_MAX,
        check=False,
    )
    events = [json.loads(line) for line in ended.stdout.split("\n") if line.startswith("{")]
    return events, ended.stdout + ended.stderr


def test_every_javascript_test_is_known_here() -> None:
    """A test that the pattern misses would never run."""
    for path in HERE.glob("*.test.mjs"):
        calls = re.findall(r"^\s*test\(", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(calls) == sum(file == path.name for file, _, _ in declared()), path.name


@pytest.mark.parametrize(("file", "name", "is_beginning"), declared())
def test_javascript(file: str, name: str, is_beginning: bool, endpoint: Endpoint) -> None:  # noqa: FBT001
    reason = language("javascript").missing()
    if reason is not None:
        pytest.skip(reason)
    events, said = outcome_of(file, endpoint)
    failures: list[str] = []
    pending: list[str] = []
    found = 0
    for event in events:
        if not event["passed"]:
            pending.append(f"{event['name']}: {event['error']}")
        if event["nesting"] == 0:
            if event["name"].startswith(name) if is_beginning else event["name"] == name:
                found += 1
                failures += pending
            pending = []
    assert found >= 1, f"{file} ended without this test:\n{said}"
    assert not failures, "\n\n".join(failures)
