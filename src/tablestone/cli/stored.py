"""What the commands keep in a data directory, beside a server that uses it or without one.

A change acts on the running server's very next request. Knows how documents are reached, and of what they
are about only what a server may show of its accounts.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from tablestone.cli.configuration import read_configuration
from tablestone.cli.options import BrokenOption
from tablestone.cli.parameters import by_option_name
from tablestone.clock import system_clock
from tablestone.engines.contract import Engine, EngineBroken, EngineRefused
from tablestone.engines.registry import open_engine
from tablestone.server.accounts import StoredAccount
from tablestone.server.configuration import (
    DEVELOPMENT_ACCOUNT,
    DEVELOPMENT_ACCOUNT_KEY,
    AccountKeys,
    Configuration,
)
from tablestone.tables.documents import DocumentKind, Documents

Answer = TypeVar("Answer")


def stored_configuration(given: dict[str, Any], what: str) -> Configuration:
    """The configuration of a command that keeps something; refuses an engine that keeps nothing."""
    configuration = read_configuration(by_option_name(given), os.environ)
    if configuration.data_directory is None:
        raise BrokenOption(
            f"{what} cannot be stored: the engine {configuration.engine.rstrip(':')} keeps nothing."
        )
    return configuration


def with_documents(
    configuration: Configuration,
    act: Callable[[Documents], Awaitable[Answer]],
    *,
    read_only: bool = False,
    existing: bool = False,
) -> Answer:
    """What `act` answers of the documents in the data directory; to change them it is made if it is not there.

    With `existing` it must be there: `EngineRefused` if it is not.
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
    """The same of all that is stored.

    Tells of a directory that it makes: whoever mistyped the name of one would else learn it from nobody.
    """
    directory = configuration.data_directory

    async def run() -> Answer:
        is_new = directory is not None and not directory.exists()
        if existing:
            await open_engine(configuration.engine, system_clock, read_only=True).close()
        try:
            engine = open_engine(
                configuration.engine, system_clock, read_only=read_only, shared=not read_only
            )
        except EngineBroken as broken:
            if not read_only:
                raise
            place = shlex.quote(str(directory))
            raise EngineRefused(
                f"{broken} See what is wrong with it: tablestone check --data {place}"
            ) from None
        if is_new:
            print(
                f"tablestone: {directory} was not there and is made: only a server with this data directory "
                "uses what is kept in it.",
                file=sys.stderr,
            )
        try:
            return await act(engine)
        finally:
            await engine.close()

    return asyncio.run(run())


async def shown_accounts(documents: Documents) -> list[AccountKeys]:
    """The stored accounts without keys; only that of the development account's name has the key that is no secret."""
    names = await documents.names(DocumentKind.ACCOUNT)
    accounts = {name: AccountKeys(name, ()) for name in names}
    name = DEVELOPMENT_ACCOUNT.name
    if name in accounts:
        with suppress(ValueError, KeyError):  # a broken one: whoever asks for it is told
            stored = await documents.get(DocumentKind.ACCOUNT, name, StoredAccount.from_members)
            if stored is not None:
                public = (key if key == DEVELOPMENT_ACCOUNT_KEY else "" for key in stored.keys)
                accounts[name] = AccountKeys(name, tuple(public))
    return list(accounts.values())
