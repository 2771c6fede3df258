"""`tablestone role`: who may do what with a bearer token, in an account or in one table of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tablestone.auth.accounts import is_account_name
from tablestone.auth.roles import NO_ASSIGNMENTS, Assignment, Assignments, find_role
from tablestone.cli.options import CHANGE_OPTIONS, CHECK_OPTIONS, DATA_OPTIONS, BrokenOption
from tablestone.cli.parameters import with_options
from tablestone.cli.stored import stored_configuration, with_documents, with_engine
from tablestone.cli.token import unknown_role
from tablestone.clock import system_clock
from tablestone.engines.contract import Engine
from tablestone.errors import StorageError
from tablestone.server.configuration import DEVELOPMENT_ACCOUNT_NAME, Configuration
from tablestone.server.stored_accounts import StoredAccounts
from tablestone.tables.documents import DocumentKind, Documents, Members
from tablestone.wire.decode import require_new_table_name

PRINCIPAL_LENGTH_MAX = 256
"""Characters; ids are GUIDs of 36."""

_with_role = click.argument("role_name", metavar="ROLE")
_with_principal = click.option(
    "--principal",
    metavar="ID",
    required=True,
    help="Object id of a user or service, application id, or id of a group, as tokens name them.",
)
_with_table = click.option("--table", metavar="TABLE", help="For this table only.")
_with_account = click.option(
    "--account",
    "account_name",
    metavar="NAME",
    default=DEVELOPMENT_ACCOUNT_NAME,
    show_default=True,
    help="The account whose data it is about.",
)


@click.group()
def role() -> None:
    """Assign, list and remove the roles of those who come with bearer tokens.

    ROLE is a name such as "Storage Table Data Reader", or its id. They are kept with the data and
    may be changed while a server uses it: the change acts on its very next request.
    """


@role.command()
@_with_role
@_with_principal
@_with_account
@_with_table
@with_options(DATA_OPTIONS)
def assign(
    role_name: str, principal: str, account_name: str, table: str | None, **given: Any
) -> None:
    """Give somebody a role."""
    wanted = _assignment(role_name, principal, table, account_name)

    def add(stored: Assignments) -> Assignments:
        if any(wanted.is_same(one) for one in stored):
            return stored
        return Assignments((*stored, wanted))

    _change(given, account_name, add)
    print(f"{wanted.principal} has the role {_told(wanted, account_name)}.")
    if missing := _missing(stored_configuration(given, "Roles"), account_name, table):
        print(missing)


@role.command()
@_with_role
@_with_principal
@_with_account
@_with_table
@with_options(CHANGE_OPTIONS)
def remove(
    role_name: str, principal: str, account_name: str, table: str | None, **given: Any
) -> int:
    """Take a role from somebody. Exit status 1 if they did not have it just so."""
    unwanted = _assignment(role_name, principal, table, account_name)
    found: list[Assignment] = []

    def take(stored: Assignments) -> Assignments:
        found[:] = [one for one in stored if unwanted.is_same(one)]
        return Assignments(one for one in stored if not unwanted.is_same(one))

    _change(given, account_name, take, existing=True)
    told = _told(unwanted, account_name)
    if not found:
        print(f"{unwanted.principal} was not assigned the role {told}.")
        return 1
    print(f"{unwanted.principal} no longer has the role {told}.")
    return 0


@role.command(name="list")
@with_options(CHECK_OPTIONS)
def list_roles(**given: Any) -> None:
    """Print every assignment: account, table or *, role, principal."""
    configuration = stored_configuration(given, "Roles")

    async def read(documents: Documents) -> list[tuple[str, Assignment]]:
        found = []
        for name in await documents.names(DocumentKind.ROLES):
            stored = await documents.get(DocumentKind.ROLES, name, Assignments.read)
            found += [(name, assignment) for assignment in stored or ()]
        return found

    for name, assignment in with_documents(configuration, read, read_only=True):
        fields = (name, assignment.table or "*", assignment.role.name, assignment.principal)
        print("\t".join(fields))


def _assignment(role_name: str, principal: str, table: str | None, account: str) -> Assignment:
    """What the command line says, or the sentence that it cannot be."""
    found = find_role(role_name)
    if found is None:
        raise unknown_role("ROLE", role_name)
    if not is_account_name(account):
        raise BrokenOption(
            f"--account must be 3 to 24 lower-case letters and digits, not {account!r}."
        )
    printable = principal.isprintable() and principal.strip() == principal
    if not principal or not printable or len(principal) > PRINCIPAL_LENGTH_MAX:
        raise BrokenOption(f"--principal must be an id as tokens have it, not {principal!r}.")
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
) -> None:
    configuration = stored_configuration(given, "Roles")

    def edited(members: Members | None) -> Members | None:
        stored = NO_ASSIGNMENTS if members is None else Assignments.read(members)
        changed: Members = edit(stored).members()
        return changed if changed["assignments"] else None

    with_documents(
        configuration,
        lambda documents: documents.change(DocumentKind.ROLES, account, edited),
        existing=existing,
    )


def _missing(configuration: Configuration, account: str, table: str | None) -> str | None:
    """A sentence if what a role is about is not there: it may be mistyped, or be made later."""
    known = {one.name for one in configuration.accounts}
    if configuration.has_development_account:
        known.add(DEVELOPMENT_ACCOUNT_NAME)

    async def look(engine: Engine) -> str | None:
        stored = StoredAccounts(engine, system_clock)
        if account not in known and not await stored.exists(account):
            return (
                f"There is no account {account} yet, unless the server is given one of that name."
            )
        if table is not None and not await stored.has_table(account, table):
            return f"There is no table {table} in it yet."
        return None

    return with_engine(configuration, look, read_only=True)


def _told(assignment: Assignment, account: str) -> str:
    place = f"account {account}"
    if assignment.table is not None:
        place = f"table {assignment.table} of {place}"
    return f"{assignment.role.name} in {place}"
