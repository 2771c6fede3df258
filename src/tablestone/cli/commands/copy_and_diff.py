"""`tablestone copy` and `diff`: copy and compare the tables of two endpoints."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from itertools import permutations
from typing import Any

import click

from tablestone.cli import data_options
from tablestone.clock import TICKS_PER_SECOND, system_clock
from tablestone.model.edm import format_date_time, parse_date_time
from tablestone.tools.client import TableEndpoint
from tablestone.tools.comparing import ONLY_IN_FIRST, ONLY_IN_SECOND, TableComparison
from tablestone.tools.connection import Connection, open_profiles, parse_place
from tablestone.tools.copying import MARGIN_TICKS, Copying, CopyReport, Side, TableCopy, compare
from tablestone.tools.errors import TransferFailed, TransferRefused
from tablestone.tools.following import Follower
from tablestone.tools.positions import TABLE as POSITION_TABLE
from tablestone.tools.positions import refuse_positions, tables_of_users
from tablestone.tools.progress import (
    DIFFERING,
    progress_for,
    shown_bytes,
    shown_count,
    shown_entities,
)
from tablestone.tools.resume_journal import Journal, open_journal
from tablestone.tools.writing import OnConflict


@click.command(epilog="Example: tablestone diff production local Weather --top 100")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.argument("tables", metavar="[TABLE]...", nargs=-1)
@click.option("--top", type=click.IntRange(0), default=20, help="Differences to show of a table.")
@data_options.ca_file_option
@data_options.quiet_option
@data_options.json_option
def diff(
    first: str, second: str, tables: tuple[str, ...], top: int, *, quiet: bool, as_json: bool
) -> int:
    """Compare the tables of two endpoints, entity by entity.

    A and B are each a profile's name, `local`, the URL of an account with its signature, a
    connection string, or @FILE that holds one of these. Without TABLE all tables of both are
    compared. Exit status 1: something differs.
    """
    start, end = _places(first, second, tables)
    is_equal = True
    with TableEndpoint(start) as one, TableEndpoint(end) as other, _asking_for_the_key(tables):
        sides = Side("", one, 1), Side("", other, 1)
        there = [_names_at(side, tables) for side in sides]
        for name in tables or sorted({*there[0], *there[1]}):
            both = zip(sides, there, strict=True)
            missing = [side.url for side, names in both if name not in names]
            if missing:
                is_equal = False
                line = f"{name}: not at {' nor at '.join(missing)}"
                data_options.print_report(
                    [line], {"table": name, "missing_at": missing}, as_json=as_json
                )
            else:
                bar = progress_for(f"diff {name}", quiet=quiet, errors=DIFFERING)
                with closing(bar):
                    result = compare(*sides, name, bar, top)
                lines = _comparison_lines(result, "in A", "in B")
                lines[0] = f"{name}: {lines[0]}"
                pairs = permutations(result.unseen)
                differing = {name for a, b in pairs for name in a.policies_not_in(b)}
                if differing:
                    lines.append(f"  stored access policies differ: {', '.join(sorted(differing))}")
                data_options.print_report(lines, {"table": name, **asdict(result)}, as_json=as_json)
                is_equal &= result.is_equal
    return 0 if is_equal else 1


def _places(first: str, second: str, tables: Sequence[str]) -> list[Connection]:
    """The connections of both places; refuses a signature for one table unless the command names this table alone."""
    profiles = open_profiles(os.environ)
    places = [parse_place(each, profiles) for each in (first, second)]
    for place in places:
        only = place.only_table
        if only and [name.lower() for name in tables] != [only.lower()]:
            raise TransferRefused(
                f"The signature of {place.url} is for the table {only} alone: name this table, or give the account's "
                "key."
            )
    return places


@contextmanager
def _asking_for_the_key(tables: Sequence[str]) -> Iterator[None]:
    """Say which credentials help, if those given do not allow the command."""
    try:
        yield
    except TransferFailed as failed:
        if failed.is_denied and len(tables) != 1:
            raise TransferFailed(f"{failed} Give the account's key, or name one table.") from None
        raise


def _names_at(side: Side, tables: Sequence[str]) -> list[str]:
    """The given tables that exist, or all tables of users. Credentials for one table may not list them."""
    if not tables:
        return tables_of_users(side)
    return [name for name in tables if side(lambda each, name=name: each.table_exists(name))]  # type: ignore[misc]


def _comparison_lines(result: TableComparison, *sides: str) -> list[str]:
    """The result for a person. `sides` are the words for the two sides, such as "in A"."""
    first, second = result.counts
    lines = [f"{shown_entities(first)} on both sides, and they are equal."]
    if not result.is_equal:
        differing = shown_count(result.differing, "differs", "differ")
        lines = [f"{differing}; {shown_entities(first)} {sides[0]}, {second:,} {sides[1]}"]
    expiry = zip(result.expiry, sides, strict=True)
    lines += [f"  entities expire {words} {side}" for words, side in expiry if words]
    if left_out := result.left_out:
        lines.append(f"  {left_out:,} left out: expired on one side, and not yet on the other")
    for side, not_shown in zip(sides, result.unseen, strict=True):
        lines += [f"  {sentence}" for sentence in not_shown.sentences(f" {side}")]
    for part in result.ranges:
        if not part.is_equal:
            counts, hashes = part.counts, part.hashes
            lines.append(
                f"  partitions {part.first!r} to {part.last!r}: {counts[0]:,} and {counts[1]:,} entities, "
                f"hashes {hashes[0][:12]} and {hashes[1][:12]}"
            )
    only = {ONLY_IN_FIRST: f"only {sides[0]}", ONLY_IN_SECOND: f"only {sides[1]}"}
    for each in result.differences:
        names = f": {', '.join(each.names)}" if each.names else ""
        kind, (partition, row) = only.get(each.kind, each.kind), each.key
        lines.append(f"  {kind}: PartitionKey {partition!r}, RowKey {row!r}{names}")
    if more := result.differing - len(result.differences):
        lines.append(f"  and {more:,} more")
    return lines


@click.command(epilog="Example: tablestone copy --from @azure.txt --to local Weather Stations")
@click.option("--from", "source", metavar="PLACE", required=True, help="Where from: see above.")
@click.option("--to", "target", metavar="PLACE", required=True, help="Where to.")
@click.argument("tables", metavar="[TABLE]...", nargs=-1)
@click.option(
    "--since", metavar="TIME", help="Only entities that changed at or after this time (ISO 8601)."
)
@click.option(
    "--follow", is_flag=True, help="Then apply every change of the source, until you stop it."
)
@click.option("--until-caught-up", is_flag=True, help="With --follow: end when no change is left.")
@data_options.on_conflict_option
@click.option(
    "--position-table",
    metavar="NAME",
    default=POSITION_TABLE,
    help="With --follow: where the target has the position.",
)
@click.option("--no-verify", is_flag=True, help="Do not compare at the end.")
@data_options.restart_option
@data_options.parallel_option
@data_options.ca_file_option
@data_options.quiet_option
@data_options.json_option
def copy(
    source: str,
    target: str,
    tables: tuple[str, ...],
    since: str | None,
    on_conflict: str,
    parallel: int,
    *,
    follow: bool,
    until_caught_up: bool,
    position_table: str,
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

    With --follow nothing is compared. The source must keep changes: `tablestone serve
    --keep-changes 7d`. The same command goes on where it stopped: the position is in the target,
    or in a journal of this machine if a signature allows one table only.
    """
    if until_caught_up and not follow:
        raise TransferRefused("--until-caught-up goes with --follow, which is not given.")
    if follow and (since is not None or on_conflict in ("skip", "merge")):
        raise TransferRefused("--follow goes neither with --since nor with skip or merge.")
    start, end = _places(source, target, tables)
    if start.url == end.url:
        raise TransferRefused("--from and --to are the same endpoint.")
    copying = Copying(
        OnConflict(on_conflict),
        parallel,
        _moment(since),
        verify=not no_verify,
        follows=follow,
        quiet=quiet,
    )
    identity = {
        "command": "copy",
        "from": start.url,
        "to": end.url,
        "tables": list(tables),
        "since": copying.since,
        "on_conflict": on_conflict,
        **({"follow": True} if follow else {}),
    }
    with (
        TableEndpoint(start) as first,
        TableEndpoint(end) as second,
        TableEndpoint(end) as kept,
        closing(open_journal(identity, os.environ, restart=restart)) as journal,
        data_options.advising_after_interrupt(),
        _asking_for_the_key(tables),
    ):
        if follow:
            follower = Follower(
                first,
                second,
                tables,
                parallel=parallel,
                journal=journal,
                tell=copying.tell,
                kept=None if end.only_table else kept,
                position_table=position_table,
            )
            with closing(follower), _interrupted_by(signal.SIGTERM):
                copies = _follow(follower, copying, restart=restart, ends=until_caught_up)
            _report_following(follower, copies, as_json=as_json)
            return 0
        sides = Side("source", first, parallel), Side("target", second, parallel)
        refuse_positions(sides[0], tables)
        names = list(tables) or tables_of_users(sides[0])
        if not names:
            print(f"tablestone: {start.url} has no tables.", file=sys.stderr)
        reports = []
        for name in names:
            state = journal.state.get("tables", {}).get(name, {})
            save = partial(_save, journal, name)
            reports.append(TableCopy(*sides, name, copying, state=state, save=save).run())
        for report in reports:
            data_options.print_report(_copy_lines(report), asdict(report), as_json=as_json)
        journal.finish()
    return 0 if all(report.is_equal for report in reports) else 1


def _save(journal: Journal, table: str, state: dict[str, Any]) -> None:
    tables = journal.state.get("tables", {})
    journal.save({**journal.state, "tables": {**tables, table: state}})


@contextmanager
def _interrupted_by(number: signal.Signals) -> Iterator[None]:
    """End at the signal as at Ctrl-C, and save that this run ended: then the next one follows at once."""
    before = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def _follow(follower: Follower, copying: Copying, *, restart: bool, ends: bool) -> list[CopyReport]:
    """Copy the tables that no earlier run copied, and apply the changes since. Returns the reports of the copies."""
    copies = []
    sides, positions = (follower.source, follower.target), follower.positions
    replaces = copying.on_conflict is OnConflict.REPLACE
    try:
        for followed in follower.start(restarts=restart, replaces=replaces):
            name, save = followed.name, partial(positions.set_copy, followed)
            try:
                report = TableCopy(*sides, name, copying, state=followed.copy, save=save).run()
            except TransferFailed as failed:
                # The table was deleted meanwhile: the feed says so too.
                if failed.code != "TableNotFound":
                    raise
                positions.drop(name)
                copying.tell(f"{name}: the source has no such table now.")
            else:
                copies.append(report)
                for line in (_copy_lines(report)[0], *_left_out(report)):
                    copying.tell(line)
        now = follower.source(TableEndpoint.service_time) or system_clock()
        follower.run(now + MARGIN_TICKS if ends else None)
    except TransferFailed as failed:
        if failed.code in ("ChangesNotKept", "InvalidChangeCursor"):
            raise TransferFailed(
                f"{failed} --restart does so, with --on-conflict replace where the target is not empty; what the "
                "source deleted meanwhile stays there."
            ) from None
        raise
    return copies


def _report_following(follower: Follower, copies: Sequence[CopyReport], *, as_json: bool) -> None:
    changes, entities = follower.changes, sum(report.copied for report in copies)
    line = f"{shown_count(changes, 'change')} applied. The same command continues."
    if copies:
        again = f", {follower.copied_again} of them again" if follower.copied_again else ""
        tables = shown_count(len(copies), "table")
        line = f"{tables} with {shown_entities(entities)} copied{again}; {line}"
    members = {
        "tables_copied": len(copies),
        "tables_copied_again": follower.copied_again,
        "entities_copied": entities,
        "changes": changes,
    }
    data_options.print_report([line], members, as_json=as_json)


def _moment(since: str | None) -> str | None:
    """The time of `--since` as the service writes it."""
    if since is None:
        return None
    try:
        return format_date_time(parse_date_time(since))
    except ValueError:
        raise TransferRefused(
            f"--since {since!r} is not a time such as 2026-01-31T10:00:00Z."
        ) from None


def _copy_lines(report: CopyReport) -> list[str]:
    read = shown_entities(report.copied + report.already + report.skipped)
    lines = [
        f"{report.table}: {read} read, {report.copied:,} written, {shown_bytes(report.bytes)}."
    ]
    if report.resumed_after:
        lines.append(f"  An earlier run had read {report.resumed_after:,} of them.")
    if report.skipped:
        lines.append(f"  {report.skipped:,} skipped: their keys were taken.")
    if report.already:
        lines.append(f"  {report.already:,} were at the target already, as they are at the source.")
    if report.rounds:
        lines.append(
            f"  {sum(report.rounds):,} of them were written at the source during the copy or in the "
            f"{MARGIN_TICKS // TICKS_PER_SECOND} seconds before it."
        )
    lines += _left_out(report)
    if report.verified is not None:
        verified = _comparison_lines(report.verified, "at the source", "at the target")
        if report.is_equal:
            verified[0] = f"Verified: {verified[0]}"
        lines += [f"  {line}" for line in verified]
    if report.not_compared is not None:
        lines.append(
            f"  Nothing was compared ({report.not_compared}): `tablestone diff` finds deletions and differences."
        )
    lines.append(f"  For later changes: --since {report.began}")
    return lines


def _left_out(report: CopyReport) -> list[str]:
    """What the source has and the target does not get."""
    lines = []
    if report.verified is None:  # else the comparison says so
        lines = [f"  {sentence}" for sentence in report.unseen.sentences()]
    if names := ", ".join(report.unseen.indexes):
        lines.append(f"  Indexes are not copied, and the target has none on: {names}.")
    if names := ", ".join(sorted(report.unseen.policies or ())):
        lines.append(f"  Access policies are not copied, and those of the target differ: {names}.")
    return lines
