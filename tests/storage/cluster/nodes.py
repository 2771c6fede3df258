"""A real Cassandra cluster of test nodes on this machine: started, killed, paused, stopped, removed.

Each node is a JVM with its own loopback address and directory. `cluster.json` lists the nodes, so that another process
can stop them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from server_process import free_ports
from storage.cluster.distribution import JARS, NoCluster, java, prepare
from storage.cluster.settings import (
    BY_DATACENTER,
    LOGBACK,
    PLACE_FILE,
    cassandra_yaml,
    java_arguments,
    nodetool_arguments,
    place_of_node,
)

READY_SECONDS_MAX: Final = 180.0
"""A single node starts in 10 s; it takes longer while seven test processes run."""
JOINED_SECONDS_MAX: Final = 420.0
"""A node that takes rows from others waits a minute and a half for news of them."""
STARTS_MAX: Final = 3
NO_SEEDS: Final = (b"Unable to contact any seeds", b"Unable to gossip with any peers")
"""Because of its short `ring_delay_ms`, a node looks for the others for only two seconds, and then ends."""
STOP_SECONDS_MAX: Final = 30.0
KEYSPACE: Final = "tablestone"
DATACENTER: Final = "datacenter1"
"""The name that SimpleSnitch gives to the only datacenter; several are called dc1, dc2 and so on."""


@dataclass
class Node:
    """One JVM; `pid` is the process started last, and nodetool connects to `control_port`."""

    address: str
    directory: str
    pid: int
    control_port: int = 0
    datacenter: str = DATACENTER

    @property
    def log(self) -> Path:
        return Path(self.directory) / "node.log"

    def nodetool(self, *arguments: str) -> str:
        """The output of Cassandra's own tool; `NoCluster` if it fails."""
        ended = subprocess.run(
            [java(), *nodetool_arguments(JARS, self.control_port), *arguments],
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise NoCluster(f"nodetool {' '.join(arguments)}: {ended.stdout}{ended.stderr}")
        return ended.stdout

    def kill(self) -> None:
        """SIGKILL."""
        self._signal(signal.SIGKILL)
        self._wait_until_gone()

    def stop(self) -> None:
        """SIGTERM: the node finishes its work and ends."""
        self._signal(signal.SIGTERM)
        self._wait_until_gone()

    def pause(self) -> None:
        """SIGSTOP: the node stops answering and keeps its connections."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def is_running(self) -> bool:
        """Whether the started process still runs; it may be a child of another process."""
        with suppress(ChildProcessError):
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                return False
        try:
            command = Path(f"/proc/{self.pid}/cmdline").read_bytes()
        except OSError:
            return False
        return self.directory.encode() in command

    def _signal(self, number: signal.Signals) -> None:
        if self.is_running():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _wait_until_gone(self) -> None:
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while self.is_running():
            if time.monotonic() > deadline:
                self._signal(signal.SIGKILL)
            time.sleep(0.05)


class Cluster:
    """The nodes of one directory."""

    def __init__(
        self,
        directory: Path,
        native_port: int,
        storage_port: int,
        nodes: list[Node],
        settings: Mapping[str, str | None] | None = None,
        java_options: Sequence[str] = (),
        datacenters: int = 1,
    ) -> None:
        self._settings = settings
        self._java_options = java_options
        self._datacenters = datacenters
        self.directory = directory
        self.native_port = native_port
        self.storage_port = storage_port
        self.nodes = nodes
        self._started: list[subprocess.Popen[bytes]] = []

    @classmethod
    def create(
        cls,
        directory: Path,
        nodes: int,
        settings: Mapping[str, str | None] | None = None,
        java_options: Sequence[str] = (),
        tell: Callable[[Node], None] | None = None,
        datacenters: int = 1,
    ) -> Cluster:
        """Start a new cluster, one node after the other; `settings` override those of cassandra.yaml.

        With several datacenters, the nodes belong to them in turn. `tell` is called for each node that has joined.
        Raises `NoCluster`, and stops the nodes that have started.
        """
        prepare()
        if (directory / "cluster.json").exists():
            raise NoCluster(f"there is a cluster in {directory} already: stop it with `down`")
        directory.mkdir(parents=True, exist_ok=True)
        native_port, storage_port = free_ports(2)
        cluster = cls(directory, native_port, storage_port, [], settings, java_options, datacenters)
        try:
            for _ in range(nodes):
                node = cluster._add_node(takes_rows=False)
                if tell is not None:
                    tell(node)
        except BaseException:
            cluster.remove()
            raise
        return cluster

    @classmethod
    def of(cls, directory: Path) -> Cluster:
        """The cluster that another process has started in the directory. Raises `NoCluster`."""
        try:
            told = json.loads((directory / "cluster.json").read_text())
        except FileNotFoundError:
            raise NoCluster(f"there is no cluster in {directory}") from None
        nodes = [Node(**node) for node in told["nodes"]]
        return cls(
            directory,
            told["native_port"],
            told["storage_port"],
            nodes,
            datacenters=told.get("datacenters", 1),
        )

    @property
    def url(self) -> str:
        """The engine's URL: every node of the first datacenter is a contact point."""
        return self.url_in(self.nodes[0].datacenter)

    def url_in(self, datacenter: str) -> str:
        """The engine's URL for a server in this datacenter."""
        hosts = ",".join(
            f"{node.address}:{self.native_port}"
            for node in self.nodes
            if node.datacenter == datacenter
        )
        return f"cassandra://{hosts}/{KEYSPACE}?datacenter={datacenter}"

    def add_node(self) -> Node:
        """Add a node that takes its rows from the others, and wait until it has joined.

        Two nodes must never join at once: the second one is refused.
        """
        return self._add_node(takes_rows=True)

    def _add_node(self, *, takes_rows: bool) -> Node:
        number = len(self.nodes) + 1
        directory = self.directory / f"node{number}"
        directory.mkdir()
        address = f"127.0.0.{number}"
        seed = self.nodes[0].address if self.nodes else address
        (directory / "logback.xml").write_text(LOGBACK)
        datacenter, settings = DATACENTER, dict(self._settings or {})
        if self._datacenters > 1:
            datacenter = f"dc{(number - 1) % self._datacenters + 1}"
            settings |= BY_DATACENTER
            (directory / PLACE_FILE).write_text(place_of_node(datacenter))
        (directory / "cassandra.yaml").write_text(
            cassandra_yaml(
                directory,
                address=address,
                seed=seed,
                native_port=self.native_port,
                storage_port=self.storage_port,
                more=settings,
            )
        )
        node = Node(address, str(directory), 0, free_ports(1)[0], datacenter)
        self.nodes.append(node)
        self.start(node, takes_rows=takes_rows)
        return node

    def start(self, node: Node, *, takes_rows: bool = False) -> None:
        """Start a node, new or stopped, and wait until it serves clients. Raises `NoCluster` if it does not."""
        seconds_max = JOINED_SECONDS_MAX if takes_rows else READY_SECONDS_MAX
        for left in reversed(range(STARTS_MAX)):
            told = self._start_once(node, seconds_max, takes_rows=takes_rows)
            if b"Startup complete" in told:
                return
            if left and any(words in told for words in NO_SEEDS):
                continue
            lines = told.decode("utf-8", "replace").splitlines()
            wrong = [line for line in lines if "ERROR" in line or "Exception" in line]
            if node.is_running() and not wrong:
                raise NoCluster(
                    f"node {node.address} did not start in {seconds_max:.0f} s: see {node.log}"
                )
            raise NoCluster(f"node {node.address} did not start: {(wrong or lines or ['?'])[0]}")

    def _start_once(self, node: Node, seconds_max: float, *, takes_rows: bool) -> bytes:
        """Start a node, and wait until it serves clients or ends. Returns its output."""
        directory = Path(node.directory)
        with node.log.open("ab") as log:
            already = log.tell()
            process = subprocess.Popen(
                [
                    java(),
                    f"-Dcassandra.jmx.local.port={node.control_port}",
                    *java_arguments(directory, JARS, self._java_options, takes_rows=takes_rows),
                ],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C ends the tests, and the tests stop the nodes
            )
        node.pid = process.pid
        self._started.append(process)
        self._write_down()
        deadline = time.monotonic() + seconds_max
        while b"Startup complete" not in (told := node.log.read_bytes()[already:]):
            if process.poll() is not None or time.monotonic() > deadline:
                return node.log.read_bytes()[already:]
            time.sleep(0.1)
        return told

    def remove(self) -> None:
        """Kill all nodes and remove their data."""
        for node in self.nodes:
            node.kill()
        for process in self._started:
            process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _write_down(self) -> None:
        told = {
            "native_port": self.native_port,
            "storage_port": self.storage_port,
            "datacenters": self._datacenters,
            "nodes": [asdict(node) for node in self.nodes],
        }
        (self.directory / "cluster.json").write_text(json.dumps(told, indent=1))
