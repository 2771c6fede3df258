"""The key of storage that is encrypted at rest: 32 random bytes, as a person keeps them in a file or in a variable.

The key is the cipher's own: no passphrase is stretched into one. Its `repr` hides it, and no message contains it. Knows
no cipher, no file and no option.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

KEY_BYTES: Final = 32
FORM: Final = "32 bytes in base64 or in hexadecimal digits"
"""The two forms of a key, for messages."""


class EncryptionKey:
    """A key of `KEY_BYTES` bytes."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        if len(secret) != KEY_BYTES:
            raise ValueError(FORM)
        self._secret = secret

    @classmethod
    def parse(cls, text: str) -> EncryptionKey:
        """The key of a text, which may begin and end with white space; `ValueError` if it is in neither form."""
        text = text.strip()
        try:
            if len(text) == 2 * KEY_BYTES:
                return cls(binascii.unhexlify(text))
            return cls(base64.b64decode(text, validate=True))
        except ValueError:
            raise ValueError(FORM) from None

    @property
    def secret(self) -> bytes:
        """The bytes of the key, for a cipher."""
        return self._secret

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EncryptionKey) and self._secret == other._secret

    def __hash__(self) -> int:
        return hash(self._secret)

    def __repr__(self) -> str:
        return "EncryptionKey(hidden)"
