"""Make one `Configuration` of the command line, the environment and the configuration file.

The first source that has an option wins: command line, environment (TABLESTONE_*), file (--config or
TABLESTONE_CONFIG), for accounts Azurite's own variable, default. A list replaces the list of a lower source. A relative
path in the file starts at the file's directory, any other at the working directory. An unknown key in the file is an
error, an unknown TABLESTONE_ variable only a warning, because other programs share the environment.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from tablestone.cli.options import (
    ACCESS_LOG,
    ACCOUNT,
    ADMIN,
    ANY_VERSION,
    CONFIG_VARIABLE,
    CONTROL,
    CUSTOM_DOMAIN,
    DATA,
    DOMAIN,
    ENCRYPTION_KEY_FILE,
    ENGINE,
    EXPLORER,
    HOST,
    HTTPS_ONLY,
    INSIGHT,
    LOG_FORMAT,
    LOG_LEVEL,
    MAX_BUFFERS,
    MAX_CONNECTIONS,
    MAX_REQUESTS,
    METRICS_TABLES,
    NO_ACCOUNT,
    PORT,
    PRINT,
    REALISM,
    SERVER_OPTIONS,
    TABLE_DELETION_SECONDS,
    TARGETS,
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
    is_loopback,
)
from tablestone.configuration import (
    BUFFERED_MEBIBYTES_MIN,
    CONNECTIONS_MIN,
    INSIGHT_HASHED,
    INSIGHT_KEYS,
    AccountKeys,
    AdminAddress,
    AdmissionLimits,
    CertificateFiles,
    Configuration,
    SelfSigned,
    TokenRules,
)
from tablestone.engines.capabilities import StoredIn
from tablestone.engines.kind import FORM, EncryptionKey, EngineUrl
from tablestone.engines.registry import capabilities_of
from tablestone.telemetry.access_log import AccessLogTarget
from tablestone.telemetry.logs import LOG_FORMATS
from tablestone.user_directories import NoHomeDirectory, user_directory

KEY_FILE_LENGTH_MAX: Final = 1024
"""Characters of a key file that are read: a device may be endless."""
KEY_VARIABLE: Final = "TABLESTONE_ENCRYPTION_KEY"
"""The variable with the key itself. A file is better: programs pass their variables on, and print them in reports."""


def encryption_key(
    file: str | None, file_source: str, environment: Mapping[str, str]
) -> EncryptionKey | None:
    """The key, if one is given; `BrokenOption` if two are, or one that cannot be read.

    `file_source` is the option or the variable that names the file.
    """
    text = environment.get(KEY_VARIABLE)
    if file is None:
        return _parsed_key(text, KEY_VARIABLE) if text else None
    if text:
        raise BrokenOption(
            f"Both {file_source} and {KEY_VARIABLE} give an encryption key: give one of them."
        )
    return key_in_file(file)


def key_of_directory(given: str | None) -> EncryptionKey | None:
    """The key of a directory that is no option of the command; `given` is the file that the command line names."""
    file = given or os.environ.get(f"{KEY_VARIABLE}_FILE") or None
    source = "--encryption-key-file" if given else f"{KEY_VARIABLE}_FILE"
    return encryption_key(file, source, os.environ)


def key_in_file(name: str) -> EncryptionKey:
    """The key in a text file; `BrokenOption` if there is none."""
    path = path_from(name, Path.cwd())
    try:
        # A FIFO without a writer is empty then, and is not waited for; a pipe of the shell can be read.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, encoding="ascii") as file:
            os.set_blocking(descriptor, True)
            text = file.read(KEY_FILE_LENGTH_MAX)
    except UnicodeDecodeError:
        text = ""
    except OSError as error:
        raise BrokenOption(
            f"The encryption key file {path} cannot be read: {error.strerror}."
        ) from None
    return _parsed_key(text, f"The encryption key file {path}")


def _parsed_key(text: str, source: str) -> EncryptionKey:
    try:
        return EncryptionKey.parse(text)
    except ValueError:
        raise BrokenOption(f"{source} has no key: it must be {FORM}.") from None


ACCOUNTS_KEY = "accounts"
"""The file's table of accounts, NAME = "KEY" or NAME = ["KEY1", "KEY2"], in place of repeated --account options."""


def read_option_file(path: Path) -> dict[str, Any]:
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
            values[key] = _relative_to_file(path, key, _file_value(by_key[key], value, source))
        else:
            raise BrokenOption(
                f"{path} has the unknown key {key!r}{_suggestion((*by_key, ACCOUNTS_KEY), key)}"
            )
    return values


def _suggestion(keys: tuple[str, ...], unknown: str) -> str:
    """The key that the person probably meant; without such a key, all keys."""
    near = get_close_matches(unknown, keys, n=1)
    return f": did you mean {near[0]}?" if near else f"; the keys are {', '.join(sorted(keys))}."


def _file_value(option: Option, value: object, source: str) -> Any:
    if option.repeatable and isinstance(value, list) and all(type(one) is str for one in value):
        return parsed(option, tuple(value), source)
    if type(value) not in option.form.kinds:
        raise BrokenOption(f"{source} must be {option.form.words}.")
    return parsed(option, (str(value),), source)


def _relative_to_file(path: Path, key: str, value: Any) -> Any:
    """Resolve the paths in a value of the file from the file's directory."""
    if key == DATA.name:
        return str(path_from(value, path.absolute().parent, "data directory"))
    if key == ACCESS_LOG.name and value in LOG_FORMATS:
        return value
    if key in {TLS_CERTIFICATE.name, TLS_KEY.name, ACCESS_LOG.name, ENCRYPTION_KEY_FILE.name}:
        return str(path_from(value, path.absolute().parent))
    if key == TOKEN_ISSUER.name:
        return tuple(
            issuer
            if issuer.keys_file is None
            else replace(issuer, keys=_relative_to_file(path, TLS_KEY.name, str(issuer.keys_file)))
            for issuer in value
        )
    if key == ENGINE.name:
        scheme, place = EngineUrl.parse(value)
        if place and capabilities_of(value).stored_in is StoredIn.DIRECTORY:
            return str(EngineUrl(scheme, _relative_to_file(path, DATA.name, place)))
    return value


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


def parsed(option: Option, texts: tuple[str, ...], source: str) -> Any:
    """The value of an option that is given as text; the sentence of a failure starts with the source."""
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


def path_from(text: str, seen_from: Path, what: str = "file") -> Path:
    try:
        path = seen_from / Path(text).expanduser()
    except RuntimeError:
        raise BrokenOption(
            f"The {what} {text} cannot be found: there is no such home directory."
        ) from None
    require_utf8(path, what)
    return path


def require_utf8(path: Path, what: str) -> None:
    """Refuse a path with other bytes: SQLite opens no such file, and no message could name it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        raise BrokenOption(f"The path of the {what} must be UTF-8, and {shown} is not.") from None


MINIMUM_PER_WORKER: Final = (
    (MAX_CONNECTIONS, CONNECTIONS_MIN),
    (MAX_BUFFERS, BUFFERED_MEBIBYTES_MIN),
)


def admission_limits(given: Mapping[str, Any], workers: int) -> AdmissionLimits:
    """The admission limits; refuse those with which no client could be served."""
    for option, least in MINIMUM_PER_WORKER:
        if given.get(option.name, least * workers) < least * workers:
            raise BrokenOption(
                f"{option.flag} must be {least} for each worker at least: {least * workers} for {workers}."
            )
    return AdmissionLimits(
        **_fields(
            given,
            connections_max=MAX_CONNECTIONS,
            requests_max=MAX_REQUESTS,
            buffered_mebibytes_max=MAX_BUFFERS,
        )
    )


def _fields(given: Mapping[str, Any], **options: Option) -> dict[str, Any]:
    """The values that are given, by the fields that hold them; any other field has its own default."""
    return {field: given[option.name] for field, option in options.items() if option.name in given}


def without_kubernetes_links(
    environment: Mapping[str, str],
) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """The environment without the variables of Kubernetes for a service with the name tablestone, and a sentence.

    TABLESTONE_PORT is then the address of that service, as `tcp://10.0.0.1:10002`.
    """
    if _SERVICE_LINK.match(environment.get(PORT.variable, "")) is None:
        return environment, ()
    own = {
        name: value
        for name, value in environment.items()
        if not name.startswith((f"{VARIABLE_PREFIX}SERVICE_", PORT.variable))
    }
    return own, (
        f"{PORT.variable} is the address of a service, as Kubernetes sets it, and is ignored: "
        f"{PORT.flag} gives the port.",
    )


_SERVICE_LINK = re.compile(r"(?:tcp|udp|sctp)://")


LIST_SEPARATOR = ";"
"""The separator of the values of a repeatable option in its variable."""
AZURITE_VARIABLE = "AZURITE_ACCOUNTS"
"""Azurite's variable with accounts; it is used if no other source has accounts."""
LOOPBACK = "127.0.0.1"
CERTIFICATE_DIRECTORY = "tls"
"""The directory of the self-signed certificate, inside the data directory."""

DEFAULT_WORKERS_MAX = 4
"""The largest default number of worker processes: docs/decisions/0004-workers.md says why."""

CommandLine = Mapping[str, str | tuple[str, ...] | None]
"""The typed values by `Option.parameter`; None, an empty tuple or no entry for an option that was not given."""
Named = Callable[[Option], str]
"""Returns the name of a given option in its source: the flag, the variable, or the key in the file."""


def read_configuration(command_line: CommandLine, environment: Mapping[str, str]) -> Configuration:
    """The whole configuration; raises `BrokenOption` with a sentence that names the source."""
    environment, foreign = without_kubernetes_links(environment)
    path = command_line.get("config") or environment.get(CONFIG_VARIABLE)
    file = read_option_file(Path(str(path))) if path else {}
    given = {
        option.name: value
        for option in SERVER_OPTIONS
        if (value := _first_given(option, command_line, environment, file)) is not None
    }

    def named(option: Option) -> str:
        if command_line.get(option.parameter):
            return option.flag
        return option.variable if environment.get(option.variable) else f"{option.name} in {path}"

    data_directory, engine = _storage(
        given.get(DATA.name), given.get(ENGINE.name, "sqlite:"), named
    )
    host = given.get(HOST.name, HOST.default)
    accounts: tuple[AccountKeys, ...] | None = given.get(ACCOUNT.name)
    warnings = foreign + _unknown_variables(environment)
    if accounts is None:
        accounts, ignored = _accounts_of_azurite(environment)
        warnings += ignored
    return Configuration(
        host=host,
        port=given.get(PORT.name, int(PORT.default)),
        data_directory=data_directory,
        engine=engine,
        encryption_key=_encryption_key(given, environment, data_directory, named),
        accounts=accounts or (),
        log_level=given.get(LOG_LEVEL.name, LOG_LEVEL.default),
        tls=_tls(given, host, data_directory, named),
        workers=_workers(given.get(WORKERS.name), engine),
        tokens=TokenRules(
            **_fields(
                given,
                issuers=TOKEN_ISSUER,
                audiences=TOKEN_AUDIENCE,
                tenant=TOKEN_TENANT,
                authority=TOKEN_AUTHORITY,
                domains=DOMAIN,
                custom_domains=CUSTOM_DOMAIN,
            )
        ),
        has_development_account=accounts is None,
        warnings=warnings,
        access_log=_access_log(given),
        admin=_admin(given, named),
        control_port=_control_port(given, host, engine, named),
        realism=_realism(given, named),
        insight=_insight(given),
        admission=admission_limits(given, _workers(given.get(WORKERS.name), engine)),
        **_fields(
            given,
            https_only=HTTPS_ONLY,
            trusted_proxies=TRUSTED_PROXY,
            domains=DOMAIN,
            custom_domains=CUSTOM_DOMAIN,
            table_deletion_seconds=TABLE_DELETION_SECONDS,
            log_format=LOG_FORMAT,
            explorer=EXPLORER,
            any_version=ANY_VERSION,
            ready_form=PRINT,
            metrics_tables=METRICS_TABLES,
            targets=TARGETS,
        ),
    )


def _encryption_key(
    given: Mapping[str, Any],
    environment: Mapping[str, str],
    data_directory: Path | None,
    named: Named,
) -> EncryptionKey | None:
    """The key of the data directory, if it is encrypted."""
    file: str | None = given.get(ENCRYPTION_KEY_FILE.name)
    source = KEY_VARIABLE if file is None else named(ENCRYPTION_KEY_FILE)
    key = encryption_key(file, source, environment)
    if key is not None and data_directory is None:
        raise BrokenOption(
            f"{source} is for a data directory, but there is none: only the engine sqlite encrypts."
        )
    return key


def default_data_directory() -> Path:
    """A directory of the user, so that the data is the same in every working directory."""
    try:
        return user_directory("data")
    except NoHomeDirectory as none:
        raise BrokenOption(f"{none}: name a directory for the data with {DATA.flag}.") from None


def _accounts_of_azurite(
    environment: Mapping[str, str],
) -> tuple[tuple[AccountKeys, ...] | None, tuple[str, ...]]:
    """The accounts in Azurite's variable; as in Azurite, a malformed variable is ignored as a whole (auth 6)."""
    texts = tuple(filter(None, environment.get(AZURITE_VARIABLE, "").split(LIST_SEPARATOR)))
    if not texts:
        return None, ()
    try:
        accounts: tuple[AccountKeys, ...] = parsed(ACCOUNT, texts, AZURITE_VARIABLE)
    except BrokenOption as broken:
        return None, (f"{broken} The whole variable is ignored.",)
    return accounts or None, ()


def _unknown_variables(environment: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each variable with our prefix that is not an option: a typing error, or for another program."""
    known = {option.variable for option in SERVER_OPTIONS} | {CONFIG_VARIABLE, KEY_VARIABLE}
    ends = [name.removeprefix(VARIABLE_PREFIX) for name in known]
    sentences = []
    for name in sorted(environment):
        if name.startswith(VARIABLE_PREFIX) and environment[name] and name not in known:
            near = get_close_matches(name.removeprefix(VARIABLE_PREFIX), ends, n=1)
            meant = f": did you mean {VARIABLE_PREFIX}{near[0]}?" if near else "."
            sentences.append(f"{name} is not an option and is ignored{meant}")
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
        try:
            directory = data_directory or user_directory("cache")
        except NoHomeDirectory as none:
            raise BrokenOption(
                f"{none} for the certificate: XDG_CACHE_HOME can name one, or give a certificate with "
                f"{TLS_CERTIFICATE.flag}."
            ) from None
        names = (host, *_account_hosts(given), *given.get(TLS_NAME.name, ()))
        return SelfSigned(directory / CERTIFICATE_DIRECTORY, names)
    if TLS_NAME.name in given:
        raise BrokenOption(
            f"{named(TLS_NAME)} is for a self-signed certificate: give {TLS.flag} too."
        )
    if certificate is None:
        return None
    files = [path_from(text, Path.cwd()) for text in (certificate, key or certificate)]
    return CertificateFiles(*files)


def _account_hosts(given: Mapping[str, Any]) -> list[str]:
    """The host names of accounts in the configuration."""
    names = [f"*.table.{domain}" for domain in given.get(DOMAIN.name, ())]
    names += [host for host, _ in given.get(CUSTOM_DOMAIN.name, ())]
    return [name.rstrip(".") for name in names]


def _access_log(given: Mapping[str, Any]) -> AccessLogTarget | None:
    """Where the access log goes: a word names a form on standard output, anything else a file."""
    target = given.get(ACCESS_LOG.name)
    if target is None:
        return None
    if target in LOG_FORMATS:
        return AccessLogTarget(target)
    log_format = given.get(LOG_FORMAT.name, LOG_FORMAT.default)
    return AccessLogTarget(log_format, path_from(target, Path.cwd()))


def _insight(given: Mapping[str, Any]) -> str:
    """The form of insight. Keys can be personal data, so by default other machines see hashes."""
    admin: AdminAddress | None = given.get(ADMIN.name)
    is_local = admin is None or is_loopback(admin.host)
    form: str = given.get(INSIGHT.name, INSIGHT_KEYS if is_local else INSIGHT_HASHED)
    return form


def _admin(given: Mapping[str, Any], named: Named) -> AdminAddress | None:
    """The admin address. It is never the data port, where every path is an account's."""
    admin: AdminAddress | None = given.get(ADMIN.name)
    if admin is None and given.get(EXPLORER.name):
        return AdminAddress(LOOPBACK, 0)
    port = given.get(PORT.name, int(PORT.default))
    if admin is not None and admin.port == port != 0:
        raise BrokenOption(
            f"{named(ADMIN)} names port {port}, at which the tables are served: give it another port."
        )
    return admin


def _control_port(given: Mapping[str, Any], host: str, engine: str, named: Named) -> int | None:
    """The port of the control API. Refused unless the server stores nothing and serves only this machine."""
    port: int | None = given.get(CONTROL.name)
    if port is None:
        return None
    if capabilities_of(engine).stored_in is not StoredIn.PROCESS:
        raise BrokenOption(
            f"{named(CONTROL)} can erase everything, so it needs {ENGINE.flag} memory, which stores nothing."
        )
    if not is_loopback(host):
        raise BrokenOption(
            f"{named(CONTROL)} is for tests on this machine, but other machines can reach the host {host}: "
            f"leave out {HOST.flag}."
        )
    for other in (EXPLORER, ADMIN):
        if given.get(other.name):
            raise BrokenOption(
                f"Both {named(CONTROL)} and {named(other)} are given: a server under control has no admin address."
            )
    return port


def _realism(given: Mapping[str, Any], named: Named) -> bool:
    """Whether the server acts as slow and as divided as Azure; refused without --control."""
    realism: bool = given.get(REALISM.name, False)
    if realism and CONTROL.name not in given:
        raise BrokenOption(f"{named(REALISM)} is for tests: it needs {CONTROL.flag}.")
    return realism


def default_workers() -> int:
    """One worker for each processor that this process may use, up to `DEFAULT_WORKERS_MAX`."""
    try:
        processors = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        processors = os.cpu_count() or 1
    return min(processors, DEFAULT_WORKERS_MAX)


def _workers(given: int | None, engine: str) -> int:
    """The number of worker processes; only one for an engine whose rows are in the memory of a process."""
    if capabilities_of(engine).processes:
        return given or default_workers()
    if given not in (None, 1):
        scheme = EngineUrl.parse(engine).scheme
        raise BrokenOption(
            f"{given} workers cannot share the engine {scheme}, which has its rows in one process."
        )
    return 1


def _storage(data: str | None, engine: str, named: Named) -> tuple[Path | None, str]:
    """The data directory, absolute, and the engine's full URL."""
    scheme, place = EngineUrl.parse(engine)
    stored_in = capabilities_of(engine).stored_in
    if stored_in is not StoredIn.DIRECTORY:
        if data is not None:
            why = "stores nothing" if stored_in is StoredIn.PROCESS else "has none"
            raise BrokenOption(
                f"{named(DATA)} names a data directory, but the engine {scheme} {why}: "
                "give one of them."
            )
        return None, engine
    if place and data is not None:
        raise BrokenOption(
            f"Both {named(DATA)} and {named(ENGINE)} name a data directory: give one of them."
        )
    directory = path_from(
        place or data or str(default_data_directory()), Path.cwd(), "data directory"
    )
    return directory, str(EngineUrl(scheme, str(directory)))


def _first_given(
    option: Option,
    command_line: CommandLine,
    environment: Mapping[str, str],
    file: Mapping[str, Any],
) -> Any:
    typed = command_line.get(option.parameter)
    if typed:
        texts = typed if isinstance(typed, tuple) else (typed,)
        return parsed(option, texts, option.flag)
    if typed == "":
        raise BrokenOption(f"{option.flag} must not be empty.")
    if environment.get(option.variable):
        text = environment[option.variable]
        texts = tuple(filter(None, text.split(LIST_SEPARATOR))) if option.repeatable else (text,)
        return parsed(option, texts, option.variable)
    return file.get(option.name)


def where(configuration: Configuration) -> str:
    """The place of the data, as a text for a person."""
    if capabilities_of(configuration.engine).stored_in is StoredIn.PROCESS:
        return "memory, lost when the server stops"
    return str(configuration.data_directory or EngineUrl.parse(configuration.engine).shown)
