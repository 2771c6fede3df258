"""Every test of tests/sdk/java as a test here: azure-data-tables for Java, and its predecessor azure-storage.

JUnit runs the compiled tests once, against the session's endpoint; this file only reads JUnit's report.
"""

import re
import subprocess
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest

from sdk.endpoint import Endpoint, environment_for
from sdk.install import language

JAVA = Path(__file__).with_name("java")
NAMES = [
    f"{source.stem}.{name}"
    for source in sorted(JAVA.glob("src/test/java/**/*Test.java"))
    for name in re.findall(r"@Test\s+void (\w+)\(\)", source.read_text(encoding="utf-8"))
]
SECONDS_MAX = 600

pytestmark = pytest.mark.sdk


class Run(NamedTuple):
    """One run of the compiled tests: each test's failure ("" for none), and the whole text."""

    failures: dict[str, str]
    everything: str


@pytest.fixture(scope="session")
def run(endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Run:
    reason = language("java").missing()
    if reason is not None:
        pytest.skip(reason)
    reports = tmp_path_factory.mktemp("junit")
    # The interchange program's argument vector, with JUnit's console as the main class.
    command = [
        *language("java").interchange()[:-1],
        "org.junit.platform.console.ConsoleLauncher",
        "execute",
        f"--scan-classpath={JAVA / 'build' / 'test-classes'}",
        f"--reports-dir={reports}",
        "--details=none",
        "--disable-banner",
    ]
    finished = subprocess.run(
        command,
        env=environment_for(endpoint),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=SECONDS_MAX,
        check=False,
    )
    failures: dict[str, str] = {}
    for report in reports.glob("TEST-*.xml"):
        failures |= parse(report)
    return Run(failures, finished.stdout)


def parse(report: Path) -> dict[str, str]:
    failures: dict[str, str] = {}
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - our own JUnit wrote it
        name = f"{case.attrib['classname'].rpartition('.')[2]}.{case.attrib['name'].removesuffix('()')}"
        failed = [child for child in case if child.tag in {"failure", "error", "skipped"}]
        failures[name] = "\n".join(f"{child.tag}: {child.text}" for child in failed)
    return failures


@pytest.mark.parametrize("name", NAMES)
def test_the_sdk_of_java(run: Run, name: str) -> None:
    failure = run.failures.get(name)
    if failure is None:
        pytest.fail(f"{name} did not end:\n{run.everything[-4000:]}", pytrace=False)
    if failure:
        pytest.fail(failure, pytrace=False)


def test_every_test_is_reported(run: Run) -> None:
    assert sorted(run.failures) == sorted(NAMES)
