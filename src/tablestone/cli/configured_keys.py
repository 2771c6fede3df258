"""The keys of an account as a server with this configuration would know them, and where clients find the account.

Knows the order in which accounts are looked up; not what a key is used for.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from tablestone.accounts.stored_accounts import AccountRefused, StoredAccounts
from tablestone.cli.option_values import BrokenOption
from tablestone.cli.options import (
    ACCOUNT,
    CHECK_OPTIONS,
    CUSTOM_DOMAIN,
    HOST,
    PORT,
    TLS,
    TLS_CERTIFICATE,
)
from tablestone.cli.stored_data import with_engine
from tablestone.clock import system_clock
from tablestone.configuration import DEVELOPMENT_ACCOUNT, Configuration
from tablestone.engines.capabilities import StoredIn
from tablestone.engines.contract import EngineRefused, NothingStored
from tablestone.engines.registry import capabilities_of
from tablestone.server.processes.start import ON_THIS_MACHINE, authority

ADDRESS_OPTIONS = (
    replace(HOST, help="Address that the server listens on."),
    replace(PORT, help="Port that the server listens on."),
    replace(TLS, help="The server serves TLS."),
    replace(TLS_CERTIFICATE, help="The server serves TLS with this certificate."),
)
"""The options that give the server its address."""
KEY_OPTIONS = (*CHECK_OPTIONS, ACCOUNT, CUSTOM_DOMAIN, *ADDRESS_OPTIONS)
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


def keys_of_all(configuration: Configuration, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The keys of several accounts as the server knows them now; storage is opened once at most."""
    known = {account.name: account.keys for account in configuration.accounts}
    is_stored = capabilities_of(configuration.engine).stored_in is not StoredIn.PROCESS
    if is_stored and not known.keys() >= set(names):
        with suppress(EngineRefused):
            stored = with_engine(
                configuration,
                lambda engine: StoredAccounts(engine, system_clock).all(),
                read_only=True,
            )
            known = {each.name: each.keys for each in stored} | known
    if configuration.has_development_account:
        known.setdefault(DEVELOPMENT_ACCOUNT.name, DEVELOPMENT_ACCOUNT.keys)
    return {name: known[name] for name in names if name in known}


def endpoint_of(configuration: Configuration, name: str) -> str:
    """The URL at which clients find an account: its custom domain, or the path of the server's own address."""
    scheme = "https" if configuration.tls else "http"
    if configuration.port == 0:
        raise BrokenOption(
            f"{PORT.flag} 0 is no address: give the port that the server printed when it started."
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
