"""A run of kills of a server that writes an archive: in each step of writing it, and at any moment.

After each kill the newest moment and random ones are restored, by number and by time, as if the disk were lost; then
the server goes on with its own directory. The archive's times are short, so that it joins, copies and deletes all the
time.
"""

from __future__ import annotations

import asyncio
import http.client
import itertools
import re
import shutil
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cli.admin_pages import page
from cli.command_line import tablestone
from server_process import NotReady, ServerProcess, start_server
from stress.archive_kills.killed_server import STEPS
from stress.archive_kills.writers import (
    SESSIONS,
    Rows,
    Sessions,
    SessionWriter,
    TimedJournal,
    TimedWriter,
)
from stress.crash.commands import contents
from stress.crash.run import create_tables
from stress.crash.writers import TABLE, Connection, Life
from tablestone.archive.going_back import MomentRefused, read_histories, unix_of_ticks
from tablestone.archive.store import open_store
from tablestone.cli.commands.restore_archive import fill
from tablestone.clock import system_clock
from tablestone.engines.kind import EncryptionKey
from tablestone.engines.registry import open_engine
from tablestone.model.entity_json import read_raw
from tablestone.tables.catalog import every_table, scan_in_steps
from tablestone.tables.storage_keys import table_range
from tablestone.tools import odata

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from stress.crash.writers import UntilKilled

SERVER: Final = (sys.executable, str(Path(__file__).with_name("killed_server.py")))
EVERY_STEP: Final = [(kind, stage) for kind, stages in STEPS.items() for stage in stages]
IDLE_SECONDS_MAX: Final = 15.0
"""A server that has acknowledged nothing for so long is killed from outside."""
LIFE_SECONDS_MAX: Final = 120.0
"""So is one that reached no step by then. A loaded machine takes long to the due base copy or deletion."""
ANY_MOMENT_SECONDS: Final = (0.3, 2.5)
LAG_SECONDS: Final = 0.1
"""Between two looks at the lag."""
SAMPLE: Final = re.compile(r"^tablestone_archive_lag_seconds (\S+)", re.MULTILINE)
ENTITY_WRITERS: Final = 3
MOMENTS: Final = 2
"""Restores to random moments after each kill, beside that of the newest one."""


class Restored(NamedTuple):
    moment: float
    """Of the last commit, in seconds since 1970."""
    number: int
    rows: Rows


class Lag(threading.Thread):
    """Asks the server for its lag, and knows up to when everything is archived, as that says."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.archived_up_to = 0.0
        self.longest = 0.0
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.wait(LAG_SECONDS):
            asked = time.time()
            try:
                _status, text = page(self.server, "/metrics")
            except (OSError, ValueError, http.client.HTTPException):
                return
            for lag in map(float, SAMPLE.findall(text)):
                self.longest = max(self.longest, lag)
                self.archived_up_to = max(self.archived_up_to, asked - lag)


class Run:
    """A run in a data directory, with its archive and what is restored below `directory`."""

    def __init__(
        self,
        directory: Path,
        seed: str,
        steps: Sequence[tuple[str, str]] = (),
        bug: str = "",
        *,
        encrypted: bool = False,
    ) -> None:
        self.key = EncryptionKey(Random(seed).randbytes(32)) if encrypted else None
        self.options: tuple[str, ...] = ()
        if self.key is not None:
            file = directory / "key"
            file.write_text(self.key.secret.hex())
            file.chmod(0o600)
            self.options = (f"--encryption-key-file={file}",)
        self.data, self.archive = directory / "data", directory / "archive"
        self.seed = seed
        self.kills: Counter[str] = Counter()
        self.restored = 0
        self.longest_lag = 0.0
        self._bug = bug
        self._only_steps = bool(steps)
        self._steps = steps or Random(seed).sample(EVERY_STEP, len(EVERY_STEP))
        self._scratch = directory / "restored"
        self._archived_up_to = 0.0
        self._journals = [TimedJournal(f"writer-{n}") for n in range(ENTITY_WRITERS)]
        self._sessions = Sessions()
        self._all: list[TimedJournal | Sessions] = [*self._journals, self._sessions]

    def __str__(self) -> str:
        kills = ", ".join(f"{name} {n}" for name, n in self.kills.most_common())
        return (
            f"{self.kills.total()} kills ({kills}); {self._acknowledged:,} operations acknowledged, "
            f"{self.restored} restores, a lag of at most {self.longest_lag:.1f} s"
        )

    @property
    def _acknowledged(self) -> int:
        return sum(journal.operations_acknowledged for journal in self._all)

    def problems(
        self, kills: int, tell: Callable[[Run], None] = lambda _run: None
    ) -> Generator[str]:
        """Kill that many times; yields each problem when it is found."""
        server = self._start("never")
        try:
            create_tables(server)
            with Connection(server) as connection:
                body = f'{{"TableName":"{SESSIONS}"}}'.encode()
                connection.send("POST", "/Tables", body, expected=201)
            for line in (
                ("index", "create", TABLE, "number"),
                ("expiry", "set", SESSIONS, "--property", "expires", "--yes"),
            ):
                ended = tablestone(*line, "--data", self.data, *self.options)
                assert ended.status == 0, ended
            self._wait_for_base()
            server.stop()
            steps = itertools.cycle(self._steps)
            while self.kills.total() < kills:
                random = Random(f"{self.seed}/{self.kills.total()}")
                is_step = self._only_steps or random.random() < 0.8
                yield from self._live(" ".join(next(steps)) if is_step else "never", random)
                yield from self._judge_archive(random)
                server = self._start("never")
                yield from self._judge_server(server)
                server.stop()
                tell(self)
        finally:
            server.kill()

    def _start(self, killed_at: str, workers: int = 1) -> ServerProcess:
        return start_server(
            self.data,
            f"--workers={workers}",
            *self.options,
            "--admin=127.0.0.1:0",
            f"--archive={self.archive}",
            command=SERVER,
            environment={"KILLED_AT": killed_at, "PLANTED_BUG": self._bug},
        )

    def _wait_for_base(self) -> None:
        until = time.monotonic() + 60
        while not any(self.archive.glob("*/base/*/*/end")):
            assert time.monotonic() < until, "no base copy ended"
            time.sleep(0.05)

    def _live(self, killed_at: str, random: Random) -> Iterator[str]:
        """Let the writers write until the server has killed itself at its step, or is killed."""
        count = random.randint(0, 1) if "term" not in killed_at and "run" not in killed_at else 0
        try:
            step = killed_at if killed_at == "never" else f"{killed_at} {count}"
            server = self._start(step, random.choice((1, 2)))
        except NotReady:
            self.kills[f"{killed_at}, during the start"] += 1
            return
        life, lag = Life(server), Lag(server)
        threads: list[UntilKilled] = [
            TimedWriter(life, journal, Random(random.random())) for journal in self._journals
        ]
        sessions = SessionWriter(life, Random(random.random()))
        sessions.journal = self._sessions
        threads.append(sessions)
        try:
            for thread in (*threads, lag):
                thread.start()
            is_any = killed_at == "never"
            began = time.monotonic()
            ends = began + (random.uniform(*ANY_MOMENT_SECONDS) if is_any else LIFE_SECONDS_MAX)
            done, idle_since = self._acknowledged, began
            while server.process.poll() is None and time.monotonic() < ends:
                time.sleep(0.02)
                if self._acknowledged > done:
                    done, idle_since = self._acknowledged, time.monotonic()
                if time.monotonic() > idle_since + IDLE_SECONDS_MAX:
                    break
            reached = server.process.poll() is not None
        finally:
            life.is_ending.set()
            lag.is_over.set()
            server.kill()
            for thread in (*threads, lag):
                thread.join(60)
        self.kills[killed_at if reached else "any moment"] += 1
        self._archived_up_to = max(self._archived_up_to, lag.archived_up_to)
        self.longest_lag = max(self.longest_lag, lag.longest)
        for thread in threads:
            if thread.unexpected is not None:
                yield f"{type(thread).__name__}: {thread.unexpected!r}"
        yield from life.complaints

    def _judge_archive(self, random: Random) -> Iterator[str]:
        """Where what is restored now contradicts the journals."""
        lives = [path.name for path in self.archive.glob("[!.]*")]
        if len(lives) > 1:
            yield f"the server did not go on in its life: {lives}"
            return
        try:
            newest = self._restore()
        except MomentRefused as refused:
            yield f"the newest record cannot be restored: {refused}"
            return
        yield from self._complaints(newest, newest.moment, "the newest")
        for journal in self._journals:
            yield from journal.complaints_of_loss(newest.rows, self._archived_up_to)
        store = open_store(str(self.archive))
        (history,) = asyncio.run(
            read_histories(store, [] if self.key is None else [self.key])
        ).values()
        yield from map(str, history.problems)
        first, last = random.choice(history.ranges)
        number = random.randint(first, last)
        chosen = self._restore(number=number)
        yield from self._complaints(chosen, chosen.moment, f"record {number}")
        if chosen.number != number:
            yield f"record {number} was asked for, and {chosen.number} restored"
        since = self._restore(number=history.ranges[-1].first).moment
        moment = random.uniform(since, newest.moment)
        ticks = system_clock() - int((time.time() - moment) * 10_000_000)
        chosen = self._restore(moment=ticks)
        yield from self._complaints(chosen, moment, f"the moment {moment:.3f}")

    def _complaints(self, restored: Restored, moment: float, what: str) -> Iterator[str]:
        for journal in self._all:
            for complaint in journal.complaints_of_moment(restored.rows, moment):
                yield f"{what} (record {restored.number}): {complaint}"

    def _restore(self, number: int | None = None, moment: int | None = None) -> Restored:
        """Fill a directory, which is checked, and read it."""
        keys = [] if self.key is None else [self.key]
        filled = asyncio.run(
            fill(str(self.archive), keys, self._scratch, self.key, None, (number, moment))
        )
        self.restored += 1
        rows = asyncio.run(read_rows(self._scratch, self.key))
        shutil.rmtree(self._scratch)
        return Restored(unix_of_ticks(filled.time), filled.number, rows)

    def _judge_server(self, server: ServerProcess) -> Iterator[str]:
        """Where the server's own data contradicts the journals, which then continue from the data."""
        with Connection(server) as connection:
            found = contents(connection)
        for journal in self._journals:
            yield from journal.complaints(found.of(journal))
            journal.settle(found.of(journal))


async def read_rows(data: Path, secret: EncryptionKey | None = None) -> Rows:
    """The entities of the writers' tables."""
    engine = open_engine(f"sqlite:{data}", system_clock, read_only=True, key=secret)
    found: dict[str, dict[str, Any]] = {}
    try:
        async for _account, record in every_table(engine):
            async for rows in scan_in_steps(engine, table_range(record.table_id)):
                for row in rows:
                    raw = read_raw(row.value)
                    key = odata.key_of(raw)
                    system = ("PartitionKey", "RowKey")
                    values = {k: v for k, v in odata.content_of(raw).items() if k not in system}
                    found.setdefault(key.partition_key, {})[key.row_key] = values
    finally:
        await engine.close()
    return found
