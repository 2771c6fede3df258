"""`tablestone backup` and `restore`: copy a data directory into one checked file, and back."""

import errno
import fcntl
import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from tablestone.cli.commands.check import problems_of, tell_large
from tablestone.cli.local_directory import (
    SCHEME,
    BackupFailed,
    ByteProgress,
    byte_progress,
    explaining_denial,
    explaining_failure,
    local_directory,
)
from tablestone.cli.options import (
    CHECK_OPTIONS,
    BrokenOption,
    path_from,
    quiet_option,
    with_options,
)
from tablestone.clock import unix_seconds
from tablestone.engines.contract import EngineDamaged, EngineFull, EngineRefused, EngineUnavailable
from tablestone.engines.kind import EncryptionKey, EngineUrl
from tablestone.engines.sqlite.backup import copy_database
from tablestone.engines.sqlite.data_directory import DATABASE_NAME
from tablestone.fsync import flush, flush_directory
from tablestone.tools.progress import shown_bytes

SUM_SUFFIX: Final = ".sha256"
STAGING_NAME: Final = ".tablestone-backup.partial"
CHUNK_BYTES: Final = 1024 * 1024
DATED: Final = re.compile(r"tablestone-\d{8}T\d{6}Z\.db", re.ASCII)
"""The name of a dated backup, as tablestone-20130101T060000Z.db: the time in UTC, so that names sort by time."""


def dated_name(directory: Path, seconds: float) -> str:
    """The name of a backup at this time (Unix seconds), or at the next second without a backup."""
    moment = datetime.fromtimestamp(int(seconds), UTC)
    while (directory / (name := f"tablestone-{moment:%Y%m%dT%H%M%SZ}.db")).exists():
        moment += timedelta(seconds=1)
    return name


def dated_backups(directory: Path) -> list[Path]:
    """The dated backups of a directory, the oldest first."""
    return sorted(each for each in directory.iterdir() if DATED.fullmatch(each.name))


def remove_old(directory: Path, kept: int) -> Iterator[Path]:
    """Remove all dated backups but the newest `kept`, with their sums, and yield each that is removed."""
    for path in dated_backups(directory)[:-kept]:
        path.unlink()
        sum_file(path).unlink(missing_ok=True)
        yield path


def sum_file(backup: Path) -> Path:
    return backup.with_name(backup.name + SUM_SUFFIX)


def write_sum(backup: Path, digest: str) -> None:
    line = f"{digest}  {backup.name}"
    if "\n" in line:  # as sha256sum writes such a name, and reads it
        line = "\\" + line.replace("\\", r"\\").replace("\n", r"\n")
    with sum_file(backup).open("w", encoding="utf-8") as file:
        file.write(line + "\n")
        flush(file)


def read_sum(backup: Path) -> str | None:
    """The sum that is written beside a backup; None if there is none. `BackupFailed` if it cannot be read."""
    try:
        text = sum_file(backup).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (IsADirectoryError, ValueError):
        text = ""
    digest = text.partition(" ")[0].removeprefix("\\")
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise BackupFailed(f"{sum_file(backup)} holds no SHA-256: remove it, or put it back.")
    return digest


def copy_file(path: Path, copy: Path, progress: ByteProgress) -> str:
    """Copy a file; returns its SHA-256 in hexadecimal."""
    whole = path.stat().st_size
    digest = hashlib.sha256()
    with path.open("rb") as file, copy.open("wb") as other:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            other.write(chunk)
            progress(file.tell(), whole)
    return digest.hexdigest()


@contextmanager
def staging(directory: Path) -> Iterator[Path]:
    """A directory beside the backups, removed at the end. `EngineRefused` if another backup there is under way."""
    place = directory / STAGING_NAME
    place.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(place, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EngineRefused(f"Another backup into {directory} is under way.") from None
        try:
            for left in place.iterdir():  # by a backup that was killed
                left.unlink()
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)
    finally:
        os.close(lock)


@click.command()
@click.argument("target")
@click.option(
    "--keep",
    metavar="N",
    type=click.IntRange(1),
    help="TARGET is a directory of dated backups: keep the newest N and remove older ones.",
)
@quiet_option
@with_options(CHECK_OPTIONS)
def backup(target: str, keep: int | None, *, quiet: bool, **given: Any) -> None:
    """Copy the data into one file and check the copy.

    The copy is of one moment; a server may use the directory at the same time. TARGET is a new
    file, or a directory in which the file gets a dated name. `tablestone restore` takes the file.
    The backup of an encrypted directory is encrypted with the same key.
    """
    wanted = path_from(target, Path.cwd(), "backup")
    directory, key = local_directory(
        given,
        "`nodetool snapshot` or `tablestone cluster unload` backs a cluster up, and `pg_dump` or "
        "`tablestone postgresql unload` a database; `tablestone copy` copies tables to another server.",
    )
    with explaining_denial(f"The backup {wanted} was not made"):
        place = _place(wanted, directory, is_directory=keep is not None)
    undone = f"The backup {place} was not made"
    large: list[str] = []
    try:
        with byte_progress("backup", quiet=quiet) as progress, explaining_failure(undone, place):
            size = _make(directory, place, progress, key, large)
    except EngineDamaged as error:
        raise _damaged(directory, place, str(error)) from None
    except EngineUnavailable as error:
        raise BackupFailed(f"{undone}: {str(error).rstrip('.')}.") from None
    print(f"{place}: {shown_bytes(size)}, checked")
    tell_large(large)
    if keep is not None:
        with explaining_failure(f"An older backup in {place.parent} was not removed", place):
            for path in remove_old(place.parent, keep):
                print(f"{path}: removed")


def _damaged(directory: Path, place: Path, problem: str) -> BackupFailed:
    return BackupFailed(
        f"The backup {place} was not made, because the data is damaged: {problem}. For a list of all problems: "
        f"tablestone check --data {shlex.quote(str(directory))}"
    )


def _place(target: Path, directory: Path, *, is_directory: bool) -> Path:
    """The file of the backup; refuses a target that cannot be one before anything is written."""
    if target.resolve().is_relative_to(directory.resolve()):
        raise BrokenOption(
            f"The backup {target} would be inside the data directory {directory}: name a place outside, best on "
            "another disk."
        )
    if is_directory and not target.exists() and target.parent.is_dir():
        target.mkdir(mode=0o700)
    if target.is_dir():
        return target / dated_name(target, unix_seconds())
    if is_directory:
        raise BrokenOption(f"--keep needs a directory, and {target} is not one.")
    if target.exists():
        raise BrokenOption(f"{target} exists already: name a new file, or a directory.")
    if not target.parent.is_dir():
        raise BrokenOption(
            f"The backup {target} cannot be written: {target.parent} is no directory."
        )
    return target


def _make(
    directory: Path,
    place: Path,
    progress: ByteProgress,
    key: EncryptionKey | None,
    large: list[str],
) -> int:
    """Make the backup, or nothing; returns its size in bytes."""
    with staging(place.parent) as staged:
        file = staged / DATABASE_NAME
        file.touch(mode=0o600)
        copy_database(directory, file, progress, key)
        with file.open("rb") as copied:
            digest = hashlib.file_digest(copied, "sha256").hexdigest()
        if problems := problems_of_copy(staged, key, large):
            raise _damaged(directory, place, problems[0])
        # The sum comes first: a backup that is there has its sum.
        write_sum(place, digest)
        file.rename(place)
        flush_directory(place.parent)
        return place.stat().st_size


def problems_of_copy(directory: Path, key: EncryptionKey | None, large: list[str]) -> list[str]:
    """The problems of a copied database; a full disk is an `OSError`, as it is for a file."""
    try:
        return problems_of(str(EngineUrl(SCHEME, str(directory))), key, large)
    except EngineFull:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
