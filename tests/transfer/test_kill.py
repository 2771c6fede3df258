"""SIGKILL at random moments of an import and of a copy: run again, each ends, and the data in the table is right.

TRANSFER_KILLS is the number of times that each is killed at least. Without it the tests are skipped: they take minutes.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest

from conftest import StartServer
from transfer.data_tools import DataTools, entity

KILLS = int(os.environ.get("TRANSFER_KILLS", "0"))
ENTITIES = [entity(f"p{n // 3000}", f"{n:06}", n=n, s="x" * 200) for n in range(12_000)]
pytestmark = pytest.mark.skipif(
    not KILLS, reason="the kills of the data tools take minutes: set TRANSFER_KILLS to their number"
)
SECONDS = (0.8, 3.0)
"""The moments of a kill: after the command has begun, and before it can be done on a busy machine."""


def run_with_kills(tools: DataTools, chance: random.Random, arguments: tuple[str, ...]) -> int:
    """Start the command and kill it, until it ends by itself. Returns the number of kills."""
    kills = 0
    while True:
        process = tools.start(*arguments)
        try:
            # Each kill comes later than the one before, so that the command ends in the end on a slow machine too.
            process.wait(chance.uniform(*SECONDS) + kills / 4)
        except subprocess.TimeoutExpired:
            process.kill()
        _, stderr = process.communicate(timeout=60)
        if process.returncode != -signal.SIGKILL:
            assert process.returncode == 0, stderr
            return kills
        kills += 1


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("rule", ["fail", "replace"])
def test_an_import_that_is_killed_ends_equal(tools: DataTools, table: str, rule: str) -> None:
    path = tools.write_lines("a.jsonl", ENTITIES)
    chance = random.Random(16)
    kills = 0
    while kills < KILLS:
        kills += run_with_kills(
            tools, chance, ("import", str(path), table, "--on-conflict", rule, "--quiet")
        )
        assert tools.all_of(table) == ENTITIES
        tools.run("clear", table, "--yes", "--quiet")


@pytest.mark.crash
@pytest.mark.slow
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
    chance = random.Random(17)
    kills = 0
    while kills < KILLS:
        kills += run_with_kills(
            tools, chance, ("copy", "--from", places[0], "--to", places[1], table, "--quiet")
        )
        at_target = tools.run("query", table, "--connection-string", places[1], "--output", "jsonl")
        assert at_target.entities == ENTITIES
        tools.run("clear", table, "--connection-string", places[1], "--yes", "--quiet")
