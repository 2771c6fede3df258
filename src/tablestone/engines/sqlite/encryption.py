"""Encryption at rest of a data directory: connections with a key, and keys that do not fit.

SQLite3 Multiple Ciphers, a part of the library of `apsw-sqlite3mc`, encrypts the pages of the database, of the log and
of the journal. A database begins with the name of its key (`page_cipher.name_of`), so a key is judged before SQLite
opens the files: SQLite would act on the log of a database that it cannot read. Nothing here writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import apsw

from tablestone.engines.contract import EngineRefused
from tablestone.engines.encryption_key import EncryptionKey
from tablestone.engines.sqlite.database_file import DatabaseFile
from tablestone.engines.sqlite.page_cipher import MAGIC, SIZES, PageCipher, name_of

CIPHER: Final = "chacha20"
VFS_NAME: Final = "multipleciphers-unix"
"""The layer that encrypts, directly below SQLite. With another layer between them, the log would not be encrypted."""
ENCRYPTED_SIZES: Final = bytes((0x20, 0, 2, 2, 32, 64, 32, 32))
"""The bytes after the name: pages of 8192 bytes, the write-ahead log twice, 32 bytes reserved, three fixed values."""
ALIKE_MIN: Final = 6
"""Of the 8 bytes of `ENCRYPTED_SIZES`, how many are the same in an encrypted database, even a damaged one."""
DAMAGED_BITS_MAX: Final = 8
"""Bits of the key's name that may have flipped: a name that differs in more of its 128 bits is another key's."""


def connect(name: str, flags: int, key: EncryptionKey | None) -> apsw.Connection:
    """A connection to a database with this key, or to one that is not encrypted."""
    if key is None:
        return apsw.Connection(name, flags)
    connection = apsw.Connection(name, flags, vfs=VFS_NAME)
    try:
        connection.pragma("cipher", CIPHER)
        # Raw, with the salt: no passphrase is stretched.
        connection.pragma("key", f"raw:{key.secret.hex()}{name_of(key).hex()}")
    except BaseException:
        connection.close()
        raise
    return connection


def require_fitting_key(directory: Path, database: Path, key: EncryptionKey | None) -> None:
    """Refuse a key that is not the database's, a key for one that is not encrypted, and no key for one that is.

    A database that is empty, or too damaged to tell, is left to SQLite. `EngineRefused`, `OSError` or `apsw.Error`.
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
    """Refuse to encrypt again: `EngineRefused`, or `OSError`."""
    if _looks_encrypted(_start_of(database)):
        raise EngineRefused(
            f"The data directory {directory} is encrypted already: tablestone rekey changes its key."
        )


def _fits(start: bytes, key: EncryptionKey) -> bool:
    """Whether the first page is of this key: by the key's name, or, if another program made it, by the page's tag."""
    differing = int.from_bytes(start[: len(MAGIC)], "big") ^ int.from_bytes(name_of(key), "big")
    return differing.bit_count() <= DAMAGED_BITS_MAX or PageCipher(key).is_whole(1, start)


def _looks_encrypted(start: bytes) -> bool:
    same = sum(one == other for one, other in zip(start[SIZES], ENCRYPTED_SIZES, strict=False))
    as_plain = sum(one == other for one, other in zip(start, MAGIC, strict=False))
    return same >= ALIKE_MIN and as_plain < len(MAGIC) // 2


def _start_of(database: Path) -> bytes:
    """The first page of the database, or less."""
    if database.is_fifo():  # opening it would wait; it is refused later
        return b""
    try:
        file = DatabaseFile(database)
    except FileNotFoundError:
        return b""
    try:
        return file.read(0, int.from_bytes(ENCRYPTED_SIZES[:2], "big"))
    finally:
        file.close()
