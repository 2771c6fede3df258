"""`tablestone role`: the roles of users and services with bearer tokens, in an account or in one table of it."""

from collections.abc import Callable
from typing import Any

import click

from tablestone.accounts.stored_accounts import StoredAccounts
from tablestone.auth.account import is_account_name
from tablestone.auth.roles import NO_ASSIGNMENTS, Assignment, Assignments
from tablestone.cli.commands.token import required_role
from tablestone.cli.data_options import account_option, together
from tablestone.cli.options import (
    CHANGE_OPTIONS,
    CHECK_OPTIONS,
    DATA_OPTIONS,
    BrokenOption,
    with_options,
)
from tablestone.cli.stored_data import is_known, known_accounts, stored_configuration, with_engine
from tablestone.clock import system_clock
from tablestone.configuration import Configuration
from tablestone.engines.contract import Engine
from tablestone.model.errors import StorageError
from tablestone.model.keys import require_new_table_name
from tablestone.tables.metadata import DocumentKind, Documents, Members

PRINCIPAL_LENGTH_MAX = 256
"""Characters of a principal's id; usual ids are GUIDs of 36 characters."""

_with_assignment = together(
    click.argument("role_name", metavar="ROLE"),
    click.option(
        "--principal",
        metavar="ID",
        required=True,
        help="Object id of a user or service, application id, or id of a group, as in tokens.",
    ),
    account_option,
    click.option("--table", metavar="TABLE", help="Limit the role to this table."),
)


@click.group()
def role() -> None:
    """Assign, list and remove the roles of users and services with bearer tokens.

    ROLE is a name such as "Storage Table Data Reader", or its id. The roles are stored with the
    data and can be changed while a server uses it: the change acts on its very next request.
    """


@role.command()
@_with_assignment
@with_options(DATA_OPTIONS)
def assign(
    role_name: str, principal: str, account_name: str, table: str | None, **given: Any
) -> None:
    """Assign a role to a principal."""
    wanted = _assignment(role_name, principal, table, account_name)

    def add(stored: Assignments) -> Assignments:
        if any(wanted.is_same(one) for one in stored):
            return stored
        return Assignments((*stored, wanted))

    configuration = _change(given, account_name, add)
    print(f"{wanted.principal} has the role {_in_words(wanted, account_name)}.")
    if missing := _missing(configuration, account_name, table):
        print(missing)


@role.command()
@_with_assignment
@with_options(CHANGE_OPTIONS)
def remove(
    role_name: str, principal: str, account_name: str, table: str | None, **given: Any
) -> int:
    """Remove a role from a principal.

    Exit status 1 if the principal has no such assignment, for the same account and the same table.
    """
    unwanted = _assignment(role_name, principal, table, account_name)
    found: list[Assignment] = []
    left: list[Assignment] = []

    def take(stored: Assignments) -> Assignments:
        found[:] = [one for one in stored if unwanted.is_same(one)]
        left[:] = [one for one in stored if not unwanted.is_same(one)]
        return Assignments(left)

    configuration = _change(given, account_name, take, existing=True)
    words = _in_words(unwanted, account_name)
    if not found:
        print(f"{unwanted.principal} was not assigned the role {words}.")
        return 1
    print(f"{unwanted.principal} no longer has the role {words}.")
    known = known_accounts(configuration, with_keys=False)
    if not left and any(each.name == account_name and not each.shared_key for each in known):
        print(
            f"It was the last role in {account_name}, whose shared key is off: only tokens that bring their roles can "
            "use it."
        )
    return 0


@role.command(name="list")
@with_options(CHECK_OPTIONS)
def list_roles(**given: Any) -> None:
    """Print every assignment: account, table or *, role, principal."""
    configuration = stored_configuration(given, "Roles")

    async def read(engine: Engine) -> list[tuple[str, Assignment]]:
        documents = Documents(engine)
        found = []
        for name in await documents.names(DocumentKind.ROLES):
            stored = await documents.get(DocumentKind.ROLES, name, Assignments.read)
            found += [(name, assignment) for assignment in stored or ()]
        return found

    for name, assignment in with_engine(configuration, read, read_only=True):
        fields = (name, assignment.table or "*", assignment.role.name, assignment.principal)
        print("\t".join(fields))


def _assignment(role_name: str, principal: str, table: str | None, account: str) -> Assignment:
    """The assignment that the command line names; raises `BrokenOption` if it is not possible."""
    found = required_role("ROLE", role_name)
    if not is_account_name(account):
        raise BrokenOption(
            f"--account must be 3 to 24 lower-case letters and digits, not {account!r}."
        )
    printable = principal.isprintable() and principal.strip() == principal
    if not principal or not printable or len(principal) > PRINCIPAL_LENGTH_MAX:
        raise BrokenOption(f"--principal must be an id as in tokens, not {principal!r}.")
    if table is not None:
        try:
            require_new_table_name(table)
        except StorageError:
            raise BrokenOption(f"--table must be the name of a table, not {table!r}.") from None
    return Assignment(principal, found, table)


def _change(
    given: dict[str, Any],
    account: str,
    edit: Callable[[Assignments], Assignments],
    *,
    existing: bool = False,
) -> Configuration:
    """Edit the stored assignments of an account, which are removed if none is left."""
    configuration = stored_configuration(given, "Roles")

    def edited(members: Members | None) -> Members | None:
        stored = NO_ASSIGNMENTS if members is None else Assignments.read(members)
        changed: Members = edit(stored).members()
        return changed if changed["assignments"] else None

    with_engine(
        configuration,
        lambda engine: Documents(engine).change(DocumentKind.ROLES, account, edited),
        existing=existing,
    )
    return configuration


def _missing(configuration: Configuration, account: str, table: str | None) -> str | None:
    """A sentence if the account or the table does not exist: it may be a typing error, or be created later."""

    async def look(engine: Engine) -> str | None:
        if not await is_known(configuration, engine, account):
            return f"There is no account {account} yet, unless one of that name is configured."
        stored = StoredAccounts(engine, system_clock)
        if table is not None and not await stored.has_table(account, table):
            return f"There is no table {table} in it yet."
        return None

    return with_engine(configuration, look, read_only=True)


def _in_words(assignment: Assignment, account: str) -> str:
    place = f"account {account}"
    if assignment.table is not None:
        place = f"table {assignment.table} of {place}"
    return f"{assignment.role.name} in {place}"
