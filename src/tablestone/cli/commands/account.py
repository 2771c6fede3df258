"""`tablestone account`: create, show, list, change and delete stored accounts, beside a server or without one.

A key is generated, or read from a file or from standard input, never from the command line, which other users can
read. Only `show` prints it, if asked.
"""

import os
import socket
import sys
from contextlib import suppress
from typing import Any

import click

from tablestone.accounts.stored_accounts import StoredAccounts, generate_key
from tablestone.auth.account import KEYS_MAX, decode_key, is_account_name
from tablestone.auth.address_ranges import AllowedAddresses
from tablestone.cli.data_options import yes_option
from tablestone.cli.option_sources import read_configuration
from tablestone.cli.options import (
    CHANGE_OPTIONS,
    CHECK_OPTIONS,
    DATA_OPTIONS,
    KEY_STATES,
    NO_ACCOUNT,
    BrokenOption,
    checked_ranges,
    storage_flags,
    with_options,
)
from tablestone.cli.stored_data import (
    KEY_OPTIONS,
    connection_string,
    endpoint_of,
    keys_of,
    stored_configuration,
    with_engine,
)
from tablestone.clock import system_clock
from tablestone.configuration import (
    DEVELOPMENT_ACCOUNT_KEY,
    DEVELOPMENT_ACCOUNT_NAME,
    Configuration,
)
from tablestone.engines.contract import Engine
from tablestone.tools.progress import shown_count

_with_name = click.argument("name")


@click.group()
def account() -> None:
    """Create, list, change and delete stored accounts.

    The accounts are stored with the data and can be changed while a server uses it: the change
    acts on its very next request. A configured account of the same name takes precedence.
    """


@account.command()
@_with_name
@click.option(
    "--key-file",
    metavar="FILE",
    help="Read one or two keys from this file (base64, one a line; - is standard input). Missing keys are generated.",
)
@with_options(DATA_OPTIONS)
def create(name: str, key_file: str | None, **given: Any) -> None:
    """Create an account with two keys; `account show NAME --keys` prints them.

    NAME is 3 to 24 lower-case letters and digits.
    """
    configuration = stored_configuration(given, "Accounts")
    if name == NO_ACCOUNT:
        raise BrokenOption(
            f"An account cannot have the name {name}: --account {name} names no account."
        )
    if not is_account_name(name):  # checked before the directory is created
        raise BrokenOption(
            f"{name!r} is not an account name: 3 to 24 lower-case letters and digits."
        )
    keys = _read_keys(key_file) if key_file else []
    keys += [generate_key() for _ in range(KEYS_MAX - len(keys))]
    tables = with_engine(configuration, lambda engine: _stored(engine).create(name, tuple(keys)))
    print(f"Account {name} created. To print its keys: {_show_keys(name, given)}")
    if tables:
        print(
            f"It has {shown_count(tables, 'table')}, created under that name before. `account delete` refuses while "
            "there are tables; with --force it deletes them too."
        )
    if name == DEVELOPMENT_ACCOUNT_NAME and DEVELOPMENT_ACCOUNT_KEY not in keys:
        print(
            "The public key, that of UseDevelopmentStorage=true, is refused from now on. To accept it again and "
            f"keep the tables, make it a key of this account: tablestone account rotate-key {name} 1 "
            f"--key-file FILE{storage_flags(given)}"
        )
    _tell_if_configured(configuration, name)


@account.command(name="list")
@with_options(CHECK_OPTIONS)
def list_accounts(**given: Any) -> None:
    """Print the names of all stored accounts; one that is only configured is not stored."""
    configuration = stored_configuration(given, "Accounts")
    for stored in with_engine(configuration, lambda engine: _stored(engine).all(), read_only=True):
        print(stored.name + (" (being deleted)" if stored.is_being_deleted else ""))


@account.command()
@_with_name
@click.option("--keys", "with_keys", is_flag=True, help="Print the keys too. They are secrets.")
@click.option(
    "--connection-string",
    "as_connection_string",
    is_flag=True,
    help="Print only a connection string with key 1. It is a secret.",
)
@with_options(KEY_OPTIONS)
def show(name: str, *, with_keys: bool, as_connection_string: bool, **given: Any) -> None:
    """Print the stored data of an account.

    A connection string is also printed of an account that is only configured. The address in it
    follows from the options that the server is given too.
    """
    if with_keys and as_connection_string:
        raise BrokenOption("--keys and --connection-string exclude each other: give one of them.")
    if as_connection_string:
        configuration = read_configuration(given, os.environ)
        endpoint = endpoint_of(configuration, name)
        print(connection_string(name, keys_of(configuration, name)[0], endpoint))
        return
    configuration = stored_configuration(given, "Accounts")
    stored, tables = with_engine(
        configuration, lambda engine: _stored(engine).describe(name), read_only=True
    )
    print(f"name: {stored.name}")
    print(f"tables: {tables}")
    if stored.is_being_deleted:
        print("state: being deleted")
    for rule in stored.rules:
        print(rule)
    for number, key in enumerate(stored.keys, start=1):
        print(f"key{number}: {key if with_keys else '(hidden)'}")
    _tell_if_configured(configuration, name)


@account.command(name="rotate-key")
@_with_name
@click.argument("number", metavar="1|2", type=click.Choice(("1", "2")))
@click.option(
    "--key-file",
    metavar="FILE",
    help="Read the key from this file (base64; - is standard input). By default it is generated.",
)
@with_options(CHANGE_OPTIONS)
def rotate_key(name: str, number: str, key_file: str | None, **given: Any) -> None:
    """Replace key 1 or 2.

    Requests and shared access signatures that were signed with the old key are refused from the
    next request on. The other key does not change.
    """
    configuration = stored_configuration(given, "Accounts")
    keys = _read_keys(key_file) if key_file else [generate_key()]
    if len(keys) != 1:
        raise BrokenOption(f"The key file {key_file} must have one key, because one is replaced.")
    with_engine(
        configuration,
        lambda engine: _stored(engine).replace_key(name, int(number), keys[0]),
        existing=True,
    )
    print(f"Key {number} of {name} replaced. To print it: {_show_keys(name, given)}")
    _tell_if_configured(configuration, name)


@account.command(
    name="set", epilog="Example: tablestone account set weather --allow 10.0.0.0/8,fd00::/8"
)
@_with_name
@click.option(
    "--shared-key",
    type=click.Choice(KEY_STATES),
    help="off: refuse the account's keys and signatures made with them; tokens and user delegation signatures stay.",
)
@click.option(
    "--allow",
    metavar="RANGES",
    help="Admit only these addresses and ranges, IPv4 and IPv6, with commas between; all: every address.",
)
@click.option(
    "--all-servers-upgraded",
    is_flag=True,
    help="Every server on this storage has a version that knows these rules.",
)
@yes_option
@with_options(CHANGE_OPTIONS)
def set_rules(
    name: str,
    shared_key: str | None,
    allow: str | None,
    *,
    all_servers_upgraded: bool,
    yes: bool,
    **given: Any,
) -> None:
    """Switch the account's keys off or on, or say which addresses are admitted.

    The change acts on a server's very next request. The first rule in the data changes its format
    for good: earlier versions of Tablestone, which would ignore rules, refuse it. Rules of an
    account that is configured stand beside its key, in the environment or the file.
    """
    configuration = stored_configuration(given, "Accounts")
    if shared_key is None and allow is None:
        raise BrokenOption("Say what to set: --shared-key off or on, or --allow RANGES.")
    if any(name == configured.name for configured in configuration.accounts):
        raise BrokenOption(
            f"The account {name} is configured, in the environment or a file: its rules stand there, beside its key."
        )
    ranges = None
    try:
        if allow is not None:
            ranges = () if allow == "all" else checked_ranges(allow.split(","))
    except BrokenOption as broken:
        raise BrokenOption(f"--allow {broken}.") from None

    async def act(engine: Engine) -> str | None:
        accounts = _stored(engine)
        await accounts.get(name)
        if shared_key == "off" and not yes and not await accounts.has_roles(name):
            raise BrokenOption(
                f"No role is assigned in {name}, so nobody could use it without its keys: `tablestone role assign` "
                "first, or --yes if tokens bring their roles."
            )
        if ranges and not yes:
            _require_own_address(ranges)
        return await accounts.set_rules(
            name,
            shared_key=None if shared_key is None else shared_key == "on",
            allow=ranges,
            all_upgraded=all_servers_upgraded,
        )

    raised = with_engine(configuration, act, existing=True)
    if shared_key is not None:
        print(f"The shared key of {name} is {shared_key}.")
    if ranges is not None:
        print(f"Admitted to {name}: {', '.join(ranges) or 'every address'}.")
    if raised is not None:
        print(f"{raised}: earlier versions of Tablestone refuse it, for good.")


def _require_own_address(ranges: tuple[str, ...]) -> None:
    """Ask, if no range holds an address of this machine, or the one from which its user came by SSH."""
    own = {"127.0.0.1", "::1", *os.environ.get("SSH_CONNECTION", "").split(" ")[:1]}
    with suppress(OSError):
        own |= {str(each[4][0]) for each in socket.getaddrinfo(socket.gethostname(), None)}
    allowed = AllowedAddresses(ranges)
    if any(map(allowed.hold, own)):
        return
    sentence = "No range holds an address of this machine, so nobody here could use the account."
    if not sys.stdin.isatty():
        raise BrokenOption(f"{sentence} Without a terminal, --yes sets them nevertheless.")
    if not click.confirm(f"{sentence} Set them?", err=True):
        raise BrokenOption("Nothing was changed.")


@account.command()
@_with_name
@click.option("--force", is_flag=True, help="Delete its tables too. They cannot be restored.")
@with_options(CHANGE_OPTIONS)
def delete(name: str, *, force: bool, **given: Any) -> None:
    """Delete an account. An account with tables is deleted only with --force."""
    configuration = stored_configuration(given, "Accounts")
    tables = with_engine(
        configuration, lambda engine: _stored(engine).delete(name, with_tables=force), existing=True
    )
    also = f", and {shown_count(tables, 'table')} with it" if tables else ""
    print(f"Account {name} deleted{also}.")
    _tell_if_configured(configuration, name)


def _stored(engine: Engine) -> StoredAccounts:
    return StoredAccounts(engine, system_clock)


def _read_keys(key_file: str) -> list[str]:
    try:
        with click.open_file(key_file, encoding="utf-8") as file:
            keys = str(file.read()).split()
    except UnicodeDecodeError:
        raise BrokenOption(f"The key file {key_file} is not a text file.") from None
    except OSError as error:
        raise BrokenOption(f"The key file {key_file} cannot be read: {error.strerror}.") from None
    if not 1 <= len(keys) <= KEYS_MAX:
        raise BrokenOption(f"The key file {key_file} must have one or two keys, one a line.")
    for number, key in enumerate(keys, start=1):
        try:
            decode_key(key)
        except ValueError:
            raise BrokenOption(
                f"The key file {key_file} has a key that is not base64: key {number}."
            ) from None
    return keys


def _show_keys(name: str, given: dict[str, Any]) -> str:
    """The command that prints the account's keys, ready to paste."""
    return f"tablestone account show {name} --keys{storage_flags(given)}"


def _tell_if_configured(configuration: Configuration, name: str) -> None:
    if any(name == configured.name for configured in configuration.accounts):
        print(
            f"An account {name} is also configured, in the environment or a file. A server with this configuration "
            "uses the configured account."
        )
