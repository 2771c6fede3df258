"""The fault run: nodes and servers of a cluster are killed, paused, slowed down and added while clients work.

Sixteen clients record histories on two servers whose clocks are an hour apart, over three nodes. A phase ends when its
time is over and enough answers came; a service that stops answering ends the run. Afterwards the histories are checked,
and so is the storage. The seed chooses nodes and operations.
"""

import math
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from server_process import COMMAND, clean_environment
from storage.cluster.distribution import NoCluster
from storage.cluster.nodes import KEYSPACE, Cluster, Node
from stress.histories.checker import Verdict, judge
from stress.histories.clients import Crowd, Timing
from stress.histories.embedded import CLIENTS
from stress.histories.on_cluster import ClusterServer, servers_on

NODES: Final = 3
LONG_SECONDS: Final = 20.0
SHORT_SECONDS: Final = 3.0
"""The shortest phase."""
HANGING_SECONDS: Final = 8.0
"""How long a node hangs at least: longer than a request's time-out."""
STOPPED_SECONDS: Final = 4.0
"""How long a server is stopped: many leases, and longer than a request to the cluster may take."""
ANSWERS_MIN: Final = 40
"""No phase ends with fewer answers."""
PATIENCE_SECONDS: Final = 120.0
FORGETFUL: Final = {"hinted_handoff_enabled": "false", "dynamic_snitch": "false"}
"""A node that was away does not get what it missed, and the other nodes do not avoid it for being slow."""
SLOW: Final = (0.10, 0.05)
"""A slow node stops for so many seconds, and then runs for so many."""


class ServiceStopped(Exception):
    """Too few answers came in a phase."""


@dataclass
class Phase:
    """A part of the run, in seconds of the monotonic clock."""

    name: str
    begins: float
    ends: float = 0.0


@dataclass
class Report:
    """The results of a run."""

    seed: str
    phases: list[Phase]
    timings: list[Timing]
    verdicts: list[Verdict]
    check: str
    """The output of `tablestone check` if it found a problem."""

    @property
    def is_good(self) -> bool:
        return not self.check and all(verdict.linearizable for verdict in self.verdicts)

    def lines(self) -> Iterator[str]:
        """A table of the phases, then the verdicts."""
        yield "| phase | seconds | answers | a second | p50 ms | p99 ms | longest ms | without an answer |"
        yield "|---|---:|---:|---:|---:|---:|---:|---:|"
        for phase in self.phases:
            inside = [each for each in self.timings if phase.begins <= each.sent < phase.ends]
            answers = sorted(1000 * each.seconds for each in inside if each.is_answered)
            seconds = phase.ends - phase.begins
            figures = (at(answers, 0.5), at(answers, 0.99), at(answers, 1.0))
            yield (
                f"| {phase.name} | {seconds:.0f} | {len(answers)} | {len(answers) / seconds:.0f} | "
                f"{' | '.join(f'{figure:.0f}' for figure in figures)} | {len(inside) - len(answers)} |"
            )
        wrong = [verdict for verdict in self.verdicts if not verdict.linearizable]
        operations = sum(verdict.operations for verdict in self.verdicts)
        yield ""
        yield from map(str, wrong)
        yield (
            f"seed {self.seed}: {len(self.verdicts) - len(wrong)} of {len(self.verdicts)} histories with "
            f"{operations} operations are linearizable; `tablestone check` finds {self.check or 'nothing'}"
        )


def at(ordered: Sequence[float], share: float) -> float:
    """The smallest value with this share of the values at or below it; 0 if there are none."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


@dataclass
class FaultRun:
    """A run on an existing cluster. `tell` gets a line for each phase."""

    cluster: Cluster
    directory: Path
    seed: str
    is_short: bool
    bug: str | None
    tell: Callable[[str], None]
    phases: list[Phase] = field(default_factory=list)

    def run(self) -> Report:
        """Start the servers and the clients, make every fault, and judge."""
        with servers_on(self.cluster.url, self.directory, self.bug, loss=0.0) as servers:
            crowd = Crowd([server.target for server in servers], self.seed, CLIENTS)
            crowd.start()
            try:
                self._make_faults(crowd, servers)
            finally:
                for node in self.cluster.nodes:
                    node.resume()
            timings = crowd.timings
            histories = crowd.end()
        self.tell("judging")
        return Report(self.seed, self.phases, timings, judge(histories), self._check())

    def _make_faults(self, crowd: Crowd, servers: list[ClusterServer]) -> None:
        random = Random(f"{self.seed}/faults")
        nodes = self.cluster.nodes
        usual = SHORT_SECONDS if self.is_short else LONG_SECONDS
        self._phase(crowd, "before", usual)

        victim = random.choice(nodes)
        victim.kill()
        self._phase(crowd, "a node was killed", usual)
        with self._during(crowd, "the node starts again"):
            self.cluster.start(victim)
        self._phase(crowd, "the node is back", usual)

        victim = random.choice(nodes)
        victim.pause()
        self._phase(crowd, "a node hangs", max(usual, HANGING_SECONDS))
        victim.resume()
        self._phase(crowd, "the node goes on", usual)

        victim_server = random.choice(servers)
        victim_server.kill()
        self._phase(crowd, "a server was killed", usual)
        victim_server.restart()
        self._phase(crowd, "both servers", usual)

        victim_server = random.choice(servers)
        victim_server.pause()
        self._phase(crowd, "a server is stopped", STOPPED_SECONDS, answers=1)
        victim_server.resume()
        self._phase(crowd, "the server goes on", usual)

        if not self.is_short:
            with slowed(random.choice(nodes)):
                self._phase(crowd, "a node is slow", usual)
            # Some rows may be on two nodes only. As the guide says, all three get them before one gives them up.
            with self._during(crowd, "the nodes are repaired"):
                for node in nodes:
                    node.nodetool("repair", "--full", KEYSPACE)
            with self._during(crowd, "a fourth node joins"):
                self.cluster.add_node()
            self._phase(crowd, "four nodes", usual)
        self._phase(crowd, "after", usual)

    def _phase(self, crowd: Crowd, name: str, seconds: float, answers: int = ANSWERS_MIN) -> None:
        """Let the clients work for some time, and until enough answers came."""
        with self._during(crowd, name):
            before = crowd.answered
            began = time.monotonic()
            crowd.wait(seconds=seconds)
            while crowd.answered < before + answers and not crowd.is_over.is_set():
                if time.monotonic() > began + PATIENCE_SECONDS:
                    raise ServiceStopped(f"{name}: {crowd.answered - before} answers")
                crowd.wait(seconds=0.2)

    @contextmanager
    def _during(self, crowd: Crowd, name: str) -> Iterator[None]:
        phase = Phase(name, time.monotonic())
        before = crowd.answered
        yield
        phase.ends = time.monotonic()
        self.phases.append(phase)
        self.tell(f"{name}: {phase.ends - phase.begins:.0f} s, {crowd.answered - before} answers")

    def _check(self) -> str:
        checked = subprocess.run(
            [COMMAND, "check", "--engine", self.cluster.url],
            capture_output=True,
            text=True,
            check=False,
            env=clean_environment(),
        )
        return (checked.stdout + checked.stderr).strip() if checked.returncode else ""


def run_faults(
    directory: Path,
    *,
    seed: str,
    is_short: bool,
    bug: str | None = None,
    tell: Callable[[str], None] = print,
) -> Report:
    """The whole run on a new cluster in the directory, removed at the end. Raises `NoCluster`.

    The seed chooses whether the nodes keep hints for a node that is away. With a planted bug they keep none.
    """
    keeps_hints = bug is None and Random(f"{seed}/hints").random() < 0.5
    with three_nodes(directory, keeps_hints=keeps_hints) as cluster:
        tell(f"{NODES} nodes run, {'with' if keeps_hints else 'without'} hints")
        return FaultRun(cluster, directory, seed, is_short, bug, tell).run()


@contextmanager
def three_nodes(directory: Path, *, keeps_hints: bool) -> Iterator[Cluster]:
    """A new cluster in the directory, ready for servers; removed at the end. Raises `NoCluster`."""
    cluster = Cluster.create(directory, NODES, None if keeps_hints else FORGETFUL)
    try:
        made = subprocess.run(
            [COMMAND, "cluster", "init", "--engine", f"{cluster.url}&replication={NODES}"],
            check=False,
            capture_output=True,
            text=True,
            env=clean_environment(),
        )
        if made.returncode:
            raise NoCluster(f"`tablestone cluster init` said: {made.stderr.strip()}")
        yield cluster
    finally:
        cluster.remove()


@contextmanager
def slowed(node: Node) -> Iterator[None]:
    """While the block runs, the node gets a third of its time."""
    is_over = threading.Event()

    def slow_down() -> None:
        while not is_over.is_set():
            node.pause()
            is_over.wait(SLOW[0])
            node.resume()
            is_over.wait(SLOW[1])

    thread = threading.Thread(target=slow_down)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        node.resume()
