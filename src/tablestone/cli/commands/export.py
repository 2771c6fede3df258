"""`tablestone export`: a table, or what a filter leaves of it, into a file."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import click

from tablestone.cli.data_options import (
    end_with_report,
    filter_option,
    json_option,
    print_report,
    quiet_option,
    restart_option,
    table_argument,
    telling_how_to_go_on,
    with_endpoint,
)
from tablestone.tools.client import Query, TableEndpoint
from tablestone.tools.exporting import Export, ExportReport, Target, export_to_stream
from tablestone.tools.formats.compressed import STANDARD_STREAM, split_name
from tablestone.tools.formats.csv_schema import schema_beside
from tablestone.tools.formats.reading_file import JSON_KINDS, KINDS, kind_of
from tablestone.tools.journal import open_journal
from tablestone.tools.progress import progress_for, shown_bytes
from tablestone.tools.reading import Mixed, TableReader, checked_filter
from tablestone.tools.refusals import TransferRefused


@click.command(
    epilog="Example: tablestone export Weather weather.parquet --filter \"PartitionKey eq 'JFK'\""
)
@table_argument
@click.argument("file", metavar="FILE")
@filter_option
@click.option(
    "--select", metavar="NAMES", default="", help="Only these properties, separated by commas."
)
@click.option(
    "--format", "kind", type=click.Choice(KINDS), help="[default: by the end of the name]"
)
@click.option(
    "--mixed",
    type=click.Choice([each.value for each in Mixed]),
    default=Mixed.FAIL.value,
    show_default=True,
    help="A property of several types, in CSV and Parquet: an error, or a column for each type.",
)
@click.option("--with-timestamp", is_flag=True, help="A column for Timestamp, in CSV and Parquet.")
@click.option(
    "--schema", is_flag=True, help="CSV without types in the header; they go into NAME.schema.csv."
)
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@restart_option
@quiet_option
@json_option
@with_endpoint
def export(
    endpoint: TableEndpoint,
    table: str,
    file: str,
    filter_text: str | None,
    select: str,
    kind: str | None,
    mixed: str,
    *,
    with_timestamp: bool,
    schema: bool,
    overwrite: bool,
    restart: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Write a table into a file.

    FILE is .jsonl or .csv (each also .gz or .zst), .parquet, or - for standard output. FILE
    appears when it is complete. After an interruption, the same command continues.
    """
    names = tuple(name.strip() for name in select.split(",") if name.strip())
    if names:
        names = tuple(dict.fromkeys(("PartitionKey", "RowKey", *names)))
    query = Query(table, checked_filter(filter_text), names)
    target = Target(file, _kind(file, kind), Mixed(mixed), with_timestamp, schema)
    if schema:
        _require_schema_possible(target)
    reader = TableReader(endpoint)
    if file == STANDARD_STREAM:
        _to_standard_output(reader, query, target, quiet=quiet, as_json=as_json)
        return
    if not Path(file).absolute().parent.is_dir():
        raise TransferRefused(f"{file} cannot be written: its directory is not there.")
    identity = {
        "command": "export",
        "endpoint": endpoint.connection.url,
        "file": str(Path(file).resolve()),
        "query": list(query),
        "format": [target.kind, mixed, with_timestamp, schema],
    }
    with telling_how_to_go_on(lambda: "The same command goes on from there."):
        journal = open_journal(identity, os.environ, restart=restart)
        progress = progress_for(f"export {table}", quiet=quiet)
        job = Export(reader, query, target, journal=journal, progress=progress)
        try:
            if not (overwrite or job.has_its_name):
                _require_absent(file)
            if schema and not (overwrite or journal.state):
                _require_absent(str(schema_beside(file)))
            report = job.run()
            progress.close()
            end_with_report(journal, _lines(report), asdict(report), as_json=as_json)
        finally:
            progress.close()
            journal.close()


def _require_schema_possible(target: Target) -> None:
    if target.kind != "csv" or target.path == STANDARD_STREAM:
        raise TransferRefused("--schema goes with a file of CSV.")
    if target.mixed is Mixed.COLUMNS:
        raise TransferRefused("--schema names one type for each column: leave out --mixed columns.")


def _require_absent(file: str) -> None:
    if Path(file).exists():
        raise TransferRefused(f"{file} is there already: --overwrite replaces it.")


def _lines(report: ExportReport) -> list[str]:
    lines = [
        f"{report.entities:,} entities written to {report.path}, {shown_bytes(report.bytes_written)}."
    ]
    if report.resumed_after:
        lines.append(f"An earlier run had read the first {report.resumed_after:,}.")
    return lines


def _kind(file: str, given: str | None) -> str:
    kind = kind_of(file, given)
    if kind in JSON_KINDS:
        return "jsonl"
    if kind == "parquet" and (file == STANDARD_STREAM or split_name(file)[1]):
        raise TransferRefused(
            "Parquet is written to a file of its own, not to standard output or a compressed file."
        )
    return kind


def _to_standard_output(
    reader: TableReader, query: Query, target: Target, *, quiet: bool, as_json: bool
) -> None:
    """The report goes to standard error: standard output is the data."""
    progress = progress_for(f"export {query.table}", quiet=quiet)

    def write(line: bytes) -> None:
        sys.stdout.write(line.decode("utf-8"))

    with tempfile.TemporaryDirectory(prefix="tablestone-") as directory:
        spool = Path(directory) / "entities.jsonl.zst"
        try:
            entities = export_to_stream(reader, query, target, write, spool, progress)
        finally:
            progress.close()
    if as_json or not quiet:
        members = {"table": query.table, "entities": entities}
        print_report([f"{entities:,} entities written."], members, as_json=as_json, err=True)
