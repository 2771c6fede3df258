"""Copies the database of a data directory into a file, at one moment, while any processes go on writing.

One read transaction lasts for the whole copy, so the copy never begins again. The log cannot start from its beginning
during that time, so it grows with the writes. Knows pages; knows no rows and no format.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import apsw

from tablestone.engines.contract import EngineDamaged, EngineUnavailable
from tablestone.engines.encryption_key import EncryptionKey
from tablestone.engines.kind import Opening
from tablestone.engines.sqlite import encryption
from tablestone.engines.sqlite.data_directory import DataDirectory
from tablestone.engines.sqlite.flushed_files import flush_file
from tablestone.engines.sqlite.unfinished_copies import require_unloaded

STEP_PAGES: Final = 256
"""Pages between two calls of `told`: 2 MiB."""

CREATE: Final = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE

Told = Callable[[int, int], None]
"""Takes the bytes that are copied, and the bytes that there are."""


def copy_database(
    directory: Path, target: Path, told: Told, key: EncryptionKey | None = None
) -> None:
    """Copy the database of `directory` into the new file `target`, and flush it.

    `key` is the one that encrypts the directory, if one does; it encrypts the copy too.

    `EngineRefused` if the directory cannot be read, `EngineDamaged` if a page of it cannot, `OSError` if there is no
    room for the copy, `EngineUnavailable` if it fails otherwise; `target` is then incomplete.
    """
    require_unloaded(directory)
    opened = DataDirectory(directory, Opening.READ_ONLY, key=key)
    try:
        with (
            closing(opened.connect_snapshot()) as source,
            closing(encryption.connect(os.fspath(target), CREATE, key)) as copy,
        ):
            page_bytes = source.pragma("page_size")
            copy.pragma("page_size", page_bytes)  # encrypted pages cannot be copied into others
            copy.pragma("journal_mode", "off")
            copy.pragma("synchronous", "off")  # it is flushed once, below
            source.execute("BEGIN")
            source.execute(
                "SELECT count(*) FROM sqlite_schema"
            ).fetchall()  # the moment of the copy
            with copy.backup("main", source, "main") as copying:
                while not copying.done:
                    copying.step(STEP_PAGES)
                    pages = copying.page_count
                    told((pages - copying.remaining) * page_bytes, pages * page_bytes)
    except apsw.FullError as error:  # the steps of a copy say "not an error"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(target)) from error
    except apsw.CorruptError as error:
        raise EngineDamaged(f"a page of {opened.database} is damaged") from error
    except apsw.Error as error:
        raise EngineUnavailable(f"The database cannot be copied: {error}.") from error
    finally:
        opened.release()
    flush_file(target)
