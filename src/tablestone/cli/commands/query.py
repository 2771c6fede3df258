"""`tablestone query`: entities that a filter finds; order, `--contains` and `--distinct` are done on the client."""

import sys

import click

from tablestone.advice.filter_shape import number_names
from tablestone.cli import data_options
from tablestone.clock import monotonic_seconds
from tablestone.query.filter_parser import parse_filter
from tablestone.tools import queries
from tablestone.tools.client import Query, TableEndpoint
from tablestone.tools.errors import TransferRefused
from tablestone.tools.exporting import show
from tablestone.tools.odata import property_of
from tablestone.tools.progress import shown_count, shown_entities

_KEYS = ("PartitionKey", "RowKey")


@click.command(
    epilog="Example: tablestone query Weather --select RowKey,temp --top 20 "
    "--filter \"PartitionKey eq 'JFK' and temp gt 30.0\""
)
@data_options.table_argument
@data_options.filter_option
@data_options.select_option
@click.option("--top", type=click.IntRange(0), metavar="N", help="The maximum number of entities.")
@click.option(
    "--order-by",
    metavar="'NAME [desc]'",
    multiple=True,
    help="Sort on the client; reads all entities.",
)
@click.option(
    "--newest",
    is_flag=True,
    help="Keys in descending order; reads all entities, unless the server has --query-extensions.",
)
@click.option(
    "--starts-with",
    metavar="NAME=TEXT",
    multiple=True,
    help="Only if the property begins with TEXT.",
)
@click.option(
    "--contains",
    metavar="NAME=TEXT",
    multiple=True,
    help="Only if the property contains TEXT; tested on the client.",
)
@click.option("--distinct", metavar="NAME", help="The distinct values of a property instead.")
@click.option("--count", "count_only", is_flag=True, help="Only the number of entities.")
@click.option(
    "--explain", "explained", is_flag=True, help="Print the plan and its cost on standard error."
)
@data_options.output_option
@data_options.as_program
def query(
    endpoint: TableEndpoint,
    table: str,
    filter_text: str | None,
    names: tuple[str, ...],
    top: int | None,
    order_by: tuple[str, ...],
    starts_with: tuple[str, ...],
    contains: tuple[str, ...],
    distinct: str | None,
    output: str,
    *,
    newest: bool,
    count_only: bool,
    explained: bool,
) -> None:
    """Show the entities that a filter finds."""
    if newest and order_by:
        raise TransferRefused("--newest and --order-by each name an order: give one of them.")
    prefixes = tuple(queries.parse_pair("--starts-with", text) for text in starts_with)
    reverse = newest and endpoint.reads_backwards(table)
    refinement = queries.Refinement(
        contains=tuple(queries.parse_pair("--contains", text) for text in contains),
        starts_with=prefixes,
        order_by=queries.parse_order(order_by),
        newest=newest and not reverse,
        top=top,
    )
    asked = queries.all_of(
        [
            queries.checked_filter(filter_text),
            *(queries.prefix_filter(name, part) for name, part in prefixes),
        ]
    )
    reader = queries.TableReader(endpoint)
    started = monotonic_seconds()
    compared = number_names(parse_filter(asked, extended=True)) if explained and asked else ()
    select_names = _needed(names, refinement, distinct, compared, count_only=count_only)
    # Where nothing is left out or sorted here, the service is asked for no more than is shown.
    limit = None if refinement.looks_at_more else top
    wanted = Query(table, asked, select_names, limit, explained, reverse)
    flags = {
        **dict.fromkeys(names, "--select"),
        **{name: "--contains" for name, _ in refinement.contains},
        **({} if distinct is None else {distinct: "--distinct"}),
        **{name: "--order-by" for name, _ in refinement.order_by},
    }
    met = queries.Met([*flags, *compared])
    entities = refinement.apply(met.watch(reader.entities(wanted)))
    if distinct is not None:
        found = dict.fromkeys(queries.shown_value(property_of(raw, distinct)) for raw in entities)
        shown = len(found)
        for line in [shown] if count_only else found:
            print(line)
    elif count_only:
        is_whole = not (explained or refinement.looks_at_more or top is not None)
        counted = endpoint.count(Query(table, asked)) if is_whole else None
        shown = sum(1 for _ in entities) if counted is None else counted
        print(shown)
    else:
        hidden = [name for name in select_names if name not in names]
        shown = show(queries.without(entities, hidden), output, names)
    sys.stdout.flush()
    absent = {name: flags[name] for name in met.missing if name in flags}
    data_options.tell_of_absent(endpoint, wanted, max(reader.cost.entities, shown), absent)
    cost: list[str] = []
    if explained:
        cost = queries.explain(
            wanted,
            reader.cost,
            shown=shown,
            seconds=monotonic_seconds() - started,
            newest=refinement.newest and top is not None,
            types=met.types,
            indexes=endpoint.indexes(table),
        )
    elif contains or refinement.reads_everything or distinct is not None:
        # The client reads more than it shows.
        what = f"{shown:,} {'counted' if count_only else 'shown'}"
        if distinct is not None:
            what = shown_count(shown, "distinct value")
        cost = [f"{shown_entities(reader.cost.entities)} received for {what}."]
    for line in cost:
        print(line, file=sys.stderr)


def _needed(
    names: tuple[str, ...],
    refinement: queries.Refinement,
    distinct: str | None,
    compared: tuple[str, ...],
    *,
    count_only: bool,
) -> tuple[str, ...]:
    """The properties to ask the service for; none means all. `compared` are those whose types are needed."""
    looked_at = {
        name for name, _ in (*refinement.contains, *refinement.starts_with, *refinement.order_by)
    }
    if distinct is not None:
        return tuple(sorted({distinct, *looked_at}))
    if count_only:
        return tuple(sorted({*_KEYS, *looked_at, *compared}))
    return tuple(dict.fromkeys((*names, *sorted(looked_at)))) if names else ()
