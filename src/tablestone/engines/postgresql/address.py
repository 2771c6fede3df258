"""Parses the engine's URL: `postgresql://[USER@]HOST[:PORT][,HOST…]/DATABASE[?OPTION=VALUE&…]`.

A password is never part of it, because logs and other users of the machine show a URL: use a file or the environment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from tablestone.engines.contract import EngineRefused
from tablestone.engines.kind import EngineUrl
from tablestone.engines.postgresql.schema import DEFAULT_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEME: Final = "postgresql"
FORM: Final = "postgresql://[USER@]HOST[:PORT][,HOST]/DB"
NO_PASSWORD: Final = (
    f"The engine's URL cannot be used: its form is {FORM}. A password has no place in the engine's URL, which others "
    "can see: set PGPASSWORD, or write it into a file and say passfile=FILE (the form of ~/.pgpass)."
)
CONNECTIONS: Final = 8
"""Of a worker, for commits and single reads. As many more are for snapshots."""
CONNECTIONS_MAX: Final = 100
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_LIBPQ: Final = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "passfile")
"""Options with their meaning in libpq, which the driver takes from its own URL."""
_OWN: Final = ("schema", "connections", "fenced")


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    netloc: str
    """The user, the hosts and their ports, as in a URL."""
    database: str
    schema: str = DEFAULT_SCHEMA
    connections: int = CONNECTIONS
    is_fenced: bool = False
    """The operator says that a failover stops the old primary first."""
    libpq: Mapping[str, str] = field(default_factory=dict)

    def dsns(self, *, writes: bool) -> list[str]:
        """For the driver, one for each host: it refuses one that is not the primary."""
        wanted = {"target_session_attrs": "read-write" if writes else "primary"}
        rest = f"{quote(self.database, safe='')}?{urlencode({**self.libpq, **wanted})}"
        user, at, hosts = self.netloc.rpartition("@")
        return [f"{SCHEME}://{user}{at}{host}/{rest}" for host in hosts.split(",")]

    @property
    def shown(self) -> str:
        return f"{SCHEME}://{self.netloc}/{self.database}"

    @property
    def in_words(self) -> str:
        """The beginning of a sentence."""
        return f"The schema {self.schema} of {self.shown}"


def parse_address(url: str) -> DatabaseAddress:
    """`EngineRefused` says what is wrong with the URL, and repeats no password."""
    try:
        return _parsed(url)
    except ValueError as error:
        if re.search(r"//[^/?#]*:[^/?#]*@", url):
            raise EngineRefused(NO_PASSWORD) from None
        raise EngineRefused(
            f"The engine {EngineUrl.parse(url).shown!r} cannot be used: {error}."
        ) from None


def _parsed(url: str) -> DatabaseAddress:
    """`ValueError` says what is wrong, as the second half of a sentence."""
    parts = urlsplit(url)
    user, _at, hosts = parts.netloc.rpartition("@")
    database = unquote(parts.path.removeprefix("/"))
    if parts.scheme != SCHEME or not hosts or not database or parts.fragment:
        raise ValueError(f"its form is {FORM}")
    if "/" in database or not database.isprintable():
        raise ValueError(f"{database!r} is no name of a database")
    if ":" in user:
        raise ValueError("it has a password")
    for host in hosts.split(","):
        if not re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?", host):
            raise ValueError(f"{host!r} is no host with or without a port")
    options: dict[str, str] = {}
    for name, value in parse_qsl(
        parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)
    ):
        if name not in (*_OWN, *_LIBPQ):
            raise ValueError(f"there is no option {name!r}: use {', '.join((*_OWN, *_LIBPQ))}")
        if name in options or not value:
            raise ValueError(f"the option {name} needs one value")
        options[name] = value
    schema = options.get("schema", DEFAULT_SCHEMA)
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise ValueError("a schema has small letters, digits and _, and does not begin with pg_")
    if schema in ("public", "information_schema"):
        raise ValueError(
            f"the schema {schema} is for all programs, and the tables need one of their own"
        )
    connections = options.get("connections", str(CONNECTIONS))
    if not connections.isdecimal() or not 1 <= int(connections) <= CONNECTIONS_MAX:
        raise ValueError(f"connections is a number from 1 to {CONNECTIONS_MAX}")
    if options.get("fenced", "yes") != "yes":
        raise ValueError("fenced is yes, or left out")
    return DatabaseAddress(
        parts.netloc,
        database,
        schema,
        int(connections),
        "fenced" in options,
        {name: value for name, value in options.items() if name in _LIBPQ},
    )
