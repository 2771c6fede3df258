"""Replaces the scrubbed bearer tokens of the recordings with ones from the tests' own issuer.

The names of recordings show whether they have tokens. The answers show what the holder of the token may do: everything,
except in two exchanges before its roles were effective.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tokens import RsaKey, claims_at, signed

if TYPE_CHECKING:
    from .cassettes import Exchange

ROLES = ["Storage Table Data Contributor", "Storage Account Contributor"]
WITHOUT_ROLE = b"AuthorizationPermissionMismatch"


def has_token(exchange: Exchange) -> bool:
    """Whether the exchange was recorded with a token of Entra ID (auth 4.1)."""
    return exchange.recording.startswith("test_table_aad")


def token_for(key: RsaKey, exchange: Exchange) -> str:
    has_role = WITHOUT_ROLE not in exchange.body
    return signed(key, claims_at(time.time(), roles=ROLES if has_role else None))
