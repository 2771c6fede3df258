"""The figures of the SQLite engine for the admin address, and how their values are found."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import apsw

from tablestone.engines.contract import EngineUnavailable
from tablestone.engines.figures import Figure, FigureKind
from tablestone.engines.sqlite.commit import COMMIT_GROUP, FLUSH

if TYPE_CHECKING:
    from collections.abc import Callable

    from tablestone.engines.figures import Values
    from tablestone.engines.sqlite.commit import GroupCommit
    from tablestone.engines.storage_size import StorageSize

FIGURES: Final = (
    COMMIT_GROUP,
    FLUSH,
    Figure(
        "sqlite_commit_lock_wait_seconds",
        FigureKind.COUNTER,
        "Time for which commits of a process waited for another process.",
    ),
    Figure(
        "sqlite_checkpoints", FigureKind.COUNTER, "Copies of the log into the database that ended."
    ),
    Figure(
        "sqlite_checkpoint_seconds",
        FigureKind.COUNTER,
        "Time of those copies during which no process could commit.",
    ),
    Figure(
        "sqlite_page_cache_hits", FigureKind.COUNTER, "Pages that reads found in the page cache."
    ),
    Figure("sqlite_page_cache_misses", FigureKind.COUNTER, "Pages that reads took from the files."),
    Figure("sqlite_wal_bytes", FigureKind.GAUGE, "Length of the write-ahead log's file."),
    Figure("sqlite_database_bytes", FigureKind.GAUGE, "Length of the database, free pages too."),
    Figure(
        "sqlite_free_bytes",
        FigureKind.GAUGE,
        "Free pages of the database: new rows use them before the file grows.",
    ),
)


class SqliteMeasures:
    """Measures one process's engine. `reader` is used on the thread of the event loop only."""

    def __init__(
        self, reader: apsw.Connection, commits: GroupCommit, size: Callable[[], StorageSize]
    ) -> None:
        self._reader = reader
        self._commits = commits
        self._size = size
        self._hits = 0
        self._misses = 0

    def values(self) -> Values:
        # Counted from one call to the next, because SQLite's own counters have 32 bits.
        self._hits += self._reader.status(apsw.SQLITE_DBSTATUS_CACHE_HIT, reset=True)[0]
        self._misses += self._reader.status(apsw.SQLITE_DBSTATUS_CACHE_MISS, reset=True)[0]
        commits = self._commits
        values: dict[str, float | list[float]] = {
            COMMIT_GROUP.name: commits.group_sizes.numbers(),
            FLUSH.name: commits.flush_seconds.numbers(),
            "sqlite_commit_lock_wait_seconds": commits.lock_seconds,
            "sqlite_checkpoints": commits.checkpoints,
            "sqlite_checkpoint_seconds": commits.checkpoint_seconds,
            "sqlite_page_cache_hits": self._hits,
            "sqlite_page_cache_misses": self._misses,
        }
        with suppress(
            EngineUnavailable
        ):  # a request that reads meets the error too, and tells of it
            size = self._size()
            values["sqlite_wal_bytes"] = size.log_bytes
            values["sqlite_database_bytes"] = size.database_bytes
            values["sqlite_free_bytes"] = size.free_bytes
        return values
