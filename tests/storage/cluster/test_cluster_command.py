"""`python -m tests.storage.cluster`: its message without a cluster; a real node starts, and leaves no trace."""

import json
import re
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from storage.cluster.distribution import missing
from storage.cluster.nodes import DATACENTER, Cluster, Node
from storage.cluster.settings import REQUIRED, cassandra_yaml

ROOT = Path(__file__).parents[3]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.storage.cluster", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("words", [("down",), ("stop", "1"), ("start", "1"), ("nodetool", "1")])
def test_there_is_nothing_to_stop(tmp_path: Path, words: tuple[str, ...]) -> None:
    name, *rest = words
    ended = command(name, "--directory", str(tmp_path), *rest)
    assert (ended.returncode, ended.stderr) == (
        2,
        f"No cluster: there is no cluster in {tmp_path}.\n",
    )


def test_a_node_gets_the_settings_of_the_guide(tmp_path: Path) -> None:
    told = cassandra_yaml(
        tmp_path, address="127.0.0.2", seed="127.0.0.1", native_port=1, storage_port=2
    )
    for name, value in REQUIRED.items():
        assert f"\n{name}: {value}\n" in told
    assert '- seeds: "127.0.0.1:2"' in told


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_a_node_starts_and_is_removed(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    started = command("up", "--directory", str(directory))
    try:
        assert started.returncode == 0, started.stderr
        url = urlsplit(started.stdout.splitlines()[-1])
        assert (url.scheme, url.path) == ("cassandra", "/tablestone")
        socket.create_connection((str(url.hostname), int(str(url.port)))).close()
        assert started.stdout.splitlines()[-2] == "Node 1 is up."
        again = command("up", "--directory", str(directory))
        assert (again.returncode, "already" in again.stderr) == (2, True)
        assert one_node(directory, "start", "1") == (2, "", "Node 1 runs already.\n")
        assert one_node(directory, "stop", "2") == (2, "", "The nodes are 1 to 1.\n")
        status, printed, _ = one_node(directory, "nodetool", "1", "status")
        assert (status, printed.count("UN ")) == (0, 1)
        assert printed.startswith(f"Datacenter: {DATACENTER}\n")
    finally:
        ended = command("down", "--directory", str(directory))
    assert (ended.returncode, directory.exists()) == (0, False)
    # Not by its port, which another server may have by now.
    nodes = [each for each in Path("/proc").glob("[0-9]*/cmdline") if names(each, directory)]
    assert nodes == []


JAVA = """\
#!/bin/sh
case "$*" in
*-version) echo 'openjdk version "17.0.1"' >&2 ;;
*NodeTool*no-such*) echo "unknown command" >&2; exit 1 ;;
*NodeTool*) echo "$*" ;;
*) echo "Startup complete"; while :; do sleep 0.1; done ;;
esac
"""
"""Instead of a JDK: a node that starts at once, and a nodetool that prints its arguments."""


@pytest.mark.slow
def test_one_node_is_stopped_started_and_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command is its own process, as in a terminal. test_running_nodes.py does the same to real nodes."""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(JAVA)
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    directory = tmp_path / "cluster"
    nodes = [Node(f"127.0.0.{each}", str(directory / f"node{each}"), 0, each) for each in (1, 2)]
    for node in nodes:
        Path(node.directory).mkdir(parents=True)
    told = {"native_port": 1, "storage_port": 2, "nodes": [asdict(node) for node in nodes]}
    (directory / "cluster.json").write_text(json.dumps(told))

    def running() -> list[bool]:
        return [node.is_running() for node in Cluster.of(directory).nodes]

    try:
        assert one_node(directory, "stop", "3") == (2, "", "The nodes are 1 to 2.\n")
        assert one_node(directory, "stop", "2") == (2, "", "Node 2 does not run.\n")
        assert one_node(directory, "start", "2") == (0, "Node 2 is up.\n", "")
        assert running() == [False, True]
        assert one_node(directory, "start", "2") == (2, "", "Node 2 runs already.\n")
        status, printed, told_wrong = one_node(directory, "nodetool", "2", "repair", "--full", "t")
        assert (status, told_wrong) == (0, "")
        assert printed.endswith("NodeTool -p 2 repair --full t\n")
        status, printed, told_wrong = one_node(directory, "nodetool", "2", "no-such")
        assert (status, printed, told_wrong) == (1, "", "nodetool no-such: unknown command\n")
        assert one_node(directory, "stop", "2") == (0, "Node 2 has stopped.\n", "")
        assert running() == [False, False]
    finally:
        command("down", "--directory", str(directory))


def one_node(directory: Path, name: str, *words: str) -> tuple[int, str, str]:
    """The exit status and the outputs of a command for one node."""
    ended = command(name, "--directory", str(directory), *words)
    return ended.returncode, ended.stdout, ended.stderr


LINE = re.compile(r"^ {4,}python -m tests\.storage\.cluster (.+)$", re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("document", ["docs/guides/cassandra.md", "docs/testing.md"])
def test_the_lines_of_the_documents_are_understood(document: str, tmp_path: Path) -> None:
    """Each runs without a cluster: none fails for its words."""
    lines = [line.split("  ")[0] for line in LINE.findall((ROOT / document).read_text("utf-8"))]
    assert "down" in lines
    for line in lines:
        if line.startswith("up"):
            continue
        name, *words = line.split()
        ended = command(name, "--directory", str(tmp_path), *words)
        assert (ended.returncode, "there is no cluster" in ended.stderr) == (2, True), line


def names(command_line: Path, directory: Path) -> bool:
    """Whether a process was started with the directory's name; False if it has ended."""
    try:
        return str(directory).encode() in command_line.read_bytes()
    except OSError:
        return False
