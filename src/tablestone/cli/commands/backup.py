"""`tablestone backup`: copies the data of a directory into one file, beside a running server, and checks the copy."""

from __future__ import annotations

import errno
import os
import shlex
from pathlib import Path
from typing import Any

import click

from tablestone.cli.backup_files import (
    BackupFailed,
    ByteProgress,
    dated_name,
    remove_old,
    staging,
    sum_of,
    write_sum,
)
from tablestone.cli.local_directory import SCHEME, local_directory, naming_denied_places, reason_of
from tablestone.cli.option_file import require_utf8
from tablestone.cli.option_values import BrokenOption
from tablestone.cli.options import CHECK_OPTIONS
from tablestone.cli.parameters import with_options
from tablestone.cli.soundness import problems_of
from tablestone.clock import unix_seconds
from tablestone.engines.contract import EngineDamaged, EngineFull, EngineUnavailable
from tablestone.engines.encryption_key import EncryptionKey
from tablestone.engines.engine_url import EngineUrl
from tablestone.engines.sqlite.copies import copy_database
from tablestone.engines.sqlite.data_directory import DATABASE_NAME
from tablestone.engines.sqlite.flushed_files import flush_directory
from tablestone.tools.progress import shown_bytes

ON_SERVERS = (
    "`nodetool snapshot` or `tablestone cluster unload` backs a cluster up; `tablestone copy` copies its tables to "
    "another server."
)


@click.command()
@click.argument("target", metavar="TARGET")
@click.option(
    "--keep",
    metavar="N",
    type=click.IntRange(1),
    help="TARGET is a directory of dated backups: keep the newest N and remove older ones.",
)
@click.option("--quiet", is_flag=True, help="No progress on standard error.")
@with_options(CHECK_OPTIONS)
def backup(target: str, keep: int | None, *, quiet: bool, **given: Any) -> None:
    """Copy the data into one file and check the copy.

    The copy is of one moment; a server may use the directory at the same time. TARGET is a new
    file, or a directory in which the file gets a dated name. `tablestone restore` takes the file.
    The backup of an encrypted directory is encrypted with the same key.
    """
    wanted = Path(target).absolute()
    require_utf8(wanted, "backup")
    directory, key = local_directory(given, ON_SERVERS)
    with naming_denied_places(f"The backup {wanted} was not made"):
        place = _place(wanted, directory, is_directory=keep is not None)
    progress = ByteProgress("backup", quiet=quiet)
    try:
        with naming_denied_places(f"The backup {place} was not made"):
            size = _make(directory, place, progress, key)
        removed = remove_old(place.parent, keep) if keep is not None else []
    except EngineDamaged as error:
        raise _damaged(directory, place, str(error)) from None
    except (OSError, EngineUnavailable) as error:
        why = reason_of(error, place) if isinstance(error, OSError) else str(error)
        raise BackupFailed(f"The backup {place} was not made: {why.rstrip('.')}.") from None
    finally:
        progress.close()
    print(f"{place}: {shown_bytes(size)}, checked")
    for path in removed:
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
        raise BrokenOption(f"--keep needs a directory, and {target} is none.")
    if target.exists():
        raise BrokenOption(f"{target} exists already: name a new file, or a directory.")
    if not target.parent.is_dir():
        raise BrokenOption(
            f"The backup {target} cannot be written: {target.parent} is no directory."
        )
    return target


def _make(directory: Path, place: Path, progress: ByteProgress, key: EncryptionKey | None) -> int:
    """Make the backup, or nothing; returns its size in bytes."""
    with staging(place.parent) as staged:
        file = staged / DATABASE_NAME
        file.touch(mode=0o600)
        copy_database(directory, file, progress, key)
        digest = sum_of(file, lambda _done, _whole: None)
        try:
            problems = problems_of(str(EngineUrl(SCHEME, str(staged))), key)
        except EngineFull:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        if problems:
            raise _damaged(directory, place, problems[0])
        # The sum comes first: a backup that is there has its sum.
        write_sum(place, digest)
        file.rename(place)
        flush_directory(place.parent)
        return place.stat().st_size
