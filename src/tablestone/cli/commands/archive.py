"""`tablestone archive`: what an archive holds, whether it is right, and the removal of lives."""

import asyncio
import os
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from tablestone.archive import upkeep
from tablestone.archive.comparing import check as checked
from tablestone.archive.going_back import (
    NothingArchived,
    read_histories,
    shown,
    still,
    ticks_of_unix,
    time_of,
    timeline,
)
from tablestone.archive.store import Store
from tablestone.cli.commands.restore_archive import keys_of, opened, reading, told
from tablestone.cli.local_directory import local_directory
from tablestone.cli.options import (
    CHECK_OPTIONS,
    BrokenOption,
    archive_keys_option,
    path_from,
    quiet_option,
    with_options,
)
from tablestone.clock import system_clock
from tablestone.engines.kind import EncryptionKey, Opening
from tablestone.engines.sqlite.archive_source import ArchiveSource
from tablestone.engines.sqlite.data_directory import DataDirectory
from tablestone.tools.progress import progress_for, shown_bytes


@click.group(epilog="Example: tablestone archive list s3://bucket/tables")
def archive() -> None:
    """List the moments of an archive, check it, and prune it.

    URL is that of `tablestone serve --archive`. `tablestone restore --archive` goes back.
    """


@archive.command(name="list", epilog="Example: tablestone archive list s3://bucket/tables")
@click.argument("url")
@archive_keys_option
def list_lives(url: str, archive_keys: tuple[str, ...]) -> None:
    """Print the lives of an archive, and the moments that can be restored."""
    keys = keys_of(archive_keys)
    with reading(url):
        asyncio.run(_list(opened(url), keys))


async def _list(store: Store, keys: list[EncryptionKey]) -> None:
    histories = await read_histories(store, keys)
    if not histories:
        raise NothingArchived("There is no archive.")
    for history in sorted(
        histories.values(), key=lambda each: each.line.lives[each.life].written, reverse=True
    ):
        life = history.line.lives[history.life]
        size = sum(found.size for found in life.found.values())
        print(
            f"life {history.life}: {shown_bytes(size)}, last written {shown(ticks_of_unix(life.written))}"
        )
        if life.parent is not None:
            print(f"  goes on from record {life.parent.last} of life {life.parent.life}")
        times = await timeline(store, history, keys)
        for first, last in history.ranges:
            since, until = (shown(time_of(times, number)) for number in (first, last))
            print(f"  can be restored: {since} to {until} (records {first} to {last})")
        if not history.ranges:
            why = " with these keys" if history.problems else ", as no base copy of it is complete"
            print(f"  can be restored: nothing{why}")
        for one, other in zip(history.ranges, history.ranges[1:], strict=False):
            print(f"  gap: records {one.last + 1} to {other.first - 1}")
        if history.ranges and (hole := history.hole) is not None:
            print(f"  gap: records {hole.first} to {hole.last}; later ones need a base copy")
        for began, ended in still(times):
            print(
                f"  the clock of commits stands still: {began} to {ended}; --to goes by the second there"
            )
        for problem in history.problems:
            print(f"  {problem}")


@archive.command(
    epilog="Example: tablestone archive prune s3://bucket/tables --life 81f1aac2d8c3a4ab"
)
@click.argument("url")
@click.option(
    "--life", metavar="LIFE", required=True, help="The life to remove, as `archive list` names it."
)
@archive_keys_option
def prune(url: str, life: str, archive_keys: tuple[str, ...]) -> None:
    """Remove a life from an archive, with all its moments.

    A life that is being written stays, and one that the moments of another life need.
    """
    keys = keys_of(archive_keys)
    with reading(url):
        removed = asyncio.run(upkeep.prune(opened(url), keys, life))
    print(f"Removed life {life}: {removed} objects.")


@archive.command(epilog="Example: tablestone archive check s3://bucket/tables --data ./data")
@click.argument("url")
@click.option("--life", metavar="LIFE", help="The life, if the archive has several.")
@click.option(
    "--scratch", metavar="DIR", help="An existing directory with room for a copy of the data."
)
@archive_keys_option
@quiet_option
@with_options(CHECK_OPTIONS)
def check(
    url: str,
    life: str | None,
    scratch: str | None,
    archive_keys: tuple[str, ...],
    *,
    quiet: bool,
    **given: Any,
) -> int:
    """Restore an archive into a scratch directory, and compare it with the data.

    A server may use the data at the same time. The scratch directory is encrypted as the data
    is, and removed at the end. Exit status 1 if something differs.
    """
    directory, key = local_directory(given, "An archive is of a data directory of SQLite.")
    keys = keys_of(archive_keys) + ([key] if key is not None else [])
    place = path_from(scratch, Path.cwd(), "directory") if scratch else directory.absolute().parent
    if not os.access(place, os.W_OK | os.X_OK):
        raise BrokenOption(f"{place} is no directory in which a scratch directory can be made.")
    with (
        reading(url),
        TemporaryDirectory(prefix=".tablestone-check-", dir=place) as made,
        closing(progress_for("check", quiet=quiet, counted="steps")) as progress,
    ):
        data = DataDirectory(directory, Opening.READ_ONLY, key=key)
        with closing(data), closing(ArchiveSource(data, None, system_clock)) as source:
            found = asyncio.run(
                checked(opened(url), keys, life, source, Path(made) / "data", key, told(progress))
            )
    for name in found.named:
        print(name)
    print(
        f"{url}: {found.differing:,} rows differ from {directory}{found.older}"
        if found.differing
        else f"{url}: holds what {directory} holds, {found.rows} rows up to record {found.number}"
    )
    return 1 if found.differing else 0
