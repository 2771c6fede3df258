"""The values of the SQLite engine's figures: from a connection, the sizes of the files and the commits."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import apsw

from tablestone.engines.contract import EngineUnavailable
from tablestone.engines.sqlite.sqlite_figures import COMMIT_GROUP, FLUSH

if TYPE_CHECKING:
    from collections.abc import Callable

    from tablestone.engines.figures import Values
    from tablestone.engines.sqlite.group_commit import GroupCommit
    from tablestone.engines.storage_size import StorageSize


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
