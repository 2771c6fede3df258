"""`tablestone salvage`: writes the entities of a damaged data directory that can be read, and names the others."""

from __future__ import annotations

from pathlib import Path

import click

from tablestone.cli import damage_in_words
from tablestone.cli.backup_files import BackupFailed
from tablestone.cli.denied_places import naming_denied_places, reason_of
from tablestone.cli.encryption_keys import key_of_directory
from tablestone.cli.option_values import BrokenOption
from tablestone.cli.parameters import key_file_option
from tablestone.cli.salvaged_files import NotWritten, SalvagedFiles
from tablestone.engines.sqlite.salvage import damaged_storage
from tablestone.tables.salvage import salvage as read_all

LOST_SOMETHING = 1


@click.command()
@click.argument("directory", metavar="DIR")
@click.argument("out", metavar="OUT")
@key_file_option("DIR")
def salvage(directory: str, out: str, encryption_key_file: str | None) -> int:
    """Write what can be read of a damaged data directory.

    DIR is the data directory; it is only read. OUT is a new directory: it gets a file
    ACCOUNT/TABLE.jsonl for each table, in the form that `tablestone import` reads, and lost.jsonl
    with the keys of the entities that cannot be read. Exit status: 0 if everything was read, 1 if
    something is lost.
    """
    key = key_of_directory(encryption_key_file)
    place = Path(out).absolute()
    if place.resolve().is_relative_to(Path(directory).resolve()):
        raise BrokenOption(f"{place} would be inside the data directory: name a place outside.")
    try:
        with damaged_storage(Path(directory).absolute(), key) as storage:
            with naming_denied_places(f"{place} cannot be made"):
                files = SalvagedFiles(place)
            with files.removed_after_failure():
                salvaged = read_all(storage, files.add)
                named = files.finish(salvaged)
    except NotWritten as failed:
        raise BackupFailed(
            f"{place} cannot be written: {reason_of(failed.error, place)}."
        ) from None
    for table in salvaged.tables:
        if table.entities:
            print(
                f"{damage_in_words.name_of(table)}: {table.entities:,} entities in {named[table.table_id]}"
            )
    lost = damage_in_words.losses(salvaged)
    for line in lost:
        print(line)
    if salvaged.uncertain:
        print(
            f"{salvaged.uncertain:,} of the entities may have been deleted before: nothing refers to their pages"
        )
    if salvaged.lost:
        print(f"The keys of all lost entities: {files.lost}")
    print(
        f"{directory}: {damage_in_words.pages(salvaged)}, {damage_in_words.lost_entities(salvaged)}"
    )
    return LOST_SOMETHING if lost else 0
