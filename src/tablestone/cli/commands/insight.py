"""`tablestone insight`: show the hottest partitions, the queries that scan, and the tables of a running server.

Reads `/insight` of the admin address, and prints it for a person or as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import click

from tablestone.advice.advising import advise
from tablestone.advice.rule import Advice, Severity
from tablestone.insight.report import (
    DAY,
    HOUR,
    NOW,
    NOW_SECONDS,
    PERIOD_WORDS,
    PERIODS,
    InsightReport,
    PartitionActivity,
    QueryShape,
    TableInsight,
)
from tablestone.tools.errors import TransferFailed
from tablestone.tools.insight import (
    SCAN_RATIO,
    ask_for_insight,
    share_of,
    takes_large_share,
    workload_of,
)
from tablestone.tools.progress import shown_bytes, shown_count, shown_entities, shown_seconds

if TYPE_CHECKING:
    from rich.console import Console

THROTTLED: Final = "on Azure this key would be throttled"
WIDTH_OF_FILES: Final = 160
"""Columns of the output if it goes into a file or a pipe."""
KEY_WIDTH_MAX: Final = 40
SPARK_WIDTH: Final = 20
"""Characters that show a period over time."""
_SPARKS: Final = " ▁▂▃▄▅▆▇█"

Cell = str | tuple[str, str]
"""A text, or a text and its style."""


def print_insight(
    report: InsightReport, period: str, top: int, advice: Sequence[Advice], *, of_one_table: bool
) -> None:
    from rich.console import Console  # noqa: PLC0415 - only for this output

    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDTH_OF_FILES
    counted = max(0.0, report.at - report.started)
    workers = shown_count(report.workers, "worker")
    console.print(f"Counted for {shown_seconds(counted)}, over {workers}.")
    _print_partitions(console, report, NOW, top)
    # For a server that has just started, a longer period has the same counts.
    if period != NOW and counted > NOW_SECONDS:
        _print_partitions(console, report, period, top)
    _print_queries(console, report, period, top)
    _print_tables(console, report, period, top)
    if of_one_table:
        _print_largest(console, report.tables[0], top)
    for account in () if of_one_table else report.accounts:
        rate = account.rates[period]
        if rate.is_throttled:
            console.print(
                f"\nThe account {account.account} took {rate.peak:,.0f} requests in its busiest second: Azure's "
                f"target is {report.targets['account']:,}.",
                style="bold red",
            )
    if report.sizes_note:
        console.print(f"\n{report.sizes_note}")
    _print_advice(console, advice, period)


def _print_advice(console: Console, advice: Sequence[Advice], period: str) -> None:
    if advice:
        console.print(f"\nAdvice on {PERIOD_WORDS[period]}", style="bold")
    for each in advice:
        style = "bold red" if each.severity is Severity.SEVERE else None
        console.print(f"{each.severity.value}: {each.sentence}", style=style, soft_wrap=True)
        console.print(f"  {each.change}\n  cost of writes: {each.cost}", soft_wrap=True)
        console.print(f"  {each.sources[0].url}", style="dim", soft_wrap=True)


def _print_partitions(console: Console, report: InsightReport, period: str, top: int) -> None:
    rows = [_partition_row(report, each, period) for each in report.partitions[period][:top]]
    heads = (
        *("<table", "<PartitionKey", "entities/s", "minute", "peak"),
        *("read", "written", "traffic", "conflicts"),
        *(f"<over {'a day' if period == DAY else 'an hour'}", "<remark"),
    )
    title = f"The hottest partitions of {PERIOD_WORDS[period]}"
    _print_table(console, title, heads, rows, "No request named a PartitionKey.")
    if rows:
        note = (
            "Entities/s: the mean; `minute`: in the busiest minute; `peak`: in the busiest second."
        )
        if most := report.unlisted[period]:
            note += f" Partitions beyond those counted have read and written at most {shown_entities(most)} each."
        console.print(note, style="dim")


def _partition_row(
    report: InsightReport, partition: PartitionActivity, period: str
) -> Sequence[Cell]:
    activity, rate = partition.activity, partition.rate
    conflicts = activity.conflicts + activity.refused
    more = f" (up to {partition.missed:,} more)" if partition.missed else ""
    return (
        partition.table,
        _key(partition.partition_key),
        f"{rate.mean:,.1f}",
        # A minute that is not over counts as a whole one.
        f"{rate.busiest_minute:,.1f}" if report.at - report.started >= 60 else "",
        f"{rate.peak:,.0f}",
        f"{activity.entities_read:,}{more}",
        f"{activity.writes:,}",
        shown_bytes(activity.bytes_in + activity.bytes_out),
        f"{conflicts:,}" if conflicts else "",
        spark(partition.over_time),
        _remark(report, partition, period),
    )


def _remark(report: InsightReport, partition: PartitionActivity, period: str) -> Cell:
    """What is remarkable about a partition: a rate above Azure's target, or a large share of its table."""
    if partition.rate.is_throttled:
        return THROTTLED, "bold red"
    if takes_large_share(report, partition, period):
        return f"{share_of(report, partition, period):.0%} of {partition.table}", "bold"
    return ""


def _print_queries(console: Console, report: InsightReport, period: str, top: int) -> None:
    rows = [_query_row(each) for each in report.queries[period][:top]]
    heads = (
        *("<table", "<filter", "<plan", "queries", "read", "for each returned"),
        *("p50 ms", "p99 ms"),
    )
    title = f"The queries that scan most, of {PERIOD_WORDS[period]}"
    _print_table(console, title, heads, rows, "There was no query.")


def _query_row(query: QueryShape) -> Sequence[Cell]:
    text = query.filter or "(no filter)"
    if query.names_select:
        text += "  $select"
    if query.from_tools:
        text += "  (tools)"
    return (
        query.table,
        text,
        query.plan,
        f"{query.queries:,}",
        f"{query.entities_read:,}" + (f" of {query.azure_reads:,}" if query.passed_over else ""),
        (f"{query.ratio:,.1f}", "bold red" if query.ratio >= SCAN_RATIO else ""),
        f"{query.p50_ms:g}",
        f"{query.p99_ms:g}",
    )


def _print_tables(console: Console, report: InsightReport, period: str, top: int) -> None:
    by_size = sorted(report.tables, key=lambda each: -each.size.bytes if each.size else 0)[:top]
    rows = [_table_row(each, period) for each in by_size]
    heads = (
        *("<table", "entities", "stored", "growth", "partitions", "read", "returned", "written"),
        *("conflicts", "refused", "by tools", "<plans"),
    )
    title = f"The tables, by size and by use in {PERIOD_WORDS[period]}"
    _print_table(console, title, heads, rows, "There is no table.")
    for each in by_size:
        if each.expiry:
            console.print(f"Entities of {each.table} expire {each.expiry}.")
        for name in each.size.automatic if each.size else ():
            console.print(f"The server made the index on {name} of {each.table} by itself.")
    if not report.sizes_note and any(each.size is None for each in by_size):
        console.print("`?`: not counted yet; sizes are counted in the background.", style="dim")


def _table_row(table: TableInsight, period: str) -> Sequence[Cell]:
    activity = table.activity[period]
    entities = stored = partitions = "?"
    if size := table.size:
        entities, stored = f"{size.entities:,}", shown_bytes(size.bytes)
        partitions = f"{size.partitions:,}"
    plans = sorted(table.plans[period].items(), key=lambda item: -item[1])
    return (
        *(table.table, entities, stored, growth(table), partitions),
        f"{activity.entities_read:,}",
        f"{activity.entities_returned:,}",
        f"{activity.writes:,}",
        f"{activity.conflicts:,}" if activity.conflicts else "",
        f"{activity.refused:,}" if activity.refused else "",
        f"{table.tool_requests.get(period, 0):,}",
        ", ".join(f"{count:,} {plan}" for plan, count in plans),
    )


def growth(table: TableInsight) -> str:
    """The growth of a table since its first known size, as `+1.2 MiB in 25 min 0 s`; empty if there is none."""
    size = table.size
    if size is None or len(size.growth) < 2:
        return ""
    first, last = size.growth[0], size.growth[-1]
    more = last.bytes - first.bytes
    if not more:
        return ""
    sign = "+" if more > 0 else "-"
    return f"{sign}{shown_bytes(abs(more))} in {shown_seconds(last.at - first.at)}"


def _print_largest(console: Console, table: TableInsight, top: int) -> None:
    if table.size is None or not table.size.largest:
        return
    heads = ("<PartitionKey", "entities", "stored", "")
    whole = max(1, table.size.bytes)
    rows = [
        (
            _key(each.partition_key),
            f"{each.entities:,}",
            shown_bytes(each.bytes),
            f"{each.bytes / whole:.0%}",
        )
        for each in table.size.largest[:top]
    ]
    _print_table(console, "The largest partitions", heads, rows)


def _print_table(
    console: Console,
    title: str,
    heads: Iterable[str],
    rows: Sequence[Sequence[Cell]],
    nothing: str = "",
) -> None:
    """Print the rows, or `nothing`. Columns are aligned to the right, unless their head begins with `<`."""
    from rich.table import Table  # noqa: PLC0415 - only for this output
    from rich.text import Text  # noqa: PLC0415 - as above

    console.print(f"\n{title}", style="bold")
    if not rows:
        console.print(nothing)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in heads:
        is_left = head.startswith("<")
        table.add_column(head[is_left:], justify="left" if is_left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else Text(*cell) for cell in row))
    console.print(table)


def spark(counts: Sequence[int]) -> str:
    """The counts over time as a line of small bars, the newest at the right; empty if all are 0."""
    if not any(counts):
        return ""
    width = min(SPARK_WIDTH, len(counts))
    sums = [
        sum(counts[len(counts) * place // width : len(counts) * (place + 1) // width])
        for place in range(width)
    ]
    most = max(sums)
    # Rounded up: only 0 is a blank.
    return "".join(_SPARKS[-(-each * (len(_SPARKS) - 1) // most)] for each in sums)


def _key(key: str) -> str:
    shown = repr(key)[1:-1] if not key.isprintable() else key
    if len(shown) > KEY_WIDTH_MAX:
        shown = f"{shown[: KEY_WIDTH_MAX - 1]}…"
    return shown or "(empty)"


@click.command(epilog="Example: tablestone insight Weather --admin 10003")
@click.argument("table", required=False)
@click.option(
    "--admin",
    metavar="[HOST:]PORT",
    default="10003",
    envvar="TABLESTONE_ADMIN",
    help="The admin address of the server; HOST is 127.0.0.1 unless given.",
)
@click.option("--account", metavar="NAME", help="Show this account only.")
@click.option(
    "--period",
    type=click.Choice(PERIODS),
    default=HOUR,
    help="The length of time: five minutes, an hour or a day.",
)
@click.option(
    "--top", type=click.IntRange(1, 50), default=10, help="How many partitions, queries and tables."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the whole report and the advice as JSON."
)
def insight(
    table: str | None, admin: str, account: str | None, period: str, top: int, *, as_json: bool
) -> None:
    """Show hot partitions and scanning queries of a server.

    The server must have been started with --admin. With a TABLE, everything is about this table.
    Advice says which keys would be better; there is none where nothing is wrong.
    """
    report, text = ask_for_insight(admin, table, account)
    if table is not None and not report.tables:
        raise TransferFailed(f"The server knows no table {table} with requests of the last day.")
    advice = advise(workload_of(report, period, of_one_table=table is not None))
    if as_json:
        members = {**json.loads(text), "advice": [each.members() for each in advice]}
        sys.stdout.write(json.dumps(members, indent=1, ensure_ascii=False) + "\n")
    else:
        print_insight(report, period, top, advice[:top], of_one_table=table is not None)
