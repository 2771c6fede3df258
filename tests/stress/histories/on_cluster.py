"""A run of histories on a Cassandra cluster: two servers that share nothing else, with clocks an hour apart.

The caller provides the cluster. A server is a process that is killed, paused and started again; its clients find it at
its new address.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from server_process import ServerProcess, start_server
from stress.histories.clients import Crowd
from stress.histories.embedded import CLIENTS, PLANTED, START_SECONDS_MAX, Run, target_of

CLOCKS_AHEAD: Final = (0.0, 3600.0)
"""How far the servers' clocks are ahead of this machine's, in seconds."""
LOSS: Final = 0.01
"""The share of conditional writes whose answer is lost on its way to a server."""
BETWEEN_FAULTS_SECONDS: Final = (1.0, 3.0)
PAUSE_SECONDS_MAX: Final = 2.0
FAULTS: Final = ("kill a server", "pause a server", "pause a server")


@dataclass
class ClusterServer:
    """One server on the cluster."""

    url: str
    directory: Path
    clock_ahead: float
    bug: str | None = None
    loss: float = 0.0
    _server: ServerProcess = field(init=False)

    def __post_init__(self) -> None:
        self._server = self._start()
        self.target = target_of(self._server, self.clock_ahead)

    def _start(self) -> ServerProcess:
        return start_server(
            self.directory,
            *("--engine", self.url, "--workers", "1"),
            command=PLANTED,
            environment={
                "PLANTED_BUG": self.bug or "",
                "PLANTED_LOSS": str(self.loss),
                "CLOCK_AHEAD": str(self.clock_ahead),
            },
            ready_seconds=START_SECONDS_MAX,
        )

    def kill(self) -> None:
        self._server.kill()

    def restart(self) -> None:
        """Start a killed server again, at a new address."""
        self._server = self._start()
        self.target.endpoint = self._server.endpoint

    def pause(self) -> None:
        self._server.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._server.process.send_signal(signal.SIGCONT)


@contextmanager
def servers_on(
    url: str, directory: Path, bug: str | None, loss: float = LOSS
) -> Iterator[list[ClusterServer]]:
    """The two servers, with a planted `bug` in both if one is named; they are killed at the end."""
    servers: list[ClusterServer] = []
    try:
        servers += [ClusterServer(url, directory, ahead, bug, loss) for ahead in CLOCKS_AHEAD]
        yield servers
    finally:
        for server in servers:
            server.kill()


def run(
    url: str,
    directory: Path,
    *,
    seed: str,
    operations: int,
    clients: int = CLIENTS,
    makes_faults: bool = True,
    bug: str | None = None,
) -> Run:
    """Run that many operations of clients on two servers, with a planted `bug` in both if one is named."""
    random = Random(f"{seed}/faults")
    made: dict[str, int] = {}
    with servers_on(url, directory, bug) as servers:
        crowd = Crowd([server.target for server in servers], seed, clients)
        crowd.start()
        while crowd.answered < operations and not crowd.is_over.is_set():
            crowd.wait(seconds=random.uniform(*BETWEEN_FAULTS_SECONDS))
            if makes_faults:
                fault = random.choice(FAULTS)
                _make(fault, random.choice(servers), random)
                made[fault] = made.get(fault, 0) + 1
        return Run(crowd.end(), made)


def _make(fault: str, server: ClusterServer, random: Random) -> None:
    if fault == "kill a server":
        server.kill()
        server.restart()
        return
    server.pause()
    time.sleep(random.uniform(0, PAUSE_SECONDS_MAX))
    server.resume()
