"""Puts a finished database file into a data directory that holds none, while no server can start there.

The directory is new, or as good as empty. A rename puts the file in its place, so a crash leaves either no database
or the whole one. Does not know where the file comes from, and does not read it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tablestone.engines.contract import EngineRefused
from tablestone.engines.sqlite.data_directory import (
    DATABASE_NAME,
    LOG_NAMES,
    make_directory,
)
from tablestone.engines.sqlite.flushed_files import flush_directory, flush_file
from tablestone.engines.sqlite.server_lock import LOCK_NAME, take_server_lock
from tablestone.engines.sqlite.unfinished_copies import RESTORED_NAME, remove_unfinished_copies


@contextmanager
def room_for_database(path: Path) -> Iterator[Path]:
    """The place for the file of a new database, which becomes the data of `path` if the block ends without an error.

    `EngineRefused` if the directory has data, is in use or cannot be used; `OSError` as the file system raises it.
    After an error, nothing is left that was not there before.
    """
    was_there = os.path.lexists(path)
    if (path / DATABASE_NAME).exists():
        os.close(take_server_lock(path))
        raise EngineRefused(
            f"The data directory {path} holds data already: name a new or an empty directory."
        )
    make_directory(path)
    is_whole = False
    lock = take_server_lock(path)
    staging = path / RESTORED_NAME
    try:
        remove_unfinished_copies(path)
        staging.mkdir(mode=0o700)
        file = staging / DATABASE_NAME
        yield file
        flush_file(file)
        for name in LOG_NAMES:  # empty ones, or the directory would have been refused
            (path / name).unlink(missing_ok=True)
        file.rename(path / DATABASE_NAME)
        is_whole = True
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        if not is_whole:
            (path / LOCK_NAME).unlink(missing_ok=True)
            if not was_there:
                path.rmdir()
        os.close(lock)
    flush_directory(path)
