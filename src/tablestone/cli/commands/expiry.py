"""`tablestone expiry`: the policies by which the entities of tables expire, beside a server or without one."""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import click

from tablestone.cli.data_options import (
    account_option,
    opened_server,
    server_option,
    together,
    yes_option,
)
from tablestone.cli.options import (
    CHANGE_OPTIONS,
    CHECK_OPTIONS,
    BrokenOption,
    must_be,
    storage_flags,
    with_options,
)
from tablestone.cli.stored_data import stored_configuration, with_engine, with_table
from tablestone.clock import system_clock
from tablestone.engines.contract import Engine
from tablestone.model.expiry import SECONDS_IN, ExpiryPolicy
from tablestone.tables.account_incarnation import Named
from tablestone.tables.catalog import Catalog, TableRecord, every_table
from tablestone.tables.expiry import count_ended
from tablestone.tools.own_forms import change_expiry, counted
from tablestone.tools.progress import shown_entities

_AGE: Final = re.compile(r"([1-9][0-9]{0,8})([smhd])", re.ASCII)

_of_a_table = together(
    click.argument("table"), server_option, account_option, with_options(CHANGE_OPTIONS)
)


@click.group()
def expiry() -> None:
    """Let entities of a table expire: hide them at once, and remove them later.

    The policies are stored with the tables and can be changed while a server uses them: the
    change acts on its very next request. Azure has no expiry.
    """


@expiry.command(name="set")
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
@_of_a_table
def set_policy(
    table: str, account_name: str, after: str | None, name: str | None, *, yes: bool, **given: Any
) -> None:
    """Set the policy of a table, or replace it. Says first how many entities expire now.

    A policy that is suspended stays so: `resume` lets the new one act.
    """
    policy = _policy(after, name)

    def edit(old: ExpiryPolicy | None) -> ExpiryPolicy:
        return replace(policy, suspended=old is not None and old.suspended)

    _switch_on(given, account_name, table, edit, yes=yes)


@expiry.command(name="list")
@server_option
@with_options(CHECK_OPTIONS)
def list_policies(server: str | None, **given: Any) -> None:
    """Print every policy: account, table, when its entities expire, and counts of them."""
    if server is not None:
        with opened_server(server, given) as endpoint:
            for name in list(endpoint.table_names()):
                if members := endpoint.own_form("GET", name, "expiry").members:
                    words = ExpiryPolicy.from_members(members).in_words
                    counts = _in_words(counted(endpoint, name, members))
                    print(endpoint.connection.account, name, words, counts, sep="\t")
        return
    configuration = stored_configuration(given, "Expiry policies")

    async def show(engine: Engine) -> None:
        async for account, table in every_table(engine):
            if table.expiry is not None:
                counts = await _count(engine, table, table.expiry)
                print(account, table.name, table.expiry.in_words, counts, sep="\t")

    with_engine(configuration, show, read_only=True)


@expiry.command()
@_of_a_table
def suspend(table: str, account_name: str, **given: Any) -> None:
    """Suspend a policy: nothing is hidden and nothing is removed."""
    table = _change(given, account_name, table, lambda old: replace(old, suspended=True))
    print(f"The expiry of {table} is suspended: nothing is hidden or removed.")


@expiry.command()
@yes_option
@_of_a_table
def resume(table: str, account_name: str, *, yes: bool, **given: Any) -> None:
    """Let a suspended policy act again. Says first how many entities expire now."""
    _switch_on(
        given, account_name, table, lambda old: replace(_required(old), suspended=False), yes=yes
    )


@expiry.command()
@_of_a_table
def remove(table: str, account_name: str, **given: Any) -> None:
    """Remove the policy of a table."""
    table = _change(given, account_name, table, lambda _old: None)
    print(f"{table} has no expiry policy any more: nothing is hidden or removed.")


def _policy(after: str | None, name: str | None) -> ExpiryPolicy:
    """The policy that the command line gives; raises `BrokenOption` if it gives none."""
    if (after is None) == (name is None):
        raise BrokenOption("Give either --after or --property.")
    if after is not None:
        age = _AGE.fullmatch(after)
        if age is None:
            raise BrokenOption(f"--after {must_be('an age such as 90m, 24h or 7d', after)}.")
        policy = ExpiryPolicy(after=int(age[1]) * SECONDS_IN[age[2]])
        problem = f"--after {after} is longer than 7,800 years."
    else:
        policy = ExpiryPolicy(property_name=name)
        what = "the name of a property, and neither a key nor Timestamp, which --after takes"
        problem = f"--property {must_be(what, str(name))}."
    if not policy.is_valid:
        raise BrokenOption(problem)
    return policy


def _required(policy: ExpiryPolicy | None) -> ExpiryPolicy:
    if policy is None:
        raise BrokenOption("The table has no expiry policy.")
    return policy


def _switch_on(
    given: dict[str, Any],
    account: str,
    table: str,
    edit: Callable[[ExpiryPolicy | None], ExpiryPolicy],
    *,
    yes: bool,
) -> None:
    """Say how many entities expire now, ask, and change the policy."""

    async def look(catalog: Catalog, record: TableRecord) -> tuple[TableRecord, ExpiryPolicy]:
        policy = edit(record.expiry)
        print(f"{record.name}, {policy.in_words}: {await _count(catalog.engine, record, policy)}.")
        return record, policy

    server = given.pop("server")
    if server is not None:
        with opened_server(server, given) as endpoint:
            members = endpoint.own_form("GET", table, "expiry").members
            policy = edit(ExpiryPolicy.from_members(members) if members else None)
            found = counted(endpoint, table, policy.members())
            print(f"{table}, {policy.in_words}: {_in_words(found)}.")
            _require_consent(policy, yes=yes)
            change_expiry(endpoint, table, policy.members(), found["token"])
        resume = f"tablestone expiry resume {table} --connection-string …"
        more = f" To let it act: {resume}." if policy.suspended else ""
        print(f"Entities of {table} expire {policy.in_words}.{more}")
        return
    configuration = stored_configuration(given, "Expiry policies")
    record, policy = with_table(configuration, account, table, look, read_only=True)
    _require_consent(policy, yes=yes)

    def as_counted(present: ExpiryPolicy | None) -> ExpiryPolicy:
        if present != record.expiry:
            raise BrokenOption("The policy was changed meanwhile. Nothing was changed now.")
        return policy

    with_table(
        configuration,
        account,
        table,
        lambda catalog, _: catalog.change_expiry(
            Named(account), table, as_counted, record.table_id
        ),
    )
    more = ""
    if policy.suspended:
        more = f" To let it act: tablestone expiry resume {record.name} --account {account}{storage_flags(given)}."
    print(f"Entities of {record.name} expire {policy.in_words}.{more}")


def _require_consent(policy: ExpiryPolicy, *, yes: bool) -> None:
    if not yes and not policy.suspended:
        if not sys.stdin.isatty():
            raise BrokenOption("Nothing was changed: this needs --yes without a terminal.")
        if not click.confirm("Hide these entities, and remove them later?", err=True):
            raise BrokenOption("Nothing was changed.")


def _change(
    given: dict[str, Any],
    account: str,
    table: str,
    edit: Callable[[ExpiryPolicy], ExpiryPolicy | None],
) -> str:
    """Change the policy that a table has; returns the table's name as it was created."""
    server = given.pop("server")
    if server is not None:
        with opened_server(server, given) as endpoint:
            members = endpoint.own_form("GET", table, "expiry").members
            policy = edit(_required(ExpiryPolicy.from_members(members) if members else None))
            change_expiry(endpoint, table, None if policy is None else {"suspended": True})
        return table

    async def change(catalog: Catalog, record: TableRecord) -> str:
        await catalog.change_expiry(
            Named(account), table, lambda old: edit(_required(old)), record.table_id
        )
        return record.name

    return with_table(stored_configuration(given, "Expiry policies"), account, table, change)


async def _count(engine: Engine, table: TableRecord, policy: ExpiryPolicy) -> str:
    return _in_words(vars(await count_ended(engine, table.table_id, policy, system_clock())))


def _in_words(numbers: Mapping[str, int]) -> str:
    entities, never, far = numbers["entities"], numbers["never"], numbers["far"]
    if entities and entities == never:
        return f"{shown_entities(entities)}, and none has a time in this property"
    never_words = f", {never:,} never" if never else ""
    far_words = f", {far:,} after the year 9999 (does it hold milliseconds?)" if far else ""
    return f"{shown_entities(entities)}, {numbers['hidden']:,} expired now{never_words}{far_words}"
