"""`tablestone import`: a file of entities into a table."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tablestone.cli.data_options import (
    end_with_report,
    json_option,
    parallel_option,
    quiet_option,
    reading_of,
    restart_option,
    table_argument,
    telling_how_to_go_on,
    with_endpoint,
    with_reading,
)
from tablestone.tools.client import TableEndpoint
from tablestone.tools.formats.compressed import STANDARD_STREAM, ReadPosition
from tablestone.tools.formats.reading_file import read_rows, require_kind
from tablestone.tools.importing import Import, ImportReport, RejectFile
from tablestone.tools.journal import Journal, open_journal
from tablestone.tools.progress import progress_for, shown_bytes
from tablestone.tools.refusals import TransferRefused
from tablestone.tools.writing import OnConflict

SOME_REJECTED = 1


@click.command(
    name="import",
    epilog="Example: tablestone import weather.csv Weather --partition-key origin "
    "--row-key time_hour --null NA --types temp=Double,time_hour=DateTime",
)
@click.argument("file", metavar="FILE")
@table_argument
@with_reading
@click.option(
    "--on-conflict",
    type=click.Choice([each.value for each in OnConflict]),
    default=OnConflict.FAIL.value,
    show_default=True,
    help="If the entity exists.",
)
@click.option(
    "--rejects", metavar="FILE", help="Rows that cannot be stored.  [default: FILE.rejects.jsonl]"
)
@restart_option
@parallel_option
@quiet_option
@json_option
@with_endpoint
def import_file(
    endpoint: TableEndpoint,
    file: str,
    table: str,
    kind: str | None,
    on_conflict: str,
    rejects: str | None,
    parallel: int,
    *,
    restart: bool,
    quiet: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Load a file into a table.

    FILE is .jsonl, .json, .csv (each also .gz or .zst), .parquet, a .manifest of AzCopy 7, or - for
    standard input. The table is created if it does not exist. After an interruption, the same
    command continues. Exit status 1: some rows were rejected.
    """
    reading = reading_of(given)
    require_kind(file, kind)
    words = {**given, "kind": kind, "on_conflict": on_conflict}
    journal = _journal(endpoint, file, table, words, restart=restart)
    kept = int(journal.state.get("reject_bytes", 0)) if journal else 0
    reject_file = RejectFile(Path(rejects or _beside(file, table)), kept)
    progress = progress_for(f"import {table}", quiet=quiet)
    position = ReadPosition()
    job = Import(
        endpoint,
        table,
        OnConflict(on_conflict),
        parallel=parallel,
        journal=journal,
        rejects=reject_file,
        progress=progress,
    )
    with telling_how_to_go_on(lambda: _how_to_go_on(journal, job)):
        try:
            report = job.run(read_rows(file, reading, kind, position), position)
            progress.close()
            end_with_report(journal, _lines(report), asdict(report), as_json=as_json)
        finally:
            progress.close()
            reject_file.close()
            if journal:
                journal.close()
    return SOME_REJECTED if report.rejected else 0


def _journal(
    endpoint: TableEndpoint, file: str, table: str, words: dict[str, Any], *, restart: bool
) -> Journal | None:
    """The journal of this import; none for standard input, which cannot be read again."""
    if file == STANDARD_STREAM:
        return None
    try:
        found = Path(file).stat()
    except OSError as error:
        raise TransferRefused(f"{file} cannot be read: {error.strerror}.") from None
    identity = {
        "command": "import",
        "endpoint": endpoint.connection.url,
        "table": table,
        "file": str(Path(file).resolve()),
        "size": found.st_size,
        "modified": found.st_mtime_ns,
        **words,
    }
    return open_journal(identity, os.environ, restart=restart)


def _beside(file: str, table: str) -> str:
    return f"{table}.rejects.jsonl" if file == STANDARD_STREAM else f"{file}.rejects.jsonl"


def _how_to_go_on(journal: Journal | None, job: Import) -> str:
    if journal is None:
        return "Standard input cannot be read again."
    return f"The same command goes on after row {job.after:,}."


def _lines(report: ImportReport) -> list[str]:
    lines = [f"{report.stored:,} entities stored in {report.table}, {shown_bytes(report.bytes)}."]
    if report.created:
        lines.append(f"The table {report.table} was made.")
    if report.resumed_after_row:
        lines.append(f"An earlier run had stored the rows up to {report.resumed_after_row:,}.")
    if report.skipped:
        lines.append(f"{report.skipped:,} rows skipped: their keys were taken.")
    if report.rejected:
        lines.append(f"{report.rejected:,} rows rejected, with the reasons in {report.rejects}.")
    return lines
