"""`tablestone salvage`: write the entities of a damaged data directory that can be read, and name the others."""

import json
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import click

from tablestone.cli.commands.check import losses, lost_entities, name_of, pages
from tablestone.cli.local_directory import BackupFailed, explaining_denial, reason_of
from tablestone.cli.option_sources import key_of_directory
from tablestone.cli.options import BrokenOption, key_file_option, path_from
from tablestone.engines.sqlite.salvage import damaged_storage
from tablestone.tables.integrity import Salvaged, SalvagedTable
from tablestone.tables.integrity import salvage as read_all
from tablestone.tools.progress import shown_entities

BUFFER_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of entities in memory, over all tables. There can be more tables than open files."""
APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT
UNKNOWN: Final = "unknown-tables"
LOST_NAME: Final = "lost.jsonl"


class NotWritten(Exception):
    """A salvaged file cannot be written; the argument is the `OSError`. Reading the damaged data can raise that too."""


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NotWritten(error) from error


class SalvagedFiles:
    """Files in a new directory, removed if the block fails. Raises `BrokenOption` if it exists, or `OSError`."""

    def __init__(self, directory: Path) -> None:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise BrokenOption(f"{directory} exists already: name a new or an empty directory.")
        if not directory.parent.is_dir():
            raise BrokenOption(f"{directory} cannot be made: {directory.parent} is no directory.")
        self._was_there = directory.exists()
        directory.mkdir(mode=0o700, exist_ok=True)
        self._directory = directory
        self._unnamed = directory / ".salvage"
        self._unnamed.mkdir(mode=0o700)
        self._lines: defaultdict[bytes, list[bytes]] = defaultdict(list)
        self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None:
            return
        for path in self._directory.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if not self._was_there:
            self._directory.rmdir()

    def add(self, table_id: bytes, entity: bytes) -> None:
        """Add an entity, as JSON text. `NotWritten` if the disk refuses it."""
        self._lines[table_id].append(entity)
        self._bytes += len(entity)
        if self._bytes >= BUFFER_BYTES_MAX:
            self._write()

    def finish(self, salvaged: Salvaged) -> dict[bytes, Path]:
        """Name the files; returns those of the tables with entities, by id. `NotWritten` if the disk refuses it."""
        self._write()
        named = {}
        with _writing():
            for table in salvaged.tables:
                unnamed = self._unnamed / table.table_id.hex()
                if unnamed.exists():
                    place = self._directory / (table.account or UNKNOWN)
                    place.mkdir(exist_ok=True)
                    path = place / f"{table.name or table.table_id.hex()}.jsonl"
                    unnamed.rename(path)
                    named[table.table_id] = path
            shutil.rmtree(self._unnamed)
            if salvaged.lost:
                self._write_lost(salvaged.tables)
        return named

    @property
    def lost(self) -> Path:
        """The file with the keys of all lost entities, if there are any."""
        return self._directory / LOST_NAME

    def _write_lost(self, tables: list[SalvagedTable]) -> None:
        with self.lost.open("w", encoding="utf-8") as file:
            for table in tables:
                for partition_key, row_key, reason in table.lost:
                    line = {
                        "Account": table.account,
                        "Table": table.name or table.table_id.hex(),
                        "PartitionKey": partition_key,
                        "RowKey": row_key,
                        "Reason": reason,
                    }
                    file.write(json.dumps(line) + "\n")

    def _write(self) -> None:
        with _writing():
            for table_id, lines in self._lines.items():
                path = self._unnamed / table_id.hex()
                with os.fdopen(os.open(path, APPEND, 0o600), "ab") as file:
                    file.write(b"\n".join([*lines, b""]))
        self._lines.clear()
        self._bytes = 0


@click.command()
@click.argument("directory", metavar="DIR")
@click.argument("out")
@key_file_option("DIR")
def salvage(directory: str, out: str, encryption_key_file: str | None) -> int:
    """Write what can be read of a damaged data directory.

    DIR is the data directory; it is only read. OUT is a new directory: it gets a file
    ACCOUNT/TABLE.jsonl for each table, in the form that `tablestone import` reads, and lost.jsonl
    with the keys of the entities that cannot be read. Exit status: 0 if everything was read, 1 if
    something is lost.
    """
    key = key_of_directory(encryption_key_file)
    place = path_from(out, Path.cwd())
    if place.resolve().is_relative_to(Path(directory).resolve()):
        raise BrokenOption(f"{place} would be inside the data directory: name a place outside.")
    try:
        with damaged_storage(path_from(directory, Path.cwd()), key) as storage:
            with explaining_denial(f"{place} cannot be made"):
                files = SalvagedFiles(place)
            with files:
                salvaged = read_all(storage, files.add)
                named = files.finish(salvaged)
    except NotWritten as failed:
        why = reason_of(failed.args[0], place)
        raise BackupFailed(f"{place} cannot be written: {why}.") from None
    for table in salvaged.tables:
        if table.entities:
            print(f"{name_of(table)}: {shown_entities(table.entities)} in {named[table.table_id]}")
    for table in salvaged.tables:
        if table.entities and table.indexes:
            names = ", ".join(index.property for index in table.indexes)
            print(
                f"{name_of(table)}: the entities are without its indexes, on {names}: after their import, "
                "tablestone index create makes them again"
            )
    lost = losses(salvaged)
    for line in lost:
        print(line)
    if salvaged.storage.uncertain_rows:
        uncertain = salvaged.storage.uncertain_rows
        print(
            f"{uncertain:,} of the entities may have been deleted before: nothing refers to their pages"
        )
    if salvaged.lost:
        print(f"The keys of all lost entities: {files.lost}")
    print(f"{directory}: {pages(salvaged)}, {lost_entities(salvaged)}")
    return 1 if lost else 0
