"""SIGKILL at random moments of an import and of a copy: run again, each finishes, and the table is right.

TRANSFER_KILLS is how often each is killed at least; the default is small. `test_kill_moments` has the exact moments.
"""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import StartServer
from tools.data_tools import DataTools, entity

KILLS = int(os.environ.get("TRANSFER_KILLS", "2"))
ENTITIES = [entity(f"p{n // 3000}", f"{n:06}", n=n, s="x" * 200) for n in range(12_000)]
pytestmark = [pytest.mark.crash, pytest.mark.slow]
FIRST_MOMENT = 0.3
"""The earliest kill, as a share of the time of an undisturbed run: the command has begun by then."""
LATER_EACH = 0.05
"""Each kill of a run comes later by this share, so that a run on a machine that gets busy ends too."""


def seconds_of(tools: DataTools, arguments: tuple[str, ...]) -> float:
    """The time of a whole run, on this machine as busy as it is now."""
    started = time.monotonic()
    process = tools.start(*arguments)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr
    return time.monotonic() - started


def run_with_kills(
    tools: DataTools, chance: random.Random, seconds: float, arguments: tuple[str, ...]
) -> int:
    """Start the command and kill it, until it prints its report. Returns the number of kills."""
    kills = 0
    while True:
        process = tools.start(*arguments)
        moment = chance.uniform(FIRST_MOMENT, 1.1) + LATER_EACH * kills
        try:
            process.wait(moment * seconds)
        except subprocess.TimeoutExpired:
            process.kill()
        stdout, stderr = process.communicate(timeout=60)
        assert process.returncode in (0, -signal.SIGKILL), stderr
        if process.returncode == 0 or stdout:
            return kills
        kills += 1


@pytest.mark.parametrize("rule", ["fail", "replace", "merge", "skip"])
def test_an_import_that_is_killed_ends_equal(tools: DataTools, table: str, rule: str) -> None:
    path = tools.write_lines("a.jsonl", ENTITIES)
    command = ("import", str(path), table, "--on-conflict", rule, "--quiet")
    seconds = seconds_of(tools, command)
    chance = random.Random(16)
    kills = 0
    while kills < KILLS:
        tools.run("clear", table, "--yes", "--quiet")
        kills += run_with_kills(tools, chance, seconds, command)
        assert tools.all_of(table) == ENTITIES


def test_a_copy_that_is_killed_ends_equal(
    tools: DataTools, table: str, private_server: StartServer, tmp_path: Path
) -> None:
    target = private_server(tmp_path / "target")
    tools.run("import", tools.write_lines("a.jsonl", ENTITIES), table, "--quiet")
    places = []
    for name, text in (("from", tools.connection_string), ("to", target.connection_string)):
        path = tools.directory / f"{name}.txt"
        path.write_text(text)
        places.append(f"@{path}")
    command = ("copy", "--from", places[0], "--to", places[1], table, "--quiet")
    seconds = seconds_of(tools, command)
    chance = random.Random(17)
    kills = 0
    while kills < KILLS:
        tools.run("clear", table, "--connection-string", places[1], "--yes", "--quiet")
        kills += run_with_kills(tools, chance, seconds, command)
        at_target = tools.run("query", table, "--connection-string", places[1], "--output", "jsonl")
        assert at_target.entities == ENTITIES
