"""`tablestone restore`: makes a data directory of a backup, after the backup was found to be whole."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import click

from tablestone.cli.backup_files import (
    BackupFailed,
    ByteProgress,
    dated_backups,
    read_sum,
    sum_file,
    sum_of,
)
from tablestone.cli.local_directory import SCHEME, local_directory, naming_denied_places, reason_of
from tablestone.cli.option_file import require_utf8
from tablestone.cli.option_values import BrokenOption
from tablestone.cli.options import DATA_OPTIONS
from tablestone.cli.parameters import with_options
from tablestone.cli.soundness import problems_of
from tablestone.engines.contract import EngineBroken, EngineFull, EngineRefused
from tablestone.engines.encryption_key import EncryptionKey
from tablestone.engines.engine_url import EngineUrl
from tablestone.engines.sqlite.data_directory import DATABASE_NAME, room_for_database
from tablestone.tools.progress import shown_bytes

ON_SERVERS = "`nodetool refresh` restores a snapshot of a cluster; `tablestone copy` copies tables to a cluster."
MAGIC = b"SQLite format 3\0"
HEADER_BYTES = 100
"""Of the header of a SQLite file, which has the size of a page at 16 and the number of pages at 28."""


@click.command()
@click.argument("backup", metavar="BACKUP")
@click.option("--quiet", is_flag=True, help="No progress on standard error.")
@with_options(DATA_OPTIONS)
def restore(backup: str, *, quiet: bool, **given: Any) -> None:
    """Make a data directory from a backup.

    The directory must be new or empty. The backup is checked first; if it is not whole, nothing
    is restored. The exit status is then 1. It is 2 if a place cannot be read or written.
    """
    source = Path(backup).absolute()
    require_utf8(source, "backup")
    directory, key = local_directory(given, ON_SERVERS)
    undone = f"{source} was not restored into {directory}"
    progress = ByteProgress("restore", quiet=quiet)
    try:
        with naming_denied_places(undone):
            _require_file(source)
            with room_for_database(directory) as place:
                _copy(source, place, progress, key)
            size = source.stat().st_size
    except OSError as error:
        raise BackupFailed(f"{undone}: {reason_of(error, directory / DATABASE_NAME)}.") from None
    finally:
        progress.close()
    print(f"{directory}: restored from {source}, {shown_bytes(size)}, checked")


def _require_file(source: Path) -> None:
    if source.is_dir():
        backups = dated_backups(source)
        newest = f", such as {backups[-1]}" if backups else ""
        raise BrokenOption(f"{source} is a directory: name a backup{newest}.")
    if not source.is_file():
        raise BrokenOption(f"There is no backup {source}.")
    log = source.with_name(source.name + "-wal")
    if log.exists() and log.stat().st_size:
        raise BrokenOption(
            f"{source} has a log beside it, so it is a database in use and not a backup: make one of its directory "
            "with tablestone backup."
        )


def _copy(source: Path, place: Path, progress: ByteProgress, key: EncryptionKey | None) -> None:
    """Copy the backup, and check the copy. `BackupFailed` if it is not whole, `EngineRefused` if it is no backup."""
    _require_length(source)
    expected = read_sum(source)
    place.touch(mode=0o600)
    found = sum_of(source, progress, place)
    if expected is not None and found != expected:
        raise BackupFailed(
            f"{source} is damaged: its SHA-256 is not the one in {sum_file(source)}. Nothing was restored."
        )
    try:
        problems = problems_of(str(EngineUrl(SCHEME, str(place.parent))), key)
    except EngineFull:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
    except EngineRefused as refused:
        sentence = str(refused).replace(str(place), str(source))
        sentence = sentence.replace(f"data directory {place.parent}", f"backup {source}")
        if isinstance(refused, EngineBroken):
            raise BackupFailed(f"{sentence} Nothing was restored.") from None
        raise EngineRefused(f"{sentence} Nothing was restored.") from None
    if problems:
        more = f" ({len(problems)} problems)" if len(problems) > 1 else ""
        raise BackupFailed(f"{source} is damaged: {problems[0]}{more}. Nothing was restored.")


def _require_length(source: Path) -> None:
    """Refuse a file that is shorter than its header says, as after an interrupted copy."""
    with source.open("rb") as file:
        header = file.read(HEADER_BYTES)
        found = file.seek(0, os.SEEK_END)
    expected = HEADER_BYTES
    if header.startswith(MAGIC):
        expected = int.from_bytes(header[16:18], "big") * int.from_bytes(header[28:32], "big")
    if found < expected:
        raise BackupFailed(
            f"{source} is torn: it has {found:,} of {expected:,} bytes. Nothing was restored."
        )
