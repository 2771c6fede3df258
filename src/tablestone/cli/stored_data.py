"""Open stored data and find accounts' keys, with or without a server, which sees a change at its next request."""

import asyncio
import os
import shlex
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from tablestone.accounts.stored_accounts import AccountRefused, StoredAccount, StoredAccounts
from tablestone.cli import options
from tablestone.cli.option_sources import read_configuration, where
from tablestone.clock import system_clock
from tablestone.configuration import (
    DEVELOPMENT_ACCOUNT,
    DEVELOPMENT_ACCOUNT_KEY,
    DEVELOPMENT_ACCOUNT_NAME,
    AccountKeys,
    Configuration,
)
from tablestone.engines.capabilities import StoredIn
from tablestone.engines.contract import (
    Engine,
    EngineBroken,
    EngineRefused,
    EngineUnavailable,
    NothingStored,
)
from tablestone.engines.kind import EngineUrl
from tablestone.engines.registry import capabilities_of, open_engine
from tablestone.model.errors import StorageError
from tablestone.server.start import ON_THIS_MACHINE, authority
from tablestone.tables.account_incarnation import Named
from tablestone.tables.catalog import Catalog, TableRecord
from tablestone.tables.metadata import DocumentKind, Documents
from tablestone.tables.storage_keys import fresh_table_id

Answer = TypeVar("Answer")


def stored_configuration(given: dict[str, Any], what: str) -> Configuration:
    """The configuration of a command that stores something; refuses an engine that stores nothing."""
    configuration = read_configuration(given, os.environ)
    if capabilities_of(configuration.engine).stored_in is StoredIn.PROCESS:
        scheme = EngineUrl.parse(configuration.engine).scheme
        raise options.BrokenOption(f"{what} cannot be stored: the engine {scheme} stores nothing.")
    return configuration


def with_engine(
    configuration: Configuration,
    act: Callable[[Engine], Awaitable[Answer]],
    *,
    read_only: bool = False,
    existing: bool = False,
) -> Answer:
    """Call `act` with the opened engine. A data directory is created if `act` may change it.

    Prints a line then, because the name may be a typing error. `EngineRefused` if `existing` and there is none.
    """
    directory = configuration.data_directory
    open_stored = partial(
        open_engine, configuration.engine, system_clock, key=configuration.encryption_key
    )

    async def run() -> Answer:
        is_new = directory is not None and not directory.exists()
        if existing:
            await open_stored(read_only=True).close()
        try:
            engine = open_stored(read_only=read_only, shared=not read_only)
        except EngineBroken as broken:
            if not read_only:
                raise
            place = where(configuration)
            option = options.ENGINE.flag if directory is None else options.DATA.flag
            raise EngineRefused(
                f"{broken} For a list of all problems: tablestone check {option} {shlex.quote(place)}"
            ) from None
        if is_new:
            print(
                f"tablestone: {directory} did not exist and was created. Only a server with this data directory "
                "uses it.",
                file=sys.stderr,
            )
        try:
            return await act(engine)
        except EngineUnavailable as failed:
            if directory is None or str(directory) in str(failed):
                raise
            raise EngineUnavailable(f"{failed} The data directory is {directory}.") from failed
        finally:
            await engine.close()

    return asyncio.run(run())


def with_table(
    configuration: Configuration,
    account: str,
    table: str,
    act: Callable[[Catalog, TableRecord], Awaitable[Answer]],
    *,
    read_only: bool = False,
) -> Answer:
    """Call `act` with a table and its catalog, as `with_engine` does; refuse in one sentence if there is none."""

    async def find(engine: Engine) -> Answer:
        catalog = Catalog(engine, system_clock, fresh_table_id)
        owner = Named(account)
        try:
            return await act(catalog, await catalog.require(owner, table))
        except StorageError as error:
            if error.code != "TableNotFound":
                raise
        place = where(configuration)
        if await catalog.is_being_deleted(owner, table):
            raise options.BrokenOption(f"The table {table} is being deleted in {place}.")
        known = await is_known(configuration, engine, account)
        unknown = "" if known else ", and no account of that name is stored"
        raise options.BrokenOption(
            f"There is no table {table} in the account {account} in {place}{unknown}."
        )

    return with_engine(configuration, find, read_only=read_only, existing=not read_only)


async def is_known(configuration: Configuration, engine: Engine, account: str) -> bool:
    """Whether a server with this configuration has the account."""
    known = {one.name for one in configuration.accounts}
    if configuration.has_development_account:
        known.add(DEVELOPMENT_ACCOUNT_NAME)
    return account in known or await StoredAccounts(engine, system_clock).exists(account)


def known_accounts(configuration: Configuration, *, with_keys: bool) -> list[AccountKeys]:
    """The accounts by precedence. Without `with_keys`, the only stored key is the development account's public one."""

    async def stored(engine: Engine) -> list[AccountKeys]:
        documents = Documents(engine)
        found = []
        for name in await documents.names(DocumentKind.ACCOUNT):
            read = None
            # A broken document is reported by the first request for its account.
            with suppress(ValueError, KeyError):
                read = await documents.get(DocumentKind.ACCOUNT, name, StoredAccount.from_members)
            if read is None:
                found.append(AccountKeys(name, ()))
                continue
            shown = with_keys or name == DEVELOPMENT_ACCOUNT.name
            public = (
                key if with_keys or key == DEVELOPMENT_ACCOUNT_KEY else "" for key in read.keys
            )
            found.append(
                AccountKeys(name, tuple(public) if shown else (), read.shared_key, read.allow)
            )
        return found

    accounts = list(configuration.accounts)
    if capabilities_of(configuration.engine).stored_in is not StoredIn.PROCESS:
        # Storage that does not exist yet has none. If it cannot be read, the start will say so.
        with suppress(EngineRefused, EngineUnavailable):
            accounts += with_engine(configuration, stored, read_only=True)
    if configuration.has_development_account:
        accounts.append(DEVELOPMENT_ACCOUNT)
    known: dict[str, AccountKeys] = {}
    for account in accounts:
        known.setdefault(account.name, account)
    return list(known.values())


ADDRESS_OPTIONS = (
    replace(options.HOST, help="Address that the server listens on."),
    replace(options.PORT, help="Port that the server listens on."),
    replace(options.TLS, help="The server serves TLS."),
    replace(options.TLS_CERTIFICATE, help="The server serves TLS with this certificate."),
)
"""The options that give the server its address."""
KEY_OPTIONS = (*options.CHECK_OPTIONS, options.ACCOUNT, options.CUSTOM_DOMAIN, *ADDRESS_OPTIONS)
"""The options of a command that signs for clients."""


def keys_of(configuration: Configuration, name: str) -> tuple[str, ...]:
    """The keys of an account, in base64; `AccountRefused` if the server would not know it.

    `EngineRefused` if the storage is there and cannot be read: the stored keys take precedence over the public one.
    """
    for configured in configuration.accounts:
        if configured.name == name:
            return configured.keys
    may_be_development = configuration.has_development_account and name == DEVELOPMENT_ACCOUNT.name
    if capabilities_of(configuration.engine).stored_in is not StoredIn.PROCESS:
        try:
            return with_engine(
                configuration,
                lambda engine: StoredAccounts(engine, system_clock).get(name),
                read_only=True,
            ).keys
        except (AccountRefused, NothingStored):
            if not may_be_development:
                raise
    if may_be_development:
        return DEVELOPMENT_ACCOUNT.keys
    raise AccountRefused(f"There is no account {name[:40]}.")


def endpoint_of(configuration: Configuration, name: str) -> str:
    """The URL at which clients find an account: its custom domain, or the path of the server's own address."""
    scheme = "https" if configuration.tls else "http"
    if configuration.port == 0:
        raise options.BrokenOption(
            f"{options.PORT.flag} 0 is no address: give the port that the server printed when it started."
        )
    for host, account in configuration.custom_domains:
        if account == name:
            return f"{scheme}://{authority(host, configuration.port)}"
    host = ON_THIS_MACHINE.get(configuration.host, configuration.host)
    return f"{scheme}://{authority(host, configuration.port)}/{name}"


def connection_string(name: str, key: str, endpoint: str) -> str:
    """The connection string as SDKs read it."""
    return (
        f"DefaultEndpointsProtocol={endpoint.partition(':')[0]};AccountName={name};"
        f"AccountKey={key};TableEndpoint={endpoint};"
    )
