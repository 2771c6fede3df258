"""The pages of a database as they are in its two files, read without SQLite: for a database that SQLite cannot read.

A page is in the write-ahead log if it was changed and not copied yet, else in the database file. Formats:
https://www.sqlite.org/fileformat2.html. Knows pages by number; knows no tree and no row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tablestone.engines.encryption_key import EncryptionKey
from tablestone.engines.sqlite.data_directory import DATABASE_NAME, LOG_NAME, PAGE_SIZE_BYTES
from tablestone.engines.sqlite.database_file import DatabaseFile
from tablestone.engines.sqlite.page_cipher import MAGIC, RESERVED_BYTES, PageCipher
from tablestone.engines.sqlite.stored_log import StoredLog

PAGE_BYTES_MIN: Final = 512
PAGE_BYTES_MAX: Final = 65536
RESERVED_MAX: Final = 64


class StoredPages:
    """The pages of one data directory. Raises `OSError` if the database cannot be opened.

    `key` is the one that encrypts it, if one does.
    """

    def __init__(self, directory: Path, key: EncryptionKey | None = None) -> None:
        self._file = DatabaseFile(directory / DATABASE_NAME)
        self._cipher = None if key is None else PageCipher(key)
        header = self._file.read(0, 100)
        self.page_bytes = PAGE_SIZE_BYTES
        reserved = 0 if key is None else RESERVED_BYTES
        if key is None and header.startswith(MAGIC):
            said = int.from_bytes(header[16:18], "big")
            said = PAGE_BYTES_MAX if said == 1 else said
            if said >= PAGE_BYTES_MIN and said & (said - 1) == 0:
                self.page_bytes = said
            if header[20] <= RESERVED_MAX:
                reserved = header[20]
        self.usable_bytes = self.page_bytes - reserved
        self.count = -(-self._file.size // self.page_bytes)
        self.log = StoredLog(directory / LOG_NAME, self.page_bytes)
        if self.log.pages is not None:
            self.count = self.log.pages

    def read(self, number: int) -> bytes | None:
        """The content of a page, from 1; None if it is not there as a whole, or encrypted and altered since."""
        content = self._stored(number)
        if content is None or self._cipher is None:
            return content
        return self._cipher.opened(number, content)

    def altered(self) -> list[int]:
        """The encrypted pages that are not as they were written; none without encryption, which nothing tells."""
        if self._cipher is None:
            return []
        numbers = range(1, self.count + 1)
        return [number for number in numbers if not self._is_whole(number, self._cipher)]

    def _is_whole(self, number: int, cipher: PageCipher) -> bool:
        content = self._stored(number)
        return content is not None and cipher.is_whole(number, content)

    def _stored(self, number: int) -> bytes | None:
        """A page as it is in a file."""
        place = self.log.places.get(number)
        if place is not None:
            return self.log.read(place)
        if not 1 <= number <= self.count:
            return None
        content = self._file.read((number - 1) * self.page_bytes, self.page_bytes)
        return content if len(content) == self.page_bytes else None

    def close(self) -> None:
        self._file.close()
        self.log.close()
