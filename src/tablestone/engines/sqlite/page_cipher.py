"""The cipher of encrypted pages, apart from SQLite: whether a page is as it was written, and its content.

SQLite3 Multiple Ciphers encrypts pages while SQLite reads and writes them. Here is the same format ("chacha20", its
default) once more, for a key that is to be judged before SQLite may open the files, for `check`, which looks at every
page, and for salvage. A page ends with a nonce of 16 bytes and a tag of 16: ChaCha20-Poly1305 with a key for each page,
made of the nonce and the page's number (https://utelle.github.io/SQLite3MultipleCiphers/docs/ciphers/cipher_chacha20/).
The tag covers every other byte of the page. Knows pages as bytes; no file and no row.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from tablestone.engines.encryption_key import EncryptionKey

RESERVED_BYTES: Final = 32
"""Bytes at the end of each encrypted page: the nonce and the tag."""
TAG_BYTES: Final = 16
MAGIC: Final = b"SQLite format 3\0"
OPEN_BYTES: Final = 24
"""Bytes at the start of page 1 that are not encrypted: 16 for the key's name, and SQLite's sizes."""
SIZES: Final = slice(16, OPEN_BYTES)
_NAME_PURPOSE: Final = b"Tablestone: the name of an encryption key"
_COUNTER_END: Final = 1 << 32
_BLOCK_BYTES: Final = 64


def name_of(key: EncryptionKey) -> bytes:
    """16 bytes that stand at the start of every database of this key, and tell nothing of it.

    They are the salt of the format, which a key of 32 bytes has no other use for.
    """
    return hmac.digest(key.secret, _NAME_PURPOSE, hashlib.sha256)[: len(MAGIC)]


class PageCipher:
    """The pages of one key."""

    def __init__(self, key: EncryptionKey) -> None:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - loads slowly, and few need it
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms  # noqa: PLC0415
        from cryptography.hazmat.primitives.poly1305 import Poly1305  # noqa: PLC0415

        self._key = key.secret
        self._invalid = InvalidSignature
        self._cipher = Cipher
        self._chacha20 = algorithms.ChaCha20
        self._poly1305 = Poly1305

    def is_whole(self, number: int, page: bytes) -> bool:
        """Whether the page was written with this key, as the page of this number, and not changed since."""
        return self._keys(number, page) is not None

    def opened(self, number: int, page: bytes) -> bytes | None:
        """The content of a page as SQLite sees it; None if the page is not whole."""
        keys = self._keys(number, page)
        if keys is None:
            return None
        start = OPEN_BYTES if number == 1 else 0
        end = len(page) - RESERVED_BYTES
        nonce = page[end:-TAG_BYTES]
        content = self._stream(keys[32:], nonce, _counter(nonce, number) + 1, page[start:end])
        before = MAGIC + page[SIZES] if number == 1 else b""
        return before + content + page[end:]

    def _keys(self, number: int, page: bytes) -> bytes | None:
        """The keys of this page alone, for its tag and for its content; None if the tag is another one."""
        nonce = page[-RESERVED_BYTES:-TAG_BYTES]
        if len(page) <= OPEN_BYTES + RESERVED_BYTES:
            return None
        keys = self._stream(self._key, nonce, _counter(nonce, number), bytes(_BLOCK_BYTES))
        try:
            self._poly1305.verify_tag(keys[:32], page[:-TAG_BYTES], page[-TAG_BYTES:])
        except self._invalid:
            return None
        return keys

    def _stream(self, key: bytes, nonce: bytes, counter: int, content: bytes) -> bytes:
        """ChaCha20 of RFC 8439; its counter starts again at 0 after its end, which the library does not do."""
        counter %= _COUNTER_END
        first = (_COUNTER_END - counter) * _BLOCK_BYTES
        if len(content) > first:
            head = self._stream(key, nonce, counter, content[:first])
            return head + self._stream(key, nonce, 0, content[first:])
        algorithm = self._chacha20(key, counter.to_bytes(4, "little") + nonce[:12])
        return self._cipher(algorithm, mode=None).encryptor().update(content)


def _counter(nonce: bytes, number: int) -> int:
    return int.from_bytes(nonce[12:], "little") ^ number
