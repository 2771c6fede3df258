"""`tablestone demo`: the tables, the hot partition and the scan in the report, and its end."""

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from cli.command_line import tablestone
from server_process import COMMAND, clean_environment

SECONDS_MAX = 60


@pytest.fixture
def demo() -> Iterator[subprocess.Popen[str]]:
    """The demo on free ports, in a group of processes as a shell makes it."""
    # The user's own server has a data directory.
    environment = clean_environment() | {"TABLESTONE_DATA": "/nowhere"}
    with subprocess.Popen(
        [COMMAND, "demo", "--port", "0", "--admin", "0", "--no-browser"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        yield process
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def reported(admin: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{admin}/insight") as answer:
        report: dict[str, Any] = json.load(answer)
    return report


def test_the_demo_has_a_hot_partition_and_a_scan(demo: subprocess.Popen[str]) -> None:
    assert demo.stdout is not None
    explorer = demo.stdout.readline().removeprefix("Explorer: ").strip()
    assert demo.stdout.readline().startswith("Table endpoint: http://127.0.0.1:")
    said = demo.stdout.readline()
    assert "The tables Airports, Flights and Weather" in said
    assert "Its tab Changes shows what the workload writes" in said
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(explorer) as page:
        assert page.status == 200
    with browser.open(explorer.partition("?")[0] + "tables/Flights/changes") as page:
        assert b"changes.pause" in page.read()
    admin = explorer.partition("/explorer/")[0]
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        report = reported(admin)
        scans = [each for each in report["queries"]["hour"] if each["filter"] == "tailnum eq ?"]
        if scans and scans[0]["queries"] > 1:
            break
        assert time.monotonic() < deadline
        time.sleep(0.2)
    hottest = report["partitions"]["hour"][0]
    assert (hottest["table"], hottest["partition_key"]) == ("Flights", "UA")
    assert scans[0]["entities_read"] == 842 * scans[0]["queries"]
    assert scans[0]["entities_returned"] == 4 * scans[0]["queries"]

    os.killpg(demo.pid, signal.SIGINT)  # Ctrl+C
    _, stderr = demo.communicate(timeout=SECONDS_MAX)
    assert (demo.returncode, stderr) == (0, "")
    with pytest.raises(ProcessLookupError):  # none of its processes is left
        os.killpg(demo.pid, 0)


def test_the_server_says_why_it_does_not_start() -> None:
    ended = tablestone("demo", "--port", "x", "--no-browser")
    assert (ended.status, ended.lines) == (2, [])
    assert ended.stderr == "tablestone: --port must be a number from 0 to 65535, not 'x'.\n"
