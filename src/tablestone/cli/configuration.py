"""From command line, environment and file to one `Configuration`: the first of them that names an option wins.

Precedence: command line, environment (TABLESTONE_*), file (--config or TABLESTONE_CONFIG), for accounts Azurite's own
variable, default. A list replaces a lower one, it is not added to it. A relative path is seen from where it is named:
in the file, from the file's own directory. Reads the file; otherwise takes values and returns values. An unknown key in
the file is an error; an unknown TABLESTONE_ variable is only warned of, because the environment is not ours alone.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tablestone.cli.options import (
    ACCOUNT,
    CUSTOM_DOMAIN,
    DATA,
    DOMAIN,
    ENGINE,
    HOST,
    HTTPS_ONLY,
    LOG_LEVEL,
    NO_ACCOUNT,
    PORT,
    SERVER_OPTIONS,
    TABLE_DELETION_SECONDS,
    TLS,
    TLS_CERTIFICATE,
    TLS_KEY,
    TLS_NAME,
    TOKEN_AUDIENCE,
    TOKEN_AUTHORITY,
    TOKEN_ISSUER,
    TOKEN_TENANT,
    TRUSTED_PROXY,
    VARIABLE_PREFIX,
    WORKERS,
    BrokenOption,
    Option,
    checked_account,
)
from tablestone.server.configuration import (
    AccountKeys,
    CertificateFiles,
    Configuration,
    SelfSigned,
    TokenRules,
    TrustedIssuer,
)

CONFIG_FLAG = "--config"
CONFIG_VARIABLE = "TABLESTONE_CONFIG"
ACCOUNTS_KEY = "accounts"
"""The file has a table `[accounts]`, NAME = "KEY" or NAME = ["KEY1", "KEY2"], where a command repeats --account."""
LIST_SEPARATOR = ";"
"""Between the values of an option that can be repeated, in its variable."""
AZURITE_VARIABLE = "AZURITE_ACCOUNTS"
"""Accounts as Azurite has them in its environment, used where nothing of ours names any."""
CERTIFICATE_DIRECTORY = "tls"
"""Where in the data directory the self-signed certificate is kept."""

DEFAULT_WORKERS_MAX = 4
"""More processes than this are only started when they are asked for: docs/decisions/0004-workers.md."""

CommandLine = Mapping[str, str | tuple[str, ...] | None]
"""What was typed, by option name; None, an empty tuple or no entry where an option was not given."""
Named = Callable[[Option], str]
"""How the person named a given option: as a flag, as a variable or in the file."""


def read_configuration(command_line: CommandLine, environment: Mapping[str, str]) -> Configuration:
    """The whole configuration, or `BrokenOption` with a sentence that names the source."""
    path = command_line.get("config") or environment.get(CONFIG_VARIABLE)
    file = _read_file(Path(str(path))) if path else {}
    given = {
        option.name: value
        for option in SERVER_OPTIONS
        if (value := _first_given(option, command_line, environment, file)) is not None
    }

    def named(option: Option) -> str:
        if command_line.get(option.name):
            return option.flag
        return option.variable if environment.get(option.variable) else f"{option.name} in {path}"

    data_directory, engine = _storage(
        given.get(DATA.name), given.get(ENGINE.name, "sqlite:"), named
    )
    host = given.get(HOST.name, HOST.default)
    accounts: tuple[AccountKeys, ...] | None = given.get(ACCOUNT.name)
    warnings = _unknown_variables(environment)
    if accounts is None:
        accounts, ignored = _accounts_of_azurite(environment)
        warnings += ignored
    return Configuration(
        host=host,
        port=given.get(PORT.name, int(PORT.default)),
        data_directory=data_directory,
        engine=engine,
        accounts=accounts or (),
        log_level=given.get(LOG_LEVEL.name, LOG_LEVEL.default),
        tls=_tls(given, host, data_directory, named),
        https_only=given.get(HTTPS_ONLY.name, False),
        trusted_proxies=given.get(TRUSTED_PROXY.name, ()),
        workers=_workers(given.get(WORKERS.name), engine),
        tokens=TokenRules(
            issuers=given.get(TOKEN_ISSUER.name, ()),
            audiences=given.get(TOKEN_AUDIENCE.name, ()),
            tenant=given.get(TOKEN_TENANT.name, TOKEN_TENANT.default),
            authority=given.get(TOKEN_AUTHORITY.name, TOKEN_AUTHORITY.default),
            domains=given.get(DOMAIN.name, ()),
            custom_domains=given.get(CUSTOM_DOMAIN.name, ()),
        ),
        has_development_account=accounts is None,
        domains=given.get(DOMAIN.name, ()),
        custom_domains=given.get(CUSTOM_DOMAIN.name, ()),
        warnings=warnings,
        table_deletion_seconds=given.get(TABLE_DELETION_SECONDS.name, 0),
    )


def default_data_directory() -> Path:
    """A place of the user's own, so that the same data is found from every working directory."""
    import platformdirs  # noqa: PLC0415 - only a start without --data pays for it

    return platformdirs.user_data_path("tablestone", appauthor=False)


def _accounts_of_azurite(
    environment: Mapping[str, str],
) -> tuple[tuple[AccountKeys, ...] | None, tuple[str, ...]]:
    """The accounts that Azurite would take from its variable: one that is malformed is ignored as a whole (auth 6)."""
    texts = tuple(filter(None, environment.get(AZURITE_VARIABLE, "").split(LIST_SEPARATOR)))
    if not texts:
        return None, ()
    try:
        accounts: tuple[AccountKeys, ...] = _parsed(ACCOUNT, texts, AZURITE_VARIABLE)
    except BrokenOption as broken:
        return None, (f"{broken} All of it is ignored.",)
    return accounts or None, ()


def _unknown_variables(environment: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each variable that is named like ours and is none: it may be a slip of the pen, or not for us."""
    known = {option.variable for option in SERVER_OPTIONS} | {CONFIG_VARIABLE}
    ends = [name.removeprefix(VARIABLE_PREFIX) for name in known]
    sentences = []
    for name in sorted(environment):
        if name.startswith(VARIABLE_PREFIX) and environment[name] and name not in known:
            near = get_close_matches(name.removeprefix(VARIABLE_PREFIX), ends, n=1)
            meant = f": is {VARIABLE_PREFIX}{near[0]} meant?" if near else "."
            sentences.append(f"{name} is no option and is ignored{meant}")
    return tuple(sentences)


def _tls(
    given: Mapping[str, Any], host: str, data_directory: Path | None, named: Named
) -> CertificateFiles | SelfSigned | None:
    certificate, key = given.get(TLS_CERTIFICATE.name), given.get(TLS_KEY.name)
    if key is not None and certificate is None:
        raise BrokenOption(
            f"{named(TLS_KEY)} names the key of a certificate: give {TLS_CERTIFICATE.flag} too."
        )
    if TLS.name in given:
        if certificate is not None:
            raise BrokenOption(
                f"Both {named(TLS)} and {named(TLS_CERTIFICATE)} are given: give one of them."
            )
        directory = data_directory or _cache_directory()
        names = (host, *_addressed(given), *given.get(TLS_NAME.name, ()))
        return SelfSigned(directory / CERTIFICATE_DIRECTORY, names)
    if TLS_NAME.name in given:
        raise BrokenOption(
            f"{named(TLS_NAME)} is for a self-signed certificate: give {TLS.flag} too."
        )
    if certificate is None:
        return None
    files = [_path(text, Path.cwd()) for text in (certificate, key or certificate)]
    return CertificateFiles(*files)


def _addressed(given: Mapping[str, Any]) -> list[str]:
    """The names that accounts are configured to be found at."""
    names = [f"*.table.{domain}" for domain in given.get(DOMAIN.name, ())]
    names += [host for host, _ in given.get(CUSTOM_DOMAIN.name, ())]
    return [name.rstrip(".") for name in names]


def _cache_directory() -> Path:
    """For what an engine without a data directory would else make anew at each start."""
    import platformdirs  # noqa: PLC0415 - as above

    return platformdirs.user_cache_path("tablestone", appauthor=False)


def default_workers() -> int:
    """One for each processor that this process may use, as far as more of them have been seen to help."""
    try:
        processors = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        processors = os.cpu_count() or 1
    return min(processors, DEFAULT_WORKERS_MAX)


def _workers(given: int | None, engine: str) -> int:
    """How many processes serve: rows kept in the memory of one cannot be those of several."""
    if not engine.startswith("memory:"):
        return given or default_workers()
    if given not in (None, 1):
        raise BrokenOption(
            f"{given} workers cannot share the engine memory, which keeps its rows in one process."
        )
    return 1


def _storage(data: str | None, engine: str, named: Named) -> tuple[Path | None, str]:
    """The data directory, absolute, and the engine's full URL."""
    scheme, _, place = engine.partition(":")
    if scheme != "sqlite":
        if data is not None:
            raise BrokenOption(
                f"{named(DATA)} names a data directory, but the engine {scheme} keeps nothing: "
                "give one of them."
            )
        return None, engine
    if place and data is not None:
        raise BrokenOption(
            f"Both {named(DATA)} and {named(ENGINE)} name a data directory: give one of them."
        )
    directory = _path(place or data or str(default_data_directory()), Path.cwd(), "data directory")
    return directory, f"sqlite:{directory}"


def _path(text: str, seen_from: Path, what: str = "file") -> Path:
    try:
        return seen_from / Path(text).expanduser()
    except RuntimeError:
        raise BrokenOption(
            f"The {what} {text} cannot be found: there is no such home directory."
        ) from None


def _first_given(
    option: Option,
    command_line: CommandLine,
    environment: Mapping[str, str],
    file: Mapping[str, Any],
) -> Any:
    typed = command_line.get(option.name)
    if typed:
        texts = typed if isinstance(typed, tuple) else (typed,)
        return _parsed(option, texts, option.flag)
    if typed == "":
        raise BrokenOption(f"{option.flag} must not be empty.")
    if environment.get(option.variable):
        text = environment[option.variable]
        texts = tuple(filter(None, text.split(LIST_SEPARATOR))) if option.repeatable else (text,)
        return _parsed(option, texts, option.variable)
    return file.get(option.name)


def _parsed(option: Option, texts: tuple[str, ...], source: str) -> Any:
    """The value of an option given as text; the sentence of a failure starts with where it stood."""
    if option is ACCOUNT and texts == (NO_ACCOUNT,):
        return ()
    try:
        values = tuple(option.parse(text) for text in texts)
        if option is ACCOUNT:
            _require_some(values)
        _require_distinct(option, values)
    except BrokenOption as broken:
        raise BrokenOption(f"{source} {broken}.") from None
    return values if option.repeatable else values[0]


def _require_some(accounts: tuple[AccountKeys, ...]) -> None:
    if not accounts:
        raise BrokenOption("names no account")


def _require_distinct(option: Option, values: tuple[Any, ...]) -> None:
    if option.once is None:
        return
    what, name_of = option.once
    names = [name_of(value) for value in values]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BrokenOption(f"names the {what} {twice} twice")


def _read_file(path: Path) -> dict[str, Any]:
    """The file's options as values, by option name."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BrokenOption(
            f"The configuration file {path} cannot be read: {error.strerror}."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BrokenOption(f"The configuration file {path} is not TOML: {error}.") from None
    by_key = {option.name: option for option in SERVER_OPTIONS if option is not ACCOUNT}
    values: dict[str, Any] = {}
    for key, value in document.items():
        source = f"{key} in {path}"
        if key == ACCOUNTS_KEY:
            values[ACCOUNT.name] = _file_accounts(value, source)
        elif key in by_key:
            values[key] = _beside(path, key, _file_value(by_key[key], value, source))
        else:
            known = ", ".join(sorted((*by_key, ACCOUNTS_KEY)))
            raise BrokenOption(f"{path} has the unknown key {key!r}; the keys are {known}.")
    return values


def _file_value(option: Option, value: object, source: str) -> Any:
    if option.repeatable and isinstance(value, list) and all(type(one) is str for one in value):
        return _parsed(option, tuple(value), source)
    kind, wanted = _FILE_KINDS.get(option.name, _FILE_TEXT)
    if type(value) is not kind:
        raise BrokenOption(f"{source} must be {wanted}.")
    return _parsed(option, (str(value),), source)


_FILE_TEXT = (str, "a string")
_FILE_KINDS: Mapping[str, tuple[type, str]] = {
    PORT.name: (int, "a number"),
    WORKERS.name: (int, "a number"),
    TABLE_DELETION_SECONDS.name: (int, "a number"),
    HTTPS_ONLY.name: (bool, "true or false"),
    **{
        option.name: (str, "a string or a list of strings")
        for option in SERVER_OPTIONS
        if option.repeatable
    },
}
"""What the file gives an option as; most are texts."""


def _beside(path: Path, key: str, value: Any) -> Any:
    """A path that the file names, seen from the file: it is the same from every working directory."""
    if key == DATA.name:
        return str(_path(value, path.absolute().parent, "data directory"))
    if key in {TLS_CERTIFICATE.name, TLS_KEY.name}:
        return str(_path(value, path.absolute().parent))
    if key == TOKEN_ISSUER.name:
        return tuple(_issuer_beside(path, issuer) for issuer in value)
    if key == ENGINE.name:
        scheme, _, place = value.partition(":")
        return f"{scheme}:{_beside(path, DATA.name, place)}" if place else value
    return value


def _issuer_beside(path: Path, issuer: TrustedIssuer) -> TrustedIssuer:
    if issuer.keys_file is None:
        return issuer
    return replace(issuer, keys=_beside(path, TLS_KEY.name, str(issuer.keys_file)))


def _file_accounts(table: object, source: str) -> tuple[AccountKeys, ...]:
    if table == NO_ACCOUNT:
        return ()
    if not isinstance(table, dict):
        raise BrokenOption(f'{source} must be a table of NAME = "KEY" or NAME = ["KEY1", "KEY2"].')
    try:
        accounts = tuple(
            checked_account(str(name), _keys(keys), '["KEY1", "KEY2"]')
            for name, keys in table.items()
        )
        _require_some(accounts)
    except BrokenOption as broken:
        raise BrokenOption(f"{source} {broken}.") from None
    return accounts


def _keys(keys: object) -> list[str]:
    if isinstance(keys, list) and all(isinstance(key, str) for key in keys):
        return keys
    return [keys] if isinstance(keys, str) else []
