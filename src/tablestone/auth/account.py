"""Accounts and their keys. A key never leaves this package in readable form: `repr` hides it, and no code logs it."""

from __future__ import annotations

import base64
import binascii
import copy
import hmac
import re
from collections.abc import Iterable

KEYS_MAX = 2
"""An account has at most so many keys, all of them valid (auth 1, 6)."""
_NAME = re.compile(r"[a-z0-9]{3,24}", re.ASCII)


class SigningKey:
    """A key for HMAC-SHA256 that is ready to sign: copying it costs less than to begin with the key for each text."""

    __slots__ = ("_hmac",)

    def __init__(self, key: bytes) -> None:
        self._hmac = hmac.new(key, digestmod="sha256")

    def signature(self, string_to_sign: bytes) -> bytes:
        """The HMAC-SHA256 of the text in base64 (auth 1.1)."""
        signing = self._hmac.copy()
        signing.update(string_to_sign)
        return binascii.b2a_base64(signing.digest(), newline=False)

    def __repr__(self) -> str:
        return "SigningKey(...)"


class Account:
    """An account: its name (3 to 24 lower-case letters or digits) and one or two keys, all of them valid (auth 6).

    With an `account_id`, `identity` differs from that of an earlier account of the same name. `tables/` uses
    `incarnation` and `known_at` to decide whether the account still has its name.
    """

    __slots__ = ("identity", "incarnation", "keys", "known_at", "name", "name_bytes")

    def __init__(
        self,
        name: str,
        keys_base64: Iterable[str],
        account_id: str = "",
        incarnation: int | None = None,
    ) -> None:
        """Raises `ValueError` for an invalid name or key. The error never quotes the key."""
        if not is_account_name(name):
            raise ValueError(
                f"'{name}' is not an account name: 3 to 24 lower-case letters and digits."
            )
        self.name = name
        self.name_bytes = name.encode("ascii")
        self.identity = f"{name}/{account_id}" if account_id else name
        self.incarnation = incarnation
        self.known_at: int | None = None
        self.keys = tuple(SigningKey(decode_key(text)) for text in keys_base64)
        if not 1 <= len(self.keys) <= KEYS_MAX:
            raise ValueError(f"Account '{name}' must have one or two keys.")

    def with_incarnation(self, incarnation: int, known_at: int | None) -> Account:
        account = copy.copy(self)
        account.incarnation, account.known_at = incarnation, known_at
        return account

    def __repr__(self) -> str:
        return f"Account({self.name!r}, {len(self.keys)} keys)"


def is_account_name(text: str) -> bool:
    """3 to 24 lower-case letters and digits (auth 6)."""
    return _NAME.fullmatch(text) is not None


def decode_key(text: str) -> bytes:
    """The bytes of a key. Raises `ValueError` if it is not base64. The error never quotes the key."""
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:
        key = b""
    if not key:
        raise ValueError("A key is not valid base64.")
    return key
