"""A run of histories on the embedded engine: one server of several workers, some of which are killed and paused.

The supervisor replaces a killed worker, and a killed server is started again on the same data. The clients do not know
of it.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from server_process import ServerProcess, start_server
from stress.histories.clients import Crowd
from stress.histories.recording import History
from stress.histories.service import Target

PLANTED: Final = (sys.executable, str(Path(__file__).with_name("planted_server.py")))
CLIENTS: Final = 16
BETWEEN_FAULTS_SECONDS: Final = (0.3, 1.5)
BETWEEN_FAULTS_ANSWERS: Final = 300
"""The fewest answers between two faults: else a server on a busy machine might be killed again and again before it
answers.
"""
BETWEEN_FAULTS_SECONDS_MAX: Final = 60.0
START_SECONDS_MAX: Final = 120.0
"""A server that starts while many clients wait for it may take long."""
PAUSE_SECONDS_MAX: Final = 1.5
FAULTS: Final = ("kill a worker", "kill a worker", "pause a worker", "kill all processes")


@dataclass
class Run:
    """The result of a run: its histories, and how often each fault occurred."""

    histories: list[History]
    faults: dict[str, int]

    @property
    def operations(self) -> int:
        return sum(len(history.operations) for history in self.histories)

    @property
    def unanswered(self) -> int:
        return sum(each.returned is None for one in self.histories for each in one.operations)


class EmbeddedServer:
    """A server with several workers on one data directory."""

    def __init__(self, data: Path, workers: int, bug: str | None) -> None:
        self._data = data
        self._workers = workers
        self._bug = bug
        self._server = self._start()
        self.target = target_of(self._server)

    def _start(self) -> ServerProcess:
        return start_server(
            self._data,
            f"--workers={self._workers}",
            command=None if self._bug is None else PLANTED,
            environment=None if self._bug is None else {"PLANTED_BUG": self._bug},
            ready_seconds=START_SECONDS_MAX,
        )

    def make(self, fault: str, random: Random) -> None:
        """Cause a fault; returns what ends it."""
        if fault == "kill all processes":
            workers = workers_of(self._server)
            self._server.kill()
            for worker in workers:
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
            self._server = self._start()
            self.target.endpoint = self._server.endpoint
            return
        workers = workers_of(self._server)
        if not workers:
            return  # its replacement is on the way
        worker = random.choice(workers)
        with suppress(ProcessLookupError):
            if fault == "kill a worker":
                os.kill(worker, signal.SIGKILL)
                return
            os.kill(worker, signal.SIGSTOP)
            time.sleep(random.uniform(0, PAUSE_SECONDS_MAX))
            os.kill(worker, signal.SIGCONT)

    def end(self) -> None:
        self._server.kill()


def run(
    data: Path,
    *,
    seed: str,
    operations: int,
    clients: int = CLIENTS,
    workers: int = 3,
    makes_faults: bool = True,
    bug: str | None = None,
) -> Run:
    """Run that many operations of clients while faults happen, on a server with a planted `bug` if one is named."""
    random = Random(f"{seed}/faults")
    made: dict[str, int] = {}
    server = EmbeddedServer(data, workers, bug)
    try:
        crowd = Crowd([server.target], seed, clients)
        crowd.start()
        while crowd.answered < operations and not crowd.is_over.is_set():
            crowd.wait(seconds=random.uniform(*BETWEEN_FAULTS_SECONDS))
            if makes_faults:
                crowd.wait_for_answers(BETWEEN_FAULTS_ANSWERS, BETWEEN_FAULTS_SECONDS_MAX)
                fault = random.choice(FAULTS)
                server.make(fault, random)
                made[fault] = made.get(fault, 0) + 1
        return Run(crowd.end(), made)
    finally:
        server.end()


def target_of(server: ServerProcess, clock_ahead: float = 0.0) -> Target:
    return Target(server.endpoint, server.account_name, server.account_key, clock_ahead)


def workers_of(server: ServerProcess) -> list[int]:
    """The workers of a server that has several: the children of its supervisor."""
    first = server.process.pid
    try:
        return [*map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())]
    except FileNotFoundError:
        return []
