"""The ranges of addresses that an account allows, IPv4 and IPv6 (auth 6)."""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from tablestone import limits

ADDRESS_LENGTH_MAX: Final = 64
"""Characters of the longest text that is looked at as an address, and kept."""
ADDRESSES_KEPT: Final = 4096
_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")
"""Addresses of IPv4 as a socket for both families shows them."""

Range = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_range(text: str) -> Range:
    """The range in a text, an address or a network; `ValueError` has the rest of a sentence about it."""
    whole = text.replace("%", " ")  # a zone is refused: it has a meaning on one machine only
    try:
        found = ipaddress.ip_network(whole)
    except ValueError:
        try:
            wider = ipaddress.ip_network(whole, strict=False)
        except ValueError:
            raise ValueError(
                f"has {text[:ADDRESS_LENGTH_MAX]!r}, which is no address and no range such as 10.0.0.0/8"
            ) from None
        address = text.partition("/")[0]
        raise ValueError(
            f"has {text}, an address with bits after the prefix: write {wider} or {address}"
        ) from None
    if isinstance(found, ipaddress.IPv6Network) and found.subnet_of(_MAPPED):
        first = int(found.network_address) & 0xFFFFFFFF
        return ipaddress.IPv4Network((first, found.prefixlen - _MAPPED.prefixlen))
    return found


def parse_ranges(texts: Iterable[str]) -> tuple[str, ...]:
    """The ranges, each once and as one writes them; `ValueError` as `parse_range`."""
    ranges = tuple(dict.fromkeys(str(parse_range(text.strip())) for text in texts))
    if len(ranges) > limits.ALLOWED_RANGES_MAX:
        raise ValueError(
            f"has {len(ranges)} ranges, and an account has at most {limits.ALLOWED_RANGES_MAX}: "
            "write larger ones, or let a firewall decide"
        )
    return ranges


class AllowedAddresses:
    """Who may connect. It remembers the last addresses that it was asked about."""

    def __init__(self, ranges: Iterable[str]) -> None:
        self.ranges = tuple(map(parse_range, ranges))
        self._kept = lru_cache(maxsize=ADDRESSES_KEPT)(self._look)

    def hold(self, address: str) -> bool:
        """Whether a range holds the address; False for a text that is none, as of a Unix socket."""
        return len(address) <= ADDRESS_LENGTH_MAX and self._kept(address)

    def overlap(self, network: str) -> bool:
        """Whether an address of this network is allowed."""
        theirs = parse_range(network)
        return any(each.version == theirs.version and each.overlaps(theirs) for each in self.ranges)

    def _look(self, address: str) -> bool:
        try:
            seen = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(seen, ipaddress.IPv6Address) and seen.ipv4_mapped is not None:
            seen = seen.ipv4_mapped
        return any(seen in each for each in self.ranges)
