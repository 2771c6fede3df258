"""The addresses from which a token issuer's keys may be fetched: over HTTPS, or from this machine. Fetches nothing."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))
"""The hosts of this machine, from which keys may be fetched over plain HTTP."""


def is_safe_address(address: str) -> bool:
    """Whether keys from this address cannot be replaced on their way."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
