"""`tablestone serve`: runs the server and tells the person where it is once it answers."""

from __future__ import annotations

import logging
import os
import shlex
import socket
import sys
from contextlib import suppress
from typing import Any

import click

from tablestone import __version__
from tablestone.cli.configuration import read_configuration
from tablestone.cli.options import SERVER_OPTIONS
from tablestone.cli.parameters import by_option_name, where, with_options
from tablestone.cli.stored import shown_accounts, with_documents
from tablestone.engines.contract import EngineRefused, EngineUnavailable
from tablestone.server.configuration import (
    DEVELOPMENT_ACCOUNT,
    DEVELOPMENT_ACCOUNT_KEY,
    AccountKeys,
    Configuration,
    SelfSigned,
)
from tablestone.server.logged import LineFormatter
from tablestone.server.run import serve as run_server

log = logging.getLogger(__name__)


@click.command()
@with_options(SERVER_OPTIONS)
def serve(**given: Any) -> None:
    """Serve the Table service until SIGINT or SIGTERM."""
    configuration = read_configuration(by_option_name(given), os.environ)
    errors = logging.StreamHandler(sys.stderr)
    errors.setFormatter(LineFormatter())
    logging.basicConfig(level=configuration.log_level.upper(), handlers=[errors])
    for warning in configuration.warnings:
        log.warning("%s", warning)
    accounts = _known_accounts(configuration)
    run_server(configuration, lambda address: _tell(configuration, accounts, address))


def _known_accounts(configuration: Configuration) -> list[AccountKeys]:
    """The accounts that the server will know, in the order of `server.accounts`; stored ones without secret keys."""
    known = {account.name: account for account in configuration.accounts}
    for account in _stored_accounts(configuration):
        known.setdefault(account.name, account)
    if configuration.has_development_account:
        known.setdefault(DEVELOPMENT_ACCOUNT.name, DEVELOPMENT_ACCOUNT)
    return list(known.values())


def _stored_accounts(configuration: Configuration) -> list[AccountKeys]:
    """The stored accounts; none where the storage is not there yet, or cannot be read: the start tells."""
    if configuration.data_directory is None:
        return []
    with suppress(EngineRefused, EngineUnavailable):
        return with_documents(configuration, shown_accounts, read_only=True)
    return []


def _tell(configuration: Configuration, accounts: list[AccountKeys], address: str) -> None:
    print(ready_lines(configuration, accounts, address), flush=True)
    has_known_key = any(DEVELOPMENT_ACCOUNT_KEY in given.keys for given in accounts)
    is_unasked = configuration.has_development_account and DEVELOPMENT_ACCOUNT in accounts
    if has_known_key and not _is_loopback(configuration.host):
        log.warning(
            "Other machines can reach %s, and everybody knows the development key: whoever connects can read "
            "and change the data. %s",
            configuration.host,
            "With --account none only those of tablestone account create are served."
            if is_unasked
            else "Give accounts keys of your own.",
        )
    elif is_unasked and len(accounts) > 1:
        log.warning(
            "%s is open beside the stored accounts, and everybody knows its key: --account none closes it.",
            DEVELOPMENT_ACCOUNT.name,
        )
    names = {account.name for account in accounts}
    for domain, name in configuration.custom_domains:
        if name.removesuffix("-secondary") not in names:
            log.warning(
                "%s stands for the account %s, which is not there: until there is one, all that is asked of this "
                "host is not found.",
                domain,
                name.removesuffix("-secondary"),
            )
    if configuration.https_only and not configuration.tls and not configuration.trusted_proxies:
        log.warning(
            "--https-only refuses every request: there is neither TLS nor a trusted proxy that speaks it."
        )


def _is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server on `host`, which may be a name."""
    try:
        address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]
    except OSError:
        return False
    return address == "::1" or str(address).startswith("127.")


def ready_lines(configuration: Configuration, accounts: list[AccountKeys], address: str) -> str:
    """Where the data is, and what to paste into a program, for each account."""
    lines = [f"Tablestone {__version__}: data in {where(configuration.data_directory)}"]
    if isinstance(configuration.tls, SelfSigned):
        lines += _how_to_trust(str(configuration.tls.files.certificate))
    if not accounts:
        lines.append(f"Table endpoint: {address}/ACCOUNT, once tablestone account create makes one")
    for account in accounts:
        endpoint = f"{address}/{account.name}"
        lines.append(f"Table endpoint: {endpoint}")
        lines.append(f"Connection string: {_connection_string(account, endpoint)}")
    return "\n".join(lines)


def _how_to_trust(certificate: str) -> list[str]:
    """What clients are started with so that they believe the certificate; each line can be pasted into a shell."""
    path = shlex.quote(certificate)
    return [
        f"Self-signed certificate: {certificate}",
        "A client that is started with this trusts it, and nothing else (in JavaScript also what it did before):",
        f"    export SSL_CERT_FILE={path} REQUESTS_CA_BUNDLE={path}    # Python, Go, curl, .NET on Linux",
        f"    export NODE_EXTRA_CA_CERTS={path}    # JavaScript",
        f"    keytool -importcert -noprompt -alias tablestone -file {path} -keystore tablestone.p12"
        " -storepass changeit    # Java, once, and",
        '    export JAVA_TOOL_OPTIONS="-Djavax.net.ssl.trustStore=$PWD/tablestone.p12'
        ' -Djavax.net.ssl.trustStorePassword=changeit"',
    ]


def _connection_string(account: AccountKeys, endpoint: str) -> str:
    # A key is a secret, but for the one that stands in every SDK.
    shown = account.keys[0] if account == DEVELOPMENT_ACCOUNT else f"<key of {account.name}>"
    return (
        f"DefaultEndpointsProtocol={endpoint.partition(':')[0]};AccountName={account.name};"
        f"AccountKey={shown};TableEndpoint={endpoint};"
    )
