"""`tablestone serve`: run the server, and print its endpoints when it is ready."""

import gc
import json
import logging
import os
import re
import secrets
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click

from tablestone import __version__
from tablestone.accounts.stored_accounts import generate_key
from tablestone.auth.address_ranges import AllowedAddresses
from tablestone.cli import options
from tablestone.cli.option_sources import read_configuration, where
from tablestone.cli.stored_data import connection_string, known_accounts
from tablestone.configuration import (
    DEVELOPMENT_ACCOUNT,
    DEVELOPMENT_ACCOUNT_KEY,
    EXPLORER_READ_ONLY,
    READY_JSON,
    AccountKeys,
    CertificateFiles,
    Configuration,
    SelfSigned,
)
from tablestone.extras import needs
from tablestone.server.admin.insight_page import storage_options
from tablestone.server.start import Mount, Mounts
from tablestone.server.start import serve as run_server
from tablestone.server.worker import StartRefused
from tablestone.sigint import end_process_by_sigint
from tablestone.telemetry.logs import formatter_of

PATH: Final = "/explorer/"
TOKEN_BYTES: Final = 24
TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{20,200}")
CLIENT_LOGGERS: Final = ("azure", "urllib3")
"""The SDK logs each request with the entity's keys in its URL."""
PACKAGES: Final = ("starlette", "jinja2", "python_multipart", "azure.data.tables")

log = logging.getLogger(__name__)


def served_explorer(configuration: Configuration, accounts: list[AccountKeys]) -> tuple[str, Mount]:
    """The path to open, with its token, and a function that makes the application in the process of the admin address.

    `StartRefused` and `BrokenOption` say why there can be no explorer.
    """
    _require_packages()
    keys = {account.name: account.keys for account in accounts if account.keys}
    if not keys:
        raise options.BrokenOption(
            f"{options.EXPLORER.flag} shows the accounts of the server, and there is none: "
            "tablestone account create makes one."
        )
    unstored = {account.name for account in configuration.accounts}
    if configuration.has_development_account:
        unstored.add(DEVELOPMENT_ACCOUNT.name)
    token = _token(configuration.explorer_token_file)
    tls = configuration.tls

    def mount(address: str, admin: str) -> Mounts:
        from tablestone.explorer.account import ExplorerSettings  # noqa: PLC0415 - an extra
        from tablestone.explorer.application import create_explorer  # noqa: PLC0415 - an extra
        from tablestone.explorer.grid_query import saved_queries_file  # noqa: PLC0415 - an extra
        from tablestone.tools.connection import CERTIFICATES_VARIABLE, parse_connection_string  # noqa: PLC0415

        if tls is not None:
            files = tls.files if isinstance(tls, SelfSigned) else tls
            # The data tools find the certificates that they trust in the environment, here of this process alone.
            os.environ[CERTIFICATES_VARIABLE] = str(files.certificate)
        for name in CLIENT_LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)
        settings = [
            ExplorerSettings(
                parse_connection_string(connection_string(name, own[0], f"{address}/{name}")),
                read_only=configuration.explorer == EXPLORER_READ_ONLY,
                admin=admin,
                saved_queries=saved_queries_file(os.environ),
                keys=len(own),
                signs_with=configuration.explorer_key,
                stored=None if name in unstored else storage_options(configuration),
                storage=storage_options(configuration),
            )
            for name, own in keys.items()
        ]
        return {PATH: create_explorer(settings, token)}

    return f"{PATH}?token={token}", mount


def _token(file: Path | None) -> str:
    """A new token, or the one in the file. A missing file is created, and only this user can read it."""
    made = secrets.token_urlsafe(TOKEN_BYTES)
    if file is None:
        return made
    try:
        with suppress(FileExistsError):
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as new:
                new.write(made)
        token = file.read_text(encoding="utf-8").strip()
        is_private = not file.stat().st_mode & 0o077
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise StartRefused(
            f"{file}, the token of the explorer, cannot be read: {reason}."
        ) from None
    if not is_private or TOKEN.fullmatch(token) is None:
        raise StartRefused(
            f"{file} must have mode 600 and a token for the explorer: 20 or more letters, digits, - and _."
        )
    return token


def _require_packages() -> None:
    for name in PACKAGES:
        found = None
        with suppress(ModuleNotFoundError):  # the package of a submodule is missing
            found = find_spec(name)
        if found is None:
            raise StartRefused(needs(options.EXPLORER.flag, name, "explorer"))


class _Grouped(click.Command):
    """A command with the options of a server, in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = {param.name: param.get_help_record(ctx) for param in self.get_params(ctx)}
        for title, group in options.SERVER_GROUPS.items():
            with formatter.section(title):
                names = [option.name.replace("-", "_") for option in group]
                formatter.write_dl([record for name in names if (record := records.pop(name))])
        with formatter.section("Options"):
            formatter.write_dl([record for record in records.values() if record])


@click.command(cls=_Grouped)
@options.with_options(options.SERVER_OPTIONS)
def serve(**given: Any) -> None:
    """Serve the Table service until SIGINT or SIGTERM."""
    end_process_by_sigint()  # until the server has its own handlers
    configuration = read_configuration(given, os.environ)
    errors = logging.StreamHandler(sys.stderr)
    errors.setFormatter(formatter_of(configuration.log_format))
    logging.basicConfig(level=configuration.log_level.upper(), handlers=[errors])
    serve_until_stopped(configuration)


def serve_until_stopped(
    configuration: Configuration, tell: Callable[[str], None] = lambda _address: None
) -> None:
    """Serve until SIGINT or SIGTERM; the log is set up. Calls `tell` with the address after the ready lines."""
    for warning in configuration.warnings:
        log.warning("%s", warning)
    if configuration.from_archive:
        from tablestone.cli.commands.restore_archive import restore_if_empty  # noqa: PLC0415 - an extra

        restore_if_empty(configuration)
    accounts = known_accounts(configuration, with_keys=configuration.explorer is not None)
    if configuration.explorer:
        configuration = replace(configuration, explorer_key=generate_key())
    explorer = served_explorer(configuration, accounts) if configuration.explorer else None
    what = ""

    def begin(address: str, admin: str | None, control: str | None = None) -> None:
        """Print the ready lines and log the start; the server listens at these addresses."""
        nonlocal what
        workers = "1 worker" if configuration.workers == 1 else f"{configuration.workers} workers"
        what = f"Tablestone {__version__}, data in {where(configuration)}, {address}, {workers}"
        if admin is not None:
            what += f", admin address {admin}"
        ready = {
            "version": __version__,
            "process": os.getpid(),
            "data": where(configuration),
            "address": address,
            "port": _port_of(address),
            "accounts": [_shown(account, address) for account in accounts],
            "admin": admin,
            "explorer": None if explorer is None or admin is None else admin + explorer[0],
            "control": control,
            "control_port": None if control is None else _port_of(control),
        }
        if configuration.ready_form == READY_JSON:
            print(json.dumps(ready, ensure_ascii=False), flush=True)
        else:
            print("\n".join(_ready_lines(ready, configuration.tls)), flush=True)
        log.info("started: %s", what)
        if control is not None:
            log.warning(
                "Every program on this machine can erase the data, inject faults and change the clock through %s: "
                "%s is for tests only.",
                control,
                options.CONTROL.flag,
            )
        _warn(configuration, accounts, admin)
        tell(address)

    if explorer is not None:
        run_server(configuration, begin, mount=explorer[1])
    elif configuration.control_port is None:
        run_server(configuration, begin)
    else:
        _run_under_control(configuration, begin)
    log.info("stopped: %s", what)
    gc.freeze()  # the process ends: to collect what is left would take most of the time of a stop


def _run_under_control(
    configuration: Configuration, tell: Callable[[str, str | None, str], None]
) -> None:
    """Run the server with the control API of the test kit beside it."""
    try:
        from tablestone.testing.control import ControlledService  # noqa: PLC0415 - docs/decisions/0012-control.md
    except ModuleNotFoundError as missing:
        raise StartRefused(needs(options.CONTROL.flag, str(missing.name), "testing")) from None

    service = ControlledService(configuration)

    def begin(address: str, admin: str | None) -> None:
        service.begin_control(address)
        tell(address, admin, service.control_address)

    run_server(configuration, begin, lambda _configuration, _slot: service)


def _warn(configuration: Configuration, accounts: list[AccountKeys], admin: str | None) -> None:
    """Log what an operator may not want."""
    has_known_key = any(
        given.shared_key and DEVELOPMENT_ACCOUNT_KEY in given.keys for given in accounts
    )
    is_unasked = configuration.has_development_account and DEVELOPMENT_ACCOUNT in accounts
    if has_known_key and not options.is_loopback(configuration.host):
        log.warning(
            "Other machines can reach %s, and the development key is public: any client that connects can read and "
            "change the data. %s",
            configuration.host,
            "With --account none, only accounts from tablestone account create are served."
            if is_unasked
            else "Give the accounts keys of your own.",
        )
    elif is_unasked and len(accounts) > 1:
        log.warning(
            "%s is open besides the stored accounts, and its key is public: --account none closes it.",
            DEVELOPMENT_ACCOUNT.name,
        )
    for account in accounts:
        allowed = AllowedAddresses(account.allow)
        for proxy in filter(allowed.overlap, configuration.trusted_proxies):
            log.warning(
                "%s allows an address of the trusted proxy %s: a request that comes through it without "
                "X-Forwarded-For is admitted, whoever sent it.",
                account.name,
                proxy,
            )
    names = {account.name for account in accounts}
    for domain, place in configuration.custom_domains:
        name = place.removesuffix("-secondary")
        if name not in names:
            log.warning(
                "%s names the account %s, which does not exist: until it exists, every request to this host is "
                "answered 404.",
                domain,
                name,
            )
    if configuration.admin is not None and not options.is_loopback(configuration.admin.host):
        log.warning(
            "Other machines can reach the admin address %s, which asks for no key: anyone that connects can read "
            "health and metrics.",
            admin,
        )
        if configuration.explorer:
            log.warning(
                "The explorer is on the admin address %s, which other machines can reach over plain HTTP: a listener "
                "on the network can read its token, and then change the data.",
                admin,
            )
    if configuration.https_only and not configuration.tls and not configuration.trusted_proxies:
        log.warning("--https-only refuses every request: there is neither TLS nor a trusted proxy.")


def _shown(account: AccountKeys, address: str) -> dict[str, str | None]:
    """An account for a reader of the output. A connection string whose key is secret is null."""
    endpoint = f"{address}/{account.name}"
    # A key is a secret, except the one that is built into every SDK.
    is_public = account == DEVELOPMENT_ACCOUNT
    pasted = connection_string(account.name, account.keys[0], endpoint) if is_public else None
    return {"name": account.name, "endpoint": endpoint, "connection_string": pasted}


def _port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def _ready_lines(ready: dict[str, Any], tls: CertificateFiles | SelfSigned | None) -> Iterator[str]:
    """The place of the data, and for each account its endpoint and its connection string, ready to paste."""
    yield f"Tablestone {__version__}: data in {ready['data']}"
    for title, member in (
        ("Admin address", "admin"),
        ("Explorer", "explorer"),
        ("Control, for tests only", "control"),
    ):
        if ready[member] is not None:
            yield f"{title}: {ready[member]}"
    if isinstance(tls, SelfSigned):
        yield from _how_to_trust(str(tls.files.certificate))
    if not ready["accounts"]:
        yield f"Table endpoint: {ready['address']}/ACCOUNT, after tablestone account create ACCOUNT"
    hidden = None
    for account in ready["accounts"]:
        name, endpoint, pasted = account.values()
        yield f"Table endpoint: {endpoint}"
        yield f"Connection string: {pasted or connection_string(name, f'<key of {name}>', endpoint)}"
        hidden = hidden or (None if pasted else name)
    if hidden is not None:
        yield (
            f"With the key, where it may be shown: tablestone account show {hidden} --connection-string, "
            "and the options of this server"
        )


def _how_to_trust(certificate: str) -> list[str]:
    """The settings with which clients trust the certificate, to paste into a shell."""
    path = shlex.quote(certificate)
    return [
        f"Self-signed certificate: {certificate}",
        "A client with these settings trusts this certificate and no other (JavaScript: in addition to others):",
        f"    export SSL_CERT_FILE={path} REQUESTS_CA_BUNDLE={path}    # Python, Go, curl, .NET on Linux",
        f"    export NODE_EXTRA_CA_CERTS={path}    # JavaScript",
        f"    keytool -importcert -noprompt -alias tablestone -file {path} -keystore tablestone.p12"
        " -storepass changeit    # Java, once, and",
        '    export JAVA_TOOL_OPTIONS="-Djavax.net.ssl.trustStore=$PWD/tablestone.p12'
        ' -Djavax.net.ssl.trustStorePassword=changeit"',
    ]
