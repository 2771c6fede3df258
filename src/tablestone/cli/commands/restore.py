"""`tablestone restore`: make a data directory from a backup, or from an archive."""

import asyncio
import os
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import click

from tablestone.accounts.stored_accounts import rules_in_words
from tablestone.cli.commands.backup import (
    copy_file,
    dated_backups,
    problems_of_copy,
    read_sum,
    sum_file,
)
from tablestone.cli.commands.check import tell_large
from tablestone.cli.local_directory import (
    SCHEME,
    BackupFailed,
    ByteProgress,
    byte_progress,
    explaining_failure,
    local_directory,
    suspend_expiry,
    tell_rules,
)
from tablestone.cli.options import (
    DATA_OPTIONS,
    BrokenOption,
    archive_keys_option,
    path_from,
    quiet_option,
    with_options,
)
from tablestone.clock import system_clock
from tablestone.engines.contract import EngineBroken, EngineRefused
from tablestone.engines.kind import EncryptionKey, EngineUrl
from tablestone.engines.registry import open_engine
from tablestone.engines.sqlite.backup import end_record
from tablestone.engines.sqlite.data_directory import DATABASE_NAME, room_for_database
from tablestone.extras import needs
from tablestone.tables import storage_keys
from tablestone.tables.catalog import every_table
from tablestone.tables.expiry_counts import COUNTS_SECRET
from tablestone.tables.metadata import DocumentKind
from tablestone.tools.progress import shown_bytes

MAGIC = b"SQLite format 3\0"
HEADER_BYTES = 100
"""Bytes of the SQLite header: the page size is at 16, the number of pages at 28."""


@click.command()
@click.argument("backup", required=False)
@click.option("--archive", metavar="URL", help="Restore from this archive, not from a backup.")
@click.option("--life", metavar="LIFE", help="The life of the archive, if it has several.")
@click.option(
    "--to",
    metavar="MOMENT",
    help="Go back to a moment, such as 2026-11-28T14:02:00Z or '10 minutes ago', or to a record by its number.",
)
@click.option(
    "--table", metavar="TABLE", help="Only this table of an archive, beside a running server."
)
@click.option("--into", metavar="CONNECTION", help="The server that gets the table: as for `copy`.")
@click.option("--as", "new_name", metavar="NAME", help="The name of the new table there.")
@archive_keys_option
@quiet_option
@with_options(DATA_OPTIONS)
def restore(
    backup: str | None,
    archive: str | None,
    life: str | None,
    to: str | None,
    table: str | None,
    into: str | None,
    new_name: str | None,
    archive_keys: tuple[str, ...],
    *,
    quiet: bool,
    **given: Any,
) -> None:
    """Make a data directory from a backup, or from an archive.

    The directory must be new or empty. The backup is checked first; if it is not whole, nothing
    is restored. The exit status is then 1. It is 2 if a file cannot be read or written. From an
    archive, the same command continues one that was interrupted. With --table, one table of an
    archive goes to a running server, as a new table with new Timestamps.
    """
    if (backup is None) == (archive is None):
        raise BrokenOption("Name either a backup, or an archive with --archive.")
    if len({table is None, into is None, new_name is None}) > 1:
        raise BrokenOption("--table, --into and --as belong together.")
    if archive is not None and table is not None and into is not None and new_name is not None:
        try:
            from tablestone.cli.commands.restore_table import restore_table  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as missing:
            raise BrokenOption(needs("--table", str(missing.name), "archive,tools")) from None
        if given.get("data"):
            raise BrokenOption("--data is for all tables of an archive: leave it out with --table.")
        restore_table(archive, archive_keys, life, to, (table, into, new_name), quiet=quiet)
        return
    directory, key = local_directory(
        given,
        "`nodetool refresh` restores a snapshot of a cluster, and `pg_restore` one of a database; `tablestone copy` "
        "copies tables to either.",
    )
    if archive is not None:
        from tablestone.cli.commands.restore_archive import restore_archive  # noqa: PLC0415 - an extra

        _tell_suspended(
            restore_archive(archive, directory, key, archive_keys, life=life, to=to, quiet=quiet),
            directory,
        )
        return
    if life or to or archive_keys or table:
        raise BrokenOption(
            "--life, --to, --table and --archive-key-file are for an archive: add --archive."
        )
    assert backup is not None
    source = path_from(backup, Path.cwd(), "backup")
    undone = f"{source} was not restored into {directory}"
    with (
        byte_progress("restore", quiet=quiet) as progress,
        explaining_failure(undone, directory / DATABASE_NAME),
    ):
        _require_file(source)
        with room_for_database(directory) as place:
            large = _copy(source, place, progress, key)
            suspended, rules = asyncio.run(_suspend_expiry(place.parent, key))
            end_record(place, key)
        size = source.stat().st_size
    print(f"{directory}: restored from {source}, {shown_bytes(size)}, checked")
    tell_large(large)
    tell_rules(rules)
    _tell_suspended(suspended, directory)


def _tell_suspended(suspended: list[tuple[str, str]], directory: Path) -> None:
    """Name the tables, with their accounts, whose expiry a restore has suspended."""
    if suspended:
        print(
            "The expiry of these tables is suspended, so that nothing is removed before you have looked. To let "
            "their entities expire again:"
        )
    for account, table in suspended:
        data = shlex.quote(str(directory))
        print(f"  tablestone expiry resume {table} --account {account} --data {data}")


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


def _copy(
    source: Path, place: Path, progress: ByteProgress, key: EncryptionKey | None
) -> list[str]:
    """Copy the backup and check the copy; returns what `tell_large` tells.

    `BackupFailed` if it is not whole, `EngineRefused` if it is no backup.
    """
    _require_length(source)
    expected = read_sum(source)
    place.touch(mode=0o600)
    found = copy_file(source, place, progress)
    if expected is not None and found != expected:
        raise BackupFailed(
            f"{source} is damaged: its SHA-256 is not the one in {sum_file(source)}. Nothing was restored."
        )
    large: list[str] = []
    try:
        problems = problems_of_copy(place.parent, key, large)
    except EngineRefused as refused:
        sentence = str(refused).replace(str(place), str(source))
        sentence = sentence.replace(f"data directory {place.parent}", f"backup {source}")
        kind = BackupFailed if isinstance(refused, EngineBroken) else EngineRefused
        raise kind(f"{sentence} Nothing was restored.") from None
    if problems:
        more = f" ({len(problems)} problems)" if len(problems) > 1 else ""
        raise BackupFailed(f"{source} is damaged: {problems[0]}{more}. Nothing was restored.")
    return large


async def _suspend_expiry(
    directory: Path, key: EncryptionKey | None
) -> tuple[list[tuple[str, str]], list[str]]:
    """Suspend the expiry policies that act in a restored database; returns their accounts and tables.

    Returns the rules of accounts too, in words.
    """
    open_restored = partial(
        open_engine, str(EngineUrl(SCHEME, str(directory))), system_clock, key=key
    )
    engine = open_restored(read_only=True)
    acts = any([table.acting_expiry async for _account, table in every_table(engine)])
    secret = storage_keys.document_place(DocumentKind.SECRETS.value, COUNTS_SECRET)
    has_counts = await engine.get(secret) is not None
    rules = await rules_in_words(engine)
    await engine.close()
    if not acts and not has_counts:  # a directory of an older format cannot be written
        return [], rules
    return await suspend_expiry(open_restored()), rules


def _require_length(source: Path) -> None:
    """Refuse a file that is shorter than its header says: an interrupted copy."""
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
