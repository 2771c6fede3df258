"""Copies a database beside its server, for a backup, and fills a new data directory with rows of another engine.

A copy has no records of changes, and a restore ends the record. A new directory takes rows with their versions, such as
those of a cluster, in DIR.part, which becomes DIR when all are there. So DIR is complete as soon as it exists, and a
new attempt continues an interrupted one. A file in DIR.part names the source, and keeps servers out.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Final, Self

import apsw

from tablestone.engines.contract import (
    EngineDamaged,
    EngineFull,
    EngineRefused,
    EngineUnavailable,
    Key,
    StorageId,
    StoredRow,
)
from tablestone.engines.kind import EncryptionKey, Opening
from tablestone.engines.sqlite import encryption
from tablestone.engines.sqlite.change_log import leave_records_out
from tablestone.engines.sqlite.data_directory import (
    UNLOADED_NAME,
    DataDirectory,
    Progress,
    require_unloaded,
)
from tablestone.engines.sqlite.index_entries import set_rules_format
from tablestone.fsync import flush_directory, flush_file

STEP_PAGES: Final = 256
"""Pages between two calls of `progress`: 2 MiB."""

CREATE: Final = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE


def copy_database(
    directory: Path, target: Path, progress: Progress, key: EncryptionKey | None = None
) -> None:
    """Copy the database of `directory` into the new file `target`, without records of changes, and flush it.

    The directory's `key`, if it has one, encrypts the copy too. `EngineRefused` if the directory cannot be read,
    `EngineDamaged` if a page cannot, `OSError` if there is no room, else `EngineUnavailable`; `target` is then
    incomplete.
    """
    require_unloaded(directory)
    opened = DataDirectory(directory, Opening.READ_ONLY, key=key)
    try:
        with (
            closing(opened),
            closing(opened.connect_reader()) as source,
            closing(encryption.connect(os.fspath(target), CREATE, key)) as copy,
        ):
            page_bytes = source.pragma("page_size")
            copy.pragma("page_size", page_bytes)  # encrypted pages cannot be copied into others
            copy.pragma("journal_mode", "off")
            copy.pragma("synchronous", "off")  # it is flushed once, below
            source.execute("BEGIN")
            # The first read fixes the snapshot that is copied.
            source.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            with copy.backup("main", source, "main") as copying:
                while not copying.done:
                    copying.step(STEP_PAGES)
                    pages = copying.page_count
                    progress((pages - copying.remaining) * page_bytes, pages * page_bytes)
            leave_records_out(copy, ends_epoch=False)
    except apsw.FullError as error:  # the steps of a copy say "not an error"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(target)) from error
    except apsw.CorruptError as error:
        raise EngineDamaged(f"a page of {opened.database} is damaged") from error
    except apsw.Error as error:
        raise EngineUnavailable(f"The database cannot be copied: {error}.") from error
    flush_file(target)


def end_record(database: Path, key: EncryptionKey | None = None) -> None:
    """End the record of changes of a restored database: its later changes differ from those of the original.

    Raises `OSError` if there is no room, else `EngineUnavailable`.
    """
    try:
        with closing(
            encryption.connect(os.fspath(database), apsw.SQLITE_OPEN_READWRITE, key)
        ) as restored:
            leave_records_out(restored, ends_epoch=True)
    except apsw.FullError as error:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(database)) from error
    except apsw.Error as error:
        raise EngineUnavailable(f"{database} cannot be written: {error}.") from error


PARTIAL_SUFFIX: Final = ".part"
PUT: Final = (
    "INSERT OR REPLACE INTO stored_rows (partition, row, version, value) VALUES (?, ?, ?, ?)"
)
_LAST: Final = "SELECT partition, row FROM stored_rows ORDER BY partition DESC, row DESC LIMIT 1"
_COUNT: Final = "SELECT count(*) FROM stored_rows"
_COUNT_AFTER: Final = "SELECT count(*) FROM stored_rows WHERE (partition, row) > (?, ?)"


class NewDirectory:
    """A data directory that is filled from a `source`, or an interrupted attempt that continues.

    `EngineRefused` if the name is taken, or if DIR.part is not an unload of this source. `key` encrypts the directory.
    """

    at_once = 1
    may_hold: frozenset[str] = frozenset()
    """Names that may be in the directory before it is filled."""

    def __init__(self, path: Path, source: StorageId, key: EncryptionKey | None = None) -> None:
        self.path = Path(os.path.realpath(path))  # the working directory has a name too
        self._require_free()
        self.partial = self.partial_of(self.path)
        self._mark = self.partial / UNLOADED_NAME
        self._directory = DataDirectory(
            self.partial, Opening.SERVER, key=key, may_be_unfinished=True
        )
        self._connection = self._directory.connect_writer()
        self._lock = Lock()
        self._connection.wal_autocheckpoint(1000)
        last = self._connection.execute(_LAST).get
        self.reached = None if last is None else Key(*last)
        try:
            self._require_from(source)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def partial_of(path: Path) -> Path:
        """Where a directory is filled."""
        return path.with_name(path.name + PARTIAL_SUFFIX)

    async def write(self, rows: Sequence[StoredRow]) -> None:
        with self._writing():
            self._connection.executemany(PUT, rows)

    async def reach(self, key: Key) -> None:
        """Rows come in order, so the last stored row says how far the unload got."""

    async def keep_rules(self) -> None:
        """Give the directory the format of rules of accounts."""
        with self._writing():
            set_rules_format(self._connection)

    def finish(self) -> None:
        """Give the directory its name."""
        self.close()
        self._require_free()
        try:
            with suppress(FileNotFoundError):
                self.path.rmdir()
            self._mark.unlink()
            flush_directory(self.partial)  # the mark must be gone before the directory has its name
            self.partial.rename(self.path)
        except OSError as error:  # such as a directory that is a file system of its own
            raise EngineUnavailable(
                f"{self.partial} is complete, and cannot be renamed to {self.path}: {error.strerror}."
            ) from error

    def close(self) -> None:
        """The next attempt finds the rows."""
        with self._lock:  # a thread may still write, after Ctrl-C
            self._connection.close()
        self._directory.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction, flushed to the disk; `EngineFull` if there is no room, else `EngineUnavailable`."""
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except apsw.FullError as error:  # SQLite has rolled back
                raise EngineFull(f"There is no room in {self.partial}.") from error
            except apsw.Error as error:
                raise EngineUnavailable(f"{self.partial} cannot be written: {error}.") from error
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def _require_from(self, source: StorageId) -> None:
        """Refuse a part of another source, and note this one."""
        try:
            if self._mark.exists():
                if self._mark.read_bytes() != source:
                    raise EngineRefused(
                        f"{self.partial} is a part of another source: remove it, or name another directory."
                    )
            elif self.reached is not None:
                raise EngineRefused(
                    f"{self.partial} holds data of no unfinished attempt: move it, or name another directory."
                )
            else:
                self._mark.touch(mode=0o600)
                self._mark.write_bytes(source)
                flush_file(self._mark)
                flush_directory(self.partial)
        except OSError as error:
            raise EngineUnavailable(f"{self.partial} cannot be written: {error}.") from error

    def _require_free(self) -> None:
        try:
            if {each.name for each in self.path.iterdir()} - self.may_hold:
                raise EngineRefused(
                    f"The directory {self.path} is not empty: name a new or an empty directory."
                )
        except FileNotFoundError:
            pass
        except NotADirectoryError:
            raise EngineRefused(f"{self.path} is not a directory.") from None
        except OSError as error:
            raise EngineRefused(
                f"The directory {self.path} cannot be read: {error.strerror}."
            ) from None


def count_rows(path: Path, key: EncryptionKey | None = None, after: Key | None = None) -> int:
    """The rows in a data directory that is open already, or those after a key."""
    with (
        closing(DataDirectory(path, Opening.READ_ONLY, key=key)) as directory,
        closing(directory.connect_reader()) as connection,
    ):
        return int(connection.execute(_COUNT if after is None else _COUNT_AFTER, after).get)
