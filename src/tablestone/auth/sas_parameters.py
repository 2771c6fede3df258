"""What every shared access signature has in common: how its parameters are read, and what else must hold of a request.

Values are taken as they are once the URL is decoded: never re-ordered, never normalised (auth 2.1). Each check raises
the service's error for its failure; the kinds of signature call them in the order of auth 2.5.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

from tablestone.auth.accounts import SigningKey
from tablestone.errors import ERRORS, StorageError
from tablestone.wire.address import Parameters
from tablestone.wire.instants import parse_instant
from tablestone.wire.messages import RawRequest
from tablestone.wire.negotiate import VERSIONS

VERSION_OF_CONDITIONS = "2015-04-05"
"""From here on a signature may restrict address and protocol (auth 3.1), and there are account SAS (auth 2.1)."""

_IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def refused(reason: str) -> StorageError:
    """`AuthenticationFailed`; the reason is for the server's log alone, the service does not tell it (auth 5.3)."""
    return StorageError("AuthenticationFailed", reason=reason)


def require_well_formed(parameters: Parameters, signed: Iterable[str], version_min: str) -> str:
    """The version of the signature; raises for one that is none, and for a value of more than one line."""
    for name in signed:
        if "\n" in parameters.get(name, ""):
            raise refused(f"{name} has a line feed")
    version = parameters.get("sv", "")
    if version not in VERSIONS or version < version_min:
        raise refused(f"sv is {version!r}, no version of such a signature")
    return version


def has_signed(parameters: Parameters, string_to_sign: str, key: SigningKey) -> bool:
    """Whether the key gives `sig`. A blank in it is a plus that was not encoded (auth 2.1)."""
    given = parameters["sig"].replace(" ", "+").encode("utf-8")
    return hmac.compare_digest(key.signature(string_to_sign.encode("utf-8")), given)


def require_signature(
    parameters: Parameters, string_to_sign: str, keys: Iterable[SigningKey]
) -> None:
    """Return if one of the keys gives `sig`."""
    for key in keys:
        if has_signed(parameters, string_to_sign, key):
            return
    raise refused(f"no key gives the signature of {string_to_sign!r}")


class Validity(NamedTuple):
    """From when (None: always) and until when (without that moment) a signature holds, in ticks."""

    start: int | None
    expiry: int

    def require(self, now: int) -> None:
        """Raise if the signature does not hold at this moment; clocks that differ get no grace (auth 2.5)."""
        if self.start is not None and now < self.start:
            raise refused("the signature does not hold yet")
        if now >= self.expiry:
            raise refused("the signature has expired")


def instant_or_none(parameters: Parameters, name: str) -> int | None:
    """A date in ticks, None where there is none; an empty value is none, as it is in what is signed."""
    text = parameters.get(name)
    if not text:
        return None
    try:
        return parse_instant(text)
    except ValueError as error:
        raise refused(f"{name} is no date: {text!r}") from error


class Conditions(NamedTuple):
    """From where (`sip`, both ends inclusive) and how (`spr`) a signature may be used."""

    addresses: tuple[_IPAddress, _IPAddress] | None
    https_only: bool

    def require(self, request: RawRequest) -> None:
        """Raise if the request came from elsewhere or otherwise; the address first (auth 2.5)."""
        if self.addresses is not None and not _is_between(request.client, *self.addresses):
            text = ERRORS["AuthorizationSourceIPMismatch"].text
            raise StorageError(
                "AuthorizationSourceIPMismatch", text.format(SourceIP=request.client)
            )
        if self.https_only and request.scheme != "https":
            raise StorageError("AuthorizationProtocolMismatch")


def parse_conditions(parameters: Parameters) -> Conditions:
    """`sip` and `spr`; raises for a value that is neither legal nor empty."""
    protocol = parameters.get("spr", "")
    if protocol not in ("", "https", "https,http"):
        raise refused(f"spr is {protocol!r}")
    addresses = parameters.get("sip", "")
    return Conditions(_parse_addresses(addresses) if addresses else None, protocol == "https")


def _parse_addresses(text: str) -> tuple[_IPAddress, _IPAddress]:
    first, dash, last = text.partition("-")
    try:
        start = _parse_address(first)
        end = _parse_address(last) if dash else start
    except ValueError as error:
        raise refused(f"sip is no address and no range: {text!r}") from error
    if start.version != end.version:
        raise refused(f"sip is a range of two kinds of addresses: {text!r}")
    return start, end


def _parse_address(text: str) -> _IPAddress:
    """An address; an IPv4 address that is written as IPv6 is the IPv4 address. One of a zone is refused."""
    if "%" in text:
        raise ValueError(text)
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _is_between(client: str, start: _IPAddress, end: _IPAddress) -> bool:
    try:
        address = _parse_address(client.partition("%")[0])
    except ValueError:  # a client without an address, on a socket of the file system
        return False
    return address.version == start.version and int(start) <= int(address) <= int(end)
