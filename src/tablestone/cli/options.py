"""The options of `tablestone`: one table for the command line, the environment, the file and the documentation.

Each option has a function that parses its value. It raises `BrokenOption` with the end of a sentence; `option_sources`
knows where the text came from, and puts that before it. click only collects the texts: it reads variables from this
process alone, takes unknown keys of a file, and names the flag even if the value came from a variable or the file.
"""

import ipaddress
import os
import re
import shlex
import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click

from tablestone.auth.account import KEYS_MAX, decode_key, is_account_name
from tablestone.auth.address_ranges import parse_ranges
from tablestone.clock import TICKS_PER_SECOND
from tablestone.configuration import (
    DEVELOPMENT_TENANT,
    ENTRA_ID,
    EXPLORER_ON,
    EXPLORER_READ_ONLY,
    INSIGHT_FORMS,
    LOCAL_DOMAIN,
    READY_FORMS,
    READY_TEXT,
    AccountKeys,
    AdminAddress,
    AdmissionLimits,
    ThroughputTargets,
    TrustedIssuer,
    is_safe_address,
)
from tablestone.engines.capabilities import StoredIn
from tablestone.engines.change_record import Retention
from tablestone.engines.kind import EngineUrl
from tablestone.engines.registry import NoSuchEngine, capabilities_of, forms, kind_of
from tablestone.limits import ACCOUNT_RATE_TARGET, ENTITY_SIZES, PARTITION_RATE_TARGET
from tablestone.model.errors import StorageError
from tablestone.model.expiry import SECONDS_IN
from tablestone.model.keys import require_new_table_name
from tablestone.server.tls_certificate import is_certifiable
from tablestone.telemetry.logs import LOG_FORMATS, TEXT
from tablestone.wire.address import normalized_host
from tablestone.wire.versions import UnknownVersions

LOG_LEVELS = ("critical", "error", "warning", "info", "debug")
PORT_MAX = 65535
ADMIN_HOST = "127.0.0.1"
"""The host of an admin address without one: only this machine can connect."""
LIMIT_MAX = 1_000_000
DIGITS_MAX = 20
TARGETS_OF_AZURE = "azure"
SELF_SIGNED = "self-signed"
FOREVER = "forever"
NEVER = "never"


class BrokenOption(Exception):
    """An unusable value of an option, as one sentence for the person who gave it."""


def must_be(form: str, text: str) -> BrokenOption:
    """The error for a text that is not of this form."""
    return BrokenOption(f"must be {form}, not {text!r}")


def parse_text(text: str) -> str:
    if not text or "\0" in text:
        raise BrokenOption("must not be empty")
    return text


def of_form(
    form: str, accepts: Callable[[str], object], value: Callable[[str], Any] = str
) -> Callable[[str], Any]:
    """Parse a text that `accepts` allows; `value` makes the value. A `ValueError` of either refuses the text too."""

    def parse(text: str) -> Any:
        with suppress(ValueError):
            if accepts(text):
                return value(text)
        raise must_be(form, text)

    return parse


def number(least: int, most: int) -> Callable[[str], int]:

    def is_in_range(text: str) -> bool:
        # Python refuses to read a number of thousands of digits.
        is_number = text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
        return is_number and least <= int(text) <= most

    return of_form(f"a number from {least} to {most}", is_in_range, int)


def one_of(words: Collection[str]) -> Callable[[str], Any]:
    """Parse one of these words, in letters of any case. The words of a mapping stand for its values."""
    by_word = words if isinstance(words, Mapping) else dict(zip(words, words, strict=True))
    return of_form(
        _either(words), lambda text: text.lower() in words, lambda text: by_word[text.lower()]
    )


def _either(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}"


parse_port = number(0, PORT_MAX)
_parse_target = number(0, LIMIT_MAX)


_ADMIN: Final = re.compile(r"(?:([^:\[\]]+|\[[^\[\]]*:[^\[\]]*\]):)?([0-9]+)")


def parse_admin(text: str) -> AdminAddress:
    """`PORT` or `HOST:PORT`; an IPv6 address stands in brackets."""
    with suppress(BrokenOption):
        if found := _ADMIN.fullmatch(text):
            return AdminAddress((found[1] or ADMIN_HOST).strip("[]"), parse_port(found[2]))
    raise must_be("PORT or HOST:PORT, such as 10003 or 127.0.0.1:10003", text)


def parse_control_port(text: str) -> int:
    if ":" in text:
        raise BrokenOption(
            f"must be a port of the loopback address, without a host, not {text!r}: other machines must not reach it"
        )
    return parse_port(text)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on `host`, which may be a name."""
    try:
        address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]
    except OSError:
        return False
    return address == "::1" or str(address).startswith("127.")


def parse_targets(text: str) -> ThroughputTargets:
    """`azure`, or the entities a second of an account and of a partition; 0 is no target."""
    if text.lower() == TARGETS_OF_AZURE:
        return ThroughputTargets(ACCOUNT_RATE_TARGET, PARTITION_RATE_TARGET)
    with suppress(BrokenOption):
        account, _, partition = text.partition(",")
        return ThroughputTargets(_parse_target(account), _parse_target(partition))
    form = f"{TARGETS_OF_AZURE} or two numbers from 0 to {LIMIT_MAX}, such as 20000,2000"
    raise must_be(form, text)


def parse_engine(text: str) -> str:
    """An engine's URL. `sqlite:` without a directory, for example before an unset variable, is refused."""
    scheme, place = url = EngineUrl.parse(text)
    with suppress(NoSuchEngine):
        names_a_place = {
            StoredIn.PROCESS: not place,
            StoredIn.DIRECTORY: place != "",
            StoredIn.SERVERS: bool(place),
        }
        if names_a_place[kind_of(scheme).capabilities.stored_in]:
            return str(EngineUrl(scheme, place or ""))
    raise must_be(_either(forms()), url.shown)


def parse_account(text: str) -> AccountKeys:
    """`NAME:KEY1` or `NAME:KEY1:KEY2`, and rules with commas before them. No message repeats a key."""
    if text == NO_ACCOUNT:
        raise BrokenOption(f"names {NO_ACCOUNT} and accounts: {NO_ACCOUNT} must be alone")
    text, *rules = text.split(",")
    name, *keys = text.split(":")
    if not keys and not is_account_name(name):
        raise BrokenOption(f"must be {ACCOUNT_FORM}")  # the text may be a key, so it is not shown
    ranges: list[str] = []
    key_states: list[str] = []
    for rule in rules:
        what, _, value = rule.partition("=")
        if what not in ("allow", "shared-key"):  # the rest may be of a key
            raise BrokenOption(
                f"has, after the keys of {name}, what is neither shared-key=off nor allow=RANGE"
            )
        (ranges if what == "allow" else key_states).append(value)
    return with_rules(checked_account(name, keys), key_states, ranges)


def with_rules(
    account: AccountKeys, key_states: Sequence[str], ranges: Sequence[str]
) -> AccountKeys:
    """The account with its rules, or `BrokenOption`. Without a range it admits every address."""
    if len(key_states) > 1 or any(each not in KEY_STATES for each in key_states):
        raise BrokenOption(f"must say shared-key of {account.name} once, as off or on")
    return replace(account, shared_key="off" not in key_states, allow=checked_ranges(ranges))


def checked_ranges(texts: Iterable[str]) -> tuple[str, ...]:
    try:
        return parse_ranges(texts)
    except ValueError as error:
        raise BrokenOption(str(error)) from None


SHOWN_NAME_MAX = 30
"""Characters of a wrong account name that is shown; a longer text may be a key."""
NO_ACCOUNT = "none"
"""The value of `--account` for no configured account: only stored accounts exist."""
ACCOUNT_FORM = "NAME:KEY1[:KEY2]"
KEY_STATES: Final = ("off", "on")
"""Whether an account accepts its keys."""


def checked_account(name: str, keys: list[str], form: str = ACCOUNT_FORM) -> AccountKeys:
    """The account, or `BrokenOption`; `form` is how an account is written in this source."""
    if not is_account_name(name):
        shown = repr(name) if len(name) <= SHOWN_NAME_MAX else "that is too long"
        raise BrokenOption(
            f"has the account name {shown}; a name is 3 to 24 lower-case letters and digits"
        )
    if not 1 <= len(keys) <= KEYS_MAX:
        raise BrokenOption(f"must give the account {name} one or two keys, as {form}")
    for number, key in enumerate(keys, start=1):
        try:
            decode_key(key)
        except ValueError:
            raise BrokenOption(
                f"has a key that is not base64: key {number} of the account {name}"
            ) from None
    return AccountKeys(name, tuple(keys))


_DOMAIN: Final = re.compile(r"\w[\w-]*(\.\w[\w-]*)*\.?", re.ASCII)
_ADDRESS: Final = re.compile(r"[\d.]+", re.ASCII)
"""An IPv4 address, by the same rule as for the hosts of requests; an IPv6 address does not match `_DOMAIN`."""


def _is_domain(text: str) -> bool:
    return bool(_DOMAIN.fullmatch(text)) and not _ADDRESS.fullmatch(normalized_host(text))


def parse_custom_domain(text: str) -> tuple[str, str]:
    host, _, account = text.partition("=")
    if _DOMAIN.fullmatch(host) is None or not is_account_name(account.removesuffix("-secondary")):
        raise must_be("a host's name and an account, such as tables.example.com=ACCOUNT", text)
    host = normalized_host(host)
    if host == LOCAL_DOMAIN or not _is_domain(host):
        # All path-style URLs of this machine, also those that the server prints, would lead to that account.
        raise BrokenOption(f"must be a host with a name of its own, not {host}")
    return host, account


def parse_tls(text: str) -> str:
    if text != SELF_SIGNED:
        raise BrokenOption(
            f"must be {SELF_SIGNED}, not {text!r}; a certificate of your own is given with --tls-certificate"
        )
    return text


def parse_tables(text: str) -> tuple[str, ...]:
    """Names of tables, separated by commas."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        try:
            require_new_table_name(name)
        except StorageError:
            raise must_be("names of tables, of 3 to 63 letters and digits each", text) from None
    return names


_KEPT_UNITS: Final = {
    **{unit: ("age", seconds * TICKS_PER_SECOND) for unit, seconds in SECONDS_IN.items()},
    **{f"{letter}iB": ("size", 1 << 10 * power) for power, letter in enumerate("KMGT", start=1)},
}
_KEPT_MOST: Final = (1 << 63) - 1
"""The largest number that SQLite can store: for ever."""
_KEPT: Final = re.compile(r"([1-9][0-9]{0,8})([smhd]|[KMGT]iB)")


def parse_retention(text: str, or_none: str = "") -> Retention:
    """An age, a size, or both, separated by a comma: `7d`, `20GiB`, `7d,20GiB`. `or_none` ends what an error names."""
    kept: dict[str, int] = {}
    for part in text.split(","):
        found = _KEPT.fullmatch(part.strip())
        if found is None:
            raise must_be(f"an age, a size or both, such as 7d, 20GiB or 7d,20GiB{or_none}", text)
        what, unit = _KEPT_UNITS[found[2]]
        if what in kept:
            raise must_be("one age, one size or both, such as 7d,20GiB", text)
        kept[what] = min(int(found[1]) * unit, _KEPT_MOST)
    return Retention(kept.get("age"), kept.get("size"))


def parse_age(text: str, without: str = FOREVER, least: int = 0) -> int | None:
    """Seconds, such as `30d`, and at least so many hours; None for the word `without`."""
    found = _KEPT.fullmatch(text)
    if text != without and (found is None or found[2] not in SECONDS_IN):
        raise must_be(f"an age, such as 30d, or {without}", text)
    seconds = None if found is None else int(found[1]) * SECONDS_IN[found[2]]
    if seconds is not None and seconds < least * SECONDS_IN["h"]:
        raise must_be(f"at least {least}h", text)
    return seconds


def _network(text: str) -> str:
    return str(ipaddress.ip_network(text) if "/" in text else ipaddress.ip_address(text))


def _is_issuer(text: str) -> bool:
    name, _, keys = text.partition(",")
    parts = urlsplit(name)
    return bool(parts.scheme and (parts.netloc or keys))


_issuer_text = of_form("ISSUER or ISSUER,KEYS, and the issuer a URL", _is_issuer)
_GUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def parse_issuer(text: str) -> TrustedIssuer:
    """`ISSUER` or `ISSUER,KEYS`; the tenant is the GUID in the issuer's name, as Entra ID writes it."""
    name, _, keys = _issuer_text(text).partition(",")
    address = keys or name
    if "://" in address and not is_safe_address(address):
        raise BrokenOption(f"has keys that others could change under way, not https: {address}")
    tenant = _GUID.search(name)
    return TrustedIssuer(name, keys or None, None if tenant is None else tenant[0].lower())


def _is_authority(text: str) -> bool:
    parts = urlsplit(text)
    return bool(parts.hostname) and text == f"https://{parts.netloc}"


def path_from(text: str, directory: Path, what: str = "file") -> Path:
    """The absolute path that a text names, from this directory. Its `BrokenOption` is a whole sentence."""
    try:
        path = directory / Path(text).expanduser()
    except RuntimeError:
        raise BrokenOption(
            f"The {what} {text} cannot be found: there is no such home directory."
        ) from None
    if ".." in path.parts:
        path = path.resolve()
    try:
        str(path).encode()
    except UnicodeEncodeError:  # SQLite opens no such file, and no message could name it
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        raise BrokenOption(f"The path of the {what} must be UTF-8, and {shown} is not.") from None
    return path


_data_from = partial(path_from, what="data directory")


def _engine_from(url: str, directory: Path) -> str:
    scheme, place = EngineUrl.parse(url)
    if place and capabilities_of(url).stored_in is StoredIn.DIRECTORY:
        return str(EngineUrl(scheme, str(_data_from(place, directory))))
    return url


def archive_from(url: str, directory: Path) -> str:
    """A URL as it is, also one that is mistyped; a directory absolute, however it is given."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise must_be("the URL of an archive, or a directory", url) from None
    if len(parts.scheme) > 1 and parts.scheme != "file":
        if (
            parts.password
            or parts.query
            or (parts.username and not parts.scheme.startswith("abfs"))
        ):
            raise BrokenOption(
                "The URL of an archive must have no credentials: the store finds them in the environment or in files."
            )
        return url
    return str(path_from(parts.path if parts.scheme else url, directory, "archive"))


def _access_log_from(target: str, directory: Path) -> str | Path:
    return target if target in LOG_FORMATS else path_from(target, directory)


def _issuer_from(issuer: TrustedIssuer, directory: Path) -> TrustedIssuer:
    file = issuer.keys_file
    return issuer if file is None else replace(issuer, keys=str(path_from(str(file), directory)))


VARIABLE_PREFIX = "TABLESTONE_"
CONFIG_FLAG = "--config"
CONFIG_VARIABLE = "TABLESTONE_CONFIG"


TRUTH: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Option:
    """One option, declared as the help shows it: its name, which is also its key in the file, and what its value is."""

    declaration: str
    help: str
    parse: Callable[[str], Any]
    default: str = "none"
    """The default in words, for the help."""
    repeatable: bool = False
    types: tuple[type, ...] = (str,)
    """The types of its value in the file."""
    in_file: str = "a string"
    """These types in words, for messages and documents."""
    resolve: Callable[[Any, Path], Any] | None = None
    """Makes the path in a value absolute, from this directory."""
    once: tuple[str, Callable[[Any], str]] | None = None
    """For a repeatable option: the part in which all values differ, by its name in messages and a function for it."""

    @property
    def name(self) -> str:
        return self.declaration.partition(" ")[0]

    @property
    def metavar(self) -> str:
        return self.declaration.partition(" ")[2]

    @property
    def parameter(self) -> str:
        """The name of the command's argument."""
        return self.name.replace("-", "_")

    @property
    def bare(self) -> str | None:
        """The value of the option if it stands on the command line without one; None if it must have one."""
        return "true" if bool in self.types else None

    @property
    def shown_metavar(self) -> str:
        """The name of the value; in brackets if the option may stand without one."""
        return self.metavar if self.bare is None else f"[{self.metavar}]"

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        return f"{VARIABLE_PREFIX}{self.parameter.upper()}"


def _word(name: str, text: str, words: Collection[str], default: str) -> Option:
    """An option with one of these words as its value; in the file, true and false are no strings."""
    option = Option(f"{name} {'|'.join(words)}", text, one_of(words), default)
    if "true" not in words:
        return option
    others = [repr(word) for word in words if word not in TRUTH]
    return replace(
        option, types=(bool, str) if others else (bool,), in_file=_either([*TRUTH, *others])
    )


def _switch(name: str, text: str) -> Option:
    return _word(name, text, TRUTH, "false")


def _number(
    declaration: str, text: str, parse: Callable[[str], int], default: str = "none"
) -> Option:
    return Option(declaration, text, parse, default, types=(int,), in_file="a number")


def _file(name: str, text: str, default: str = "none") -> Option:
    return Option(f"{name} FILE", text, parse_text, default, resolve=path_from)


HOST = Option("host ADDRESS", "Address to listen on.", parse_text, "127.0.0.1")
PORT = _number("port PORT", "Port to listen on; 0 takes a free port.", parse_port, "10002")
DATA = Option(
    "data DIR",
    "Directory that holds the data; created if it does not exist.",
    parse_text,
    "the user's data directory",
    resolve=_data_from,
)
ENGINE = Option(
    "engine URL",
    "Storage engine: sqlite (in the data directory), sqlite:DIR (in DIR), memory (lost at the end), postgresql://… "
    "(in a database) or cassandra://… (in a cluster).",
    parse_engine,
    "sqlite",
    resolve=_engine_from,
)
ENCRYPTION_KEY_FILE = _file(
    "encryption-key-file",
    "File with the key that encrypts the data directory: 32 bytes in base64 or in hexadecimal digits.",
    "the data is not encrypted",
)
ACCOUNT = Option(
    f"account {ACCOUNT_FORM}",
    "Account and its keys, in place of the development account; none: serve only stored accounts. Its rules may "
    "follow, each after a comma: shared-key=off, allow=RANGE.",
    parse_account,
    "devstoreaccount1 with its well-known key",
    repeatable=True,
    once=("account", lambda account: account.name),
)
DOMAIN = Option(
    "domain DOMAIN",
    "Domain below which accounts have host names: ACCOUNT.table.DOMAIN.",
    of_form("a domain's name, such as example.com", _is_domain, normalized_host),
    "localhost, which is always included",
    repeatable=True,
)
CUSTOM_DOMAIN = Option(
    "custom-domain HOST=ACCOUNT",
    "Host name of an account; with ACCOUNT-secondary, of its secondary.",
    parse_custom_domain,
    repeatable=True,
    once=("host", lambda custom_domain: custom_domain[0]),
)
TLS = Option(
    f"tls {SELF_SIGNED}",
    "Serve TLS with a development certificate, created at the first start and then kept.",
    parse_tls,
    "plain HTTP",
)
TLS_NAME = Option(
    "tls-name NAME",
    "Additional host name or address for the self-signed certificate.",
    of_form("a host name or an IP address", is_certifiable),
    "localhost, its addresses, the host and the domains",
    repeatable=True,
)
TLS_CERTIFICATE = _file(
    "tls-certificate", "Serve TLS with this certificate chain (PEM); read again when it changes."
)
TLS_KEY = _file(
    "tls-key",
    "Private key of the certificate (PEM), if it is not in the same file.",
    "the certificate's file",
)
HTTPS_ONLY = _switch(
    "https-only", "Refuse requests over plain HTTP, as supportsHttpsTrafficOnly does."
)
TRUSTED_PROXY = Option(
    "trusted-proxy ADDRESS",
    "Address or network of a proxy whose X-Forwarded-Proto and X-Forwarded-For headers are trusted.",
    of_form("an IP address or a network such as 10.0.0.0/8", bool, _network),
    repeatable=True,
)
ANY_VERSION = _word(
    "any-version",
    "Unknown versions of the service (x-ms-version, sv) that are served as the last known version before them: those "
    "later than all known ones (later), any (true), or none (false).",
    {each.value: each for each in UnknownVersions},
    UnknownVersions.LATER.value,
)
WORKERS = _number(
    "workers N",
    "Number of worker processes.",
    number(1, 64),
    "one for each processor, at most 4; one with the memory engine",
)
TOKEN_ISSUER = Option(
    "token-issuer ISSUER[,KEYS]",
    "Issuer whose bearer tokens are accepted; KEYS is the URL or file of its keys (JWKS), by default as its OpenID "
    "configuration says.",
    parse_issuer,
    "only the server itself",
    repeatable=True,
    once=("issuer", lambda issuer: issuer.name),
    resolve=_issuer_from,
)
TOKEN_AUDIENCE = Option(
    "token-audience AUDIENCE",
    "Additional audience that bearer tokens may name.",
    parse_text,
    "the audiences of Azure Storage",
    repeatable=True,
)
TOKEN_TENANT = Option(
    "token-tenant GUID",
    "Tenant that the challenge for clients without a token names.",
    of_form("a GUID", _GUID.fullmatch, str.lower),
    DEVELOPMENT_TENANT,
)
TOKEN_AUTHORITY = Option(
    "token-authority URL",
    "Authority that the challenge for clients without a token names.",
    of_form("https:// and a host, without a path", _is_authority),
    ENTRA_ID,
)
TABLE_DELETION_SECONDS = _number(
    "table-deletion-seconds N",
    "Seconds for which a deleted table's name stays reserved (409 TableBeingDeleted); on Azure 40 or more.",
    number(0, 24 * 60 * 60),
    "0",
)
_LIMITS = AdmissionLimits()
MAX_CONNECTIONS = _number(
    "max-connections N",
    "Most connections at a time. One more closes the connection that is idle for longest; if none is idle, it is "
    "answered 503 ServerBusy.",
    number(1, LIMIT_MAX),
    str(_LIMITS.connections_max),
)
MAX_REQUESTS = _number(
    "max-requests N",
    "Most requests under way at a time; one more is answered 503 ServerBusy.",
    number(1, LIMIT_MAX),
    str(_LIMITS.requests_max),
)
MAX_BUFFERS = _number(
    "max-buffers MIB",
    "Most memory for requests that arrive slowly and answers that are read slowly, in MiB; beyond it, requests are "
    "answered 503 ServerBusy.",
    number(1, LIMIT_MAX),
    str(_LIMITS.buffered_mebibytes_max),
)
TARGETS = Option(
    "targets azure|ACCOUNT,PARTITION",
    "Entities a second of an account and of a partition; requests beyond them are answered 503 ServerBusy. azure: "
    "20000,2000.",
    parse_targets,
)
LOG_LEVEL = Option(
    "log-level LEVEL",
    f"Least severe messages that are logged, on standard error: {', '.join(LOG_LEVELS)}.",
    one_of(LOG_LEVELS),
    "info",
)
LOG_FORMAT = _word(
    "log-format",
    "Form of the messages on standard error, and of an access log in a file.",
    LOG_FORMATS,
    TEXT,
)
ACCESS_LOG = Option(
    "access-log text|json|FILE",
    "Log one line for each request: as text or as JSON to standard output, or to a file that SIGHUP reopens.",
    parse_text,
    resolve=_access_log_from,
)
ADMIN = Option(
    "admin [HOST:]PORT",
    "Second address, for the operator: health, metrics and version; on 127.0.0.1 unless HOST is given.",
    parse_admin,
    types=(int, str),
    in_file="a number or a string",
)
PRINT = _word(
    "print",
    "Form of the message that the server is ready; json is one line with its addresses and ports.",
    READY_FORMS,
    READY_TEXT,
)
CONTROL = _number(
    "control PORT",
    "For tests: serve an API that erases and restores the data, injects faults and steers the clock, on this port of "
    "the loopback address; 0 takes a free port. Needs --engine memory.",
    parse_control_port,
)
REALISM = _switch(
    "realism",
    "For tests, with --control: act as Azure does where one machine differs. Names of deleted tables are taken for "
    "40 s, pages end with partition ranges, the secondary lags behind.",
)
EXPLORER = _word(
    "explorer",
    "Serve the explorer, a page in the browser for the tables, on the admin address; without --admin on a free port of "
    "127.0.0.1. With read-only it refuses every change.",
    {"true": EXPLORER_ON, "false": None, EXPLORER_READ_ONLY: EXPLORER_READ_ONLY},
    "false",
)
CREATE_TABLES = Option(
    "create-tables NAMES",
    "Tables to create at the start, such as Orders,Stock, in each account of --account, or else in devstoreaccount1.",
    parse_tables,
)
KEEP_CHANGES = Option(
    "keep-changes AGE,SIZE|none",
    "Keep a record of every change for so long, or up to this size, such as 7d, 20GiB or 7d,20GiB; none ends it.",
    lambda text: None if text == "none" else parse_retention(text, ", or none"),
    "as stored with the data, at first none",
)
YES_TRIM = Option(
    "yes-trim AGE,SIZE",
    "Take this value of --keep-changes though it is shorter than the stored one, and removes changes at once.",
    parse_retention,
    "keep the stored one",
)
ARCHIVE = Option(
    "archive URL|none",
    "Archive every change each second, to go back to any moment: s3://BUCKET/PATH, az://CONTAINER/PATH, "
    "gs://BUCKET/PATH, or a directory on another disk. none ends it for good.",
    parse_text,
    "no archive, and a warning if the data had one",
    resolve=lambda text, directory: None if text == "none" else archive_from(text, directory),
)
ARCHIVE_INTERVAL = _number(
    "archive-interval SECONDS",
    "Seconds between two writes to the archive. A longer one costs fewer requests and may lose more.",
    number(1, 3600),
    "1",
)
ARCHIVE_KEEP = Option(
    "archive-keep AGE|forever",
    "How far one can go back, such as 30d, at least 1h. What is older is deleted from the archive.",
    # A restore lists what it needs, and reads the last of it much later: it must not be deleted meanwhile.
    lambda text: parse_age(text, least=1),
    "30d",
)
ARCHIVE_KEY_FILE = Option(
    "archive-key-file FILE",
    "File with the key that encrypts the archive. Further ones only decrypt.",
    parse_text,
    "the key of the data directory, if it is encrypted",
    resolve=path_from,
    repeatable=True,
)
ARCHIVE_CHECK = Option(
    "archive-check AGE|never",
    "How often the server restores the archive into a scratch directory and compares it, such as 24h.",
    lambda text: parse_age(text, NEVER),
    NEVER,
)
FROM_ARCHIVE = _switch(
    "from-archive",
    "Restore the data directory from the archive first, if it is empty. The server waits until the archive answers.",
)
REMOTE_INDEXES = _switch(
    "remote-indexes",
    "Let clients with the account's key make the first index, which changes the data directory to format 3 for good, "
    "and make indexes and set expiry over plain HTTP from other machines.",
)
ACL_BY_ROLES = _switch(
    "acl-by-roles",
    "While the shared key of an account is off, let tokens with the role Storage Account Contributor read and set the "
    "stored access policies of its tables, which Azure allows no token.",
)
QUERY_EXTENSIONS = _switch(
    "query-extensions",
    "Answer queries that the service does not know: filters with startswith, endswith, contains and substringof; "
    "$count; and the last keys first, by $orderby.",
)
ENTITY_SIZE = Option(
    "entity-size 1MiB|2MiB",
    "Largest entity that is written. With 1MiB, as on Azure, one String or Binary has up to 64 KiB; with 2MiB, as in "
    "Cosmos DB, it may fill the entity.",
    of_form(_either(ENTITY_SIZES), lambda text: text in ENTITY_SIZES, ENTITY_SIZES.__getitem__),
    "1MiB",
)
AUTO_INDEX = _switch(
    "auto-index",
    "Make indexes for filters that keep scanning a table, and drop those that are not used. The first one changes the "
    "data directory to format 3 for good.",
)
EXPLORER_TOKEN_FILE = _file(
    "explorer-token-file",
    "File with the token in the address of the explorer, so that bookmarks stay valid; it is made if it is missing.",
    "a new token at each start",
)
METRICS_TABLES = _switch(
    "metrics-tables", "Let metrics count by account and table too, with their names."
)
INSIGHT = _word(
    "insight",
    "How the admin address names partitions: by their keys, by hashes of their keys, or not at all.",
    INSIGHT_FORMS,
    "keys if --admin is on a loopback address, else hashed",
)

CHECK_OPTIONS = (
    replace(DATA, help="Directory that holds the data; it is only read."),
    replace(
        ENGINE,
        help="Storage engine: sqlite (in the data directory), sqlite:DIR (in DIR), postgresql://… (in a database) or "
        "cassandra://… (in a cluster).",
    ),
    ENCRYPTION_KEY_FILE,
)
"""The options of a command that only reads the data."""
CHANGE_OPTIONS = (replace(DATA, help="Directory that holds the data."), *CHECK_OPTIONS[1:])
"""The options of a command that changes existing data."""
DATA_OPTIONS = (DATA, *CHECK_OPTIONS[1:])
"""The options of a command that stores something with the data and creates the directory if necessary."""
SERVER_GROUPS: Final = {
    "Address": (HOST, PORT, DOMAIN, CUSTOM_DOMAIN),
    "Data": (
        *(DATA, ENGINE, ENCRYPTION_KEY_FILE, KEEP_CHANGES, YES_TRIM),
        *(REMOTE_INDEXES, AUTO_INDEX),
    ),
    "Archive": (
        *(ARCHIVE, ARCHIVE_INTERVAL, ARCHIVE_KEEP, ARCHIVE_KEY_FILE, ARCHIVE_CHECK, FROM_ARCHIVE),
    ),
    "Accounts and tokens": (
        *(ACCOUNT, CREATE_TABLES, TOKEN_ISSUER, TOKEN_AUDIENCE, TOKEN_TENANT, TOKEN_AUTHORITY),
        ACL_BY_ROLES,
    ),
    "TLS and proxies": (*(TLS, TLS_NAME, TLS_CERTIFICATE, TLS_KEY, HTTPS_ONLY, TRUSTED_PROXY),),
    "Processes and limits": (
        *(WORKERS, MAX_CONNECTIONS, MAX_REQUESTS, MAX_BUFFERS, TARGETS),
        *(ANY_VERSION, QUERY_EXTENSIONS, ENTITY_SIZE),
    ),
    "Operation": (
        *(ADMIN, METRICS_TABLES, INSIGHT, EXPLORER, EXPLORER_TOKEN_FILE),
        *(LOG_LEVEL, LOG_FORMAT, ACCESS_LOG, PRINT),
    ),
    "Tests": (CONTROL, REALISM, TABLE_DELETION_SECONDS),
}
"""The options of `tablestone serve`, as its help and the page of options show them."""
SERVER_OPTIONS = tuple(chain.from_iterable(SERVER_GROUPS.values()))
"""All of them; their names are the keys of the file."""

Command = Callable[..., Any]
archive_keys_option = click.option(
    "--archive-key-file",
    "archive_keys",
    metavar="FILE",
    multiple=True,
    help="File with a key of the archive, if it is encrypted. Can be repeated.",
)
quiet_option = click.option("--quiet", is_flag=True, help="No progress on standard error.")


def with_options(options: Sequence[Option]) -> Callable[[Command], Command]:
    """The options, and `--config`, on a command; it receives them as keyword arguments."""

    def decorate(command: Command) -> Command:
        command = click.option(
            CONFIG_FLAG,
            metavar="FILE",
            help=f"TOML file with any of these options.  [env: {CONFIG_VARIABLE}]",
        )(command)
        for option in reversed(options):
            # After an option that may stand alone, a word that begins with a hyphen is the next option.
            alone: dict[str, Any] = (
                {} if option.bare is None else {"is_flag": False, "flag_value": option.bare}
            )
            command = click.option(
                option.flag,
                metavar=option.shown_metavar,
                multiple=option.repeatable,
                help=f"{option.help}{' Can be repeated.' * option.repeatable}  "
                f"[env: {option.variable}; default: {option.default}]",
                **alone,
            )(command)
        return command

    return decorate


def key_file_option(what: str) -> Callable[[Command], Command]:
    """The key file of a directory that is not the one of `--data`; the command receives `encryption_key_file`."""
    option = ENCRYPTION_KEY_FILE
    return click.option(
        option.flag,
        metavar=option.metavar,
        help=f"File with the key of {what}, if it is encrypted.  [env: {option.variable}]",
    )


def storage_flags(given: Mapping[str, Any]) -> str:
    """The options that name the storage, as they were typed, to paste after another command."""
    flags = {option.parameter: option.flag for option in (DATA, ENGINE, ENCRYPTION_KEY_FILE)}
    typed = ((flag, given.get(name)) for name, flag in {**flags, "config": CONFIG_FLAG}.items())
    return "".join(f" {flag} {shlex.quote(value)}" for flag, value in typed if value)
