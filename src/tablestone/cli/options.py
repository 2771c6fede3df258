"""The options of `tablestone`: one table, read by the command line, the environment, the file and the documentation.

Knows each option's name, help, default and how its text becomes a value. Does not know where a text came from.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from tablestone.auth.accounts import KEYS_MAX, decode_key, is_account_name
from tablestone.server.configuration import (
    DEVELOPMENT_TENANT,
    ENTRA_ID,
    LOCAL_DOMAIN,
    AccountKeys,
    TrustedIssuer,
)
from tablestone.server.tls import is_certifiable
from tablestone.server.token_addresses import is_safe_address
from tablestone.wire.host import normalized_host

LOG_LEVELS = ("critical", "error", "warning", "info", "debug")
PORT_MAX = 65535
DELETION_SECONDS_MAX = 24 * 60 * 60
WORKERS_MAX = 64
VARIABLE_PREFIX = "TABLESTONE_"


class BrokenOption(Exception):
    """An option that cannot be used; the text is one sentence for the person who gave it."""


@dataclass(frozen=True, slots=True)
class Option:
    """One thing that can be configured; `name` is also its key in the file."""

    name: str
    metavar: str
    help: str
    default: str
    parse: Callable[[str], Any]
    repeatable: bool = False
    once: tuple[str, Callable[[Any], str]] | None = None
    """What two values must not both name, where the second would undo the first: the word for it, and how it is got."""

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        return f"{VARIABLE_PREFIX}{self.name.replace('-', '_').upper()}"


def _parse_text(text: str) -> str:
    if not text or "\0" in text:
        raise BrokenOption("must not be empty")
    return text


def _parse_port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > PORT_MAX:
        raise BrokenOption(f"must be a number from 0 to {PORT_MAX}, not {text!r}")
    return int(text)


def _parse_deletion_seconds(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > DELETION_SECONDS_MAX:
        raise BrokenOption(f"must be a number from 0 to {DELETION_SECONDS_MAX}, not {text!r}")
    return int(text)


def _parse_workers(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= WORKERS_MAX:
        raise BrokenOption(f"must be a number from 1 to {WORKERS_MAX}, not {text!r}")
    return int(text)


def _parse_log_level(text: str) -> str:
    if text.lower() not in LOG_LEVELS:
        raise BrokenOption(f"must be one of {', '.join(LOG_LEVELS)}, not {text!r}")
    return text.lower()


def _parse_engine(text: str) -> str:
    """An engine's URL. `sqlite:` before nothing (before an unset variable, say) is not taken for the default."""
    scheme, colon, place = text.partition(":")
    if (scheme == "sqlite" and (place or not colon)) or (scheme == "memory" and not place):
        return f"{scheme}:{place}"
    raise BrokenOption(f"must be sqlite, sqlite:DIR or memory, not {text!r}")


def parse_account(text: str) -> AccountKeys:
    """`NAME:KEY1` or `NAME:KEY1:KEY2`; no message ever repeats a key."""
    if text == NO_ACCOUNT:
        raise BrokenOption(f"names {NO_ACCOUNT} and accounts: {NO_ACCOUNT} stands alone")
    name, *keys = text.split(":")
    if not keys and not is_account_name(name):
        raise BrokenOption(f"must be {ACCOUNT_FORM}")  # it may be a key: nothing of it is shown
    return checked_account(name, keys)


SHOWN_NAME_MAX = 30
"""Characters of what stands where a name should: what is longer may be a key, and is not repeated."""
NO_ACCOUNT = "none"
"""Instead of an account: none but those that are stored."""
ACCOUNT_FORM = "NAME:KEY1[:KEY2]"


def checked_account(name: str, keys: list[str], form: str = ACCOUNT_FORM) -> AccountKeys:
    """The account, or `BrokenOption`; `form` is how an account is written where this one stood."""
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


def _parse_domain(text: str) -> str:
    domain = normalized_host(text)
    if _DOMAIN.fullmatch(domain) is None or _ADDRESS.fullmatch(domain) is not None:
        raise BrokenOption(f"must be a domain's name, such as example.com, not {text!r}")
    return domain


def _parse_custom_domain(text: str) -> tuple[str, str]:
    host, _, account = text.partition("=")
    if _DOMAIN.fullmatch(host) is None or not is_account_name(account.removesuffix("-secondary")):
        raise BrokenOption(
            f"must be a host's name and an account, such as tables.example.com=ACCOUNT, not {text!r}"
        )
    host = normalized_host(host)
    if host == LOCAL_DOMAIN or _ADDRESS.fullmatch(host) is not None:
        # All path-style addresses of this machine would be that account's, those that the server prints too.
        raise BrokenOption(f"must be a host with a name of its own, not {host}")
    return host, account


_DOMAIN = re.compile(r"\w[\w-]*(\.\w[\w-]*)*\.?", re.ASCII)
_ADDRESS = re.compile(r"[\d.]+", re.ASCII)
"""An IP address, as hosts of requests are told apart; one of version 6 is no name in any case."""


def _parse_tls(text: str) -> str:
    if text != SELF_SIGNED:
        raise BrokenOption(
            f"must be {SELF_SIGNED}, not {text!r}; a certificate of your own is given with --tls-certificate"
        )
    return text


def _parse_truth(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise BrokenOption(f"must be true or false, not {text!r}")
    return text.lower() == "true"


def _parse_certified_name(text: str) -> str:
    if not is_certifiable(text):
        raise BrokenOption(f"must be a host name or an IP address, not {text!r}")
    return text


def _parse_network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text) if "/" in text else ipaddress.ip_address(text))
    except ValueError:
        raise BrokenOption(
            f"must be an IP address or a network such as 10.0.0.0/8, not {text!r}"
        ) from None


def _parse_issuer(text: str) -> TrustedIssuer:
    """`ISSUER` or `ISSUER,KEYS`; the tenant is the GUID in the issuer's name, as Entra ID writes it."""
    name, _, keys = text.partition(",")
    parts = urlsplit(name)
    if not parts.scheme or not (parts.netloc or keys):
        raise BrokenOption(f"must be ISSUER or ISSUER,KEYS, and the issuer a URL, not {text!r}")
    for address in (keys,) if keys else (name,):
        if "://" in address and not is_safe_address(address):
            raise BrokenOption(f"has keys that others could change under way, not https: {address}")
    tenant = _GUID.search(name)
    return TrustedIssuer(name, keys or None, None if tenant is None else tenant[0].lower())


def _parse_tenant(text: str) -> str:
    if not _GUID.fullmatch(text):
        raise BrokenOption(f"must be a GUID, not {text!r}")
    return text.lower()


def _parse_authority(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme != "https" or not parts.hostname or text != f"https://{parts.netloc}":
        raise BrokenOption(f"must be https:// and a host, without a path, not {text!r}")
    return text


_GUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
SELF_SIGNED = "self-signed"

HOST = Option("host", "ADDRESS", "Address to listen on.", "127.0.0.1", _parse_text)
PORT = Option("port", "PORT", "Port to listen on; 0 takes a free one.", "10002", _parse_port)
DATA = Option(
    "data",
    "DIR",
    "Directory that keeps the data; made if it is not there.",
    "a place of the user's own",
    _parse_text,
)
ENGINE = Option(
    "engine",
    "URL",
    "Storage engine: sqlite (in the data directory), sqlite:DIR (in that one) or memory (keeps nothing).",
    "sqlite",
    _parse_engine,
)
ACCOUNT = Option(
    "account",
    ACCOUNT_FORM,
    "Account and its keys, instead of the development account; none: stored accounts alone.",
    "devstoreaccount1 with its well-known key",
    parse_account,
    repeatable=True,
    once=("account", lambda account: account.name),
)
DOMAIN = Option(
    "domain",
    "DOMAIN",
    "Accounts are at ACCOUNT.table.DOMAIN too.",
    "localhost, which always is one",
    _parse_domain,
    repeatable=True,
)
CUSTOM_DOMAIN = Option(
    "custom-domain",
    "HOST=ACCOUNT",
    "Host that stands for an account, or with ACCOUNT-secondary for its secondary.",
    "none",
    _parse_custom_domain,
    repeatable=True,
    once=("host", lambda custom_domain: custom_domain[0]),
)
TLS = Option(
    "tls",
    SELF_SIGNED,
    "Speak TLS with a certificate for development, made at the first start and kept.",
    "plain HTTP",
    _parse_tls,
)
TLS_NAME = Option(
    "tls-name",
    "NAME",
    "Another host name or address for the self-signed certificate.",
    "localhost, its addresses, the host and the domains",
    _parse_certified_name,
    repeatable=True,
)
TLS_CERTIFICATE = Option(
    "tls-certificate",
    "FILE",
    "Speak TLS with this certificate chain (PEM); read again when it changes.",
    "none",
    _parse_text,
)
TLS_KEY = Option(
    "tls-key",
    "FILE",
    "Private key of the certificate (PEM), if it is not in the same file.",
    "the certificate's file",
    _parse_text,
)
HTTPS_ONLY = Option(
    "https-only",
    "true|false",
    "Refuse requests that come over http, as supportsHttpsTrafficOnly does.",
    "false",
    _parse_truth,
)
TRUSTED_PROXY = Option(
    "trusted-proxy",
    "ADDRESS",
    "Address or network of a proxy whose X-Forwarded-Proto and X-Forwarded-For are believed.",
    "none",
    _parse_network,
    repeatable=True,
)
WORKERS = Option(
    "workers",
    "N",
    "Processes that serve.",
    "one for each processor, at most 4; one where the engine is memory",
    _parse_workers,
)
TOKEN_ISSUER = Option(
    "token-issuer",
    "ISSUER[,KEYS]",
    "Issuer whose bearer tokens are believed, and the URL or file of its keys (JWKS), if not where its OpenID "
    "configuration says.",
    "none but the server's own",
    _parse_issuer,
    repeatable=True,
    once=("issuer", lambda issuer: issuer.name),
)
TOKEN_AUDIENCE = Option(
    "token-audience",
    "AUDIENCE",
    "Another audience that bearer tokens may be for.",
    "those of Azure Storage",
    _parse_text,
    repeatable=True,
)
TOKEN_TENANT = Option(
    "token-tenant",
    "GUID",
    "Tenant that clients without a token are sent to.",
    DEVELOPMENT_TENANT,
    _parse_tenant,
)
TOKEN_AUTHORITY = Option(
    "token-authority",
    "URL",
    "Authority that clients without a token are sent to.",
    ENTRA_ID,
    _parse_authority,
)
TABLE_DELETION_SECONDS = Option(
    "table-deletion-seconds",
    "N",
    "For so long the name of a deleted table is answered 409 TableBeingDeleted; Azure takes 40 and more.",
    "0",
    _parse_deletion_seconds,
)
LOG_LEVEL = Option(
    "log-level",
    "LEVEL",
    f"What is logged on standard error: {', '.join(LOG_LEVELS)}.",
    "warning",
    _parse_log_level,
)

CHECK_OPTIONS = (
    replace(DATA, help="Directory that keeps the data; it is only read."),
    replace(
        ENGINE, help="Storage engine: sqlite (in the data directory) or sqlite:DIR (in that one)."
    ),
)
"""What a command needs that only reads the data."""
CHANGE_OPTIONS = (replace(DATA, help="Directory that keeps the data."), CHECK_OPTIONS[1])
"""What a command needs that changes what is there."""
DATA_OPTIONS = (DATA, CHECK_OPTIONS[1])
"""What a command needs that keeps something with the data, and makes the directory for it."""
SERVER_OPTIONS = (
    *(HOST, PORT, DATA, ENGINE, ACCOUNT, DOMAIN, CUSTOM_DOMAIN),
    *(TLS, TLS_NAME, TLS_CERTIFICATE, TLS_KEY, HTTPS_ONLY, TRUSTED_PROXY),
    *(TOKEN_ISSUER, TOKEN_AUDIENCE, TOKEN_TENANT, TOKEN_AUTHORITY),
    *(TABLE_DELETION_SECONDS, WORKERS, LOG_LEVEL),
)
"""What `tablestone serve` needs; also all keys of the file."""
