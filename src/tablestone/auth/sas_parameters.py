"""The parts that all shared access signatures share: reading parameters, the signature, time, address and protocol.

Values are used as they are after the URL is decoded; they are never re-ordered or normalised (auth 2.1). Each check
raises the service's error for its failure. The kinds of signatures call the checks in the order of auth 2.5.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable
from typing import Final, NamedTuple

from tablestone.auth.account_keys import SigningKey
from tablestone.model.errors import ERRORS, StorageError
from tablestone.wire.address import Parameters
from tablestone.wire.instants import parse_instant
from tablestone.wire.messages import RawRequest
from tablestone.wire.versions import ServedVersions

VERSION_OF_CONDITIONS = "2015-04-05"
"""From this version on, signatures can restrict address and protocol (auth 3.1), and account SAS exist (auth 2.1)."""

_NAMES: Final = frozenset(
    (
        *("sv", "ss", "srt", "tn", "sp", "st", "se", "si", "sip", "spr", "ses", "sig"),
        *("spk", "srk", "epk", "erk"),
        *("skoid", "sktid", "skt", "ske", "sks", "skv", "skdutid", "sduoid"),
    )
)
"""All parameters of all kinds of signatures (auth 2.1, 3.1, 3.11)."""

_IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def refused(reason: str, detail: str | None = None) -> StorageError:
    """`AuthenticationFailed`. The reason goes to the server's log only; the client does not get it (auth 5.3).

    `detail` is a part of the request that the reason is about. The reason contains nothing of the request.
    """
    return StorageError("AuthenticationFailed", reason=reason, detail=detail)


def require_single(repeated: frozenset[str]) -> None:
    """Raise if a parameter of the signature occurs twice, since only one of the two can be signed (auth 2.1)."""
    found = repeated & _NAMES
    if found:
        raise refused(f"{', '.join(sorted(found))} came twice")


def require_well_formed(
    parameters: Parameters, signed: Iterable[str], version_min: str, versions: ServedVersions
) -> str:
    """The version of the signature; raises for one that is not served, and for a value with a line feed.

    Versions are compared as texts, so one later than the latest known has the form of the latest.
    """
    for name in signed:
        if "\n" in parameters.get(name, ""):
            raise refused(f"{name} has a line feed")
    version = parameters.get("sv", "")
    if versions.rules_for(version) is None or version < version_min:
        raise refused("sv is no version of such a signature", repr(version))
    return version


def has_signed(parameters: Parameters, string_to_sign: str, key: SigningKey) -> bool:
    """Whether the key gives the signature in `sig`. A blank in `sig` is a plus that was not encoded (auth 2.1)."""
    given = parameters["sig"].replace(" ", "+").encode("utf-8")
    return hmac.compare_digest(key.signature(string_to_sign.encode("utf-8")), given)


def require_signature(
    parameters: Parameters, string_to_sign: str, keys: Iterable[SigningKey]
) -> None:
    """Return if one of the keys gives the signature in `sig`, else raise."""
    for key in keys:
        if has_signed(parameters, string_to_sign, key):
            return
    raise refused("no key of the account gives the signature", repr(string_to_sign))


class Validity(NamedTuple):
    """The time in which a signature is valid, in ticks: from `start` (None: always) until just before `expiry`."""

    start: int | None
    expiry: int

    def require(self, now: int) -> None:
        """Raise if the signature is not valid at this moment; there is no grace period for clocks (auth 2.5)."""
        if self.start is not None and now < self.start:
            raise refused("the signature does not hold yet")
        if now >= self.expiry:
            raise refused("the signature has expired")


def instant_or_none(parameters: Parameters, name: str) -> int | None:
    """A date in ticks, or None if the parameter is missing or empty; the string to sign treats both the same."""
    text = parameters.get(name)
    if not text:
        return None
    try:
        return parse_instant(text)
    except ValueError as error:
        raise refused(f"{name} is no date", repr(text)) from error


class Conditions(NamedTuple):
    """The addresses (`sip`, both ends inclusive) and the protocol (`spr`) that a signature is limited to."""

    addresses: tuple[_IPAddress, _IPAddress] | None
    https_only: bool

    def require(self, request: RawRequest) -> None:
        """Raise if the request came from another address or over another protocol, in this order (auth 2.5)."""
        if self.addresses is not None and not _is_between(request.client, *self.addresses):
            text = ERRORS["AuthorizationSourceIPMismatch"].text
            raise StorageError(
                "AuthorizationSourceIPMismatch", text.format(SourceIP=request.client)
            )
        if self.https_only and request.scheme != "https":
            raise StorageError("AuthorizationProtocolMismatch")


def parse_conditions(parameters: Parameters) -> Conditions:
    """The conditions in `sip` and `spr`; raises for an invalid value. An empty value is no condition."""
    protocol = parameters.get("spr", "")
    if protocol not in ("", "https", "https,http"):
        raise refused("spr is no protocol", repr(protocol))
    addresses = parameters.get("sip", "")
    return Conditions(_parse_addresses(addresses) if addresses else None, protocol == "https")


def _parse_addresses(text: str) -> tuple[_IPAddress, _IPAddress]:
    first, dash, last = text.partition("-")
    try:
        start = _parse_address(first)
        end = _parse_address(last) if dash else start
    except ValueError as error:
        raise refused("sip is no address and no range", repr(text)) from error
    if start.version != end.version:
        raise refused("sip is a range of two kinds of addresses", repr(text))
    return start, end


def _parse_address(text: str) -> _IPAddress:
    """An address. An IPv4-mapped IPv6 address becomes the IPv4 address; an address with a zone is refused."""
    if "%" in text:
        raise ValueError(text)
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _is_between(client: str, start: _IPAddress, end: _IPAddress) -> bool:
    try:
        address = _parse_address(client.partition("%")[0])
    except ValueError:  # a client on a Unix domain socket has no address
        return False
    return address.version == start.version and int(start) <= int(address) <= int(end)
