"""Every test of tests/sdk/go (aztables, unmodified) as a test here.

The compiled tests run once, against the session's endpoint; this file only reads Go's report.
"""

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from sdk.endpoint import Endpoint, environment_for
from sdk.install import language

GO = Path(__file__).with_name("go")
NAMES = [
    name
    for source in sorted(GO.glob("*_test.go"))
    for name in re.findall(r"^func (Test\w+)\(t \*testing\.T\)", source.read_text(), re.MULTILINE)
]
SECONDS_MAX = 600

pytestmark = pytest.mark.sdk


class Run(NamedTuple):
    """One run of the compiled tests: verdict and output by test, and the whole text."""

    verdicts: dict[str, str]
    outputs: dict[str, str]
    everything: str


@pytest.fixture(scope="session")
def run(endpoint: Endpoint) -> Run:
    reason = language("go").missing()
    if reason is not None:
        pytest.skip(reason)
    finished = subprocess.run(
        [GO / "build" / "tables.test", "-test.v", f"-test.timeout={SECONDS_MAX}s"],
        env=environment_for(endpoint),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=SECONDS_MAX + 10,
        check=False,
    )
    return parse(finished.stdout)


def parse(text: str) -> Run:
    verdicts: dict[str, str] = {}
    outputs: dict[str, str] = {}
    current = ""
    for line in text.splitlines():
        if started := re.fullmatch(r"=== RUN +(\w+)", line):
            current = started[1]
        if ended := re.fullmatch(r"--- (PASS|FAIL|SKIP): (\w+) \(.*\)", line):
            verdicts[ended[2]] = ended[1]
        if not re.match(r" *(=== |--- PASS)", line):
            outputs[current] = outputs.get(current, "") + line + "\n"
    return Run(verdicts, outputs, text)


@pytest.mark.parametrize("name", NAMES)
def test_aztables(run: Run, name: str) -> None:
    verdict = run.verdicts.get(name)
    if verdict is None:
        pytest.fail(f"{name} did not end:\n{run.everything[-4000:]}", pytrace=False)
    if verdict != "PASS":
        pytest.fail(f"{verdict}\n{run.outputs.get(name, '')}", pytrace=False)


def test_every_test_is_reported(run: Run) -> None:
    assert sorted(run.verdicts) == sorted(NAMES)
