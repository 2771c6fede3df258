"""The stored data of commands: documents in a data directory, with or without a running server that uses it.

A change acts on the running server's very next request. Knows how to open the storage and its documents; of their
content it knows only the accounts that a server may show.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from tablestone.accounts.known_accounts import StoredAccount
from tablestone.cli.option_sources import read_configuration
from tablestone.cli.option_values import BrokenOption
from tablestone.cli.options import DATA, ENGINE
from tablestone.cli.parameters import by_option_name, where
from tablestone.clock import system_clock
from tablestone.configuration import (
    DEVELOPMENT_ACCOUNT,
    DEVELOPMENT_ACCOUNT_KEY,
    AccountKeys,
    Configuration,
)
from tablestone.engines.capabilities import StoredIn
from tablestone.engines.contract import Engine, EngineBroken, EngineRefused, EngineUnavailable
from tablestone.engines.engine_url import EngineUrl
from tablestone.engines.registry import capabilities_of, open_engine
from tablestone.tables.documents import DocumentKind, Documents

Answer = TypeVar("Answer")


def stored_configuration(given: dict[str, Any], what: str) -> Configuration:
    """The configuration of a command that stores something; refuses an engine that stores nothing."""
    configuration = read_configuration(by_option_name(given), os.environ)
    if capabilities_of(configuration.engine).stored_in is StoredIn.PROCESS:
        scheme = EngineUrl.parse(configuration.engine).scheme
        raise BrokenOption(f"{what} cannot be stored: the engine {scheme} stores nothing.")
    return configuration


def with_documents(
    configuration: Configuration,
    act: Callable[[Documents], Awaitable[Answer]],
    *,
    read_only: bool = False,
    existing: bool = False,
) -> Answer:
    """The result of `act` with the documents of the data directory, which is created if `act` may change it.

    With `existing`, the directory must exist: otherwise `EngineRefused`.
    """
    return with_engine(
        configuration,
        lambda engine: act(Documents(engine)),
        read_only=read_only,
        existing=existing,
    )


def with_engine(
    configuration: Configuration,
    act: Callable[[Engine], Awaitable[Answer]],
    *,
    read_only: bool = False,
    existing: bool = False,
) -> Answer:
    """The result of `act` with the opened engine, otherwise as `with_documents`.

    Prints a line if it creates the directory, because its name may be a typing error.
    """
    directory = configuration.data_directory

    async def run() -> Answer:
        is_new = directory is not None and not directory.exists()
        if existing:
            await open_engine(
                configuration.engine,
                system_clock,
                read_only=True,
                key=configuration.encryption_key,
            ).close()
        try:
            engine = open_engine(
                configuration.engine,
                system_clock,
                read_only=read_only,
                shared=not read_only,
                key=configuration.encryption_key,
            )
        except EngineBroken as broken:
            if not read_only:
                raise
            place = where(configuration)
            option = ENGINE.flag if directory is None else DATA.flag
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
            if directory is None:
                raise
            raise EngineUnavailable(f"{failed} The data directory is {directory}.") from failed
        finally:
            await engine.close()

    return asyncio.run(run())


async def shown_accounts(documents: Documents) -> list[AccountKeys]:
    """The stored accounts without keys; an account of the development account's name has the public key, if stored."""
    names = await documents.names(DocumentKind.ACCOUNT)
    accounts = {name: AccountKeys(name, ()) for name in names}
    name = DEVELOPMENT_ACCOUNT.name
    if name in accounts:
        with suppress(
            ValueError, KeyError
        ):  # a broken document is an error at a request for the account
            stored = await documents.get(DocumentKind.ACCOUNT, name, StoredAccount.from_members)
            if stored is not None:
                public = (key if key == DEVELOPMENT_ACCOUNT_KEY else "" for key in stored.keys)
                accounts[name] = AccountKeys(name, tuple(public))
    return list(accounts.values())
