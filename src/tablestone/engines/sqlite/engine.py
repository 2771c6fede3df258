"""The embedded engine: rows in one SQLite table, ordered by key, in write-ahead-log mode.

Reads run on the event loop's thread, on a read-only connection. They never wait for a flush and never see uncommitted
rows. `commit` commits, `read` has the statements that read, and `data_directory` opens the files.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw

from tablestone.engines.capabilities import Capabilities, StoredIn
from tablestone.engines.contract import EngineUnavailable, Put, Reindex, Update
from tablestone.engines.figures import CHANGE_FIGURES, Figure, FigureKind, measure_changes
from tablestone.engines.kind import CONTRACT, EngineKind, Opening
from tablestone.engines.sqlite.archive_source import ArchiveSource
from tablestone.engines.sqlite.change_log import SqliteChangeLog, wrong_records
from tablestone.engines.sqlite.commit import COMMIT_GROUP, FLUSH, GroupCommit
from tablestone.engines.sqlite.commit_lock import CommitLock
from tablestone.engines.sqlite.data_directory import (
    INDEXED_FORMAT_VERSION,
    LOG_NAME,
    READER_CACHE_KIB,
    DataDirectory,
    is_locked,
)
from tablestone.engines.sqlite.free_space import STEP_PAUSE_SECONDS, DiskRoom, SpaceKeeper, size_of
from tablestone.engines.sqlite.hinted_read import BACKWARDS, FORWARDS
from tablestone.engines.sqlite.index_entries import keep_rules
from tablestone.engines.sqlite.read import RowReader, counted_rows, unavailable
from tablestone.engines.sqlite.salvage import altered_files

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Sequence

    from tablestone.clock import Clock
    from tablestone.engines.contract import (
        Committed,
        Conflict,
        Entry,
        Hint,
        Key,
        KeyRange,
        Rows,
        StorageId,
        StoredRow,
        WriteSet,
    )
    from tablestone.engines.figures import RowsCounted, StorageSize, Values
    from tablestone.engines.kind import EncryptionKey
    from tablestone.engines.leases import Leases
    from tablestone.engines.sqlite.commit_lock import Generation

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
    Figure(
        "sqlite_hint_c_connections",
        FigureKind.COUNTER,
        "Connections opened to read whose filters a C function decides.",
    ),
    Figure(
        "sqlite_hint_sql_connections",
        FigureKind.COUNTER,
        "Connections opened to read whose filters SQL decides, which is slower.",
    ),
    Figure("sqlite_wal_bytes", FigureKind.GAUGE, "Length of the write-ahead log's file."),
    *CHANGE_FIGURES,
    Figure("sqlite_database_bytes", FigureKind.GAUGE, "Length of the database, free pages too."),
    Figure(
        "sqlite_free_bytes",
        FigureKind.GAUGE,
        "Free pages of the database: new rows use them before the file grows.",
    ),
)

WRONG_VERSIONS: Final = """
SELECT partition, row, version FROM stored_rows WHERE version < 1 LIMIT 100
"""

LOOK_SECONDS: Final = 1.0
"""Seconds between two checks that the data directory is still in its place."""
IDLE_SNAPSHOTS_MAX: Final = 4
"""Connections to keep for later snapshots."""

log = logging.getLogger(__name__)


class SqliteEngine:
    """An `Engine` in a data directory. With `storage`, another database is refused."""

    capabilities = Capabilities(
        stored_in=StoredIn.DIRECTORY,
        processes=True,
        hints=True,
        waits=False,
        keeps_changes=True,
        checks_relied_rows=True,
        keeps_entries=True,
        reads_backwards=True,
    )
    leases: Leases | None = None

    def __init__(
        self,
        path: Path,
        clock: Clock,
        opening: Opening,
        storage: StorageId | None = None,
        key: EncryptionKey | None = None,
        *,
        may_be_unfinished: bool = False,
    ) -> None:
        self._directory = DataDirectory(
            path, opening, storage, key, may_be_unfinished=may_be_unfinished
        )
        self._room = DiskRoom(path)
        self._clock = clock
        self._idle_snapshots: list[RowReader] = []
        self._generation: Generation | None = None
        self._commits: GroupCommit | None = None
        self._space: SpaceKeeper | None = None
        self._hits = self._misses = 0
        self._readers_opened = [0, 0]
        """Whose hints SQL decides, and whose hints C decides."""
        try:
            with self._directory.refusing():
                self._reader = self._directory.connect_reader(READER_CACHE_KIB)
                self._rows = self._rows_of(self._reader)
                if opening is not Opening.READ_ONLY:
                    self._generation = generation = self._directory.open_generation()
                    connect = self._directory.connect_writer
                    self._commits = GroupCommit(
                        connect, CommitLock(path), clock, generation, self._room
                    )
                    self._space = SpaceKeeper(self._directory, self.size, self._room)
        except BaseException:
            self._directory.close()
            raise
        self.changes = SqliteChangeLog(
            self._directory, self._reader, clock, self._generation, self._room
        )
        if self._commits is not None:
            self._commits.note_growth = self.changes.note_growth
        self._makes_room = False
        """Whether records of changes had to go early at the last look."""
        self._makes_room_soon = asyncio.Event()
        self._may_make_room = False
        """Whether this process may still make room by removing records."""
        self._is_open = True
        self._is_gone = False
        """At the last check, the path led to another database or to none: a write would be lost."""

    @property
    def generation(self) -> int | None:
        return None if self._generation is None else self._generation.current

    @property
    def is_indexed(self) -> bool:
        """Whether the directory has the format of index entries already: the first index changes it for good."""
        return bool(self._reader.pragma("user_version") >= INDEXED_FORMAT_VERSION)

    async def keep_rules(self, *, all_upgraded: bool) -> str | None:
        """For `StoredAccounts.set_rules`."""
        return await asyncio.to_thread(keep_rules, self._directory, all_upgraded=all_upgraded)

    @property
    def is_nearly_full(self) -> bool:
        """Whether the disk has hardly more room than deletes need."""
        return self._room.is_short or self._room.lacks_room or self._room.is_low

    @property
    def is_served(self) -> bool:
        """Whether a server has the directory open."""
        return is_locked(self._directory.path)

    async def get(self, key: Key) -> bytes | None:
        self._require_open()
        return self._rows.get(key)

    async def read(self, ranges: Sequence[KeyRange], *, rows_max: int, bytes_max: int) -> Rows:
        self._require_open()
        return self._rows.read(ranges, rows_max, bytes_max)

    async def scan(self, key_range: KeyRange, *, rows_max: int) -> list[StoredRow]:
        self._require_open()
        return self._rows.scan(key_range, rows_max)

    async def snapshot(self) -> SqliteSnapshot:
        self._require_open()
        if self._idle_snapshots:
            return SqliteSnapshot(self, self._idle_snapshots.pop())
        try:
            return SqliteSnapshot(self, self._rows_of(self._directory.connect_reader()))
        except apsw.Error as error:
            raise unavailable("read", error) from error

    def _rows_of(self, connection: apsw.Connection) -> RowReader:
        rows = RowReader(connection)
        self._readers_opened[rows.hints_in_c] += 1
        return rows

    def give_back(self, reader: RowReader) -> None:
        """Take back the reader of a closed snapshot."""
        if self._is_open and len(self._idle_snapshots) < IDLE_SNAPSHOTS_MAX:
            self._idle_snapshots.append(reader)
        else:
            reader.close()

    def commit(self, write_set: WriteSet) -> Awaitable[Committed | Conflict]:
        self._require_open()
        if self._commits is None:
            raise EngineUnavailable("The engine was opened for reading only.")
        if self._is_gone:
            raise EngineUnavailable(f"The data directory {self._directory.path} is gone.")
        # Look again before a refusal: another process may have made room.
        if (
            self._room.is_short
            and _needs_room(write_set)
            and self._room.look(self._commits.log_bytes, self.size().free_bytes)
        ):
            raise EngineUnavailable(
                f"The disk of the data directory {self._directory.path} is full."
            )
        if self._may_make_room and self._room.lacks_room:
            self._makes_room_soon.set()
        return self._commits.commit(write_set)

    def size(self) -> StorageSize:
        """As this process sees them; some microseconds."""
        self._require_open()
        try:
            return size_of(self._reader, self._directory.path / LOG_NAME)
        except apsw.Error as error:
            raise unavailable("read", error) from error

    def count_rows(self, key_range: KeyRange, rows_max: int) -> RowsCounted:
        """As `CountsRows`, on the caller's thread."""
        self._require_open()
        try:
            return counted_rows(self._reader, key_range, rows_max)
        except apsw.Error as error:
            raise unavailable("read", error) from error

    async def watch(self, *, leads: bool) -> None:
        self._may_make_room = True
        while True:
            with suppress(TimeoutError):
                # `wait_for` of 3.11 can swallow a cancellation.
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._makes_room_soon.wait()
            self._makes_room_soon.clear()
            was_gone, self._is_gone = self._is_gone, not self._directory.is_where_it_was()
            if leads and self._is_gone and not was_gone:
                log.error(
                    "The data directory %s no longer holds the database that is served: it was removed, moved or "
                    "replaced. Writes are refused until it is back.",
                    self._directory.path,
                )
            elif leads and was_gone and not self._is_gone:
                log.warning(
                    "The data directory %s is back: writes are accepted.", self._directory.path
                )
            if self._space is not None and self._commits is not None and not self._is_gone:
                self._room.look(self._commits.log_bytes)
                if leads or self._room.lacks_room:
                    await self._trim(self._commits.log_bytes, leads=leads)
                await self._space.look(self._commits.log_bytes, leads=leads)

    async def _trim(self, log_bytes: int, *, leads: bool) -> None:
        """Remove old records of changes, or some if room is needed, in short commits with pauses for requests."""
        room = self._room
        self._may_make_room = not room.lacks_room
        try:
            if not self.changes.is_there:
                return
            kept = self.changes.kept()
            makes_room = kept is not None and kept.makes_room
            if leads and makes_room and not self._makes_room:
                log.warning(
                    "The disk of the data directory %s is nearly full: the oldest records of changes are removed "
                    "before their time.",
                    self._directory.path,
                )
            self._makes_room = makes_room
            # Only the process that leads judges their age: it has seen the clock each second.
            while (leads or room.lacks_room) and self.changes.has_surplus(
                makes_room=room.lacks_room
            ):
                lacks_room = room.lacks_room
                await asyncio.to_thread(self.changes.trim, makes_room=lacks_room)
                self._may_make_room = True
                await asyncio.sleep(0 if lacks_room else STEP_PAUSE_SECONDS)
                room.look(log_bytes, self.size().free_bytes)
        except (apsw.Error, EngineUnavailable) as error:
            log.warning("Old records of changes could not be removed: %s", error)

    def archive_source(self) -> ArchiveSource:
        """For an archive; close it before the engine. The engine must not be opened for reading only."""
        self._require_open()
        assert self._generation is not None
        return ArchiveSource(self._directory, self._generation, self._clock)

    async def check(self) -> list[str]:
        self._require_open()
        # In a thread, because this reads the whole database.
        return await asyncio.to_thread(self._check)

    def measure(self) -> Values:
        commits = self._commits
        if commits is None or not self._is_open:
            return {}
        # Add up and reset SQLite's own counters, which have 32 bits.
        self._hits += self._reader.status(apsw.SQLITE_DBSTATUS_CACHE_HIT, reset=True)[0]
        self._misses += self._reader.status(apsw.SQLITE_DBSTATUS_CACHE_MISS, reset=True)[0]
        values: dict[str, float | list[float]] = {
            COMMIT_GROUP.name: commits.group_sizes.numbers(),
            FLUSH.name: commits.flush_seconds.numbers(),
            "sqlite_commit_lock_wait_seconds": commits.lock_seconds,
            "sqlite_checkpoints": commits.checkpoints,
            "sqlite_checkpoint_seconds": commits.checkpoint_seconds,
            "sqlite_page_cache_hits": self._hits,
            "sqlite_page_cache_misses": self._misses,
            "sqlite_hint_c_connections": self._readers_opened[True],
            "sqlite_hint_sql_connections": self._readers_opened[False],
        }
        with suppress(EngineUnavailable):  # requests that read report the error
            size = self.size()
            values["sqlite_wal_bytes"] = size.log_bytes
            values["sqlite_database_bytes"] = size.database_bytes
            values["sqlite_free_bytes"] = size.free_bytes
            values |= measure_changes(self.changes, self._clock())
        return values

    async def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        for reader in self._idle_snapshots:
            reader.close()
        self._reader.close()  # before the writer: the last connection to close empties and removes the log
        if self._commits is not None:
            await self._commits.close()
        if self._generation is not None:
            self._generation.close()
            self._generation = None
        self._directory.close()

    def _require_open(self) -> None:
        if not self._is_open:
            raise EngineUnavailable("The engine is closed.")

    def _check(self) -> list[str]:
        connection = self._directory.connect_reader()
        try:
            if altered := altered_files(self._directory):
                return altered
            answer = [text for (text,) in connection.execute("PRAGMA integrity_check")]
            if answer != ["ok"]:
                lines = "\n".join(answer).splitlines()
                return [line for line in lines if not line.startswith("*** in database")]
            return wrong_records(connection) + [
                f"the row {row!r} of partition {partition!r} has version {version}"
                for partition, row, version in connection.execute(WRONG_VERSIONS)
            ]
        except apsw.Error as error:
            return [f"the database cannot be read: {error}"]
        finally:
            connection.close()


def _needs_room(write_set: WriteSet) -> bool:
    """Whether it adds data, and not a table or a document: those are small, and deletes need them.

    A `Reindex` with stale entries takes them away: so an index can be dropped on a full disk.
    """
    return not (write_set.invalidates_caches or write_set.is_small) and any(
        isinstance(change.mutation, Put | Update)
        or (isinstance(change.mutation, Reindex) and not change.mutation.stale)
        for change in write_set.changes
    )


class SqliteSnapshot:
    """A snapshot is a read transaction on its own connection."""

    def __init__(self, engine: SqliteEngine, rows: RowReader) -> None:
        self._engine = engine
        self._rows = rows
        rows.begin()

    async def read(
        self,
        ranges: Sequence[KeyRange],
        *,
        rows_max: int,
        bytes_max: int,
        hint: Hint | None = None,
        reverse: bool = False,
    ) -> Rows:
        walks = BACKWARDS if reverse else FORWARDS
        return self._rows.read(ranges, rows_max, bytes_max, hint, walks)

    async def entries(
        self, start: Entry, end: Entry, *, entries_max: int, reverse: bool = False
    ) -> list[Entry]:
        return self._rows.entries(start, end, entries_max, reverse=reverse)

    async def count_entries(self, start: Entry, end: Entry, *, entries_max: int) -> int:
        return self._rows.count_entries(start, end, entries_max)

    async def close(self) -> None:
        self._rows.end()
        self._engine.give_back(self._rows)


@contextmanager
def _hold(place: str, key: EncryptionKey | None) -> Iterator[StorageId]:
    with closing(DataDirectory(Path(place), Opening.SERVER, key=key)) as directory:
        yield directory.storage


KIND = EngineKind(
    SqliteEngine.capabilities,
    ("sqlite", "sqlite:DIR"),
    lambda place, *how: SqliteEngine(Path(place), *how),
    _hold,
    FIGURES,
    CONTRACT,
    encrypts=True,
)
