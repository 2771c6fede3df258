"""Where a token issuer's keys may be had from: over https, or from this machine. Fetches nothing."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))
"""Hosts that are this machine, which keys may be had from over plain HTTP."""


def is_safe_address(address: str) -> bool:
    """Whether nobody under way can put other keys in the place of those that are fetched."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
