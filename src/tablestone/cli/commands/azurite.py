"""`tablestone azurite`: `tablestone serve` for scripts, editor tasks and containers that start Azurite.

It takes Azurite's flags and prints the lines for which such scripts wait.
"""

import logging
import os
import shlex
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from tablestone.cli.commands.serve import serve_until_stopped
from tablestone.cli.option_sources import read_configuration
from tablestone.cli.options import (
    ACCESS_LOG,
    ANY_VERSION,
    DATA,
    ENGINE,
    HOST,
    PORT,
    TLS_CERTIFICATE,
    TLS_KEY,
    BrokenOption,
    parse_port,
)
from tablestone.clock import monotonic_seconds
from tablestone.server.worker import StartRefused
from tablestone.sigint import end_process_by_sigint
from tablestone.telemetry.logs import TEXT, LogFile, formatter_of
from tablestone.wire.versions import UnknownVersions

DATA_DIRECTORY: Final = "__tablestone__"
"""The data directory inside the workspace, named as Azurite names its own; a workspace often holds other files."""
AZURITE_TABLES: Final = "__azurite_db_table__.json"
"""The file in which Azurite keeps tables."""
OWN_DATA: Final = "tablestone.db"
"""A workspace with this file is a data directory of Tablestone."""
SKIP_VERSION_CHECK_VARIABLE: Final = "AZURITE_SKIP_API_VERSION_CHECK"
"""Azurite's variable for --skipApiVersionCheck; it counts if its value is `true`, in these letters."""
OAUTH_LEVEL: Final = "basic"


def _flag(declaration: str, text: str, letter: str | None = None) -> click.Option:
    """A flag as Azurite writes it, and what its value is; without a value it is a switch."""
    name, _, metavar = declaration.partition(" ")
    names = (f"--{name}", name) if letter is None else (f"-{letter}", f"--{name}", name)
    return click.Option(
        names, is_flag=None if metavar else True, metavar=metavar or None, help=text
    )


TABLE_FLAGS: Final = (
    _flag("tableHost ADDRESS", "Address to listen on.  [default: 127.0.0.1]"),
    _flag("tablePort PORT", "Port to listen on; 0 takes a free port.  [default: 10002]"),
    _flag(
        "location DIR",
        f"Workspace: the data is in DIR/{DATA_DIRECTORY}.  [default: the working directory]",
        "l",
    ),
    _flag("inMemoryPersistence", "Keep everything in memory and lose it at the end."),
    _flag("silent", "No access log on standard output.", "s"),
    _flag("debug FILE", "Write the log, with all details, to FILE.", "d"),
    _flag("skipApiVersionCheck", "Accept versions of the service that are not known."),
    _flag("cert FILE", "Serve TLS with this certificate: PEM with --key, PFX with --pwd."),
    _flag("key FILE", "Private key of the certificate (PEM)."),
    _flag("pwd PASSWORD", "Password of the PFX file."),
    _flag("oauth basic", "Bearer tokens are always accepted, and always checked."),
)
"""The flags that have an effect."""
EMPTY_FLAGS: Final = (
    _flag("loose", "Ignored: headers and parameters without a meaning are always ignored.", "L"),
    _flag("disableTelemetry", "Ignored: nothing is collected."),
    _flag("disableProductStyleUrl", "Ignored: only ACCOUNT.table.localhost is in host style."),
    _flag("tableKeepAliveTimeout N", "Ignored: an idle connection is closed after 120 s."),
    _flag("extentMemoryLimit N", "Ignored: only blobs and queues have extents."),
)
"""The flags that are accepted and have no effect."""
OTHER_SERVICES: Final = tuple(
    _flag(f"{service}{setting}", f"Ignored: there are no {service}s.")
    for service in ("blob", "queue")
    for setting in ("Host ADDRESS", "Port PORT", "KeepAliveTimeout N")
)
"""The flags of the services that Tablestone does not have."""
FLAGS: Final = (*TABLE_FLAGS, *EMPTY_FLAGS, *OTHER_SERVICES)

Given = Mapping[str, str | bool | None]
"""The flags by name: a text, True for a switch, None or False for a flag that was not typed."""


class Meaning(NamedTuple):
    """The options of `tablestone serve` by name, the environment without what they replace, and remarks.

    `pfx` is a file with a certificate, and its password: the options get the path of its PEM form later.
    """

    options: dict[str, str]
    environment: dict[str, str]
    debug_log: Path | None
    pfx: tuple[Path, str] | None
    remarks: tuple[str, ...]


def meaning_of(given: Given, extra: Iterable[str], environment: Mapping[str, str]) -> Meaning:
    """Translate a command line of Azurite; `BrokenOption` if it is contradictory or Azurite would refuse it."""
    typed: dict[str, Any] = {
        name: value for name, value in given.items() if value not in (None, False)
    }
    options, rest = _storage(typed, environment)
    if "tableHost" in typed:
        options[HOST.parameter] = typed["tableHost"]
    if "tablePort" in typed:
        try:
            options[PORT.parameter] = str(parse_port(typed["tablePort"]))
        except BrokenOption as broken:
            raise BrokenOption(f"--tablePort {broken}.") from None
    if "silent" not in typed and not environment.get(ACCESS_LOG.variable):
        options[ACCESS_LOG.parameter] = TEXT
    if "skipApiVersionCheck" in typed or environment.get(SKIP_VERSION_CHECK_VARIABLE) == "true":
        options[ANY_VERSION.parameter] = UnknownVersions.ALL.value
    pfx = None
    if {"cert", "key"} <= typed.keys():
        options |= {TLS_CERTIFICATE.parameter: typed["cert"], TLS_KEY.parameter: typed["key"]}
    elif {"cert", "pwd"} <= typed.keys():
        pfx = (Path(typed["cert"]), typed["pwd"])
    elif "cert" in typed or "key" in typed:
        raise BrokenOption("--cert needs --key, or --pwd for a PFX file; --key needs --cert.")
    debug_log = Path(typed["debug"]) if "debug" in typed else None
    return Meaning(options, rest, debug_log, pfx, tuple(_remarks(typed, extra)))


def _storage(
    typed: Mapping[str, Any], environment: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The options of the storage. A flag for it replaces its environment variables."""
    variables = {DATA.variable, ENGINE.variable}
    rest = {name: value for name, value in environment.items() if name not in variables}
    if "inMemoryPersistence" in typed:
        if "location" in typed:
            raise BrokenOption("--inMemoryPersistence and --location exclude each other.")
        return {ENGINE.parameter: "memory"}, rest
    if "location" not in typed and any(map(environment.get, variables)):
        return {}, dict(environment)
    workspace = _workspace(typed)
    place = workspace if (workspace / OWN_DATA).exists() else workspace / DATA_DIRECTORY
    return {ENGINE.parameter: "sqlite", DATA.parameter: str(place)}, rest


def _workspace(typed: Mapping[str, Any]) -> Path:
    return Path(typed["location"]) if "location" in typed else Path.cwd()


def _remarks(typed: Mapping[str, Any], extra: Iterable[str]) -> Iterable[str]:
    """A sentence for each kind of flag without an effect, and for what works in another way than in Azurite."""
    if of_others := [f"--{flag.name}" for flag in OTHER_SERVICES if flag.name in typed]:
        yield f"Only tables are served, no blobs and no queues: {_listed(of_others)} ignored."
    empty = [f"--{flag.name}" for flag in EMPTY_FLAGS if flag.name in typed]
    empty += [repr(word) for word in extra]
    if "pwd" in typed and ("key" in typed or "cert" not in typed):
        empty.append("--pwd")
    if empty:
        yield f"{_listed(empty)} ignored: nothing changes with {'it' if len(empty) == 1 else 'them'} here."
    if "oauth" in typed:
        if typed["oauth"].lower() != OAUTH_LEVEL:
            raise BrokenOption(f"--oauth must be {OAUTH_LEVEL}, not {typed['oauth']!r}.")
        yield (
            "Bearer tokens are always accepted, over TLS, and their signatures are checked: "
            "`tablestone token` prints one, and TABLESTONE_TOKEN_ISSUER names the issuer of others."
        )
    tables = _workspace(typed) / AZURITE_TABLES
    if "inMemoryPersistence" not in typed and tables.exists():
        command = f"tablestone import {shlex.quote(str(tables))}"
        yield f"{tables} has tables of Azurite and is not read: `{command}` loads them."


def _listed(words: list[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last} are" if first else f"{last} is"


@contextmanager
def as_pem(pfx: Path, password: str) -> Iterator[Path]:
    """The path of a PEM file with the chain and its key. `BrokenOption` if the PFX file cannot be used."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - loads slowly
    from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415 - the same

    try:
        content = pfx.read_bytes()
    except OSError as error:
        raise BrokenOption(f"{pfx} cannot be read: {_reason(error)}.") from None
    try:
        found = pkcs12.load_pkcs12(content, password.encode("utf-8"))
    except ValueError:
        raise BrokenOption(
            f"{pfx} is no PFX file, or --pwd is not its password; a PEM file needs --key."
        ) from None
    if found.cert is None or found.key is None:
        raise BrokenOption(f"{pfx} must have a certificate and its key.")
    chain = [found.cert, *found.additional_certs]
    parts = [each.certificate.public_bytes(serialization.Encoding.PEM) for each in chain]
    parts.append(
        found.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    with tempfile.TemporaryDirectory(prefix="tablestone-") as directory:
        path = Path(directory, "certificate.pem")
        path.touch(mode=0o600)
        path.write_bytes(b"".join(parts))
        yield path


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _command(name: str, listening: str, text: str, *, hidden: bool = False) -> click.Command:
    """A command of Azurite. Scripts wait for its line `listening`, which it prints when tables are served."""

    # Azurite ignores words that belong to no flag, such as the value of a switch.
    @click.command(
        name,
        params=list(FLAGS),
        help=text,
        hidden=hidden,
        context_settings={"allow_extra_args": True},
    )
    @click.pass_context
    def command(context: click.Context, /, **given: Any) -> None:
        _serve(listening, given, context.args)

    return command


azurite = _command(
    "azurite",
    "Azurite Table service is successfully listening at {address}",
    """Serve tables with the flags of Azurite.

    Takes the flags of `azurite` and of `azurite-table`, and AZURITE_ACCOUNTS. Other options can be
    given in the environment, as for `tablestone serve`.
    """,
)
azurite_table = _command(
    "azurite-table",
    "Azurite Table service successfully started on {authority}",
    "Serve tables with the flags of `azurite-table`: the same as `tablestone azurite`.",
    hidden=True,
)


def _serve(listening: str, given: dict[str, Any], other_words: list[str]) -> None:
    meaning = meaning_of(given, other_words, os.environ)
    if meaning.pfx is None:  # else the key of the PFX file would stay in a temporary one
        end_process_by_sigint()
    with ExitStack() as files:
        options = dict(meaning.options)
        if meaning.pfx is not None:
            options[TLS_CERTIFICATE.parameter] = str(files.enter_context(as_pem(*meaning.pfx)))
        configuration = read_configuration(options, meaning.environment)
        _log(configuration.log_format, configuration.log_level.upper(), meaning.debug_log)
        for remark in meaning.remarks:
            print(f"tablestone: {remark}", file=sys.stderr)

        def tell(address: str) -> None:
            authority = address.partition("://")[2]
            print(listening.format(address=address, authority=authority), flush=True)

        try:
            serve_until_stopped(configuration, tell)
        except StartRefused as refused:
            # The advice for a taken port names the option of `tablestone serve`.
            raise StartRefused(str(refused).replace(f"{PORT.flag} 0", "--tablePort 0")) from None


def _log(log_format: str, level: str, debug_log: Path | None) -> None:
    """Log to standard error; with a file, all messages go to the file too."""
    errors = logging.StreamHandler(sys.stderr)
    errors.setLevel(level)
    handlers: list[logging.Handler] = [errors]
    if debug_log is not None:
        try:
            debug_log.absolute().parent.mkdir(parents=True, exist_ok=True)
            handlers.append(LogFile(debug_log, monotonic_seconds))
        except OSError as error:
            raise BrokenOption(
                f"--debug {debug_log} cannot be written: {_reason(error)}."
            ) from None
    for handler in handlers:
        handler.setFormatter(formatter_of(log_format))
    logging.basicConfig(level="DEBUG" if debug_log is not None else level, handlers=handlers)
