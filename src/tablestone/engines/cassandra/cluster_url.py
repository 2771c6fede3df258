"""Parses the URL of a cluster: `cassandra://[USER@]HOST[:PORT][,HOST…]/KEYSPACE[?OPTION=VALUE&…]`.

A password is never part of it, because logs and other users of the machine show a URL: use a file or the environment.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from tablestone.engines.contract import EngineRefused
from tablestone.engines.kind import EngineUrl

SCHEME: Final = "cassandra"
FORM: Final = "cassandra://HOST[,HOST]/KEYSPACE?datacenter=DC"
DEFAULT_PORT: Final = 9042
NOT_REPEATED: Final = (
    f"The engine's URL cannot be used: its form is {FORM}. A password has no place in the engine's URL, which others "
    "can see: write it into a file and say password-file=FILE, or set CASSANDRA_PASSWORD."
)
"""The refusal of a URL that may hold a password."""
NO_PORT: Final = (
    f"The engine's URL cannot be used: its form is {FORM}, and a port is a number from 1 to 65535. A password has no "
    "place in the engine's URL."
)
"""The refusal of such a URL without a user: the port may be wrong."""

_PASSWORD: Final = re.compile(r"[^:]*:/*(?:[^@]*:.*@|[^/?#]*:(?!\d*(?:[,/?#]|\Z)))", re.DOTALL)
"""A URL that may hold a password: a colon with an `@` after it, or one that no port follows."""
_KEYSPACE = re.compile(r"[a-z][a-z0-9_]{0,47}")
_RESERVED: Final = re.compile(
    "add|allow|alter|and|apply|asc|authorize|batch|begin|by|columnfamily|create|delete|desc|describe|drop|entries|execute|"
    "from|full|grant|if|in|index|infinity|insert|into|is|keyspace|limit|materialized|modify|nan|norecursive|not|null|of|"
    "on|or|order|primary|rename|revoke|schema|select|set|table|to|token|truncate|unlogged|update|use|using|view|where|"
    "with"
)
"""Words that are no names in CQL: org/apache/cassandra/cql3/reserved_keywords.txt of Cassandra 5.0.6."""
COPIES_MAX: Final = 99
_DATACENTER = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_OPTIONS: Final = (
    "datacenter",
    "replication",
    "password-file",
    "tls",
    "ca-file",
    "certificate-file",
    "key-file",
)


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    hosts: tuple[tuple[str, int], ...]
    """Contact points: they know the other nodes."""
    keyspace: str
    datacenter: str | None = None
    """Requests go to it; None: to that of the first node that answers."""
    replication: Mapping[str, int] | int | None = None
    """Copies of each row, by datacenter or in `datacenter`; only for `cluster init`."""
    user: str | None = None
    password_file: str | None = None
    tls: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None


def parse_address(url: str) -> ClusterAddress:
    """`EngineRefused` says what is wrong with the URL, and repeats no password."""
    try:
        return _parsed(url)
    except ValueError as error:
        if _PASSWORD.match(url):
            raise EngineRefused(NOT_REPEATED if "@" in url else NO_PORT) from None
        raise EngineRefused(
            f"The engine {EngineUrl.parse(url).shown!r} cannot be used: {error}."
        ) from None


def _parsed(url: str) -> ClusterAddress:
    """`ValueError` says what is wrong, as the second half of a sentence."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError(f"its form is {FORM}") from None
    if parts.scheme != SCHEME or not parts.netloc:
        raise ValueError(f"its form is {FORM}")
    user, at, hosts = parts.netloc.rpartition("@")
    if ":" in user:
        raise EngineRefused(NOT_REPEATED)
    keyspace = parts.path.removeprefix("/")
    if not _KEYSPACE.fullmatch(keyspace):
        raise ValueError(
            f"{keyspace!r} is not a keyspace name (a to z, 0 to 9, _; a letter first; 48 at most)"
        )
    if _RESERVED.fullmatch(keyspace):
        raise ValueError(f"{keyspace!r} is a reserved word of CQL and not a keyspace name")
    options = _options(parts.query)
    datacenter = options.get("datacenter")
    if datacenter is not None and not _DATACENTER.fullmatch(datacenter):
        raise ValueError(f"{datacenter!r} is not a datacenter name")
    user = unquote(user)
    if any(not part.isprintable() for part in (user, *options.values())):
        raise ValueError("it has a character that cannot be printed")
    if "password-file" in options and not user:
        raise ValueError(f"password-file needs a user: {SCHEME}://USER@HOST/KEYSPACE")
    tls = options.get("tls", "no")
    if tls not in {"yes", "no"}:
        raise ValueError("tls must be yes or no")
    files = [options.get(name) for name in ("ca-file", "certificate-file", "key-file")]
    if tls == "no" and any(files):
        raise ValueError("ca-file, certificate-file and key-file need tls=yes")
    if (files[1] is None) != (files[2] is None):
        raise ValueError("certificate-file and key-file belong together")
    return ClusterAddress(
        tuple(map(_host, hosts.split(","))),
        keyspace,
        datacenter,
        _replication(options.get("replication")),
        user if at else None,
        options.get("password-file"),
        tls == "yes",
        *files,
    )


def _options(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise ValueError("what follows ? is not a list of OPTION=VALUE") from None
    options = dict(pairs)
    if len(options) < len(pairs):
        raise ValueError("an option is given twice")
    for name, value in options.items():
        if name not in _OPTIONS:
            raise ValueError(f"{name!r} is not an option: use {', '.join(_OPTIONS)}")
        if not value:
            raise ValueError(f"{name} has no value")
    return options


def _host(text: str) -> tuple[str, int]:
    name, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        name, port = text, str(DEFAULT_PORT)
    name = name.removeprefix("[").removesuffix("]")
    if not name or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"{text!r} is not HOST or HOST:PORT")
    return name, int(port)


def _replication(text: str | None) -> Mapping[str, int] | int | None:
    """`3`, or `dc1:3,dc2:2`."""
    if text is None:
        return None
    if text.isdecimal():
        return _copies(text)
    found: dict[str, int] = {}
    for part in text.split(","):
        name, colon, copies = part.partition(":")
        if not (colon and _DATACENTER.fullmatch(name) and copies.isdecimal()):
            raise ValueError("replication is a number of copies, or DC:COPIES[,DC:COPIES]")
        if name in found:
            raise ValueError(f"replication names the datacenter {name!r} twice")
        found[name] = _copies(copies)
    return found


def _copies(digits: str) -> int:
    number = int(digits) if len(digits) <= len(str(COPIES_MAX)) else 0
    if not 0 < number <= COPIES_MAX:
        raise ValueError(f"replication is from 1 to {COPIES_MAX} copies in a datacenter")
    return number
