"""The scheme and the client of a request as trusted proxies describe them, in `X-Forwarded-Proto` and `-For`.

Each proxy appends the address that it sees to `X-Forwarded-For`: the last one that is no trusted proxy is the client.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

ADDRESS_LENGTH_MAX: Final = 64
"""Characters of the longest text that is looked at as an address, and kept."""

_MAPPED: Final = "::ffff:"
"""What stands before an address of IPv4 on a socket for both families."""


class TrustedProxies:
    """The addresses and networks whose proxies are trusted."""

    def __init__(self, addresses: Sequence[str]) -> None:
        networks = map(ipaddress.ip_network, addresses)
        self._networks = [
            ipaddress.ip_network(f"{_MAPPED}{network.network_address}/{96 + network.prefixlen}")
            if network.version == 4
            else network
            for network in networks
        ]
        self._trusts = lru_cache(maxsize=4096)(self._is_trusted)

    def trusts(self, address: str) -> bool:
        return len(address) <= ADDRESS_LENGTH_MAX and self._trusts(address)

    def _is_trusted(self, address: str) -> bool:
        try:
            seen = ipaddress.ip_address(address if ":" in address else f"{_MAPPED}{address}")
        except ValueError:
            return False
        return any(seen in network for network in self._networks)

    def described(
        self, fields: Iterable[tuple[bytes, bytes]], client: str, scheme: str
    ) -> tuple[str, str]:
        """The address of the client and the scheme; what no header says stays as it is."""
        forwarded: list[str] = []
        said = b""
        for name, value in fields:
            if name == b"x-forwarded-proto":
                said = value  # the last one counts
            elif name == b"x-forwarded-for":
                forwarded += value.decode("latin-1").split(",")
        hosts = [_without_port(each.strip()) for each in forwarded]
        strangers = (host for host in reversed(hosts) if not self.trusts(host))
        named = unmapped(next(strangers, hosts[0] if hosts else "") or client)
        return named, forwarded_scheme(said) or scheme


def forwarded_scheme(value: bytes) -> str:
    """`https` if every proxy on the way says so, `http` if one of them says `http`; empty for anything else."""
    said = {each.strip().lower() for each in value.split(b",")}
    if not said <= {b"http", b"https"}:
        return ""
    return "https" if said == {b"https"} else "http"


def unmapped(address: str) -> str:
    """An address of IPv4 as usual, although the socket is for both families."""
    if not address.lower().startswith(_MAPPED):
        return address
    try:
        return str(ipaddress.IPv6Address(address).ipv4_mapped or address)
    except ValueError:
        return address


def _without_port(text: str) -> str:
    """The address in `ADDRESS`, `ADDRESS:PORT`, `[ADDRESS]` or `[ADDRESS]:PORT`; another text as it is."""
    if text.startswith("["):
        address, bracket, rest = text[1:].partition("]")
        return address if bracket and rest[:1] in {"", ":"} else text
    address, _, port = text.partition(":")
    return address if port.isdecimal() and port.isascii() else text
