"""What an archive reads from the data directory of its server, and what it stores there.

The archive is a copy of the record of changes (`change_log`) and of the rows, kept elsewhere. The directory has one row
about it, in a table that is made when archiving first begins: which archive, how far it is, where its record begins,
and when it was checked. Calls block, so run them in a thread, one at a time.
"""

from __future__ import annotations

from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from tablestone.engines.contract import EngineUnavailable, Key, StoredRow
from tablestone.engines.sqlite.change_log import (
    FOR_ARCHIVE,
    KEPT_FOR_ARCHIVE,
    KEPT_FOR_BOTH,
    KEPT_FOR_FEED,
    begin_epoch,
    default_bytes,
    kept_for,
    raising_unavailable,
    switching,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import apsw

    from tablestone.clock import Clock
    from tablestone.engines.sqlite.commit_lock import Generation
    from tablestone.engines.sqlite.data_directory import DataDirectory

SCHEMA: Final = """
CREATE TABLE archive_state (
    archive TEXT NOT NULL,
    life TEXT NOT NULL,
    run TEXT NOT NULL,
    next_run TEXT,
    archived INTEGER NOT NULL,
    since INTEGER NOT NULL,
    began INTEGER NOT NULL,
    checked INTEGER NOT NULL,
    held INTEGER NOT NULL
) STRICT
"""
_FIRST: Final = "INSERT INTO archive_state VALUES ('', '', '', NULL, 0, 0, 0, 0, 0)"
_IS_THERE: Final = "SELECT 1 FROM sqlite_schema WHERE name = 'archive_state'"
_STATE: Final = "SELECT archive, life, run, next_run, archived, since FROM archive_state"
_CHECKS: Final = "SELECT checked, held FROM archive_state"
_ENDS: Final = """
SELECT number + (length(rows) = 0), (SELECT max(number) FROM change_records), (SELECT storage FROM change_log)
FROM change_records WHERE number >= (SELECT began FROM archive_state) ORDER BY number LIMIT 1
"""
_RECORDS: Final = """
SELECT number, time, subject, about, partition, rows FROM change_records
WHERE number > ? AND number <= ? AND number > (SELECT began FROM archive_state) ORDER BY number
"""
_BYTES_AFTER: Final = """
SELECT max(bytes_up_to) - min(bytes_up_to) FROM change_records WHERE number >= ?
"""
_EVER: Final = 2**62
_ROWS: Final = """
SELECT partition, row, version, value FROM stored_rows
WHERE (partition, row) > (?, ?) AND (partition, row) <= (?, ?) ORDER BY partition, row
"""
_LAST_KEY: Final = Key(b"\xff" * 9, b"")
"""After all keys."""


class ArchiveState(NamedTuple):
    """How far the directory is archived. The texts are empty before the first run began."""

    archive: str
    """The URL of the archive, without secrets."""
    life: str
    run: str
    next_run: str | None
    """The id of a run that was about to begin."""
    archived: int
    """The newest record that is known to be archived."""
    since: int
    """When a server first started without an archive, in ticks; 0 while archiving goes on."""


class RecordEnds(NamedTuple):
    """What is kept for the archive."""

    first: int
    """The number of the oldest kept record; `last` plus one if there is none."""
    last: int
    """The number of the newest record, kept or not."""
    storage: bytes
    """The id in the cursors of feeds."""


class StoredRecord(NamedTuple):
    """A record as it is stored. One without rows marks a position: a feed began there."""

    number: int
    time: int
    subject: bytes
    about: bytes
    partition: bytes
    rows: bytes


class ArchiveSource:
    """The archive's side of a data directory. Every method may raise `EngineUnavailable`.

    Close it before the engine. What it writes is as durable as a commit. Without a `generation` it only reads.
    """

    def __init__(
        self, directory: DataDirectory, generation: Generation | None, clock: Clock
    ) -> None:
        self._directory = directory
        self._generation = generation
        self._clock = clock
        self._lock = Lock()
        with raising_unavailable("read"):
            self._reader = directory.connect_reader()

    def close(self) -> None:
        with self._lock:
            self._reader.close()

    def state(self) -> ArchiveState:
        with self._reading():
            if self._reader.execute(_IS_THERE).get is None:
                return ArchiveState("", "", "", None, 0, 0)
            return ArchiveState(*self._reader.execute(_STATE).get)

    def keep(self) -> None:
        """Keep records for the archive, in every process, from now on."""
        with self._writing() as writer:
            was_for = kept_for(writer)
            if was_for in FOR_ARCHIVE:
                return
            with switching(writer, self._writable):
                make_table(writer)
                if was_for is None:
                    begin_epoch(writer, self._clock(), default_bytes(self._directory.path))
                whom = KEPT_FOR_ARCHIVE if was_for is None else KEPT_FOR_BOTH
                writer.execute("UPDATE change_log SET kept_for = ?", (whom,))
                writer.execute("UPDATE archive_state SET began = (SELECT began FROM change_log)")

    def rest(self, time: int, *, ends: bool = False) -> None:
        """A server starts without an archive: note since when, and keep nothing for an archive any more.

        `ends`: for good, so forget where it was.
        """
        with self._writing() as writer:
            if writer.execute(_IS_THERE).get is None:
                return
            if ends:
                writer.execute("UPDATE archive_state SET archive = '' WHERE archive != ''")
            was_for = kept_for(writer)
            if was_for not in FOR_ARCHIVE and writer.execute("SELECT since FROM archive_state").get:
                return  # so a server starts on a full disk too
            with switching(writer, self._writable):
                writer.execute("UPDATE archive_state SET since = ? WHERE since = 0", (time,))
                if was_for == KEPT_FOR_ARCHIVE:
                    writer.execute("UPDATE change_log SET epoch = NULL")
                writer.execute("UPDATE change_log SET kept_for = ?", (KEPT_FOR_FEED,))

    def store_next(self, run: str, before: str | None = None) -> None:
        """Remember a run that is about to be tried, and the one `before`, which may have been the next one so far."""
        given = (run, before)
        self._store("UPDATE archive_state SET next_run = ?, run = coalesce(?, run)", given)

    def begin_run(self, archive: str, life: str, run: str, archived: int) -> None:
        """The run has begun, and all records up to `archived` are in the archive."""
        self._store(
            "UPDATE archive_state SET archive = ?, life = ?, run = ?, next_run = NULL, archived = ?, since = 0",
            (archive, life, run, archived),
        )

    def note(self, run: str, number: int) -> bool:
        """Note that all records up to this number are archived; False if the stored run is another one."""
        return self._store("UPDATE archive_state SET archived = ? WHERE run = ?", (number, run)) > 0

    def checks(self) -> tuple[int, int]:
        """When the archive was checked last, and when such a check held last, in seconds since 1970; 0 for never."""
        with self._reading():
            found: tuple[int, int] = self._reader.execute(_CHECKS).get
            return found

    def note_checks(self, checked: int, held: int) -> None:
        self._store("UPDATE archive_state SET checked = ?, held = ?", (checked, held))

    def ends(self) -> RecordEnds:
        with self._reading():
            self._require_kept()
            return RecordEnds(*self._reader.execute(_ENDS).get)

    def records(self, after: int, last: int | None, bytes_max: int) -> list[StoredRecord]:
        """The records from `after` plus one on, up to the one that reaches `bytes_max`; none if that one is gone."""
        found: list[StoredRecord] = []
        with self._reading():
            self._require_kept()
            given = (after, _EVER if last is None else last)
            for record in map(StoredRecord._make, self._reader.execute(_RECORDS, given)):
                if record.number != after + 1 + len(found):
                    break
                found.append(record)
                bytes_max -= len(record.rows) + len(record.partition)
                if bytes_max <= 0:
                    break
        return found

    def bytes_after(self, number: int) -> int:
        """About the bytes of the records after this one."""
        with self._reading():
            found: int = self._reader.execute(_BYTES_AFTER, (number,)).get or 0
            return found

    def record(self, number: int) -> StoredRecord | None:
        return next(iter(self.records(number - 1, number, 1)), None)

    def rows(self, after: Key | None, bytes_max: int) -> list[StoredRow]:
        """Rows that follow a key, or the first ones, up to the row that reaches `bytes_max`."""
        with self._reading():
            return rows_after(self._reader, after, bytes_max)

    def rows_of_moment(self, after: Key | None, bytes_max: int) -> tuple[int, list[StoredRow]]:
        """As `rows`, and the number of the newest record of the moment at which they were read."""
        with self._reading():
            self._require_kept()
            self._reader.execute("BEGIN")
            try:
                newest = self._reader.execute("SELECT max(number) FROM change_records").get
                return newest, rows_after(self._reader, after, bytes_max)
            finally:
                self._reader.execute("END")

    def database_bytes(self) -> int:
        return self._directory.database.stat().st_size

    def _require_kept(self) -> None:
        if kept_for(self._reader) not in FOR_ARCHIVE:
            raise EngineUnavailable(
                "No record of changes is kept for an archive: a server with --archive begins it."
            )

    def _store(self, statement: str, given: Sequence[str | int | None]) -> int:
        """Change the state, which `keep` has made; returns the number of changed rows."""
        with self._writing() as writer:
            writer.execute(statement, given)
            return writer.changes()

    @property
    def _writable(self) -> Generation:
        assert self._generation is not None
        return self._generation

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock, raising_unavailable("read"):
            yield

    @contextmanager
    def _writing(self) -> Iterator[apsw.Connection]:
        with raising_unavailable("write"), self._directory.committing() as writer:
            yield writer


def leave_life(writer: apsw.Connection) -> None:
    """Rows change in this transaction without records: the next run begins a life without a parent."""
    if writer.execute(_IS_THERE).get is not None:
        writer.execute("UPDATE archive_state SET run = '', next_run = NULL")


def make_table(writer: apsw.Connection) -> None:
    if writer.execute(_IS_THERE).get is None:
        writer.execute(SCHEMA)
        writer.execute(_FIRST)


def rows_after(
    connection: apsw.Connection, after: Key | None, bytes_max: int, last: Key | None = None
) -> list[StoredRow]:
    found: list[StoredRow] = []
    given = (*(after or (b"", b"")), *(last or _LAST_KEY))
    for stored in connection.execute(_ROWS, given):
        found.append(row := StoredRow(*stored))
        bytes_max -= len(row.partition) + len(row.row) + len(row.value)
        if bytes_max <= 0:
            break
    return found
