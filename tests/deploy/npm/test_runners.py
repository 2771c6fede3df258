"""Test runners: the guide's tests pass in each, and a run that is killed leaves no server."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from cli.worker_processes import wait_until
from deploy.npm.install import missing
from deploy.npm.packed import are_gone, run, servers_below
from sdk.test_interchange import skip_unless_prepared
from server_process import READY_SECONDS_MAX, clean_environment

pytestmark = pytest.mark.slow

VITEST = ("node", "node_modules/vitest/vitest.mjs", "run", "--dir")
JEST = ("node", "node_modules/jest/bin/jest.js", "--rootDir")
GUIDE = [
    ((*VITEST, "vitest"), "1 passed"),
    ((*VITEST, "vitest", "--pool", "threads"), "1 passed"),
    ((*VITEST, "vitest", "--pool", "forks"), "1 passed"),
    ((*VITEST, "vitest", "--pool", "vmThreads"), "1 passed"),
    ((*JEST, "jest"), "1 passed"),
]

HANGS = """
{imports}
let server;
{before}(async () => {{ server = await Tablestone.start(); }});
{after}(() => server.stop());
test("hangs", async () => {{
  await server.createAccount();
  await new Promise((done) => setTimeout(done, 120_000));
}}{limit});
"""
IMPORT = 'import {{ Tablestone }} from "tablestone";\nimport {{ {0} }} from "{1}";'
REQUIRE = 'const { Tablestone } = require("tablestone");'
FILES = {
    "hang-node/one.test.mjs": HANGS.format(
        imports=IMPORT.format("after, before, test", "node:test"),
        before="before",
        after="after",
        limit="",
    ),
    "hang-vitest/one.test.mjs": HANGS.format(
        imports=IMPORT.format("afterAll, beforeAll, test", "vitest"),
        before="beforeAll",
        after="afterAll",
        limit=", 150_000",
    ),
    "hang-jest/one.test.js": HANGS.format(
        imports=REQUIRE, before="beforeAll", after="afterAll", limit=", 150_000"
    ),
}
HANGING_NODE = ("hang-node/one.test.mjs", "hang-node/two.test.mjs")
KILLED = [
    (("node", HANGING_NODE[0]), 1),
    (("node", "--test", "--test-concurrency=2", *HANGING_NODE), 2),
    ((*VITEST, "hang-vitest", "--maxWorkers=2", "--pool", "threads"), 2),
    ((*VITEST, "hang-vitest", "--maxWorkers=2", "--pool", "forks"), 2),
    ((*VITEST, "hang-vitest", "--maxWorkers=2", "--pool", "vmThreads"), 2),
    ((*JEST, "hang-jest", "-w", "2"), 2),
    ((*JEST, "hang-jest", "-i"), 1),
]
"""Each with the number of its files of tests that run at once, and so of servers."""


def skip_without(command: tuple[str, ...]) -> None:
    names = [each for each in ("vitest", "jest") if f"node_modules/{each}/" in " ".join(command)]
    if names and (reason := missing(*names)) is not None:
        pytest.skip(reason)


@pytest.mark.parametrize(("command", "passed"), GUIDE, ids=lambda each: " ".join(each[1:]))
def test_the_tests_of_the_guide(project: Path, command: tuple[str, ...], passed: str) -> None:
    skip_without(command)
    skip_unless_prepared("javascript")
    ended = run(*command, directory=project, environment={"NO_COLOR": "1", "CI": "1"})
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert passed in ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def hanging(project: Path) -> Path:
    for name, text in FILES.items():
        (project / name).parent.mkdir()
        (project / name).write_text(text, encoding="utf-8")
        (project / name.replace("one", "two")).write_text(text, encoding="utf-8")
    return project


@pytest.mark.parametrize(
    ("command", "servers"),
    KILLED,
    ids=lambda each: " ".join(each[1:]) if isinstance(each, tuple) else "",
)
def test_a_run_that_is_killed_leaves_no_server(
    hanging: Path, command: tuple[str, ...], servers: int
) -> None:
    skip_without(command)
    with subprocess.Popen(
        command,
        cwd=hanging,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=clean_environment() | {"CI": "1"},
        start_new_session=True,
    ) as runner:
        try:
            found: set[int] = set()

            def are_all_there() -> bool:
                found.clear()
                found.update(servers_below(runner.pid))
                return len(found) == servers

            wait_until(are_all_there, READY_SECONDS_MAX)
            runner.kill()
            wait_until(lambda: are_gone(found))
        finally:
            os.killpg(runner.pid, signal.SIGKILL)  # its processes, whose tests go on
