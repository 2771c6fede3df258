"""`tablestone diff`: the tables of two endpoints, entity by entity."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from itertools import islice

import click

from tablestone.cli.data_options import (
    json_option,
    print_report,
    quiet_option,
    told_as_sentences,
)
from tablestone.tools.client import Query, TableEndpoint
from tablestone.tools.comparing import Comparer, Comparison, Difference, KeyRange
from tablestone.tools.connection import parse_place
from tablestone.tools.profiles import open_profiles
from tablestone.tools.progress import DIFFERING, progress_for
from tablestone.tools.reading import TableReader

DIFFERS = 1


@click.command(epilog="Example: tablestone diff production local Weather --top 100")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.argument("tables", metavar="[TABLE]...", nargs=-1)
@click.option(
    "--top",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="Differences to show of a table.",
)
@quiet_option
@json_option
def diff(
    first: str, second: str, tables: tuple[str, ...], top: int, *, quiet: bool, as_json: bool
) -> int:
    """Compare the tables of two endpoints, entity by entity.

    A and B are each a profile's name, `local`, the URL of an account with its signature, a
    connection string, or @FILE that holds one of these. Without TABLE all tables of both are
    compared. Exit status 1: something differs.
    """
    profiles = open_profiles(os.environ)
    places = parse_place(first, profiles), parse_place(second, profiles)
    is_equal = True
    with TableEndpoint(places[0]) as one, TableEndpoint(places[1]) as other:
        with told_as_sentences(places[0]):
            in_one = set(one.table_names())
        with told_as_sentences(places[1]):
            in_other = set(other.table_names())
        for name in tables or sorted(in_one | in_other):
            missing = [
                place.url
                for place, names in zip(places, (in_one, in_other), strict=True)
                if name not in names
            ]
            if missing:
                is_equal = False
                members = {"table": name, "missing_at": missing}
                print_report(
                    [f"{name}: not at {' nor at '.join(missing)}"], members, as_json=as_json
                )
                continue
            is_equal &= _compare(one, other, name, top, quiet=quiet, as_json=as_json)
    return 0 if is_equal else DIFFERS


def _compare(
    one: TableEndpoint, other: TableEndpoint, table: str, top: int, *, quiet: bool, as_json: bool
) -> bool:
    progress = progress_for(f"diff {table}", quiet=quiet, errors=DIFFERING)
    comparer = Comparer(progress)
    try:
        found = comparer.differences(
            TableReader(one).entities(Query(table)), TableReader(other).entities(Query(table))
        )
        shown = list(islice(found, top))
        for _ in found:
            pass  # the rest is counted
    finally:
        progress.close()
    result = comparer.result
    members = {"table": table, **asdict(result), "differences": [each._asdict() for each in shown]}
    print_report(_lines(table, result, shown), members, as_json=as_json)
    return result.is_equal


def _lines(table: str, result: Comparison, shown: list[Difference]) -> list[str]:
    first, second = result.counts
    if result.is_equal:
        return [f"{table}: {first:,} entities on both sides, and they are equal."]
    lines = [f"{table}: {result.differing:,} differ; {first:,} entities in A, {second:,} in B"]
    lines += [f"  {shown_range(each)}" for each in result.ranges if not each.is_equal]
    lines += [f"  {shown_difference(each)}" for each in shown]
    if result.differing > len(shown):
        lines.append(f"  and {result.differing - len(shown):,} more")
    return lines


def shown_difference(difference: Difference, sides: Mapping[str, str] | None = None) -> str:
    """One difference for a person. `sides` has other words for the side that alone has an entity."""
    partition, row = difference.key
    names = f": {', '.join(difference.names)}" if difference.names else ""
    kind = (sides or {}).get(difference.kind, difference.kind)
    return f"{kind}: PartitionKey {partition!r}, RowKey {row!r}{names}"


def shown_range(each: KeyRange) -> str:
    """A range of partitions whose counts or hashes are not the same."""
    first, second = each.counts
    return (
        f"partitions {each.first!r} to {each.last!r}: {first:,} and {second:,} entities, "
        f"hashes {each.hashes[0][:12]} and {each.hashes[1][:12]}"
    )
