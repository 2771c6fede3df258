"""`tablestone index`: make, list, check and drop the indexes of tables, beside a server or without one."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeVar

import click

from tablestone.cli.data_options import (
    account_option,
    advising_after_interrupt,
    quiet_option,
    together,
)
from tablestone.cli.options import CHANGE_OPTIONS, CHECK_OPTIONS, BrokenOption, with_options
from tablestone.cli.stored_data import (
    is_known,
    naming_absent_table,
    stored_configuration,
    with_engine,
)
from tablestone.clock import system_clock
from tablestone.configuration import Configuration
from tablestone.engines.contract import Engine, EngineUnavailable
from tablestone.engines.registry import capabilities_of
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Named
from tablestone.tables.catalog import Catalog, TableRecord, every_table
from tablestone.tables.index_building import (
    Indexes,
    Progress,
    indexes_of,
    require_indexable,
    require_keeps_entries,
)
from tablestone.tools.progress import Reached, progress_for, shown_count, shown_entities

Answer = TypeVar("Answer")

_with_property = together(
    click.argument("table", metavar="TABLE"),
    click.argument("name", metavar="PROPERTY"),
    account_option,
)


@click.group()
def index() -> None:
    """Make, list, check and drop indexes of tables.

    An index changes what a query costs, never its answer. The commands work on the data itself,
    also while servers use it. Azure has no indexes.
    """


@index.command()
@_with_property
@click.option("--partition", is_flag=True, help="Only for queries within one partition.")
@quiet_option
@with_options(CHANGE_OPTIONS)
def create(
    table: str, name: str, account_name: str, *, partition: bool, quiet: bool, **given: Any
) -> None:
    """Make an index on a property, or on RowKey.

    Requests go on meanwhile. If the command is stopped, the same command continues.
    """
    require_indexable(name)
    with _progress(f"index {table} {name}", quiet=quiet) as progress:

        async def made(indexes: Indexes, owner: Named) -> tuple[int, bool]:
            entities = await indexes.create(
                owner, table, name, within_partition=partition, progress=progress
            )
            return entities, await indexes.finds_nothing(owner, table, name)

        table, (entities, finds_nothing) = _act(given, account_name, table, made)
    within = " within each partition" if partition else ""
    print(f"{table} has an index on {name}{within}: {shown_entities(entities)} read.")
    if finds_nothing and entities:
        print(f"No entity has {name} so far; names are case-sensitive.")


@index.command(name="list")
@click.argument("table", metavar="[TABLE]", required=False)
@account_option
@with_options(CHECK_OPTIONS)
def list_indexes(table: str | None, account_name: str, **given: Any) -> None:
    """Print the indexes of a table, or of all: table, property, table or partition, state.

    An index that is building or broken is kept, but no query uses it.
    """
    configuration = _configuration(given)

    async def read(engine: Engine) -> list[str]:
        if table is not None:
            catalog = Catalog(engine, system_clock, storage_keys.fresh_table_id)
            tables = [await catalog.require(Named(account_name), table)]
        else:
            tables = [record async for name, record in every_table(engine) if name == account_name]
        return [line for record in tables for line in await _lines(engine, record)]

    with naming_absent_table(configuration, account_name, table):
        lines = with_engine(configuration, read, read_only=True)
    if not lines and not is_known(configuration, account_name):
        raise BrokenOption(
            f"No account {account_name} is stored, and none of its tables has an index."
        )
    for line in lines:
        print(line)


async def _lines(engine: Engine, table: TableRecord) -> list[str]:
    return [
        f"{table.name}\t{each.property}\t{'partition' if each.within_partition else 'table'}\t{each.state.value}"
        for each in await indexes_of(engine, table)
    ]


@index.command()
@_with_property
@quiet_option
@with_options(CHANGE_OPTIONS)
def check(table: str, name: str, account_name: str, *, quiet: bool, **given: Any) -> int:
    """Compare an index with the entities, and repair it.

    Exit status 1 if something was repaired.
    """
    with _progress(f"check {table} {name}", quiet=quiet) as progress:
        table, (entities, missing, stale) = _act(
            given,
            account_name,
            table,
            lambda indexes, owner: indexes.check(owner, table, name, progress),
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
@with_options(CHANGE_OPTIONS)
def drop(table: str, name: str, account_name: str, **given: Any) -> None:
    """Drop an index. No entity changes."""
    table, _ = _act(
        given, account_name, table, lambda indexes, owner: indexes.drop(owner, table, name)
    )
    print(f"{table} has no index on {name} any more.")


def _configuration(given: dict[str, Any]) -> Configuration:
    configuration = stored_configuration(given, "Indexes")
    require_keeps_entries(capabilities_of(configuration.engine))
    return configuration


def _act(
    given: dict[str, Any],
    account: str,
    table: str,
    act: Callable[[Indexes, Named], Awaitable[Answer]],
) -> tuple[str, Answer]:
    """The table's name as it was created, and what the action returns."""
    configuration = _configuration(given)
    owner = Named(account)

    async def with_indexes(engine: Engine) -> tuple[str, Answer]:
        fresh_id = storage_keys.fresh_table_id
        catalog = Catalog(engine, system_clock, fresh_id)
        found = await catalog.require(owner, table)
        return found.name, await act(Indexes(engine, catalog, system_clock, fresh_id), owner)

    with naming_absent_table(configuration, account, table), advising_after_interrupt():
        try:
            return with_engine(configuration, with_indexes, existing=True)
        except EngineUnavailable as failed:
            raise EngineUnavailable(f"{failed} The same command continues.") from failed


@contextmanager
def _progress(title: str, *, quiet: bool) -> Iterator[Progress]:
    with closing(progress_for(title, quiet=quiet)) as progress:
        yield lambda entities: progress.update(Reached(entities, 0))
