"""Turns the encryption of a data directory on or off, or changes its key, while no process uses the directory.

SQLite's `VACUUM INTO` writes a new database, with the new key, beside the old one. A rename then replaces the old one,
so a crash leaves one of the two, whole.
"""

import errno
import os
import shlex
import shutil
from contextlib import closing
from pathlib import Path
from typing import Final

import apsw

from tablestone.engines.contract import EngineDamaged, EngineRefused, EngineUnavailable
from tablestone.engines.kind import EncryptionKey, Opening
from tablestone.engines.sqlite import data_directory, encryption
from tablestone.engines.sqlite.commit_lock import CommitLock
from tablestone.fsync import flush_directory, flush_file

STEPS_PER_NEWS: Final = 10_000
"""Steps of SQLite's virtual machine between two calls of `progress`, some milliseconds."""
_COUNT: Final = "SELECT count(*) FROM stored_rows"


def reencrypt(
    path: Path,
    old: EncryptionKey | None,
    new: EncryptionKey | None,
    progress: data_directory.Progress,
) -> tuple[int, int]:
    """Rewrite the database, which `old` encrypts, with the key `new` (None: unencrypted); returns its rows and bytes.

    `EngineRefused` if the directory cannot be used, has another key, or is in use. `EngineDamaged` if its data is
    damaged, `EngineUnavailable` or `OSError` if a step fails; the directory is then as it was.
    """
    if old is None and new is not None:
        encryption.require_not_encrypted(path, path / data_directory.DATABASE_NAME)
    data_directory.DataDirectory(path, Opening.READ_ONLY, key=old).close()  # refuses to create one
    directory = data_directory.DataDirectory(path, Opening.SERVER, key=old)
    staging = path / data_directory.REENCRYPTED_NAME
    try:
        with closing(CommitLock(path)) as commits, commits.held():
            _require_room(staging)
            flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
            database = os.fspath(directory.database.absolute())
            with closing(encryption.connect(database, flags, old)) as source:
                source.set_busy_timeout(data_directory.LOCKED_MS_MAX)
                _require_alone(source, path)
                _require_whole(source, path)
                source.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                rows = _write_again(source, staging, new, progress)
            # Nothing can write now: a command that writes would wait for the commit lock.
            size = (staging / data_directory.DATABASE_NAME).stat().st_size
            _replace(path, staging / data_directory.DATABASE_NAME)
            return rows, size
    except apsw.FullError as error:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(staging)) from error
    except apsw.Error as error:
        raise EngineUnavailable(f"The database cannot be written again: {error}.") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        directory.close()


def _require_room(staging: Path) -> None:
    """Refuse anything in the place of the new database; the copy of a killed command is removed by now."""
    if os.path.lexists(staging):
        raise EngineRefused(
            f"{staging} stands in the way of the new database, and no command of Tablestone has made it: look at it, "
            "and remove it."
        )


def _require_alone(source: apsw.Connection, path: Path) -> None:
    """Lock every other connection out, even readers; `EngineRefused` if there is one."""
    source.pragma("locking_mode", "EXCLUSIVE")
    try:
        source.execute("BEGIN EXCLUSIVE; COMMIT")
    except apsw.BusyError:
        raise EngineRefused(
            f"The data directory {path} is in use by another command: wait for its end."
        ) from None


def _require_whole(source: apsw.Connection, path: Path) -> None:
    """Refuse a damaged database: the new one would not show the loss, and the old one goes."""
    try:
        is_whole = source.execute("PRAGMA integrity_check(1)").get == "ok"
    except apsw.CorruptError:
        is_whole = False
    if not is_whole:
        raise EngineDamaged(
            f"The data directory {path} is damaged, and was not changed. For a list of all problems: "
            f"tablestone check --data {shlex.quote(str(path))}"
        )


def _write_again(
    source: apsw.Connection,
    staging: Path,
    new: EncryptionKey | None,
    progress: data_directory.Progress,
) -> int:
    """Copy the database into a new one, check and flush it; returns the number of rows."""
    whole = source.pragma("page_count") * source.pragma("page_size")
    expected: int = source.execute(_COUNT).get
    staging.mkdir(mode=0o700)
    file = staging.absolute() / data_directory.DATABASE_NAME

    def report() -> bool:
        progress(min(whole, file.stat().st_size if file.exists() else 0), whole)
        return False  # go on

    source.set_progress_handler(report, STEPS_PER_NEWS)
    try:
        source.execute("VACUUM INTO ?", (encryption.uri_of(file, new),))
    except apsw.CantOpenError:  # its text has the URI, and so the key
        raise EngineUnavailable(f"{file} cannot be made.") from None
    with closing(encryption.connect(os.fspath(file), apsw.SQLITE_OPEN_READWRITE, new)) as target:
        target.pragma("journal_mode", "wal")
        found = target.execute("PRAGMA integrity_check").get
        if found != "ok" or target.execute(_COUNT).get != expected:
            raise EngineUnavailable("The new database is not as the old one: nothing changed.")
    flush_file(file)
    return expected


def _replace(path: Path, staged: Path) -> None:
    """Replace the old database, which must have no log any more."""
    for name in (data_directory.LOG_NAME, data_directory.JOURNAL_NAME):
        log = path / name
        if log.exists() and log.stat().st_size:
            raise EngineRefused(
                f"The data directory {path} is in use by another command: wait for its end."
            )
    shutil.copymode(path / data_directory.DATABASE_NAME, staged)
    flush_directory(path)
    staged.rename(path / data_directory.DATABASE_NAME)
    for (
        name
    ) in data_directory.LOG_NAMES:  # empty ones, of a command that began to read the old database
        (path / name).unlink(missing_ok=True)
    flush_directory(path)
