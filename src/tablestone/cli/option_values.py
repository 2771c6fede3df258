"""The step from the text of an option to its value: one function for each kind of option.

Each raises `BrokenOption` with the end of a sentence; the caller knows the source and puts it before.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from contextlib import suppress
from urllib.parse import urlsplit

from tablestone.auth.account import KEYS_MAX, decode_key, is_account_name
from tablestone.configuration import (
    EXPLORER_FORMS,
    EXPLORER_READ_ONLY,
    INSIGHT_FORMS,
    LOCAL_DOMAIN,
    READY_FORMS,
    AccountKeys,
    AdminAddress,
    ThroughputTargets,
    TrustedIssuer,
    is_safe_address,
)
from tablestone.engines.capabilities import StoredIn
from tablestone.engines.engine_url import EngineUrl
from tablestone.engines.registry import NoSuchEngine, forms, kind_of
from tablestone.limits import ACCOUNT_RATE_TARGET, PARTITION_RATE_TARGET
from tablestone.server.tls_certificate import is_certifiable
from tablestone.telemetry.logs import LOG_FORMATS
from tablestone.wire.host import normalized_host
from tablestone.wire.versions import UnknownVersions

LOG_LEVELS = ("critical", "error", "warning", "info", "debug")
PORT_MAX = 65535
ADMIN_HOST = "127.0.0.1"
"""The host of an admin address that names none: only this machine can connect."""
DELETION_SECONDS_MAX = 24 * 60 * 60
WORKERS_MAX = 64
LIMIT_MAX = 1_000_000
TARGETS_OF_AZURE = "azure"


class BrokenOption(Exception):
    """An option with an unusable value; the text is one sentence for the person who gave the option."""


def parse_text(text: str) -> str:
    if not text or "\0" in text:
        raise BrokenOption("must not be empty")
    return text


def parse_port(text: str) -> int:
    if not _is_port(text):
        raise BrokenOption(f"must be a number from 0 to {PORT_MAX}, not {text!r}")
    return int(text)


def parse_admin(text: str) -> AdminAddress:
    """`PORT` or `HOST:PORT`; an IPv6 address stands in brackets."""
    host, colon, port = text.rpartition(":")
    is_bare = host.startswith("[") == host.endswith("]") == (":" in host)
    if (colon and not host.strip("[]")) or not is_bare or not _is_port(port):
        raise BrokenOption(
            f"must be PORT or HOST:PORT, such as 10003 or 127.0.0.1:10003, not {text!r}"
        )
    return AdminAddress(host.strip("[]") or ADMIN_HOST, int(port))


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) <= PORT_MAX


def parse_control_port(text: str) -> int:
    if ":" in text:
        raise BrokenOption(
            f"must be a port of the loopback address, without a host, not {text!r}: other machines must not reach it"
        )
    return parse_port(text)


def parse_ready_form(text: str) -> str:
    if text.lower() not in READY_FORMS:
        raise BrokenOption(f"must be {' or '.join(READY_FORMS)}, not {text!r}")
    return text.lower()


def parse_insight(text: str) -> str:
    if text.lower() not in INSIGHT_FORMS:
        raise BrokenOption(
            f"must be {', '.join(INSIGHT_FORMS[:-1])} or {INSIGHT_FORMS[-1]}, not {text!r}"
        )
    return text.lower()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on `host`, which may be a name."""
    try:
        address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]
    except OSError:
        return False
    return address == "::1" or str(address).startswith("127.")


def parse_deletion_seconds(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > DELETION_SECONDS_MAX:
        raise BrokenOption(f"must be a number from 0 to {DELETION_SECONDS_MAX}, not {text!r}")
    return int(text)


def parse_workers(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= WORKERS_MAX:
        raise BrokenOption(f"must be a number from 1 to {WORKERS_MAX}, not {text!r}")
    return int(text)


def parse_limit(text: str) -> int:
    return _number(text, 1, LIMIT_MAX)


def _number(text: str, least: int, most: int) -> int:
    if not text.isascii() or not text.isdigit() or not least <= int(text[:20]) <= most:
        raise BrokenOption(f"must be a number from {least} to {most}, not {text!r}")
    return int(text)


def parse_targets(text: str) -> ThroughputTargets:
    """`azure`, or the entities a second of an account and of a partition; 0 is no target."""
    if text.lower() == TARGETS_OF_AZURE:
        return ThroughputTargets(ACCOUNT_RATE_TARGET, PARTITION_RATE_TARGET)
    account, _, partition = text.partition(",")
    try:
        return ThroughputTargets(_number(account, 0, LIMIT_MAX), _number(partition, 0, LIMIT_MAX))
    except BrokenOption:
        form = f"{TARGETS_OF_AZURE} or two numbers from 0 to {LIMIT_MAX}, such as 20000,2000"
        raise BrokenOption(f"must be {form}, not {text!r}") from None


def parse_log_level(text: str) -> str:
    if text.lower() not in LOG_LEVELS:
        raise BrokenOption(f"must be one of {', '.join(LOG_LEVELS)}, not {text!r}")
    return text.lower()


def parse_log_format(text: str) -> str:
    if text.lower() not in LOG_FORMATS:
        raise BrokenOption(f"must be {' or '.join(LOG_FORMATS)}, not {text!r}")
    return text.lower()


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
    *first, last = forms()
    raise BrokenOption(f"must be {', '.join(first)} or {last}, not {url.shown!r}")


def parse_account(text: str) -> AccountKeys:
    """`NAME:KEY1` or `NAME:KEY1:KEY2`. No message repeats a key."""
    if text == NO_ACCOUNT:
        raise BrokenOption(f"names {NO_ACCOUNT} and accounts: {NO_ACCOUNT} must be alone")
    name, *keys = text.split(":")
    if not keys and not is_account_name(name):
        raise BrokenOption(f"must be {ACCOUNT_FORM}")  # the text may be a key, so it is not shown
    return checked_account(name, keys)


SHOWN_NAME_MAX = 30
"""The number of characters up to which a wrong account name is shown; a longer text may be a key."""
NO_ACCOUNT = "none"
"""The value of `--account` for no configured account: only stored accounts exist."""
ACCOUNT_FORM = "NAME:KEY1[:KEY2]"


def checked_account(name: str, keys: list[str], form: str = ACCOUNT_FORM) -> AccountKeys:
    """The account, or `BrokenOption`; `form` is the way to write an account in the source of this one."""
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


def parse_domain(text: str) -> str:
    domain = normalized_host(text)
    if _DOMAIN.fullmatch(domain) is None or _ADDRESS.fullmatch(domain) is not None:
        raise BrokenOption(f"must be a domain's name, such as example.com, not {text!r}")
    return domain


def parse_custom_domain(text: str) -> tuple[str, str]:
    host, _, account = text.partition("=")
    if _DOMAIN.fullmatch(host) is None or not is_account_name(account.removesuffix("-secondary")):
        raise BrokenOption(
            f"must be a host's name and an account, such as tables.example.com=ACCOUNT, not {text!r}"
        )
    host = normalized_host(host)
    if host == LOCAL_DOMAIN or _ADDRESS.fullmatch(host) is not None:
        # All path-style URLs of this machine, also those that the server prints, would lead to that account.
        raise BrokenOption(f"must be a host with a name of its own, not {host}")
    return host, account


_DOMAIN = re.compile(r"\w[\w-]*(\.\w[\w-]*)*\.?", re.ASCII)
_ADDRESS = re.compile(r"[\d.]+", re.ASCII)
"""An IPv4 address, by the same rule as for the hosts of requests; an IPv6 address does not match `_DOMAIN`."""


def parse_tls(text: str) -> str:
    if text != SELF_SIGNED:
        raise BrokenOption(
            f"must be {SELF_SIGNED}, not {text!r}; a certificate of your own is given with --tls-certificate"
        )
    return text


def parse_truth(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise BrokenOption(f"must be true or false, not {text!r}")
    return text.lower() == "true"


def parse_explorer(text: str) -> str | None:
    """One of `EXPLORER_FORMS`; None for false."""
    if text.lower() not in {"false", *EXPLORER_FORMS}:
        raise BrokenOption(f"must be true, false or {EXPLORER_READ_ONLY}, not {text!r}")
    return text.lower() if text.lower() != "false" else None


def parse_any_version(text: str) -> UnknownVersions:
    try:
        return UnknownVersions(text.lower())
    except ValueError:
        raise BrokenOption(f"must be later, true or false, not {text!r}") from None


def parse_certified_name(text: str) -> str:
    if not is_certifiable(text):
        raise BrokenOption(f"must be a host name or an IP address, not {text!r}")
    return text


def parse_network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text) if "/" in text else ipaddress.ip_address(text))
    except ValueError:
        raise BrokenOption(
            f"must be an IP address or a network such as 10.0.0.0/8, not {text!r}"
        ) from None


def parse_issuer(text: str) -> TrustedIssuer:
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


def parse_tenant(text: str) -> str:
    if not _GUID.fullmatch(text):
        raise BrokenOption(f"must be a GUID, not {text!r}")
    return text.lower()


def parse_authority(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme != "https" or not parts.hostname or text != f"https://{parts.netloc}":
        raise BrokenOption(f"must be https:// and a host, without a path, not {text!r}")
    return text


_GUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
SELF_SIGNED = "self-signed"
