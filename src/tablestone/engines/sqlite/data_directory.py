"""The data directory of the SQLite engine: its files, the conditions for opening it, and the connections to it.

DIR/tablestone.db is the database, with SQLite's own -wal and -shm files. One server, with any number of processes,
holds DIR/lock. The two lock files of `commit_lock` let one process at a time commit, and its DIR/generation ends the
validity of caches. A directory that cannot be used is refused in one sentence, so the engine always finds a database of
its own format. Nothing here reads or writes a row.
"""

import errno
import fcntl
import logging
import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import apsw

from tablestone.engines.contract import (
    EngineBroken,
    EngineFull,
    EngineRefused,
    NothingStored,
    StorageId,
)
from tablestone.engines.kind import EncryptionKey, Opening
from tablestone.engines.sqlite import encryption
from tablestone.engines.sqlite.commit_lock import COMMIT_LOCK_NAMES, CommitLock, Generation
from tablestone.engines.sqlite.encryption import is_special
from tablestone.engines.sqlite.write_ahead_log import require_whole_log
from tablestone.fsync import flush_directory, flush_file

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The disk is full, or a quota is used up."""
LOCK_NAME: Final = "lock"


def take_server_lock(path: Path) -> int:
    """The open file of the lock: close it to release the lock. `EngineRefused` if a server has the lock."""
    lock = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise EngineRefused(
            f"The data directory {path} is in use by another Tablestone server."
        ) from None
    with suppress(OSError):  # on a full disk it stays unknown
        os.ftruncate(lock, 0)
        os.write(lock, b"%d\n" % RULES_FORMAT_VERSION)
    return lock


def newest_known(path: Path) -> int:
    """The newest format that the server knows that has the lock: it looks at the format only when it starts."""
    known = (path / LOCK_NAME).read_bytes().strip()
    return int(known) if known.isdigit() else INDEXED_FORMAT_VERSION


def is_locked(path: Path) -> bool:
    """Whether a server has the lock."""
    try:
        with (path / LOCK_NAME).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


log = logging.getLogger(__name__)

REENCRYPTED_NAME: Final = ".reencrypted.partial"
RESTORED_NAME: Final = ".restored.partial"
CHECKED_NAME: Final = ".checked.partial"
Progress = Callable[[int, int], None]
"""Takes the bytes that a long operation has done, and all its bytes."""
UNLOADED_NAME: Final = "unloaded-from"
"""This file, with the `StorageId` of a cluster, is in a directory while the cluster is unloaded into it."""


def require_unloaded(path: Path) -> None:
    """Refuse a directory with an unfinished unload: a server would answer without a part of the data."""
    if os.path.lexists(path / UNLOADED_NAME):
        raise EngineRefused(
            f"{path} holds only a part of a cluster's data: repeat the interrupted `tablestone cluster unload`."
        )


def remove_unfinished_copies(path: Path) -> None:
    """Remove the copies of killed commands. The caller holds the server's lock, as a command does while it copies."""
    for name in (REENCRYPTED_NAME, RESTORED_NAME, CHECKED_NAME):
        copy = path / name
        if not os.path.lexists(copy):
            continue
        try:
            shutil.rmtree(copy)
        except OSError as error:
            reason = error.strerror or error
            log.warning("Remove %s, which a killed command left: it holds data. %s.", copy, reason)
        else:
            log.warning("Removed %s, an unfinished copy that a killed command left.", copy)


FORMAT_VERSION: Final = 1
"""The value of `PRAGMA user_version`; it grows when an older Tablestone could not read newer data."""
KEEPING_FORMAT_VERSION: Final = 2
"""The value of a directory that keeps changes, or did (`change_log`)."""
INDEXED_FORMAT_VERSION: Final = 3
"""The value of a directory with index entries (`index_entries`)."""
RULES_FORMAT_VERSION: Final = 4
"""The value of a directory with rules of accounts, and with those: the newest that this Tablestone reads."""
FEATURES: Final = {
    KEEPING_FORMAT_VERSION: "a record of changes",
    INDEXED_FORMAT_VERSION: "an index",
    RULES_FORMAT_VERSION: "a rule of an account",
}
"""The first use of a feature gives a directory a newer format, without an upgrade."""
APPLICATION_ID: Final = 0x54425354
"""The value of `PRAGMA application_id`, "TBST": it tells Tablestone's files from other SQLite databases."""

PAGE_SIZE_BYTES: Final = 8192
"""The best of the measured sizes: docs/decisions/0002-sqlite-layout.md."""
SNAPSHOT_CACHE_KIB: Final = 2 * 1024
"""Small, because there may be many snapshots."""
READER_CACHE_KIB: Final = 32 * 1024
WRITER_CACHE_KIB: Final = 16 * 1024
WAL_KEPT_BYTES: Final = 32 * 1024 * 1024
"""The next restart truncates a log that a huge transaction made longer than this."""
DATABASE_NAME: Final = "tablestone.db"
GENERATION_NAME: Final = "generation"
LOG_NAME: Final = "tablestone.db-wal"
SHARED_NAME: Final = "tablestone.db-shm"
JOURNAL_NAME: Final = "tablestone.db-journal"
LOG_NAMES: Final = frozenset({LOG_NAME, SHARED_NAME})
OWN_NAMES: Final = (
    LOG_NAMES
    | COMMIT_LOCK_NAMES
    | {LOCK_NAME, GENERATION_NAME, DATABASE_NAME, JOURNAL_NAME, UNLOADED_NAME}
)
INCREMENTAL: Final = 2
"""The value of `PRAGMA auto_vacuum` for a database that can give free pages back."""
LOCKED_MS_MAX: Final = 50
"""How long to wait for the lock of another program, such as a backup tool. Short, because the event loop waits too."""
OPENING_MS_MAX: Final = 5_000
"""The same before a process serves anything: after a kill, another one may be reading the log again."""

# Not WITHOUT ROWID: values are stored in the order of their arrival, so a flush of rows from all over the key space
# touches few pages. The index of the primary key gives the order of the keys.
SCHEMA: Final = """
CREATE TABLE stored_rows (
    partition BLOB NOT NULL,
    row BLOB NOT NULL,
    version INTEGER NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (partition, row)
) STRICT
"""


class DataDirectory:
    """An opened data directory. With `storage`, another database is refused, and none is created.

    `key` encrypts the database, or will encrypt a new one. A directory with an unfinished unload is refused, unless the
    unload opens it (`may_be_unfinished`) or it is only read.
    """

    def __init__(
        self,
        path: Path,
        opening: Opening,
        storage: StorageId | None = None,
        key: EncryptionKey | None = None,
        *,
        may_be_unfinished: bool = False,
    ) -> None:
        self.path = path
        self.key = key
        self._opening = opening
        self._lock: int | None = None
        self._storage = storage
        self._is_immutable = False
        with self.refusing():
            if storage is not None:
                # After the data was removed, a worker that replaces another must not create a new database.
                if not self.is_where_it_was():
                    raise EngineRefused(
                        f"The data directory {path} no longer holds the database that this server opened."
                    )
            elif opening is Opening.READ_ONLY:
                self._require_there()
            else:
                make_directory(path)
            if opening is not Opening.READ_ONLY:
                copy = path / RESTORED_NAME
                if os.path.lexists(copy) and not os.path.lexists(self.database):
                    raise EngineRefused(
                        f"The restore into {path} did not end: run it again, or remove {copy} to start without data."
                    )
                if not may_be_unfinished:
                    require_unloaded(path)
                self._require_writable()
            if opening is Opening.SERVER:
                self._lock = take_server_lock(path)
                remove_unfinished_copies(path)
        try:
            with self.refusing():
                if opening is Opening.READ_ONLY:
                    self._prepare(read_only=True)
                else:  # two processes must not both create the database, or meet while one closes it
                    with closing(CommitLock(path)) as lock, lock.held():
                        self._prepare(read_only=False)
                self._storage = self._storage or _storage_at(self.database)
        except BaseException:
            self.close()
            raise

    @property
    def database(self) -> Path:
        return self.path / DATABASE_NAME

    @property
    def storage(self) -> StorageId:
        """Of the database that was opened."""
        assert self._storage is not None
        return self._storage

    def is_where_it_was(self) -> bool:
        """Whether the path still leads to the opened database: it was not removed, moved or replaced."""
        try:
            return _storage_at(self.database) == self._storage
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:  # the file system cannot answer now, so the database may be there
            return True

    def open_generation(self) -> Generation:
        """The generation that the processes share; ends a commit that a dead process left unfinished."""
        with self.refusing():
            generation = Generation(self.path / GENERATION_NAME)
            with closing(CommitLock(self.path)) as lock, lock.held():
                generation.end()
        return generation

    def connect_reader(self, cache_kib: int = SNAPSHOT_CACHE_KIB) -> apsw.Connection:
        """A read-only connection, which sees only committed rows."""
        connection = self._connect(apsw.SQLITE_OPEN_READONLY)
        connection.pragma("cache_size", -cache_kib)
        return connection

    def connect_writer(self) -> apsw.Connection:
        """A connection that writes. Its owner makes the checkpoints."""
        connection = self._connect(apsw.SQLITE_OPEN_READWRITE)
        connection.pragma("cache_size", -WRITER_CACHE_KIB)
        connection.pragma("synchronous", "FULL")
        connection.pragma("journal_size_limit", WAL_KEPT_BYTES)
        connection.pragma("secure_delete", value=False)  # by default the library overwrites
        connection.wal_autocheckpoint(0)
        return connection

    @contextmanager
    def committing(self) -> Iterator[apsw.Connection]:
        """A connection that writes, for a block in which no other process commits."""
        with (
            closing(CommitLock(self.path)) as lock,
            lock.held(),
            closing(self.connect_writer()) as connection,
        ):
            yield connection

    def close(self) -> None:
        """Release the directory for the next server. Close all connections first."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Turn errors of the operating system and of SQLite into one sentence for the operator."""
        try:
            yield
        except apsw.CorruptError as error:
            raise EngineBroken(f"{self.database} is damaged: {error}.{self._advice}") from error
        except apsw.NotADBError as error:
            raise EngineBroken(
                f"{self.database} is not a Tablestone database: {error}.{self._advice}"
            ) from error
        except apsw.Error as error:
            # SQLite's own text would be "disk I/O error".
            is_shm = getattr(error, "extendedresult", None) == apsw.SQLITE_IOERR_SHMSIZE
            is_full = is_shm or isinstance(error, apsw.FullError)
            place = f"for {SHARED_NAME}" if is_shm else f"in {self.path}"
            why = f"there is no room {place}" if is_full else str(error)
            refusal = EngineFull if is_full else EngineRefused
            raise refusal(f"{self.database} cannot be opened: {why}.") from error
        except OSError as error:
            is_full = error.errno in NO_ROOM
            why = "there is no room in it" if is_full else error.strerror or str(error)
            refusal = EngineFull if is_full else EngineRefused
            raise refusal(f"The data directory {self.path} cannot be used: {why}.") from error

    @property
    def _advice(self) -> str:
        """The advice for a damaged database; none if read-only, which `check` itself is."""
        if self._opening is Opening.READ_ONLY:
            return ""
        return f" For a list of all problems: tablestone check --data {shlex.quote(str(self.path))}"

    def _require_there(self) -> None:
        _require_not_lost(self.path)
        if not self.database.is_file():
            raise NothingStored(f"The data directory {self.path} holds no Tablestone data.")
        if not os.access(self.database, os.R_OK):
            raise EngineRefused(
                f"The data directory {self.path} cannot be used: {self.database.name} cannot be read."
            )
        is_logged = all((self.path / name).exists() for name in LOG_NAMES)  # a server is running
        if not is_logged and not os.access(self.path, os.W_OK):
            self._require_no_log()
            self._is_immutable = True

    def _require_no_log(self) -> None:
        """Refuse a log on a read-only medium, where SQLite cannot create its other files and would ignore the log."""
        for name in (LOG_NAME, JOURNAL_NAME):
            path = self.path / name
            if path.exists() and path.stat().st_size > 0:
                raise EngineRefused(
                    f"The data directory {self.path} cannot be read where nothing can be written, because {name} "
                    "contains part of the data: make a copy that can be written."
                )

    def _require_writable(self) -> None:
        """Refuse read-only files, which SQLite would fail to write later, and FIFOs, for which it would wait."""
        for path in filter(is_special, (self.path / name for name in sorted(OWN_NAMES))):
            why = f"cannot be used: {path.name} is no regular file"
            raise EngineRefused(f"The data directory {self.path} {why}.")
        for path in (self.database, *(self.path / name for name in sorted(LOG_NAMES))):
            if not _is_writable_if_there(path):
                raise EngineRefused(
                    f"The data directory {self.path} cannot be used: {path.name} cannot be written."
                )

    def _connect(self, flags: int) -> apsw.Connection:
        name = os.fspath(self.database)
        if self._is_immutable:
            name = f"{self.database.absolute().as_uri()}?immutable=1"
            flags |= apsw.SQLITE_OPEN_URI
        connection = encryption.connect(name, flags, self.key)
        if self._storage is not None and not self.is_where_it_was():
            connection.close()  # it may be another server's, so it must not be read or written
            raise apsw.CantOpenError("the path no longer leads to the database")
        connection.set_busy_timeout(LOCKED_MS_MAX)
        return connection

    def _prepare(self, *, read_only: bool) -> None:
        encryption.require_fitting_key(self.path, self.database, self.key)
        create = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        is_cut = was_used(self.path) and self.database.stat().st_size == 0
        if is_cut and not read_only:  # before SQLite removes the log
            raise EngineBroken(f"{self.database} has been cut to nothing.{self._advice}")
        flags = apsw.SQLITE_OPEN_READONLY if read_only else create
        with closing(self._connect(flags)) as connection:
            connection.set_busy_timeout(OPENING_MS_MAX)
            version = connection.pragma("user_version")
            application_id = connection.pragma("application_id")
            is_empty = connection.execute("SELECT count(*) FROM sqlite_schema").get == 0
            if is_empty and version == application_id == 0:
                if read_only:
                    raise EngineBroken(
                        f"{self.database} is empty: there is no table and no account in it."
                    )
                self._create(connection)
            elif application_id != APPLICATION_ID:
                raise EngineRefused(
                    f"{self.database} belongs to another program: it is not Tablestone data."
                )
            elif version > RULES_FORMAT_VERSION:
                raise EngineRefused(
                    f"The data directory {self.path} was written by a newer version of Tablestone "
                    f"(format {version}; this one reads {RULES_FORMAT_VERSION})."
                )
            elif version < FORMAT_VERSION and not read_only:
                raise EngineRefused(
                    f"The data directory {self.path} was written by an older version of Tablestone (format {version}; "
                    f"this one writes {FORMAT_VERSION}). After a backup: tablestone upgrade --data "
                    f"{shlex.quote(str(self.path))}"
                )
            elif not read_only:
                connection.execute("BEGIN IMMEDIATE; ROLLBACK")  # a file that cannot be written
                require_whole_log(connection, self.path / LOG_NAME)

    def _create(self, connection: apsw.Connection) -> None:
        """Write a database without rows. A crash leaves a complete one, or an empty file that the next start fills."""
        self.database.chmod(0o600)
        connection.pragma("page_size", PAGE_SIZE_BYTES)
        connection.pragma("auto_vacuum", INCREMENTAL)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "FULL")
        # Not `with connection`: on a full disk that reports a failed rollback and hides the cause. To close the
        # connection undoes the changes anyway.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(SCHEMA)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", FORMAT_VERSION)
        connection.execute("COMMIT")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        flush_directory(self.path)


def make_directory(path: Path) -> None:
    """Make the directory unless it exists; `EngineRefused` if it cannot be a data directory."""
    there = next(each for each in (path, *path.parents) if os.path.lexists(each))
    if not there.is_dir():
        wrong = "" if there == path else f"cannot be used: {there} "
        raise EngineRefused(f"The data directory {path} {wrong}is not a directory.")
    if there == path:
        _require_not_lost(path)
        _require_ours_or_empty(path)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        flush_directory(path.parent)


def was_used(path: Path) -> bool:
    """Whether there was a complete database; a first start that was killed too early leaves no sign of one.

    A new database is on disk, with its name, before its log (the first page uses SQLite's other journal) and before the
    file of the generation.
    """
    if (path / GENERATION_NAME).exists():
        return True
    try:
        return (path / LOG_NAME).stat().st_size > 0
    except FileNotFoundError:
        return False


def _require_not_lost(path: Path) -> None:
    """Refuse a directory whose database is gone: a start would create a new one and remove the old one's log."""
    if was_used(path) and not os.path.lexists(path / DATABASE_NAME):
        raise EngineRefused(
            f"The data directory {path} was used, but its {DATABASE_NAME} is gone: put it back, or "
            "name a new or an empty directory."
        )


def _require_ours_or_empty(path: Path) -> None:
    """Refuse a directory with other files, because --data may be mistyped."""
    present = {each.name for each in path.iterdir()}
    if DATABASE_NAME in present:
        return
    strangers = {
        name
        for name in present - OWN_NAMES - {"lost+found"}
        if name[0] != "." and not name.endswith(".toml")
    }
    if strangers:
        raise EngineRefused(
            f"The data directory {path} holds no Tablestone data but other files, such as "
            f"{min(strangers)!r}: name a new or an empty directory."
        )


def _storage_at(database: Path) -> StorageId:
    found = database.stat()
    return StorageId(b"%d:%d" % (found.st_dev, found.st_ino))


def _is_writable_if_there(path: Path) -> bool:
    """Ask twice: the SQLite of another process may create or remove its log meanwhile."""
    return os.access(path, os.W_OK) or not path.exists() or os.access(path, os.W_OK)


@contextmanager
def room_for_database(path: Path) -> Iterator[Path]:
    """Yields where to write a new database, which becomes the data of `path` unless the block raises an error.

    `EngineRefused` if the directory has data, is in use or cannot be used; `OSError` as the file system raises it.
    An error leaves nothing new in `path`.
    """
    was_there = os.path.lexists(path)
    if (path / DATABASE_NAME).exists():
        os.close(take_server_lock(path))
        raise EngineRefused(
            f"The data directory {path} holds data already: name a new or an empty directory."
        )
    make_directory(path)
    is_whole = False
    lock = take_server_lock(path)
    staging = path / RESTORED_NAME
    try:
        remove_unfinished_copies(path)
        staging.mkdir(mode=0o700)
        file = staging / DATABASE_NAME
        yield file
        flush_file(file)
        for name in LOG_NAMES:  # empty ones, or the directory would have been refused
            (path / name).unlink(missing_ok=True)
        file.rename(path / DATABASE_NAME)
        is_whole = True
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        if not is_whole:
            (path / LOCK_NAME).unlink(missing_ok=True)
            if not was_there:
                path.rmdir()
        os.close(lock)
    flush_directory(path)
