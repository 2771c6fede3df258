"""Engine bugs that lose data only when the power is lost: each has to be found."""

from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

from storage.opened import writer_of
from stress.power_loss.recorded_disk import Recording
from tablestone.engines.sqlite.commit import _answer
from tablestone.engines.sqlite.data_directory import DATABASE_NAME, LOG_NAME
from tablestone.engines.sqlite.engine import SqliteEngine


def synchronous_normal(engine: SqliteEngine, _recording: Recording) -> None:
    """Let SQLite flush the log only before a checkpoint."""
    writer_of(engine).pragma("synchronous", "NORMAL")


class AnsweringQueue(SimpleQueue[Any]):
    """Answers the callers of a group when its commit is handed to the thread that flushes.

    The tasks stay in the queue that the thread waits for already. A compiled engine only accepts a queue of this class.
    """

    def __init__(self, tasks: SimpleQueue[Any]) -> None:
        self._tasks = tasks

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: FBT001, FBT002
        return self._tasks.get(block, timeout)

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:  # noqa: FBT001, FBT002
        groups = getattr(getattr(item, "then", None), "args", ())
        for group in groups:
            if hasattr(group, "outcomes"):
                _answer(group.accepted, group.outcomes)
        self._tasks.put(item, block, timeout)


def answer_before_flush(engine: SqliteEngine, _recording: Recording) -> None:
    """Answer a client while its commit is not on the disk yet."""
    assert engine._commits is not None
    engine._commits._tasks = AnsweringQueue(engine._commits._tasks)


def unflushed(name: str, _engine: SqliteEngine, recording: Recording) -> None:
    """A file whose flushes do nothing."""
    recording.unflushed = frozenset({name})


BUGS: Final[dict[str, Callable[[SqliteEngine, Recording], None]]] = {
    "synchronous=NORMAL": synchronous_normal,
    "answer before flush": answer_before_flush,
    "the log is not flushed": partial(unflushed, LOG_NAME),
    "the database is not flushed": partial(unflushed, DATABASE_NAME),
}
