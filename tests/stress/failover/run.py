"""A run of failovers: two servers on a primary with one synchronous standby, and what is lost under load.

Clients record histories of single entities and of transactions; others insert entities with ids of their own. Meanwhile
connections are cut in every step of a commit, servers are killed and stopped, and primaries are killed for good while
their standbys take over. Afterwards the histories are checked, each acknowledged insert has to be there, and
`tablestone check` and `index check` read everything. The seed makes all choices, but not the moments.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from azure.data.tables import TableClient

from server_process import clean_environment
from storage.patroni_pair import PatroniPair
from storage.postgresql_server import Cut
from stress.histories.checker import judge
from stress.histories.clients import Crowd
from stress.histories.on_cluster import ClusterServer
from stress.histories.recording import Operation, Write
from stress.histories.service import TABLE, NoAnswer, NotSent, Service, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from storage.postgresql_pair import Pair
    from stress.histories.checker import Verdict

CLOCKS_AHEAD: Final = (0.0, 30.0)
"""How far the servers' clocks are ahead: by more than a minute, they go by the database's."""
CLIENTS: Final = 8
INSERTERS: Final = 2
ANSWERS_MIN: Final = 100
"""Between two faults."""
PATIENCE_SECONDS: Final = 60.0
PAUSE_SECONDS_MAX: Final = 2.0
SESSION, FOUND, COMMIT, END = b"INTO sessions", b"w.whole", b"commit_rows", b"sessions SET ended"
CUTS: Final = tuple(
    Cut(marker, how, is_statement=True)
    for marker, how in (
        *((COMMIT, "before"), (SESSION, "before"), (FOUND, "before"), (COMMIT, "during")),
        *((END, "before"), (FOUND, "after"), (COMMIT, "after"), (SESSION, "after")),
        *((COMMIT, "late"), (END, "during"), (SESSION, "during"), (COMMIT, "after")),
        *((END, "after"), (FOUND, "during"), (COMMIT, "during"), (END, "late")),
        *((COMMIT, "late"), (SESSION, "late"), (COMMIT, "before"), (FOUND, "late")),
    )
)
"""In every step of a commit: the session's beginning, the read of what is stored, the commit, and the question what
became of it.
"""
INDEXED: Final = ("n", "m")
OTHER: Final = "RowKey"
"""An index that comes and goes."""
FAULTS: Final = (
    *("failover", "cut", "kill a server", "pause a server"),
    *("pause the standby", "pause the primary", "change an index"),
)

FAULTS_UNDER_PATRONI: Final = tuple(fault for fault in FAULTS if not fault.startswith("pause the"))
"""A PostgreSQL server that hangs is Patroni's business."""


class ServiceStopped(Exception):
    """Too few answers came after a fault."""


class CommandFailed(Exception):
    """A command of `tablestone` said something else than it should."""


@dataclass
class Report:
    seed: str
    faults: Counter[str]
    operations: int
    inserted: int
    unanswered: int
    longest_seconds: float
    """Between two answers of all clients."""
    verdicts: list[Verdict]
    problems: list[str]

    @property
    def is_good(self) -> bool:
        return not self.problems and all(verdict.linearizable for verdict in self.verdicts)

    def lines(self) -> Iterator[str]:
        wrong = [verdict for verdict in self.verdicts if not verdict.linearizable]
        yield from map(str, wrong)
        yield from self.problems
        yield ", ".join(f"{name}: {times}" for name, times in sorted(self.faults.items()))
        yield (
            f"seed {self.seed}: {self.operations} operations, {self.unanswered} unanswered, {self.inserted} inserts; "
            f"the longest time without an answer was {self.longest_seconds:.1f} s; "
            f"{len(self.verdicts) - len(wrong)} of {len(self.verdicts)} histories are linearizable, "
            f"{len(self.problems)} other problems"
        )


class Inserter(threading.Thread):
    """Inserts entities, each of them once, and remembers which were acknowledged."""

    def __init__(self, number: int, targets: Sequence[Target], is_over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.partition = f"inserts-{number}"
        self._number = number
        self._services = [Service(target) for target in targets]
        self._is_over = is_over
        self.acknowledged: set[int] = set()
        self.refused: set[int] = set()
        self.unanswered: set[int] = set()
        self.problems: list[str] = []

    def run(self) -> None:
        at = row = self._number
        try:
            while not self._is_over.is_set():
                row += 1
                insert = Operation(self._number, 0, writes=(Write("insert", row, row),))
                try:
                    self._services[at % len(self._services)].carry_out(self.partition, insert)
                except NoAnswer:
                    self.unanswered.add(row)
                    at += 1
                except NotSent:
                    self.refused.add(row)
                    at += 1
                    time.sleep(0.05)
                else:
                    if insert.error is not None:
                        self.problems.append(
                            f"{self.partition}/{row} was made twice: {insert.error}"
                        )
                    self.acknowledged.add(row)
        except Exception as error:  # noqa: BLE001 - the report has it, not the thread
            self.problems.append(f"{self.partition}: {error!r}")
        for service in self._services:
            service.close()

    def judge(self, table: TableClient) -> Iterator[str]:
        yield from self.problems
        found = Counter(
            int(entity["RowKey"])
            for entity in table.query_entities(f"PartitionKey eq '{self.partition}'")
        )
        for row in sorted(self.acknowledged - found.keys()):
            yield f"{self.partition}/{row} was acknowledged and is lost"
        for row in sorted(found.keys() & self.refused):
            yield f"{self.partition}/{row} is there, and the server said that nothing was done"
        for row in sorted(found.keys() - self.acknowledged - self.refused - self.unanswered):
            yield f"{self.partition}/{row} is there, and nobody made it"
        yield from (f"{self.partition}/{row} is there twice" for row, n in found.items() if n > 1)


@dataclass
class FailoverRun:
    """A run on a pair. `tell` gets a line for each fault."""

    pair: Pair | PatroniPair
    directory: Path
    seed: str
    tell: Callable[[str], None] = print
    bug: str | None = None
    faults: Counter[str] = field(default_factory=Counter)

    def run(self, faults: Sequence[str]) -> Report:
        """Make these faults under load, and judge."""
        self._random = Random(f"{self.seed}/faults")
        self._url = self.pair.url()
        with self._servers() as self._both:
            targets = [server.target for server in self._both]
            self._crowd = crowd = Crowd(targets, self.seed, CLIENTS)
            inserters = [Inserter(number, targets, crowd.is_over) for number in range(INSERTERS)]
            crowd.start()
            for inserter in inserters:
                inserter.start()
            self._at_once(*(("index", "create", TABLE, name, "--yes") for name in INDEXED))
            for fault in ("", *faults):
                if crowd.is_over.is_set():
                    break
                self._began = time.monotonic()
                if fault:
                    self._make(fault)
                self._wait_for_answers(fault)
            timings = crowd.timings
            histories = crowd.end()
            for inserter in inserters:
                inserter.join()
            target = targets[0]
            table = TableClient.from_connection_string(
                f"AccountName={target.account};AccountKey={target.key};TableEndpoint={target.endpoint}",
                TABLE,
            )
            problems = [each for inserter in inserters for each in inserter.judge(table)]
        self.tell("judging")
        try:
            self._at_once(*(("index", "check", TABLE, name) for name in INDEXED), ("check",))
        except CommandFailed as failed:
            problems.append(str(failed))
        answers = sorted(each.sent + each.seconds for each in timings if each.is_answered)
        return Report(
            self.seed,
            self.faults,
            sum(len(history.operations) for history in histories),
            sum(len(inserter.acknowledged) for inserter in inserters),
            sum(each.returned is None for one in histories for each in one.operations),
            max(late - early for early, late in itertools.pairwise(answers)),
            judge(histories),
            problems,
        )

    @contextmanager
    def _servers(self) -> Iterator[list[ClusterServer]]:
        servers: list[ClusterServer] = []
        try:
            with ThreadPoolExecutor(len(CLOCKS_AHEAD)) as threads:
                servers += threads.map(
                    lambda ahead: ClusterServer(self._url, self.directory, ahead, self.bug),
                    CLOCKS_AHEAD,
                )
            yield servers
        finally:
            for server in servers:
                server.kill()

    def _make(self, fault: str) -> None:
        self.faults[fault] += 1
        server, pause = self._random.choice(self._both), self._random.uniform(0, PAUSE_SECONDS_MAX)
        if fault == "failover":
            self.pair.fail_over()
        elif fault == "cut":
            proxy = self.pair.proxy
            proxy.cuts = list(CUTS)
            until = time.monotonic() + PATIENCE_SECONDS
            while proxy.cuts and time.monotonic() < until:
                time.sleep(0.05)
            if proxy.cuts:
                raise ServiceStopped(
                    f"{len(proxy.cuts)} cuts did not happen, first {proxy.cuts[0]}"
                )
        elif fault == "kill a server":
            server.kill()
            server.restart()
        elif fault == "pause a server":
            server.pause()
            time.sleep(pause)
            server.resume()
        elif fault == "change an index":
            for act in ("create", "check", "drop"):
                self._command("index", act, TABLE, OTHER)
        elif not isinstance(self.pair, PatroniPair):
            database = self.pair.primary if fault == "pause the primary" else self.pair.standby
            if database is not None:
                with database.paused():
                    time.sleep(pause)

    def _wait_for_answers(self, fault: str) -> None:
        """Until enough clients have been answered; then there is a standby again after a failover."""
        before, began = self._crowd.answered, time.monotonic()
        self._crowd.wait_for_answers(ANSWERS_MIN, PATIENCE_SECONDS)
        if self._crowd.answered < before + ANSWERS_MIN and not self._crowd.is_over.is_set():
            raise ServiceStopped(f"{fault}: {self._crowd.answered - before} answers")
        self.tell(
            f"{fault or 'begin'}: {began - self._began:.1f} s, {ANSWERS_MIN} answers after "
            f"{time.monotonic() - began:.1f} s more"
        )
        if self.pair.standby is None:
            self.pair.add_standby()

    def _at_once(self, *commands: Sequence[str]) -> None:
        with ThreadPoolExecutor(len(commands)) as threads:
            list(threads.map(lambda command: self._command(*command), commands))

    def _command(self, *command: str) -> None:
        ended = subprocess.run(
            [sys.executable, "-m", "tablestone", *command, "--engine", self._url],
            check=False,
            capture_output=True,
            text=True,
            env=clean_environment(),
        )
        if ended.returncode:
            raise CommandFailed(f"{' '.join(command)}: {ended.stdout}{ended.stderr}")
