"""`tablestone compact`: gives the free space inside a database back to the file system, beside a running server."""

from __future__ import annotations

from typing import Any

import click

from tablestone.cli.backup_files import ByteProgress
from tablestone.cli.local_directory import local_directory
from tablestone.cli.options import CHANGE_OPTIONS
from tablestone.cli.parameters import with_options
from tablestone.engines.sqlite.compaction import compact as give_back
from tablestone.tools.progress import shown_bytes

ON_SERVERS = "A cluster compacts its files by itself; `nodetool compact` starts it."


@click.command()
@click.option("--quiet", is_flag=True, help="No progress on standard error.")
@with_options(CHANGE_OPTIONS)
def compact(*, quiet: bool, **given: Any) -> None:
    """Give free space back to the file system.

    A server may use the directory at the same time. It gives most of the free space back by
    itself; this command gives all of it. A database of an older version is written again as a
    whole: writes wait until the end, and the disk needs room for two copies of the data.
    """
    directory, key = local_directory(given, ON_SERVERS)
    progress = ByteProgress("compact", quiet=quiet)
    try:
        before, after, was_rewritten = give_back(directory, progress, key)
    finally:
        progress.close()
    how = ", written again as a whole" if was_rewritten else ""
    print(
        f"{directory}: {shown_bytes(before.database_bytes)} before, {shown_bytes(after.database_bytes)} now{how}"
    )
