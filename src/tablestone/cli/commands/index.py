"""`tablestone index`: make, list, check and drop the indexes of tables, beside a server or without one."""

import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from typing import Any, Final, TypeVar

import click

from tablestone.cli.data_options import (
    account_option,
    advising_after_interrupt,
    opened_server,
    quiet_option,
    server_option,
    together,
    yes_option,
)
from tablestone.cli.option_sources import where
from tablestone.cli.options import CHANGE_OPTIONS, CHECK_OPTIONS, BrokenOption, with_options
from tablestone.cli.stored_data import is_known, stored_configuration, with_engine, with_table
from tablestone.configuration import Configuration
from tablestone.engines.contract import Engine, EngineUnavailable
from tablestone.engines.registry import capabilities_of
from tablestone.model.entity_json import read_raw
from tablestone.model.keys import ROW_KEY
from tablestone.model.operations import IndexFound
from tablestone.tables.account_incarnation import Named
from tablestone.tables.catalog import Catalog, TableRecord, every_table, scan_in_steps
from tablestone.tables.index_building import (
    IndexRefused,
    IndexWork,
    Progress,
    indexes_of,
    require_indexable,
    require_keeps_entries,
)
from tablestone.tables.storage_keys import table_range
from tablestone.tools.client import Query
from tablestone.tools.own_forms import done_index
from tablestone.tools.progress import Reached, progress_for, shown_count, shown_entities

Answer = TypeVar("Answer")

LOOKED_AT_MAX: Final = 1_000
"""Entities that are looked at for a property."""
_with_property = together(
    click.argument("table"), click.argument("name", metavar="PROPERTY"), account_option
)


@click.group()
def index() -> None:
    """Make, list, check and drop indexes of tables.

    An index changes what a query costs, never its answer. The commands work on the data itself,
    also while servers use it, or ask a server. Azure has no indexes.
    """


@index.command()
@_with_property
@click.option("--partition", is_flag=True, help="Only for queries within one partition.")
@server_option
@yes_option
@quiet_option
@with_options(CHANGE_OPTIONS)
def create(
    table: str,
    name: str,
    account_name: str,
    server: str | None,
    *,
    partition: bool,
    yes: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Make an index on a property, or on RowKey.

    Requests go on meanwhile. If a server has the data open, it makes the index. If the command is
    stopped, the same command continues. It asks first if no entity has the property. The first
    index of a data directory moves it to format 3 for good, which earlier versions cannot read.
    """
    require_indexable(name)
    if not yes and name != ROW_KEY:
        _require_known(server, given, account_name, table, name)

    async def make(work: IndexWork, progress: Progress) -> tuple[int, bool]:
        if work.is_served:
            await work.ask(within_partition=partition)
        if not work.is_served or not await work.is_done_by_server(progress):
            await work.create(within_partition=partition, progress=progress)
        return await work.made()

    if server is None:
        table, (entities, finds_nothing) = _act(given, account_name, table, name, make, quiet=quiet)
    else:
        body = {"property": name, "withinPartition": partition}
        index = _ask_server(server, given, "PUT", table, name, body, quiet=quiet)
        if index is None:
            raise IndexRefused(f"The index on {name} was dropped meanwhile.")
        entities, finds_nothing = index.get("entities", 0), "empty" in index
    within = " within each partition" if partition else ""
    print(f"{table} has an index on {name}{within}: {shown_entities(entities)} read.")
    if finds_nothing and entities:
        print(f"No entity has {name} so far; names are case-sensitive.")


@index.command(name="list")
@click.argument("table", required=False)
@server_option
@account_option
@with_options(CHECK_OPTIONS)
def list_indexes(table: str | None, account_name: str, server: str | None, **given: Any) -> None:
    """Print the indexes of a table, or of all: table, property, table or partition, state.

    An index that is building or broken is kept, but no query uses it.
    """
    if server is not None:
        with opened_server(server, given) as endpoint:
            for name in [table] if table is not None else list(endpoint.table_names()):
                for each in endpoint.own_form("GET", name, "indexes").members["indexes"]:
                    found = IndexFound(each["property"], each["withinPartition"], each["state"])
                    _show(name, found, automatic="automatic" in each)
        return
    configuration = _configuration(given)

    async def show(engine: Engine, tables: list[TableRecord]) -> None:
        found = [(each.name, index) for each in tables for index in await indexes_of(engine, each)]
        if not found and not await is_known(configuration, engine, account_name):
            raise BrokenOption(
                f"No account {account_name} is stored in {where(configuration)}, and none of its tables has an index."
            )
        for name, index in found:
            found_index = IndexFound(index.property, index.within_partition, index.state.value)
            _show(name, found_index, automatic=index.automatic is not None)

    async def show_all(engine: Engine) -> None:
        await show(
            engine, [each async for name, each in every_table(engine) if name == account_name]
        )

    if table is None:
        with_engine(configuration, show_all, read_only=True)
    else:
        with_table(
            configuration,
            account_name,
            table,
            lambda catalog, record: show(catalog.engine, [record]),
            read_only=True,
        )


def _require_known(
    server: str | None, given: dict[str, Any], account: str, table: str, name: str
) -> None:
    """Ask whether to go on if none of the first entities has the property: its name may be mistyped."""

    async def first(catalog: Catalog, record: TableRecord) -> list[bool]:
        have_it: list[bool] = []
        async for rows in scan_in_steps(catalog.engine, table_range(record.table_id)):
            have_it += [name in read_raw(row.value) for row in rows]
            if len(have_it) >= LOOKED_AT_MAX:
                break
        return have_it

    if server is None:
        have_it = with_table(_configuration(given), account, table, first, read_only=True)
    else:
        with opened_server(server, given) as endpoint:
            have_it = [name in raw for raw in endpoint.page(Query(table), None).entities]
    if any(have_it) or not have_it:
        return
    which = "No entity" if len(have_it) < LOOKED_AT_MAX else f"None of the first {LOOKED_AT_MAX:,}"
    sentence = f"{which} of {table} has {name}; names are case-sensitive."
    if not sys.stdin.isatty():
        raise BrokenOption(f"{sentence} Without a terminal, --yes makes the index nevertheless.")
    if not click.confirm(f"{sentence} Make the index?", err=True):
        raise BrokenOption("Nothing was changed.")


def _show(table: str, index: IndexFound, *, automatic: bool) -> None:
    place = "partition" if index.within_partition else "table"
    by = ["made by the server"] * automatic
    print(table, index.property, place, index.state, *by, sep="\t")


@index.command()
@_with_property
@quiet_option
@with_options(CHANGE_OPTIONS)
def check(table: str, name: str, account_name: str, *, quiet: bool, **given: Any) -> int:
    """Compare an index with the entities, and repair it.

    Exit status 1 if something was repaired.
    """
    table, (entities, missing, stale) = _act(
        given, account_name, table, name, IndexWork.check, title="check", quiet=quiet
    )
    if not missing and not stale:
        print(f"The index on {name} of {table} is right: {shown_entities(entities)}.")
        return 0
    print(
        f"The index on {name} of {table} is repaired: of {shown_entities(entities)}, {missing:,} had no entry, "
        f"and {shown_count(stale, 'entry was', 'entries were')} of no entity."
    )
    return 1


@index.command()
@_with_property
@server_option
@with_options(CHANGE_OPTIONS)
def drop(table: str, name: str, account_name: str, server: str | None, **given: Any) -> None:
    """Drop an index. No entity changes."""

    async def act(work: IndexWork, _progress: Progress) -> None:
        if work.is_served:
            await work.ask_to_drop()
        if not work.is_served or not await work.is_done_by_server():
            await work.drop()

    if server is None:
        table, _ = _act(given, account_name, table, name, act)
    else:
        _ask_server(server, given, "DELETE", table, name, None, quiet=True, property=name)
    print(f"{table} has no index on {name} any more.")


def _ask_server(
    server: str,
    given: dict[str, Any],
    method: str,
    table: str,
    name: str,
    body: Mapping[str, Any] | None,
    *,
    quiet: bool,
    **parameters: str,
) -> Mapping[str, Any] | None:
    """Ask a server for an index, or to drop it, and wait; returns the index."""
    with (
        opened_server(server, given) as endpoint,
        closing(progress_for(f"index {table} {name}", quiet=quiet)) as progress,
    ):
        endpoint.own_form(method, table, "indexes", body, **parameters)
        return done_index(
            *(endpoint, table, name),
            lambda entities: progress.update(Reached(entities, 0)),
            lambda sentence: print(f"tablestone: {sentence}", file=sys.stderr),
        )


def _configuration(given: dict[str, Any]) -> Configuration:
    configuration = stored_configuration(given, "Indexes")
    require_keeps_entries(capabilities_of(configuration.engine))
    return configuration


def _act(
    given: dict[str, Any],
    account: str,
    table: str,
    name: str,
    act: Callable[[IndexWork, Progress], Awaitable[Answer]],
    *,
    title: str = "index",
    quiet: bool = True,
) -> tuple[str, Answer]:
    """Act on an index and show the progress; returns the table's name as it was created, and the answer."""

    async def work(catalog: Catalog, record: TableRecord) -> tuple[str, Answer]:
        with closing(progress_for(f"{title} {table} {name}", quiet=quiet)) as progress:
            answer = await act(
                IndexWork(catalog, Named(account), table, name),
                lambda entities: progress.update(Reached(entities, 0)),
            )
        return record.name, answer

    with advising_after_interrupt():
        try:
            return with_table(_configuration(given), account, table, work)
        except EngineUnavailable as failed:
            sentence = str(failed).removesuffix(".")
            raise EngineUnavailable(f"{sentence}; the same command continues.") from failed
