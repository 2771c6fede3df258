"""`tablestone` with a planted bug, for tests of the tests: `python tests/stress/histories/planted_server.py serve …`.

PLANTED_BUG names the bug, or several, separated by commas; without it the server is the real one. PLANTED_LOSS is the
share of conditional writes to Cassandra whose answer is lost, and CLOCK_AHEAD is how far the server's clock is ahead,
in seconds: a real server has to bear both. The package has none of this.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tablestone.cli.main import main
from tablestone.clock import TICKS_PER_SECOND, system_clock
from tablestone.engines.contract import ANY, PRESENT, Change, Committed, Conflict, Put, WriteSet
from tablestone.engines.registry import open_engine
from tablestone.server import start
from tablestone.server.application import Application, Parts

if TYPE_CHECKING:
    from tablestone.configuration import Configuration
    from tablestone.engines.contract import Engine, Key
    from tablestone.server.worker_slot import WorkerSlot

STALE_SECONDS: Final = 0.2
"""For how long the stale cache keeps a row."""
LATE_SECONDS: Final = 0.01
"""How long after its answer a commit comes."""


def stale_read_cache(engine: Any) -> None:
    """Answer a point read from memory for a while, whatever other processes write."""
    get = engine.get
    kept: dict[Key, tuple[float, bytes | None]] = {}

    async def from_memory(key: Key) -> bytes | None:
        known = kept.get(key)
        if known is None or time.monotonic() - known[0] > STALE_SECONDS:
            known = kept[key] = (time.monotonic(), await get(key))
        return known[1]

    engine.get = from_memory


def lost_condition(engine: Any) -> None:
    """Apply a write that names an ETag to whatever version is stored."""
    commit = engine.commit

    def without_versions(write_set: WriteSet) -> Any:
        changes = [
            change._replace(expectation=PRESENT) if is_on_version(change) else change
            for change in write_set.changes
        ]
        return commit(write_set._replace(changes=changes))

    engine.commit = without_versions


def transaction_in_two_commits(engine: Any) -> None:
    """Commit the second half of a transaction after the first."""
    commit = engine.commit

    async def in_two(write_set: WriteSet) -> Committed | Conflict:
        changes = write_set.changes
        if len(changes) < 2 or write_set.invalidates_caches:
            outcome: Committed | Conflict = await commit(write_set)
            return outcome
        half = len(changes) // 2
        checked = [change._replace(mutation=None) for change in changes[half:]]
        first = await commit(write_set._replace(changes=[*changes[:half], *checked]))
        if isinstance(first, Conflict):
            return first
        second = await commit(write_set._replace(changes=changes[half:]))
        if isinstance(second, Conflict):
            return Conflict(second.index + half, second.version_found)
        return Committed(first.versions[:half] + second.versions)

    engine.commit = in_two


def answer_before_commit(engine: Any) -> None:
    """Answer the client a moment before its transaction is committed; reads of this process wait for the commit."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from stress.power_loss.planted import AnsweringQueue  # noqa: PLC0415 - needs the line before

    class LateQueue(AnsweringQueue):
        is_busy = False

        def get(self, *arguments: Any) -> Any:
            self.is_busy = False
            task = super().get(*arguments)
            time.sleep(LATE_SECONDS)
            return task

        def put(self, *arguments: Any) -> None:
            self.is_busy = True
            super().put(*arguments)

    tasks = engine._commits._tasks = LateQueue(engine._commits._tasks)

    def after_commit(read: Callable[..., Any]) -> Callable[..., Any]:
        def waiting(*arguments: Any, **named: Any) -> Any:
            while tasks.is_busy:
                time.sleep(LATE_SECONDS / 10)
            return read(*arguments, **named)

        return waiting

    for name in ("get", "read", "snapshot"):
        setattr(engine, name, after_commit(getattr(engine, name)))


def read_at_one(engine: Any) -> None:
    """Ask one node for a point read of a Cassandra cluster."""
    from cassandra import ConsistencyLevel  # noqa: PLC0415 - needs the driver

    engine._reads._statements.get.consistency_level = ConsistencyLevel.ONE


def blind_retry(engine: Any) -> None:
    """Send an unanswered conditional write to Cassandra again, as if it had not been applied."""

    async def never_applied(*_arguments: object) -> bool:
        return False

    engine._commits._outcomes.was_applied = never_applied


BUGS: Final[dict[str, Callable[[Any], None]]] = {
    "stale read cache": stale_read_cache,
    "lost condition": lost_condition,
    "transaction in two commits": transaction_in_two_commits,
    "answer before commit": answer_before_commit,
    "read at consistency ONE": read_at_one,
    "blind retry": blind_retry,
}
ON_ONE_MACHINE: Final = (
    "stale read cache",
    "lost condition",
    "transaction in two commits",
    "answer before commit",
)
ON_CLUSTER: Final = (*ON_ONE_MACHINE[:3], "read at consistency ONE", "blind retry")


def lose_answers(engine: Any, share: float) -> None:
    """Lose some answers to conditional writes, without waiting for the time-out."""
    from tablestone.engines.cassandra.connection import OutcomeInDoubt  # noqa: PLC0415

    random = Random()
    write_if = engine.connection.write_if

    async def lossy(calls: Any) -> Any:
        answer = await write_if(calls)
        if random.random() < share:
            raise OutcomeInDoubt("lost by the test")
        return answer

    engine.connection.write_if = lossy


def is_on_version(change: Change) -> bool:
    """Whether a client named a version; a merge that names none expects the version that was read, too."""
    return change.expectation > 0 and change.expectation != ANY and isinstance(change.mutation, Put)


def plant(engine: Engine) -> Engine:
    """The engine with what the environment asks for."""
    for name in filter(None, os.environ.get("PLANTED_BUG", "").split(",")):
        BUGS[name](engine)
    if share := float(os.environ.get("PLANTED_LOSS", "0")):
        lose_answers(engine, share)
    return engine


def create_application(configuration: Configuration, slot: WorkerSlot) -> Application:
    """The real server's application, on the real engine with what the environment asks for."""
    ahead = round(float(os.environ.get("CLOCK_AHEAD", "0")) * TICKS_PER_SECOND)

    def clock() -> int:
        return system_clock() + ahead

    def planted(*arguments: Any, **named: Any) -> Engine:
        return plant(open_engine(*arguments, **named))

    return Application(configuration, slot, Parts(clock=clock, open_engine=planted))


def run() -> int:
    """Run the command; its server has the application above."""
    defaults = start.serve.__defaults__
    assert defaults is not None
    assert Application in defaults
    start.serve.__defaults__ = tuple(
        create_application if value is Application else value for value in defaults
    )
    return main()


if __name__ == "__main__":
    sys.exit(run())
