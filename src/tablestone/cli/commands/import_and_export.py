"""`tablestone import` and `export`: load a file of entities into a table, and write a table into a file."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from tablestone.cli import data_options
from tablestone.tools.client import Query, TableEndpoint
from tablestone.tools.copying import Side
from tablestone.tools.errors import TransferFailed, TransferRefused, refusing_unreadable
from tablestone.tools.exporting import Export, ExportReport, Target, show
from tablestone.tools.formats.azurite_file import is_azurite_file, tables_of
from tablestone.tools.formats.compressed import STANDARD_STREAM, ReadPosition, split_name
from tablestone.tools.formats.json_lines import maker_of, read_objects
from tablestone.tools.formats.reading_file import JSON_KINDS, kind_of, read_rows, require_kind
from tablestone.tools.formats.rows import Rejected, Row, RowMaker
from tablestone.tools.formats.typed_csv import schema_beside
from tablestone.tools.importing import Import, ImportReport, RejectFile
from tablestone.tools.own_forms import unseen
from tablestone.tools.positions import refuse_positions
from tablestone.tools.progress import progress_for, shown_bytes, shown_entities
from tablestone.tools.queries import Mixed, TableReader, checked_filter
from tablestone.tools.resume_journal import Journal, open_journal
from tablestone.tools.writing import OnConflict


@click.command(
    name="import",
    epilog="Example: tablestone import weather.csv Weather --null NA --row-key time_hour "
    "--partition-key origin --types temp=Double,time_hour=DateTime",
)
@click.argument("file")
@click.argument("table", required=False, shell_complete=data_options.complete_tables)
@data_options.with_reading
@data_options.on_conflict_option
@click.option(
    "--rejects", metavar="FILE", help="Rows that cannot be stored.  [default: FILE.rejects.jsonl]"
)
@click.option("--from-account", metavar="NAME", help="Which account of Azurite's file.")
@data_options.restart_option
@data_options.parallel_option
@data_options.quiet_option
@data_options.json_option
@data_options.as_program
def import_file(
    endpoint: TableEndpoint,
    file: str,
    table: str | None,
    kind: str | None,
    on_conflict: str,
    rejects: str | None,
    from_account: str | None,
    parallel: int,
    *,
    restart: bool,
    quiet: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Load a file into a table.

    FILE is .jsonl, .json, .csv (each also .gz or .zst), .parquet, a .manifest of AzCopy 7, Azurite's
    __azurite_db_table__.json (without TABLE, all tables of an account), or - for standard input. A
    table is created if it does not exist. After an interruption, the same command continues. Exit
    status 1: some rows were rejected.
    """
    reading = data_options.reading_of(given)
    others: list[str] = []
    sources: dict[str, Callable[[ReadPosition], Iterator[Row | Rejected]]]
    if kind is None and is_azurite_file(file):
        tables, others = tables_of(file, endpoint.connection.account, from_account, table)
        maker = maker_of(reading)
        sources = {name: partial(read_objects, tables[name], reading, maker) for name in tables}
    elif kind is None and Path(file).is_dir():
        raise TransferRefused(
            f"{file} is a directory: name a file, such as Azurite's {file}/__azurite_db_table__.json."
        )
    elif table is None:
        raise click.UsageError("Missing argument 'TABLE'.", click.get_current_context())
    else:
        require_kind(file, kind)
        sources = {table: partial(read_rows, file, reading, kind)}
    words = {**given, "kind": kind, "on_conflict": on_conflict, "from_account": from_account}
    done: list[tuple[Journal | None, ImportReport]] = []
    with ExitStack() as journals:
        for name, rows in sources.items():
            journal = _journal(endpoint, file, name, words, restart=restart)
            if journal is not None:
                journals.enter_context(closing(journal))
            kept = int(journal.state.get("reject_bytes", 0)) if journal else 0
            rejected = rejects or f"{name if file == STANDARD_STREAM else file}.rejects.jsonl"
            if len(sources) > 1:
                rejected += f".{name}"
            reject_file = RejectFile(Path(rejected), kept)
            progress = progress_for(f"import {name}", quiet=quiet)
            job = Import(
                endpoint,
                name,
                OnConflict(on_conflict),
                parallel=parallel,
                journal=journal,
                rejects=reject_file,
                progress=progress,
            )
            position = ReadPosition()
            advice = partial(_how_to_continue, job, is_kept=journal is not None)
            with (
                data_options.advising_after_interrupt(advice),
                _telling_what_was_done(job),
                closing(reject_file),
                closing(progress),
            ):
                done.append((journal, job.run(rows(position), position)))
        for journal, report in done:
            lines = report.sentences
            if names := ", ".join(sorted(RowMaker(reading).key_columns)):
                lines.append(f"Stored as properties too: {names}. --drop-keys leaves them out.")
            data_options.end_with_report(journal, lines, asdict(report), as_json=as_json)
    if others:
        print(
            f"tablestone: Not imported: the tables of account {' and of account '.join(others)}. To load them too, "
            "give --from-account, and the connection of the account that gets them.",
            file=sys.stderr,
        )
    return 1 if any(report.rejected for _, report in done) else 0


@contextmanager
def _telling_what_was_done(job: Import) -> Iterator[None]:
    """Add to a failure what the import did before it."""
    try:
        yield
    except TransferFailed as failed:
        done = job.report.sentences if job.report else ()
        raise TransferFailed(" ".join((str(failed), *done))) from None


def _how_to_continue(job: Import, *, is_kept: bool) -> str:
    if not is_kept:
        return "Standard input cannot be read again."
    return f"The same command continues after row {job.after:,}."


def _journal(
    endpoint: TableEndpoint, file: str, table: str, words: dict[str, Any], *, restart: bool
) -> Journal | None:
    """The journal of an import; None for standard input, which cannot be read again."""
    if file == STANDARD_STREAM:
        return None
    with refusing_unreadable(file):
        found = Path(file).stat()
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


@click.command(
    epilog="Example: tablestone export Weather weather.parquet --filter \"PartitionKey eq 'JFK'\""
)
@data_options.table_argument
@click.argument("file")
@data_options.filter_option
@data_options.select_option
@data_options.format_option
@click.option(
    "--mixed",
    type=click.Choice([each.value for each in Mixed]),
    default=Mixed.FAIL.value,
    help="A property of several types, in CSV and Parquet: an error, or a column for each type.",
)
@click.option("--with-timestamp", is_flag=True, help="A column for Timestamp, in CSV and Parquet.")
@click.option(
    "--schema", is_flag=True, help="CSV without types in the header; NAME.schema.csv has them."
)
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@data_options.restart_option
@data_options.quiet_option
@data_options.json_option
@data_options.with_endpoint
def export(
    endpoint: TableEndpoint,
    table: str,
    file: str,
    filter_text: str | None,
    names: tuple[str, ...],
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
    if names:
        names = tuple(dict.fromkeys(("PartitionKey", "RowKey", *names)))
    query = Query(table, checked_filter(filter_text), names)
    target = Target(file, _kind(file, kind), Mixed(mixed), with_timestamp, schema)
    if schema and (target.kind != "csv" or file == STANDARD_STREAM):
        raise TransferRefused("--schema goes with a file of CSV.")
    if schema and target.mixed is Mixed.COLUMNS:
        raise TransferRefused("--schema names one type for each column: leave out --mixed columns.")
    if file == STANDARD_STREAM:
        _to_standard_output(endpoint, query, target, quiet=quiet, as_json=as_json)
        return
    if not Path(file).absolute().parent.is_dir():
        raise TransferRefused(f"{file} cannot be written: its directory is not there.")
    if target.kind == "parquet":
        import pyarrow as pa  # noqa: PLC0415, F401 - report a missing package before reading
    refuse_positions(Side("", endpoint, 1), [table])
    identity = {
        "command": "export",
        "endpoint": endpoint.connection.url,
        "file": str(Path(file).resolve()),
        "query": list(query),
        "format": [target.kind, mixed, with_timestamp, schema],
    }
    with (
        data_options.advising_after_interrupt(),
        closing(open_journal(identity, os.environ, restart=restart)) as journal,
    ):
        with closing(progress_for(f"export {table}", quiet=quiet)) as progress:
            job = Export(TableReader(endpoint), query, target, journal=journal, progress=progress)
            if not (overwrite or job.has_its_name):
                _require_absent(file)
            if schema and not (overwrite or journal.state):
                _require_absent(str(schema_beside(file)))
            report = job.run()
        left_out = unseen(endpoint, table)
        lines = [*_export_lines(report), *left_out.sentences()]
        members = {**asdict(report), "hidden": left_out.hidden}
        data_options.end_with_report(journal, lines, members, as_json=as_json)
        data_options.tell_of_absent(endpoint, query, report.entities)


def _require_absent(file: str) -> None:
    if Path(file).exists():
        raise TransferRefused(f"{file} exists already: --overwrite replaces it.")


def _export_lines(report: ExportReport) -> list[str]:
    entities, size = shown_entities(report.entities), shown_bytes(report.bytes_written)
    lines = [f"{entities} written to {report.path}, {size}."]
    if report.resumed_after:
        lines.append(f"An earlier run had read the first {report.resumed_after:,}.")
    return lines


def _kind(file: str, given: str | None) -> str:
    """The form of the file, by the option or the end of its name. JSON is written as lines."""
    kind = kind_of(file, given)
    if kind in JSON_KINDS:
        return "jsonl"
    if kind == "parquet" and (file == STANDARD_STREAM or split_name(file)[1]):
        raise TransferRefused(
            "Parquet is written to a file of its own, not to standard output or a compressed file."
        )
    return kind


def _to_standard_output(
    endpoint: TableEndpoint, query: Query, target: Target, *, quiet: bool, as_json: bool
) -> None:
    """Write the data to standard output, and the report to standard error."""
    with closing(progress_for(f"export {query.table}", quiet=quiet)) as progress:
        read = TableReader(endpoint).entities(query, progress)
        entities = show(read, target.kind, keys=target.keys, mixed=target.mixed)
    if as_json or not quiet:
        left_out = unseen(endpoint, query.table)
        lines = [f"{shown_entities(entities)} written.", *left_out.sentences()]
        members = {"table": query.table, "entities": entities, "hidden": left_out.hidden}
        data_options.print_report(lines, members, as_json=as_json, err=True)
