"""`tablestone upgrade`: brings a data directory that an older version wrote to the newest format."""

from __future__ import annotations

from typing import Any

import click

from tablestone.cli.local_directory import local_directory
from tablestone.cli.options import CHANGE_OPTIONS
from tablestone.cli.parameters import with_options
from tablestone.engines.sqlite.upgrade import upgrade as bring_up

ON_SERVERS = (
    "`tablestone cluster init` adds what a newer version needs, and `tablestone cluster check` says "
    "whether something is missing."
)


@click.command()
@with_options(CHANGE_OPTIONS)
def upgrade(**given: Any) -> None:
    """Bring a data directory to the newest format.

    The server must be stopped. Make a backup first: older versions of Tablestone refuse a newer
    format. A directory that has the newest format does not change.
    """
    directory, key = local_directory(given, ON_SERVERS)
    before, after, was_rewritten = bring_up(directory, key=key)
    if before != after:
        print(f"{directory}: upgraded from format {before} to format {after}")
    elif was_rewritten:
        print(f"{directory}: format {after}, written again so that free space can be given back")
    else:
        print(f"{directory}: format {after}, which is the newest")
