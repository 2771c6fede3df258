"""Accounts and their keys. An `Account` never shows a key: `repr` hides it, and no error quotes it."""

from __future__ import annotations

import base64
import binascii
import copy
import hmac
import re
from collections.abc import Iterable

from tablestone.auth.address_ranges import AllowedAddresses

KEYS_MAX = 2
"""Two, so that one can be replaced while clients use the other (auth 1, 6)."""
_NAME = re.compile(r"[a-z0-9]{3,24}", re.ASCII)


class SigningKey:
    """A key for HMAC-SHA256, set up once: copying it for each text costs less than setting it up again."""

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
    """An account: its name and one or two keys, all of them valid (auth 6).

    With an `account_id`, `identity` differs from that of an earlier account of the same name. With `incarnation` and
    `known_at`, `tables` decides whether the account still has its name.

    Its rules: without `shared_key`, no key and no signature by one is accepted; `allowed` None admits every address.
    """

    __slots__ = (
        *("allowed", "identity", "incarnation", "keys", "known_at", "name", "name_bytes"),
        "shared_key",
    )

    def __init__(
        self,
        name: str,
        keys_base64: Iterable[str],
        account_id: str = "",
        incarnation: int | None = None,
        *,
        shared_key: bool = True,
        allow: tuple[str, ...] = (),
    ) -> None:
        """Raise `ValueError` for an invalid name, key or range."""
        if not is_account_name(name):
            raise ValueError(
                f"'{name}' is not an account name: 3 to 24 lower-case letters and digits."
            )
        self.name = name
        self.name_bytes = name.encode("ascii")
        self.identity = f"{name}/{account_id}" if account_id else name
        self.incarnation = incarnation
        self.known_at: int | None = None
        self.shared_key = shared_key
        self.allowed = AllowedAddresses(allow) if allow else None
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
    """The bytes of a key; raises `ValueError`, without the key in its text, if it is not base64."""
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:
        key = b""
    if not key:
        raise ValueError("A key is not valid base64.")
    return key
