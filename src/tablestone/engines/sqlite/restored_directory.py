"""A new data directory that is filled from an archive: rows of a base copy, then records of changes, in order.

It is filled inside DIR, which may be a volume of its own, and becomes DIR's database when all is there. No server
starts before. What is stored and how far that is go into one transaction, so a restore that was interrupted goes on.
"""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

import apsw

from tablestone.engines.change_record import ID_BYTES, RECORD_BYTES, read_rows
from tablestone.engines.contract import EngineUnavailable, StorageId
from tablestone.engines.sqlite import archive_source, change_log, index_entries
from tablestone.engines.sqlite.backup import PUT, NewDirectory
from tablestone.engines.sqlite.data_directory import (
    DATABASE_NAME,
    LOCK_NAME,
    RESTORED_NAME,
    take_server_lock,
)
from tablestone.engines.sqlite.encryption import connect
from tablestone.fsync import flush_directory, flush_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tablestone.engines.contract import Entry, Key, StoredRow
    from tablestone.engines.kind import EncryptionKey
    from tablestone.engines.sqlite.archive_source import ArchiveState, StoredRecord

_PROGRESS: Final = """
CREATE TABLE IF NOT EXISTS restore_progress (
    life TEXT, base TEXT, parts INTEGER, number INTEGER, is_whole INTEGER
)
"""
_ENTRIES: Final = "SELECT name FROM sqlite_schema WHERE name = 'index_entries'"
_DELETE: Final = "DELETE FROM stored_rows WHERE partition = ? AND row = ?"
_SOURCE: Final = StorageId(b"an archive")


class RestoreProgress(NamedTuple):
    life: str
    base: str
    """The name of the base copy."""
    parts: int
    """Its parts that are stored."""
    number: int
    """The last record that was applied; 0 for none."""
    is_whole: bool = False
    """Whether no later record may be applied: what follows the rows was made of them."""


class RestoredDirectory(NewDirectory):
    """A directory that an archive fills."""

    may_hold = frozenset({RESTORED_NAME, LOCK_NAME, "lost+found"})

    def __init__(self, path: Path, key: EncryptionKey | None = None) -> None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        super().__init__(path, _SOURCE, key)
        self._key = key

    @staticmethod
    def partial_of(path: Path) -> Path:
        return path / RESTORED_NAME

    def finish(self) -> None:
        self.close()
        self._require_free()
        lock = take_server_lock(self.path)
        try:
            database = self.partial / DATABASE_NAME
            with closing(
                connect(os.fspath(database), apsw.SQLITE_OPEN_READWRITE, self._key)
            ) as last:
                last.execute("DROP TABLE restore_progress")
            flush_file(database)
            database.rename(self.path / DATABASE_NAME)
            flush_directory(self.path)
            shutil.rmtree(self.partial)
        except (OSError, apsw.Error) as error:
            raise EngineUnavailable(
                f"{self.partial} is complete, and its database cannot be moved to {self.path}: {error}."
            ) from error
        finally:
            os.close(lock)

    @property
    def progress(self) -> RestoreProgress | None:
        """How far an earlier attempt came."""
        with self._writing():
            self._connection.execute(_PROGRESS)
            found = self._connection.execute("SELECT * FROM restore_progress").get
        return None if found is None else RestoreProgress(*found)

    def clear(self) -> None:
        """Forget what an earlier attempt brought."""
        with self._writing():
            self._connection.execute(_PROGRESS)
            for table in ("stored_rows", "restore_progress", *self._connection.execute(_ENTRIES)):
                self._connection.execute(f"DELETE FROM {''.join(table)}")  # noqa: S608 - no value in it

    def apply(self, records: Iterable[StoredRecord], progress: RestoreProgress | None) -> None:
        """Apply records in their order."""
        execute = self._connection.cursor().execute
        with self._writing():
            for record in records:
                for row, version, value, _before in read_rows(record.rows):
                    if value is None:
                        execute(_DELETE, (record.partition, row))
                    else:
                        execute(PUT, (record.partition, row, version, value))
            if progress is not None:
                self._note(progress)

    def rows(self, after: Key | None, bytes_max: int, last: Key | None = None) -> list[StoredRow]:
        """As those of the `ArchiveSource`, up to the key `last`."""
        with self._writing():
            return archive_source.rows_after(self._connection, after, bytes_max, last)

    def add_entries(self, entries: Iterable[Entry]) -> None:
        """Store index entries. They may be there already."""
        with self._writing():
            index_entries.make_table(self._connection)
            self._connection.executemany(index_entries.insert_statement(1), entries)

    def keep_record(self, storage: bytes, newest: StoredRecord, state: ArchiveState) -> None:
        """Let the storage go on as `storage`, in a new epoch, after the record `newest`, which is archived."""
        with self._writing():
            change_log.make_tables(self._connection)
            archive_source.make_table(self._connection)
            self._connection.execute("DELETE FROM change_records")
            size = RECORD_BYTES + sum(len(text) for text in newest[2:])
            self._connection.execute(
                "INSERT INTO change_records VALUES (?, ?, ?, ?, ?, ?, ?)",
                (newest.number, newest.time, size, *newest[2:]),
            )
            epoch, began = secrets.token_bytes(ID_BYTES), newest.number - 1
            self._connection.execute(
                "UPDATE change_log SET storage = ?, epoch = ?, began = ?, began_empty = 0, ticks_max = NULL,"
                " bytes_max = ?, kept_for = ?",
                (
                    *(storage, epoch, began, change_log.default_bytes(self.partial)),
                    change_log.KEPT_FOR_ARCHIVE,
                ),
            )
            self._connection.execute(
                "UPDATE archive_state SET archive = ?, life = ?, run = ?, archived = ?, began = ?",
                (state.archive, state.life, state.run, state.archived, began),
            )
            self._connection.execute("UPDATE restore_progress SET is_whole = 1")

    def _note(self, progress: RestoreProgress) -> None:
        self._connection.execute("DELETE FROM restore_progress")
        self._connection.execute("INSERT INTO restore_progress VALUES (?, ?, ?, ?, ?)", progress)
