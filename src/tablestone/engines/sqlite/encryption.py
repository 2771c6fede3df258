"""Encryption at rest of a data directory: connections with a key, refused keys, and pages read without SQLite.

SQLite3 Multiple Ciphers, a part of `apsw-sqlite3mc`, encrypts the pages of the database, of the log and of the journal.
A database begins with the name of its key (`name_of`). So a key is checked before SQLite opens the files, which would
act on the log of a database that it cannot read. Nothing here writes.
"""

import hashlib
import hmac
import os
import stat
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import apsw

from tablestone.engines.contract import EngineRefused
from tablestone.engines.kind import EncryptionKey

_VFS_NAME: Final = "unix"


class DatabaseFile:
    """An open database file. `OSError` if it is missing or cannot be read."""

    def __init__(self, path: Path) -> None:
        path.stat()
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB
        try:
            self._file = apsw.VFSFile(_VFS_NAME, os.fspath(path.absolute()), [flags, 0])
        except apsw.CantOpenError:
            with path.open("rb"):  # says why; else this process has no locks on it
                pass
            raise OSError("the database cannot be opened") from None
        self.size = self._file.xFileSize()

    def read(self, offset: int, length: int) -> bytes:
        """The bytes from `offset` on; fewer at the end of the file, or if the disk cannot read them."""
        length = min(length, self.size - offset)
        if length > 0:
            with suppress(apsw.IOError):
                return self._file.xRead(length, offset)
        return b""

    def close(self) -> None:
        self._file.xClose()


def is_special(path: Path) -> bool:
    """Whether there is something other than a regular file. Asks once: SQLite of another process may remove it."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


RESERVED_BYTES: Final = 32
"""The nonce and the tag at the end of each encrypted page."""
TAG_BYTES: Final = 16
MAGIC: Final = b"SQLite format 3\0"
OPEN_BYTES: Final = 24
"""The start of page 1 is not encrypted: 16 bytes for the key's name, and SQLite's sizes."""
SIZES: Final = slice(16, OPEN_BYTES)
_NAME_PURPOSE: Final = b"Tablestone: the name of an encryption key"
_COUNTER_END: Final = 1 << 32
_BLOCK_BYTES: Final = 64


def name_of(key: EncryptionKey) -> bytes:
    """The first 16 bytes of a database, in place of a salt, which this key does not need. They do not reveal it."""
    return hmac.digest(key.secret, _NAME_PURPOSE, hashlib.sha256)[: len(MAGIC)]


class PageCipher:
    def __init__(self, key: EncryptionKey) -> None:
        self._key = key.secret

    def is_whole(self, number: int, page: bytes) -> bool:
        """Whether the page was written with this key under this number, and not changed since."""
        return self._keys(number, page) is not None

    def opened(self, number: int, page: bytes) -> bytes | None:
        """The content of a page as SQLite sees it; None if the page is not whole."""
        keys = self._keys(number, page)
        if keys is None:
            return None
        start = OPEN_BYTES if number == 1 else 0
        end = len(page) - RESERVED_BYTES
        nonce = page[end:-TAG_BYTES]
        content = _stream(keys[32:], nonce, _counter(nonce, number) + 1, page[start:end])
        before = MAGIC + page[SIZES] if number == 1 else b""
        return before + content + page[end:]

    def _keys(self, number: int, page: bytes) -> bytes | None:
        """The page's own keys for its tag and its content; None if the tag does not match."""
        from cryptography.hazmat.primitives.poly1305 import Poly1305  # noqa: PLC0415 - loads slowly

        nonce = page[-RESERVED_BYTES:-TAG_BYTES]
        if len(page) <= OPEN_BYTES + RESERVED_BYTES:
            return None
        keys = _stream(self._key, nonce, _counter(nonce, number), bytes(_BLOCK_BYTES))
        tag = Poly1305.generate_tag(keys[:32], page[:-TAG_BYTES])
        return keys if hmac.compare_digest(tag, page[-TAG_BYTES:]) else None


def _stream(key: bytes, nonce: bytes, counter: int, content: bytes) -> bytes:
    """ChaCha20 of RFC 8439 with a counter that wraps to 0, which the library's does not."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms  # noqa: PLC0415 - loads slowly

    counter %= _COUNTER_END
    first = (_COUNTER_END - counter) * _BLOCK_BYTES
    if len(content) > first:
        return _stream(key, nonce, counter, content[:first]) + _stream(
            key, nonce, 0, content[first:]
        )
    algorithm = algorithms.ChaCha20(key, counter.to_bytes(4, "little") + nonce[:12])
    return Cipher(algorithm, mode=None).encryptor().update(content)


def _counter(nonce: bytes, number: int) -> int:
    return int.from_bytes(nonce[12:], "little") ^ number


CIPHER: Final = "chacha20"
VFS_NAME: Final = "multipleciphers-unix"
"""The layer that encrypts, directly below SQLite: with another layer between them, the log would not be encrypted."""
ENCRYPTED_SIZES: Final = bytes((0x20, 0, 2, 2, 32, 64, 32, 32))
"""The bytes after the name: pages of 8192 bytes, the write-ahead log twice, 32 bytes reserved, three fixed values."""
ALIKE_MIN: Final = 6
"""A database with this many of the 8 `ENCRYPTED_SIZES` is encrypted: two may be damaged."""
DAMAGED_BITS_MAX: Final = 8
"""Damage may flip this many of the 128 bits of a key's name: if more differ, it is another key's name."""


def connect(name: str, flags: int, key: EncryptionKey | None) -> apsw.Connection:
    """A connection to a database with this key; None: to one that is not encrypted."""
    if key is None:
        return apsw.Connection(name, flags)
    connection = apsw.Connection(name, flags, vfs=VFS_NAME)
    try:
        connection.pragma("cipher", CIPHER)
        connection.pragma("key", _raw(key))
    except BaseException:
        connection.close()
        raise
    return connection


def uri_of(file: Path, key: EncryptionKey | None) -> str:
    """The URI of a new database with this key, for a statement. It contains the key: not for messages."""
    if key is None:
        return f"{file.as_uri()}?vfs={_VFS_NAME}"
    return f"{file.as_uri()}?vfs={VFS_NAME}&cipher={CIPHER}&key={_raw(key)}"


def _raw(key: EncryptionKey) -> str:
    """The key itself with its salt, not a passphrase to stretch."""
    return f"raw:{key.secret.hex()}{name_of(key).hex()}"


def require_fitting_key(directory: Path, database: Path, key: EncryptionKey | None) -> None:
    """Refuse another key than the database's, a key for one that is not encrypted, and no key for one that is.

    Leave a database that is empty, or too damaged to tell, to SQLite. `EngineRefused`, `OSError` or `apsw.Error`.
    """
    if key is not None and not hasattr(apsw, "mc_version"):
        raise EngineRefused(
            "This installation cannot encrypt: its apsw is not the one of apsw-sqlite3mc. Remove the package apsw, and "
            "install Tablestone again."
        )
    start = _start_of(database)
    if key is None:
        if _looks_encrypted(start):
            raise EngineRefused(
                f"The data directory {directory} is encrypted: name the file of its key with --encryption-key-file."
            )
    elif start.startswith(MAGIC):
        raise EngineRefused(
            f"The data directory {directory} is not encrypted, and a key is given: leave the key out, or encrypt the "
            "directory with tablestone encrypt."
        )
    elif _looks_encrypted(start) and not _fits(start, key):
        raise EngineRefused(f"The key is not the one that encrypts the data directory {directory}.")


def require_not_encrypted(directory: Path, database: Path) -> None:
    """`EngineRefused` if it is encrypted, or `OSError`."""
    if _looks_encrypted(_start_of(database)):
        raise EngineRefused(
            f"The data directory {directory} is encrypted already: tablestone rekey changes its key."
        )


def _fits(start: bytes, key: EncryptionKey) -> bool:
    """Whether the first page has this key's name, or its tag, if another program made the database."""
    differing = int.from_bytes(start[: len(MAGIC)], "big") ^ int.from_bytes(name_of(key), "big")
    return differing.bit_count() <= DAMAGED_BITS_MAX or PageCipher(key).is_whole(1, start)


def _looks_encrypted(start: bytes) -> bool:
    same = sum(one == other for one, other in zip(start[SIZES], ENCRYPTED_SIZES, strict=False))
    as_plain = sum(one == other for one, other in zip(start, MAGIC, strict=False))
    return same >= ALIKE_MIN and as_plain < len(MAGIC) // 2


def _start_of(database: Path) -> bytes:
    """The first page of the database, or less."""
    if database.is_fifo():  # to open it would wait; it is refused later
        return b""
    with suppress(FileNotFoundError), closing(DatabaseFile(database)) as file:
        return file.read(0, int.from_bytes(ENCRYPTED_SIZES[:2], "big"))
    return b""
