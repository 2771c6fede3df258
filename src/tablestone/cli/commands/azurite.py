"""`tablestone azurite`: `tablestone serve` for scripts, tasks of editors and containers that start Azurite.

It takes Azurite's flags and prints the lines for which such scripts wait.
"""

from __future__ import annotations

import logging
import os
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
    Command,
    parse_port,
)
from tablestone.clock import monotonic_seconds
from tablestone.server.worker import StartRefused
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


class Flag(NamedTuple):
    """A flag as Azurite writes it; without a metavar it is a switch."""

    name: str
    metavar: str | None
    help: str
    letter: str | None = None

    @property
    def typed(self) -> str:
        return f"--{self.name}"


TABLE_FLAGS: Final = (
    Flag("tableHost", "ADDRESS", "Address to listen on.  [default: 127.0.0.1]"),
    Flag("tablePort", "PORT", "Port to listen on; 0 takes a free port.  [default: 10002]"),
    Flag(
        "location",
        "DIR",
        f"Workspace: the data is in DIR/{DATA_DIRECTORY}.  [default: the working directory]",
        "l",
    ),
    Flag("inMemoryPersistence", None, "Keep everything in memory and lose it at the end."),
    Flag("silent", None, "No access log on standard output.", "s"),
    Flag("debug", "FILE", "Write the log, with all details, to FILE.", "d"),
    Flag("skipApiVersionCheck", None, "Accept versions of the service that are not known."),
    Flag("cert", "FILE", "Serve TLS with this certificate: PEM with --key, PFX with --pwd."),
    Flag("key", "FILE", "Private key of the certificate (PEM)."),
    Flag("pwd", "PASSWORD", "Password of the PFX file."),
    Flag("oauth", "basic", "Bearer tokens are always accepted, and always checked."),
)
"""The flags that have an effect."""
EMPTY_FLAGS: Final = (
    Flag(
        "loose", None, "Ignored: headers and parameters without a meaning are always ignored.", "L"
    ),
    Flag("disableTelemetry", None, "Ignored: nothing is collected."),
    Flag("disableProductStyleUrl", None, "Ignored: only ACCOUNT.table.localhost is in host style."),
    Flag("tableKeepAliveTimeout", "N", "Ignored: an idle connection is closed after 120 s."),
    Flag("extentMemoryLimit", "N", "Ignored: only blobs and queues have extents."),
)
"""The flags that are accepted and have no effect."""
OTHER_SERVICES: Final = (
    Flag("blobHost", "ADDRESS", "Ignored: there are no blobs."),
    Flag("blobPort", "PORT", "Ignored: there are no blobs."),
    Flag("blobKeepAliveTimeout", "N", "Ignored: there are no blobs."),
    Flag("queueHost", "ADDRESS", "Ignored: there are no queues."),
    Flag("queuePort", "PORT", "Ignored: there are no queues."),
    Flag("queueKeepAliveTimeout", "N", "Ignored: there are no queues."),
)
"""The flags of the services that Tablestone does not have."""
FLAGS: Final = (*TABLE_FLAGS, *EMPTY_FLAGS, *OTHER_SERVICES)

Given = Mapping[str, str | bool | None]
"""The typed flags by name: a text, True for a switch, None or False for a flag that was not typed."""


class Meaning(NamedTuple):
    """The options of `tablestone serve` by name, the environment without what they replace, and remarks.

    `pfx` is a certificate's file with its password; the options of TLS are missing until it is a PEM file.
    """

    options: dict[str, str]
    environment: dict[str, str]
    debug_log: Path | None
    pfx: tuple[Path, str] | None
    remarks: tuple[str, ...]


def meaning_of(given: Given, extra: Iterable[str], environment: Mapping[str, str]) -> Meaning:
    """Translate a command line of Azurite; `BrokenOption` if it is contradictory or Azurite would refuse it."""
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    options, rest = _storage(given, texts, environment)
    if "tableHost" in texts:
        options[HOST.parameter] = texts["tableHost"]
    if "tablePort" in texts:
        try:
            options[PORT.parameter] = str(parse_port(texts["tablePort"]))
        except BrokenOption as broken:
            raise BrokenOption(f"--tablePort {broken}.") from None
    if not given.get("silent") and not environment.get(ACCESS_LOG.variable):
        options[ACCESS_LOG.parameter] = TEXT
    if given.get("skipApiVersionCheck") or environment.get(SKIP_VERSION_CHECK_VARIABLE) == "true":
        options[ANY_VERSION.parameter] = UnknownVersions.ALL.value
    pfx = None
    if "cert" in texts and "key" in texts:
        options |= {TLS_CERTIFICATE.parameter: texts["cert"], TLS_KEY.parameter: texts["key"]}
    elif "cert" in texts and "pwd" in texts:
        pfx = (Path(texts["cert"]), texts["pwd"])
    elif "cert" in texts or "key" in texts:
        raise BrokenOption("--cert needs --key, or --pwd for a PFX file; --key needs --cert.")
    debug_log = Path(texts["debug"]) if "debug" in texts else None
    return Meaning(options, rest, debug_log, pfx, tuple(_remarks(given, texts, extra)))


def _storage(
    given: Given, texts: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The options of the storage. A flag for it replaces its environment variables."""
    rest = {
        name: value
        for name, value in environment.items()
        if name not in {DATA.variable, ENGINE.variable}
    }
    location = texts.get("location")
    if given.get("inMemoryPersistence"):
        if location is not None:
            raise BrokenOption("--inMemoryPersistence and --location exclude each other.")
        return {ENGINE.parameter: "memory"}, rest
    if location is None and (environment.get(DATA.variable) or environment.get(ENGINE.variable)):
        return {}, dict(environment)
    workspace = Path.cwd() if location is None else Path(location)
    place = workspace if (workspace / OWN_DATA).exists() else workspace / DATA_DIRECTORY
    return {ENGINE.parameter: "sqlite", DATA.parameter: str(place)}, rest


def _remarks(given: Given, texts: Mapping[str, str], extra: Iterable[str]) -> Iterable[str]:
    """A sentence for each kind of flags that have no effect."""
    of_others = [flag.typed for flag in OTHER_SERVICES if given.get(flag.name)]
    if of_others:
        yield f"Only tables are served, no blobs and no queues: {_listed(of_others)} ignored."
    empty = [flag.typed for flag in EMPTY_FLAGS if given.get(flag.name)]
    empty += [repr(word) for word in extra]
    if "pwd" in texts and ("key" in texts or "cert" not in texts):
        empty.append("--pwd")
    if empty:
        yield f"{_listed(empty)} ignored: nothing changes with {'it' if len(empty) == 1 else 'them'} here."
    level = texts.get("oauth")
    if level is not None and level.lower() != OAUTH_LEVEL:
        raise BrokenOption(f"--oauth must be {OAUTH_LEVEL}, not {level!r}.")
    if level is not None:
        yield (
            "Bearer tokens are always accepted, over TLS, and their signatures are checked: "
            "`tablestone token` prints one, and TABLESTONE_TOKEN_ISSUER names the issuer of others."
        )
    location = texts.get("location")
    workspace = Path.cwd() if location is None else Path(location)
    if not given.get("inMemoryPersistence") and (workspace / AZURITE_TABLES).exists():
        yield (
            f"{workspace / AZURITE_TABLES} has tables of Azurite and is not read: "
            "`tablestone copy` moves them while Azurite runs."
        )


def _listed(words: list[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last} are" if first else f"{last} is"


@contextmanager
def as_pem(pfx: Path, password: str) -> Iterator[Path]:
    """The path of a PEM file with the chain and its key. `BrokenOption` if the PFX file cannot be used."""
    text = _pem_of(pfx, password)
    with tempfile.TemporaryDirectory(prefix="tablestone-") as directory:
        path = Path(directory, "certificate.pem")
        path.touch(mode=0o600)
        path.write_bytes(text)
        yield path


def _pem_of(pfx: Path, password: str) -> bytes:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - loads slowly
    from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415 - the same

    try:
        content = pfx.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BrokenOption(f"{pfx} cannot be read: {reason}.") from None
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
    return b"".join(parts)


LISTENING = {
    "azurite": "Azurite Table service is successfully listening at {address}",
    "azurite-table": "Azurite Table service successfully started on {authority}",
}
"""The line of each of Azurite's two commands when tables are served: scripts wait for it."""
_OTHER_WORDS = {"allow_extra_args": True}
"""Azurite ignores words that belong to no flag, such as the value of a switch."""


def _with_flags(command: Command) -> Command:
    for flag in reversed(FLAGS):
        names = (*((f"-{flag.letter}",) if flag.letter else ()), flag.typed, flag.name)
        if flag.metavar is None:
            command = click.option(*names, is_flag=True, help=flag.help)(command)
        else:
            command = click.option(*names, metavar=flag.metavar, help=flag.help)(command)
    return command


@click.command(context_settings=_OTHER_WORDS)
@_with_flags
@click.pass_context
def azurite(context: click.Context, /, **given: Any) -> None:
    """Serve tables with the flags of Azurite.

    Takes the flags of `azurite` and of `azurite-table`, and AZURITE_ACCOUNTS. Other options can be
    given in the environment, as for `tablestone serve`.
    """
    _serve(LISTENING["azurite"], given, context.args)


@click.command(name="azurite-table", hidden=True, context_settings=_OTHER_WORDS)
@_with_flags
@click.pass_context
def azurite_table(context: click.Context, /, **given: Any) -> None:
    """Serve tables with the flags of `azurite-table`: the same as `tablestone azurite`."""
    _serve(LISTENING["azurite-table"], given, context.args)


def _serve(listening: str, given: dict[str, Any], other_words: list[str]) -> None:
    meaning = meaning_of(given, other_words, os.environ)
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
            reason = (error.strerror or str(error)).lower()
            raise BrokenOption(f"--debug {debug_log} cannot be written: {reason}.") from None
    for handler in handlers:
        handler.setFormatter(formatter_of(log_format))
    logging.basicConfig(level="DEBUG" if debug_log is not None else level, handlers=handlers)
