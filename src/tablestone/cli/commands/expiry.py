"""`tablestone expiry`: the policies by which the entities of tables expire, beside a server or without one."""

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import click

from tablestone.cli.data_options import together, yes_option
from tablestone.cli.options import (
    CHANGE_OPTIONS,
    CHECK_OPTIONS,
    SECONDS_OF_UNITS,
    BrokenOption,
    must_be,
    with_options,
)
from tablestone.cli.stored_data import stored_configuration, with_engine
from tablestone.clock import system_clock
from tablestone.configuration import DEVELOPMENT_ACCOUNT_NAME
from tablestone.engines.contract import Engine
from tablestone.model.entity import TIMESTAMP
from tablestone.model.errors import StorageError
from tablestone.model.expiry import ExpiryPolicy, is_expiry_property
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
from tablestone.tables.account_incarnation import Named
from tablestone.tables.catalog import Catalog, TableRecord, every_table
from tablestone.tables.expiry import count_ended
from tablestone.tables.storage_keys import fresh_table_id
from tablestone.tools.progress import shown_entities

_AGE: Final = re.compile(r"([1-9][0-9]{0,8})([smhd])", re.ASCII)

_of_a_table = together(
    click.argument("table", metavar="TABLE"),
    click.option(
        "--account",
        "account_name",
        metavar="NAME",
        default=DEVELOPMENT_ACCOUNT_NAME,
        show_default=True,
        help="Account of the table.",
    ),
)


@click.group()
def expiry() -> None:
    """Let entities of a table expire: hide them at once, and remove them later.

    The policies are stored with the tables and can be changed while a server uses them: the
    change acts on its very next request. Azure has no expiry.
    """


@expiry.command(name="set")
@_of_a_table
@click.option(
    "--after", metavar="AGE", help="Expire so long after the Timestamp, such as 90m, 24h or 7d."
)
@click.option(
    "--property",
    "name",
    metavar="NAME",
    help="Expire at the time in this property: a DateTime, or a number of seconds since 1970.",
)
@yes_option
@with_options(CHANGE_OPTIONS)
def set_policy(
    table: str, account_name: str, after: str | None, name: str | None, *, yes: bool, **given: Any
) -> None:
    """Set the policy of a table, or replace it. Says first how many entities expire now."""
    policy = _policy(after, name)
    _Policies(given, account_name, table).switch_on(lambda _old: policy, yes=yes)


@expiry.command(name="list")
@with_options(CHECK_OPTIONS)
def list_policies(**given: Any) -> None:
    """Print every policy: account, table, when its entities expire, and counts of them."""
    configuration = stored_configuration(given, "Expiry policies")

    async def read(engine: Engine) -> list[tuple[str, ...]]:
        return [
            (account, table.name, policy.in_words, await _count(engine, table, policy))
            async for account, table in every_table(engine)
            if (policy := table.expiry) is not None
        ]

    for fields in with_engine(configuration, read, read_only=True):
        print("\t".join(fields))


@expiry.command()
@_of_a_table
@with_options(CHANGE_OPTIONS)
def suspend(table: str, account_name: str, **given: Any) -> None:
    """Suspend a policy: nothing is hidden and nothing is removed."""
    policies = _Policies(given, account_name, table)
    policies.change(lambda old: replace(old, suspended=True))
    print(f"The expiry of {policies.table} is suspended: all its entities are there.")


@expiry.command()
@_of_a_table
@yes_option
@with_options(CHANGE_OPTIONS)
def resume(table: str, account_name: str, *, yes: bool, **given: Any) -> None:
    """Let a suspended policy act again. Says first how many entities expire now."""
    policies = _Policies(given, account_name, table)
    policies.switch_on(lambda old: replace(policies.required(old), suspended=False), yes=yes)


@expiry.command()
@_of_a_table
@with_options(CHANGE_OPTIONS)
def remove(table: str, account_name: str, **given: Any) -> None:
    """Remove the policy of a table."""
    policies = _Policies(given, account_name, table)
    policies.change(lambda _old: None)
    print(f"{policies.table} has no expiry policy any more: all its entities are there.")


def _policy(after: str | None, name: str | None) -> ExpiryPolicy:
    """The policy that the command line gives; raises `BrokenOption` if it gives none."""
    if (after is None) == (name is None):
        raise BrokenOption("Give either --after or --property.")
    if after is not None:
        age = _AGE.fullmatch(after)
        if age is None:
            raise BrokenOption(f"--after {must_be('an age such as 90m, 24h or 7d', after)}.")
        return ExpiryPolicy(after=int(age[1]) * SECONDS_OF_UNITS[age[2]])
    assert name is not None
    if name in (PARTITION_KEY, ROW_KEY, TIMESTAMP):
        raise BrokenOption(f"--property {name} is not possible: for the Timestamp, use --after.")
    if not is_expiry_property(name):
        raise BrokenOption(f"--property {must_be('the name of a property', name)}.")
    return ExpiryPolicy(property_name=name)


class _Policies:
    """The policy of one table, and its changes."""

    def __init__(self, given: dict[str, Any], account: str, table: str) -> None:
        self._configuration = stored_configuration(given, "Expiry policies")
        self._owner = Named(account)
        self.table = table

    def required(self, policy: ExpiryPolicy | None) -> ExpiryPolicy:
        if policy is None:
            raise BrokenOption(f"{self.table} has no expiry policy.")
        return policy

    def switch_on(self, edit: Callable[[ExpiryPolicy | None], ExpiryPolicy], *, yes: bool) -> None:
        """Say how many entities expire now, ask, and change the policy."""

        async def look(engine: Engine) -> ExpiryPolicy:
            record = await self._find(engine)
            policy = edit(record.expiry)
            print(f"{self.table}, {policy.in_words}: {await _count(engine, record, policy)}.")
            return policy

        policy = with_engine(self._configuration, look, read_only=True)
        if not yes:
            if not sys.stdin.isatty():
                raise BrokenOption("Nothing was changed: this needs --yes without a terminal.")
            if not click.confirm("Hide these entities, and remove them later?", err=True):
                raise BrokenOption("Nothing was changed.")
        self._change(edit)
        print(f"Entities of {self.table} expire {policy.in_words}.")

    def change(self, edit: Callable[[ExpiryPolicy], ExpiryPolicy | None]) -> None:
        """Change the policy that the table has."""
        self._change(lambda old: edit(self.required(old)))

    def _change(self, edit: Callable[[ExpiryPolicy | None], ExpiryPolicy | None]) -> None:
        async def change(engine: Engine) -> None:
            found = await self._find(engine)
            catalog = Catalog(engine, system_clock, fresh_table_id)
            try:
                await catalog.change_expiry(self._owner, found.name, edit)
            except StorageError:
                await self._find(engine)  # says that it was deleted meanwhile
                raise

        with_engine(self._configuration, change, existing=True)

    async def _find(self, engine: Engine) -> TableRecord:
        catalog = Catalog(engine, system_clock, fresh_table_id)
        found = await catalog.find(self._owner, self.table)
        if found is not None:
            self.table = found.name
            return found
        if await catalog.is_being_deleted(self._owner, self.table):
            raise BrokenOption(f"The table {self.table} is being deleted.")
        raise BrokenOption(f"There is no table {self.table} in account {self._owner.name}.")


async def _count(engine: Engine, table: TableRecord, policy: ExpiryPolicy) -> str:
    entities, ended, never = await count_ended(engine, table.table_id, policy, system_clock())
    if entities and entities == never:
        return f"{shown_entities(entities)}, and none has a time in this property"
    never_words = f", {never:,} never" if never else ""
    return f"{shown_entities(entities)}, {ended:,} expired now{never_words}"
