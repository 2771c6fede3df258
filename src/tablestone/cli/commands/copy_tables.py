"""`tablestone copy`: tables of one endpoint into another."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict

import click

from tablestone.cli.commands.diff import shown_difference, shown_range
from tablestone.cli.data_options import (
    json_option,
    parallel_option,
    print_report,
    quiet_option,
    restart_option,
    telling_how_to_go_on,
    told_as_sentences,
)
from tablestone.clock import TICKS_PER_SECOND, system_clock
from tablestone.model.edm import format_date_time, parse_date_time
from tablestone.tools.client import TableEndpoint
from tablestone.tools.comparing import ONLY_IN_FIRST, ONLY_IN_SECOND
from tablestone.tools.connection import Connection, parse_place
from tablestone.tools.copying import MARGIN_TICKS, Copying, CopyReport, TableCopy
from tablestone.tools.journal import Journal, open_journal
from tablestone.tools.profiles import open_profiles
from tablestone.tools.progress import DIFFERING, progress_for, shown_bytes
from tablestone.tools.refusals import TransferRefused
from tablestone.tools.writing import OnConflict

DIFFERS = 1
_SIDES = {ONLY_IN_FIRST: "only at the source", ONLY_IN_SECOND: "only at the target"}


@click.command(
    name="copy",
    epilog="Example: tablestone copy --from @azure.txt --to local Weather Stations",
)
@click.option("--from", "source", metavar="PLACE", required=True, help="Where from: see above.")
@click.option("--to", "target", metavar="PLACE", required=True, help="Where to.")
@click.argument("tables", metavar="[TABLE]...", nargs=-1)
@click.option(
    "--since", metavar="TIME", help="Only entities that changed at or after this time (ISO 8601)."
)
@click.option(
    "--on-conflict",
    type=click.Choice([each.value for each in OnConflict]),
    default=OnConflict.FAIL.value,
    show_default=True,
    help="The action for an entity that the target has already.",
)
@click.option("--no-verify", is_flag=True, help="Do not compare at the end.")
@restart_option
@parallel_option
@quiet_option
@json_option
def copy_tables(
    source: str,
    target: str,
    tables: tuple[str, ...],
    since: str | None,
    on_conflict: str,
    parallel: int,
    *,
    no_verify: bool,
    restart: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Copy tables from one endpoint to another.

    PLACE is a profile's name, `local`, the URL of an account with its signature, a connection
    string, or @FILE that holds one of these. Without TABLE all tables are copied. Changes at the
    source during the copy are copied too. At the end both sides are compared, also with --since:
    this finds what was deleted at the source. Exit status 1: they differ.
    """
    ends = _ends(source, target)
    copying = Copying(OnConflict(on_conflict), parallel, _moment(since), verify=not no_verify)
    with TableEndpoint(ends[0]) as first, TableEndpoint(ends[1]) as second:
        with told_as_sentences(ends[0]):
            names = list(tables) or list(first.table_names())
        identity = {
            "command": "copy",
            "from": ends[0].url,
            "to": ends[1].url,
            "tables": list(tables),
            "since": copying.since,
            "on_conflict": on_conflict,
        }
        journal = open_journal(identity, os.environ, restart=restart)
        try:
            with telling_how_to_go_on(lambda: "The same command goes on from there."):
                reports = [
                    _copy(first, second, name, copying, journal, quiet=quiet) for name in names
                ]
                for report in reports:
                    print_report(_lines(report), asdict(report), as_json=as_json)
                journal.finish()
        finally:
            journal.close()
    return 0 if all(report.is_equal for report in reports) else DIFFERS


def _copy(
    source: TableEndpoint,
    target: TableEndpoint,
    table: str,
    copying: Copying,
    journal: Journal,
    *,
    quiet: bool,
) -> CopyReport:
    progress = progress_for(f"copy {table}", quiet=quiet, errors=DIFFERING)
    job = TableCopy(
        source,
        target,
        table,
        copying,
        journal=journal,
        progress=progress,
        clock=system_clock,
        tell=lambda line: None if quiet else print(line, file=sys.stderr),
    )
    try:
        with told_as_sentences(target.connection):
            return job.run()
    finally:
        progress.close()


def _ends(source: str, target: str) -> tuple[Connection, Connection]:
    profiles = open_profiles(os.environ)
    first, second = parse_place(source, profiles), parse_place(target, profiles)
    if first.url == second.url:
        raise TransferRefused("--from and --to are the same endpoint.")
    return first, second


def _moment(since: str | None) -> str | None:
    if since is None:
        return None
    try:
        return format_date_time(parse_date_time(since))
    except ValueError:
        raise TransferRefused(
            f"--since {since!r} is not a time such as 2026-01-31T10:00:00Z."
        ) from None


def _lines(report: CopyReport) -> list[str]:
    lines = [f"{report.table}: {report.copied:,} entities copied, {shown_bytes(report.bytes)}."]
    if report.resumed_after:
        lines.append(f"  An earlier run had copied {report.resumed_after:,} of them.")
    if report.skipped:
        lines.append(f"  {report.skipped:,} skipped: their keys were taken.")
    if report.already:
        lines.append(f"  {report.already:,} were at the target already, as they are at the source.")
    if report.rounds:
        lines.append(
            f"  {sum(report.rounds):,} of them were written at the source during the copy or in the "
            f"{MARGIN_TICKS // TICKS_PER_SECOND} seconds before it."
        )
    verified = report.verified
    if verified is not None:
        first, second = verified.counts
        if verified.is_equal:
            lines.append(f"  Verified: {first:,} entities on both sides, and they are equal.")
        else:
            lines.append(
                f"  {verified.differing:,} differ; {first:,} entities at the source, {second:,} at the target:"
            )
            lines += [f"    {shown_range(each)}" for each in verified.ranges if not each.is_equal]
            lines += [f"    {shown_difference(each, _SIDES)}" for each in report.differences]
    if report.not_compared is not None:
        lines.append(
            f"  Nothing was compared ({report.not_compared}): `tablestone diff` finds deletions and differences."
        )
    lines.append(f"  For later changes: --since {report.began}")
    return lines
