"""`tablestone delete` and `clear`: delete the entities that a filter finds, or all, after a question."""

from contextlib import closing
from dataclasses import asdict
from typing import Any

import click

from tablestone.cli import data_options
from tablestone.tools.client import Query, TableEndpoint
from tablestone.tools.deleting import Delete
from tablestone.tools.errors import TransferRefused
from tablestone.tools.progress import progress_for, shown_entities
from tablestone.tools.queries import TableReader, checked_filter

_deleting = data_options.together(
    click.option("--dry-run", is_flag=True, help="Only count what would be deleted."),
    data_options.yes_option,
    data_options.parallel_option,
    data_options.quiet_option,
    data_options.json_option,
    data_options.as_program,
)
"""The options that both commands have."""


@click.command(epilog="Example: tablestone delete Weather --filter \"RowKey lt '2012'\" --dry-run")
@data_options.table_argument
@data_options.filter_option
@_deleting
def delete(endpoint: TableEndpoint, table: str, filter_text: str | None, **how: Any) -> None:
    """Delete the entities that a filter finds.

    An entity that changes after it was read stays, and is reported.
    """
    checked = checked_filter(filter_text)
    if checked is None:
        raise TransferRefused("delete needs --filter; `tablestone clear` deletes everything.")
    _delete(endpoint, Query(table, checked), **how)


@click.command(epilog="Example: tablestone clear Weather --yes")
@data_options.table_argument
@_deleting
def clear(endpoint: TableEndpoint, table: str, **how: Any) -> None:
    """Delete all entities of a table.

    The table itself stays, with its policies.
    """
    _delete(endpoint, Query(table), **how)


def _delete(
    endpoint: TableEndpoint,
    query: Query,
    parallel: int,
    *,
    dry_run: bool,
    yes: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    if dry_run:
        keys = query._replace(select=("PartitionKey",))
        found = sum(1 for _ in TableReader(endpoint).entities(keys))
        members = {"table": query.table, "would_delete": found}
        data_options.print_report(
            [f"{shown_entities(found)} would be deleted."], members, as_json=as_json
        )
        data_options.tell_of_absent(endpoint, query, found)
        return
    which = "the entities that the filter finds in" if query.filter else "all entities of"
    data_options.require_consent(endpoint.connection, f"Deleting {which} {query.table}", yes=yes)
    progress = progress_for(f"delete {query.table}", quiet=quiet)
    job = Delete(endpoint, query, parallel=parallel, progress=progress)
    with (
        data_options.advising_after_interrupt(
            lambda: f"{job.report.deleted:,} are deleted; the same command deletes the rest."
        ),
        closing(progress),
    ):
        report = job.run()
    lines = [f"{shown_entities(report.deleted)} deleted."]
    if report.changed:
        lines.append(f"{report.changed:,} changed after they were read, and are still there.")
    if report.uncertain:
        lines.append(
            f"The answer for {report.uncertain:,} of them was lost: they are gone, "
            "and another client may have deleted some."
        )
    if report.gone:
        lines.append(f"{report.gone:,} were gone already: another client deleted them.")
    data_options.print_report(lines, asdict(report), as_json=as_json)
