"""One `Configuration` from the command line, the environment and the configuration file.

The first source that has an option wins: command line, environment (TABLESTONE_*), file (--config or
TABLESTONE_CONFIG), for accounts Azurite's own variable, default. A list replaces the list of a lower source. A relative
path in the file starts at the file's directory, any other at the working directory. An unknown key in the file is an
error, an unknown TABLESTONE_ variable only a warning: other programs share the environment.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from tablestone.cli import options
from tablestone.cli.options import (
    BrokenOption,
    Option,
    checked_account,
    is_loopback,
    path_from,
    with_rules,
)
from tablestone.configuration import (
    BUFFERED_MEBIBYTES_MIN,
    CONNECTIONS_MIN,
    INSIGHT_HASHED,
    INSIGHT_KEYS,
    AccountKeys,
    AdminAddress,
    AdmissionLimits,
    ArchiveSettings,
    CertificateFiles,
    Configuration,
    SelfSigned,
    TokenRules,
)
from tablestone.engines.capabilities import StoredIn
from tablestone.engines.kind import FORM, EncryptionKey, EngineUrl
from tablestone.engines.registry import capabilities_of
from tablestone.limits import OF_SERVICE, EntityLimits
from tablestone.telemetry.access_log import AccessLogTarget
from tablestone.user_directories import NoHomeDirectory, user_directory

KEY_FILE_LENGTH_MAX: Final = 1024
"""Characters of a key file that are read: a device may be endless."""
KEY_VARIABLE: Final = "TABLESTONE_ENCRYPTION_KEY"
"""The variable with the key itself. A file is safer: programs pass variables on, and print them in reports."""


def encryption_key(
    file: Path | None, file_source: str, environment: Mapping[str, str]
) -> EncryptionKey | None:
    """The key, if any; `BrokenOption` for two, or for an unreadable one. `file_source` is what names the file."""
    text = environment.get(KEY_VARIABLE)
    if file is None:
        return _parsed_key(text, KEY_VARIABLE) if text else None
    if text:
        raise BrokenOption(
            f"Both {file_source} and {KEY_VARIABLE} give an encryption key: give one of them."
        )
    return key_in_file(file)


def key_of_directory(given: str | None) -> EncryptionKey | None:
    """The key of a directory that is not the one of `--data`; `given` is the key file on the command line."""
    option = options.ENCRYPTION_KEY_FILE
    file = given or os.environ.get(option.variable)
    source = option.flag if given else option.variable
    return encryption_key(path_from(file, Path.cwd()) if file else None, source, os.environ)


def key_in_file(path: Path) -> EncryptionKey:
    """The key in a text file; `BrokenOption` if there is none."""
    try:
        # Opened without blocking, a FIFO without a writer is empty. Then reading waits for what a shell's pipe brings.
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
    by_key = {
        option.name: option for option in options.SERVER_OPTIONS if option is not options.ACCOUNT
    }
    values: dict[str, Any] = {}
    for key, value in document.items():
        if key == ACCOUNTS_KEY:
            values[options.ACCOUNT.name] = _file_accounts(value, f"{key} in {path}")
        elif key in by_key:
            values[key] = _file_value(by_key[key], value, path)
        else:
            keys = sorted((*by_key, ACCOUNTS_KEY))
            near = get_close_matches(key, keys, n=1)
            hint = f": did you mean {near[0]}?" if near else f"; the keys are {', '.join(keys)}."
            raise BrokenOption(f"{path} has the unknown key {key!r}{hint}")
    return values


def _file_value(option: Option, value: object, path: Path) -> Any:
    source, directory = f"{option.name} in {path}", path.absolute().parent
    if option.repeatable and isinstance(value, list) and all(type(one) is str for one in value):
        return parsed(option, tuple(value), source, directory)
    if type(value) not in option.types:
        or_list = " or a list of strings" if option.repeatable else ""
        raise BrokenOption(f"{source} must be {option.in_file}{or_list}.")
    return parsed(option, (str(value),), source, directory)


def _file_accounts(table: object, source: str) -> tuple[AccountKeys, ...]:
    if table == options.NO_ACCOUNT:
        return ()
    if not isinstance(table, dict):
        raise BrokenOption(f'{source} must be a table of NAME = "KEY" or NAME = ["KEY1", "KEY2"].')
    if not table:
        raise BrokenOption(f"{source} names no account.")
    try:
        return tuple(_file_account(str(name), given) for name, given in table.items())
    except BrokenOption as broken:
        raise BrokenOption(f"{source} {broken}.") from None


def _file_account(name: str, given: object) -> AccountKeys:
    """NAME = "KEY", NAME = ["KEY1", "KEY2"], or a table of `keys`, `shared-key` and `allow`."""
    if not isinstance(given, dict):
        return checked_account(name, _keys(given), '["KEY1", "KEY2"]')
    if unknown := sorted(given.keys() - {"keys", "shared-key", "allow"}):
        raise BrokenOption(f"has {unknown[0]!r} in {name}: it may have keys, shared-key and allow")
    state, ranges = given.get("shared-key", "on"), given.get("allow", [])
    ranges = [ranges] if isinstance(ranges, str) else ranges
    if not isinstance(ranges, list) or not all(isinstance(each, str) for each in ranges):
        raise BrokenOption(f"must have a list of ranges in allow of {name}")
    return with_rules(
        checked_account(name, _keys(given.get("keys")), 'keys = ["KEY1", "KEY2"]'),
        [str(state)],
        ranges,
    )


def _keys(keys: object) -> list[str]:
    if isinstance(keys, list) and all(isinstance(key, str) for key in keys):
        return keys
    return [keys] if isinstance(keys, str) else []


def parsed(
    option: Option, texts: tuple[str, ...], source: str, directory: Path | None = None
) -> Any:
    """The value in these texts. A `BrokenOption` starts with the source; a relative path starts at the directory."""
    if option is options.ACCOUNT and texts == (options.NO_ACCOUNT,):
        return ()
    if option is options.ACCOUNT and not texts:
        raise BrokenOption(f"{source} names no account.")
    try:
        values = tuple(option.parse(text) for text in texts)
        _require_distinct(option, values)
    except BrokenOption as broken:
        raise BrokenOption(f"{source} {broken}.") from None
    if option.resolve is not None:
        values = tuple(option.resolve(value, directory or Path.cwd()) for value in values)
    return values if option.repeatable else values[0]


def _require_distinct(option: Option, values: tuple[Any, ...]) -> None:
    if option.once is None:
        return
    what, name_of = option.once
    names = [name_of(value) for value in values]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BrokenOption(f"names the {what} {twice} twice")


def without_kubernetes_links(
    environment: Mapping[str, str],
) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """The environment without what Kubernetes sets for a service named tablestone, and a warning about it.

    TABLESTONE_PORT is then the address of that service, as `tcp://10.0.0.1:10002`.
    """
    if _SERVICE_LINK.match(environment.get(options.PORT.variable, "")) is None:
        return environment, ()
    own = {
        name: value
        for name, value in environment.items()
        if not name.startswith((f"{options.VARIABLE_PREFIX}SERVICE_", options.PORT.variable))
    }
    return own, (
        f"{options.PORT.variable} is the address of a service, as Kubernetes sets it, and is ignored: "
        f"{options.PORT.flag} gives the port.",
    )


_SERVICE_LINK = re.compile(r"(?:tcp|udp|sctp)://")


LIST_SEPARATOR = ";"
"""The separator of the values of a repeatable option in its variable."""
AZURITE_VARIABLE = "AZURITE_ACCOUNTS"
"""Azurite's variable with accounts; it is used if no other source has accounts."""
LOOPBACK = "127.0.0.1"
ARCHIVED_SCHEME = "sqlite"
CERTIFICATE_DIRECTORY = "tls"
"""The directory of the self-signed certificate, inside the data directory."""

DEFAULT_WORKERS_MAX = 4
"""The largest default number of worker processes: docs/decisions/0004-workers.md says why."""

CommandLine = Mapping[str, str | tuple[str, ...] | None]
"""The typed values by `Option.parameter`; None, an empty tuple or no entry for an option that was not given."""


class _Given:
    """The values that are given, each with its source as messages name it: the flag, the variable, or the key."""

    def __init__(self, command_line: CommandLine, environment: Mapping[str, str]) -> None:
        path = command_line.get("config") or environment.get(options.CONFIG_VARIABLE)
        file = read_option_file(Path(str(path))) if path else {}
        self._given: dict[str, tuple[str, Any]] = {}
        """The source and the value of an option, by its name."""
        for option in options.SERVER_OPTIONS:
            typed = command_line.get(option.parameter)
            if typed == "":
                raise BrokenOption(f"{option.flag} must not be empty.")
            source = option.flag if typed else option.variable
            if text := typed or environment.get(option.variable):
                if isinstance(text, str):
                    text = _listed(text) if option.repeatable else (text,)
                self._given[option.name] = source, parsed(option, text, source)
            elif option.name in file:
                self._given[option.name] = f"{option.name} in {path}", file[option.name]

    def __contains__(self, option: Option) -> bool:
        return option.name in self._given

    def get(self, option: Option, default: Any = None) -> Any:
        return self._given.get(option.name, ("", default))[1]

    def source(self, option: Option) -> str:
        return self._given[option.name][0]

    def fields(self, *options: Option, **renamed: Option) -> dict[str, Any]:
        """The given values by field; other fields have defaults. A field of `options` has its option's name."""
        named = {option.parameter: option for option in options} | renamed
        return {field: self.get(option) for field, option in named.items() if option in self}


def _listed(text: str) -> tuple[str, ...]:
    """The values of a repeatable option in its variable."""
    return tuple(filter(None, text.split(LIST_SEPARATOR)))


def read_configuration(command_line: CommandLine, environment: Mapping[str, str]) -> Configuration:
    """The whole configuration; raises `BrokenOption` with a sentence that names the source."""
    environment, warnings = without_kubernetes_links(environment)
    given = _Given(command_line, environment)
    _require_coherent(given)
    data_directory, engine = _storage(given)
    host = given.get(options.HOST, options.HOST.default)
    accounts: tuple[AccountKeys, ...] | None = given.get(options.ACCOUNT)
    warnings += _unknown_variables(environment)
    if options.YES_TRIM in given and options.KEEP_CHANGES not in given:
        source, flag = given.source(options.YES_TRIM), options.KEEP_CHANGES.flag
        warnings += (f"{source} has no force without {flag}: it accepts a value of that.",)
    if accounts is None:
        accounts, ignored = _accounts_of_azurite(environment)
        warnings += ignored
    if accounts == () and options.CREATE_TABLES in given:
        raise BrokenOption(
            f"{given.source(options.CREATE_TABLES)} creates tables in configured accounts, and there is none."
        )
    keeps_changes = given.get(options.KEEP_CHANGES) is not None
    if keeps_changes and not capabilities_of(engine).keeps_changes:
        raise BrokenOption(
            f"{given.source(options.KEEP_CHANGES)} needs an engine that keeps changes: SQLite and memory do."
        )
    if given.get(options.AUTO_INDEX) and not capabilities_of(engine).keeps_entries:
        raise BrokenOption(
            f"{given.source(options.AUTO_INDEX)} needs an engine that keeps indexes: SQLite, PostgreSQL and memory do."
        )
    workers = _workers(given.get(options.WORKERS), engine)
    key = _encryption_key(given, environment, data_directory)
    domains = given.fields(domains=options.DOMAIN, custom_domains=options.CUSTOM_DOMAIN)
    return Configuration(
        host=host,
        port=given.get(options.PORT, int(options.PORT.default)),
        data_directory=data_directory,
        engine=engine,
        encryption_key=key,
        archive=_archive(given, engine, key),
        encryption_key_file=given.get(options.ENCRYPTION_KEY_FILE),
        accounts=accounts or (),
        log_level=given.get(options.LOG_LEVEL, options.LOG_LEVEL.default),
        tls=_tls(given, host, data_directory),
        workers=workers,
        tokens=TokenRules(
            **domains,
            **given.fields(
                issuers=options.TOKEN_ISSUER,
                audiences=options.TOKEN_AUDIENCE,
                tenant=options.TOKEN_TENANT,
                authority=options.TOKEN_AUTHORITY,
            ),
        ),
        has_development_account=accounts is None,
        warnings=warnings,
        access_log=_access_log(given),
        admin=_admin(given),
        control_port=_control_port(given, host, engine),
        insight=_insight(given),
        admission=_admission(given, workers),
        ends_changes=options.KEEP_CHANGES in given and not keeps_changes,
        ends_archive=options.ARCHIVE in given and given.get(options.ARCHIVE) is None,
        **domains,
        **given.fields(
            *(options.HTTPS_ONLY, options.TABLE_DELETION_SECONDS, options.LOG_FORMAT),
            *(options.EXPLORER, options.EXPLORER_TOKEN_FILE, options.ANY_VERSION),
            *(options.REALISM, options.METRICS_TABLES, options.CREATE_TABLES),
            *(options.KEEP_CHANGES, options.YES_TRIM, options.TARGETS, options.FROM_ARCHIVE),
            *(options.REMOTE_INDEXES, options.AUTO_INDEX, options.QUERY_EXTENSIONS),
            *(options.ACL_BY_ROLES,),
            trusted_proxies=options.TRUSTED_PROXY,
            ready_form=options.PRINT,
            entity_limits=options.ENTITY_SIZE,
        ),
    )


_NEEDS: Final = (
    (options.TLS_KEY, options.TLS_CERTIFICATE, "names the key of a certificate: give {other} too"),
    (options.TLS_NAME, options.TLS, "is for a self-signed certificate: give {other} too"),
    (options.REALISM, options.CONTROL, "is for tests: it needs {other}"),
    (options.ARCHIVE_INTERVAL, options.ARCHIVE, "is for an archive: give {other} too"),
    (options.ARCHIVE_KEEP, options.ARCHIVE, "is for an archive: give {other} too"),
    (options.ARCHIVE_KEY_FILE, options.ARCHIVE, "is for an archive: give {other} too"),
    (options.ARCHIVE_CHECK, options.ARCHIVE, "is for an archive: give {other} too"),
    (options.FROM_ARCHIVE, options.ARCHIVE, "restores from an archive: give {other} too"),
)
"""Options that mean nothing without another one, and the end of the sentence that says so."""
_EXCLUDES: Final = (
    (options.TLS, options.TLS_CERTIFICATE, "give one of them"),
    (options.CONTROL, options.EXPLORER, "a server under control has no admin address"),
    (options.CONTROL, options.ADMIN, "a server under control has no admin address"),
    (
        options.CONTROL,
        options.AUTO_INDEX,
        "a scan has to stay visible in tests: it is one on Azure",
    ),
)
"""Options that exclude each other, and why."""


def _require_coherent(given: _Given) -> None:
    """Refuse an option without the one that it needs or beside one that it excludes; a false one does neither."""
    for option, other, sentence in _NEEDS:
        if given.get(option) and given.get(other) is None:
            raise BrokenOption(f"{given.source(option)} {sentence.format(other=other.flag)}.")
    for option, other, why in _EXCLUDES:
        if option in given and given.get(other):
            raise BrokenOption(
                f"Both {given.source(option)} and {given.source(other)} are given: {why}."
            )


def _encryption_key(
    given: _Given, environment: Mapping[str, str], data_directory: Path | None
) -> EncryptionKey | None:
    file: Path | None = given.get(options.ENCRYPTION_KEY_FILE)
    source = KEY_VARIABLE if file is None else given.source(options.ENCRYPTION_KEY_FILE)
    key = encryption_key(file, source, environment)
    if key is not None and data_directory is None:
        raise BrokenOption(
            f"{source} is for a data directory, but there is none: only the engine sqlite encrypts."
        )
    return key


_NOT_ARCHIVED: Final = {
    StoredIn.PROCESS: "keeps nothing that could be lost with a disk",
    StoredIn.SERVERS: "has servers with backups and replicas of their own",
    StoredIn.DIRECTORY: "keeps no record of changes for it",
}


def _archive(given: _Given, engine: str, key: EncryptionKey | None) -> ArchiveSettings | None:
    """The archive, encrypted as its key files say, or else as the data directory is."""
    url: str | None = given.get(options.ARCHIVE)
    if url is None:
        return None
    scheme = EngineUrl.parse(engine).scheme
    if scheme != ARCHIVED_SCHEME:
        why = _NOT_ARCHIVED[capabilities_of(engine).stored_in]
        raise BrokenOption(
            f"{given.source(options.ARCHIVE)} archives a data directory of SQLite: the engine {scheme} {why}."
        )
    keys = tuple(map(key_in_file, given.get(options.ARCHIVE_KEY_FILE, ())))
    return ArchiveSettings(
        url,
        keys=keys + ((key,) if key is not None and key not in keys else ()),
        directory_key=key,
        **given.fields(
            interval=options.ARCHIVE_INTERVAL,
            retention_seconds=options.ARCHIVE_KEEP,
            check_seconds=options.ARCHIVE_CHECK,
        ),
    )


def _default_directory() -> Path:
    """A directory of the user, so that the data is the same in every working directory."""
    try:
        return path_from(str(user_directory("data")), Path.cwd(), "data directory")
    except NoHomeDirectory as none:
        raise BrokenOption(
            f"{none}: name a directory for the data with {options.DATA.flag}."
        ) from None


def _accounts_of_azurite(
    environment: Mapping[str, str],
) -> tuple[tuple[AccountKeys, ...] | None, tuple[str, ...]]:
    """The accounts in Azurite's variable; as in Azurite, a malformed variable is ignored as a whole (auth 6)."""
    texts = _listed(environment.get(AZURITE_VARIABLE, ""))
    if not texts:
        return None, ()
    try:
        return parsed(options.ACCOUNT, texts, AZURITE_VARIABLE) or None, ()
    except BrokenOption as broken:
        return None, (f"{broken} The whole variable is ignored.",)


def _unknown_variables(environment: Mapping[str, str]) -> tuple[str, ...]:
    """A warning for each variable with our prefix that is no option: a typing error, or another program's."""
    known = {options.CONFIG_VARIABLE, KEY_VARIABLE}
    known |= {option.variable for option in options.SERVER_OPTIONS}
    ends = [name.removeprefix(options.VARIABLE_PREFIX) for name in known]
    sentences = []
    for name in sorted(environment):
        if name.startswith(options.VARIABLE_PREFIX) and environment[name] and name not in known:
            near = get_close_matches(name.removeprefix(options.VARIABLE_PREFIX), ends, n=1)
            meant = f": did you mean {options.VARIABLE_PREFIX}{near[0]}?" if near else "."
            sentences.append(f"{name} is not an option and is ignored{meant}")
    return tuple(sentences)


def _tls(
    given: _Given, host: str, data_directory: Path | None
) -> CertificateFiles | SelfSigned | None:
    if options.TLS_CERTIFICATE in given:
        certificate = given.get(options.TLS_CERTIFICATE)
        return CertificateFiles(certificate, given.get(options.TLS_KEY, certificate))
    if options.TLS not in given:
        return None
    try:
        directory = data_directory or user_directory("cache")
    except NoHomeDirectory as none:
        raise BrokenOption(
            f"{none} for the certificate: XDG_CACHE_HOME can name one, or give a certificate with "
            f"{options.TLS_CERTIFICATE.flag}."
        ) from None
    of_accounts = [f"*.table.{domain}" for domain in given.get(options.DOMAIN, ())]
    of_accounts += [host for host, _ in given.get(options.CUSTOM_DOMAIN, ())]
    names = (host, *(name.rstrip(".") for name in of_accounts), *given.get(options.TLS_NAME, ()))
    return SelfSigned(directory / CERTIFICATE_DIRECTORY, names)


def _access_log(given: _Given) -> AccessLogTarget | None:
    """Where the access log goes: to standard output in the form of a word, or to a file."""
    target: str | Path | None = given.get(options.ACCESS_LOG)
    if isinstance(target, Path):
        return AccessLogTarget(given.get(options.LOG_FORMAT, options.LOG_FORMAT.default), target)
    return None if target is None else AccessLogTarget(target)


def _insight(given: _Given) -> str:
    """The form of insight. Keys can be personal data, so by default other machines see hashes."""
    admin: AdminAddress | None = given.get(options.ADMIN)
    is_local = admin is None or is_loopback(admin.host)
    form: str = given.get(options.INSIGHT, INSIGHT_KEYS if is_local else INSIGHT_HASHED)
    return form


def _admin(given: _Given) -> AdminAddress | None:
    """The admin address. It is never the data port, where every path is an account's."""
    admin: AdminAddress | None = given.get(options.ADMIN)
    if admin is None:
        return AdminAddress(LOOPBACK, 0) if given.get(options.EXPLORER) else None
    port = given.get(options.PORT, int(options.PORT.default))
    if admin.port == port != 0:
        raise BrokenOption(
            f"{given.source(options.ADMIN)} names port {port}, at which the tables are served: give it another port."
        )
    return admin


def _control_port(given: _Given, host: str, engine: str) -> int | None:
    """The port of the control API. Refused unless the server stores nothing and serves only this machine."""
    if options.CONTROL not in given:
        return None
    source = given.source(options.CONTROL)
    if capabilities_of(engine).stored_in is not StoredIn.PROCESS:
        raise BrokenOption(
            f"{source} can erase everything, so it needs {options.ENGINE.flag} memory, which stores nothing."
        )
    if not is_loopback(host):
        raise BrokenOption(
            f"{source} is for tests on this machine, but other machines can reach the host {host}: "
            f"leave out {options.HOST.flag}."
        )
    port: int = given.get(options.CONTROL)
    return port


def _admission(given: _Given, workers: int) -> AdmissionLimits:
    """The admission limits; refuse those with which no client could be served."""
    most: EntityLimits = given.get(options.ENTITY_SIZE, OF_SERVICE)
    more_mebibytes = (most.body_bytes - OF_SERVICE.body_bytes) >> 20
    for option, least in (
        (options.MAX_CONNECTIONS, CONNECTIONS_MIN),
        (options.MAX_BUFFERS, BUFFERED_MEBIBYTES_MIN + more_mebibytes),
    ):
        if given.get(option, least * workers) < least * workers:
            raise BrokenOption(
                f"{option.flag} must be {least} for each worker at least: {least * workers} for {workers}."
            )
    return AdmissionLimits(
        **given.fields(
            connections_max=options.MAX_CONNECTIONS,
            requests_max=options.MAX_REQUESTS,
            buffered_mebibytes_max=options.MAX_BUFFERS,
        )
    )


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
            f"{given} workers cannot share the engine {scheme}, which one process has open."
        )
    return 1


def _storage(given: _Given) -> tuple[Path | None, str]:
    """The data directory, absolute, and the engine's full URL."""
    engine: str = given.get(options.ENGINE, f"{options.ENGINE.default}:")
    scheme, place = EngineUrl.parse(engine)
    stored_in = capabilities_of(engine).stored_in
    if stored_in is not StoredIn.DIRECTORY:
        if options.DATA in given:
            why = "stores nothing" if stored_in is StoredIn.PROCESS else "has none"
            raise BrokenOption(
                f"{given.source(options.DATA)} names a data directory, but the engine {scheme} {why}: "
                "give one of them."
            )
        return None, engine
    if place and options.DATA in given:
        raise BrokenOption(
            f"Both {given.source(options.DATA)} and {given.source(options.ENGINE)} name a data directory: "
            "give one of them."
        )
    directory = Path(place) if place else given.get(options.DATA) or _default_directory()
    return directory, str(EngineUrl(scheme, str(directory)))


def where(configuration: Configuration) -> str:
    """Where the data is, in words."""
    if capabilities_of(configuration.engine).stored_in is StoredIn.PROCESS:
        return "memory, lost when the server stops"
    return str(configuration.data_directory or EngineUrl.parse(configuration.engine).shown)
