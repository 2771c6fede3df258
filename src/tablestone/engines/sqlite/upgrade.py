"""The upgrade of a data directory from an older format to the newest, while no server uses it.

A format is a number in the database (docs/storage-format.md). Each older format has a step to the next. One transaction
runs all steps and writes the number, so a directory always has one whole format.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import apsw

from tablestone.engines.contract import EngineRefused, EngineUnavailable
from tablestone.engines.kind import EncryptionKey, Opening
from tablestone.engines.sqlite.archive_source import leave_life
from tablestone.engines.sqlite.data_directory import FORMAT_VERSION, DataDirectory, take_server_lock

STEPS: Final[Mapping[int, Callable[[apsw.Connection], None]]] = {}
"""For each older format, the change to the next, inside the transaction. Format 1 is the first."""


def upgrade(
    path: Path,
    steps: Mapping[int, Callable[[apsw.Connection], None]] = STEPS,
    newest: int = FORMAT_VERSION,
    key: EncryptionKey | None = None,
) -> tuple[int, int]:
    """Bring a directory, which `key` may encrypt, to the newest format; returns the formats before and after.

    `EngineRefused` if it has no data, is in use, or has a newer or an unknown format. `EngineUnavailable` if a step
    fails; the directory is then as it was.
    """
    directory = DataDirectory(path, Opening.READ_ONLY, key=key)
    with directory.refusing():  # such as a read-only medium
        lock = take_server_lock(path)
    try:
        with directory.committing() as writer:
            before: int = writer.pragma("user_version")
            if missing := [each for each in range(before, newest) if each not in steps]:
                raise EngineRefused(
                    f"The data directory {path} has format {missing[0]}, which cannot be upgraded."
                )
            if before < newest:
                writer.execute("BEGIN IMMEDIATE")
                leave_life(writer)
                for each in range(before, newest):
                    steps[each](writer)
                writer.pragma("user_version", newest)
                writer.execute("COMMIT")  # after an error, closing the connection undoes everything
            return before, max(before, newest)
    except apsw.Error as error:
        raise EngineUnavailable(f"The upgrade failed: {error}.") from error
    finally:
        directory.close()
        os.close(lock)
