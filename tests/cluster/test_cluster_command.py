"""`python -m tests.cassandra`: its message where there is no cluster; a real node starts, and leaves no trace."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cluster.distribution import missing
from cluster.settings import REQUIRED, cassandra_yaml

ROOT = Path(__file__).parents[2]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.cassandra", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_there_is_nothing_to_stop(tmp_path: Path) -> None:
    ended = command("down", "--directory", str(tmp_path))
    assert (ended.returncode, ended.stderr) == (
        2,
        f"No cluster: there is no cluster in {tmp_path}.\n",
    )


def test_a_node_is_told_what_the_guide_asks_for(tmp_path: Path) -> None:
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
        again = command("up", "--directory", str(directory))
        assert (again.returncode, "already" in again.stderr) == (2, True)
    finally:
        ended = command("down", "--directory", str(directory))
    assert (ended.returncode, directory.exists()) == (0, False)
    # Not by its port: another server may have it by now.
    nodes = [each for each in Path("/proc").glob("[0-9]*/cmdline") if names(each, directory)]
    assert nodes == []


def names(command_line: Path, directory: Path) -> bool:
    """Whether a process was started with the name of the directory; False if it has ended."""
    try:
        return str(directory).encode() in command_line.read_bytes()
    except OSError:
        return False
