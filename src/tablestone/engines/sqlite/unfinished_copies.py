"""Unfinished copies of the data, which a killed command left in a data directory: their names and their removal.

A copy may be in the clear though the directory is encrypted, so it must not stay. Servers ignore names that begin with
a dot. Knows no content of a copy.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import Final

from tablestone.engines.contract import EngineRefused

log = logging.getLogger(__name__)

REENCRYPTED_NAME: Final = ".reencrypted.partial"
RESTORED_NAME: Final = ".restored.partial"
UNLOADED_NAME: Final = "unloaded-from"
"""The file that is in a directory while a cluster is unloaded into it. It holds the `StorageId` of the cluster."""


def require_restored(path: Path, database: Path) -> None:
    """Refuse a directory into which a restore was killed: a start would serve it without data."""
    copy = path / RESTORED_NAME
    if os.path.lexists(copy) and not os.path.lexists(database):
        raise EngineRefused(
            f"The restore into {path} did not end: run it again, or remove {copy} to start without data."
        )


def require_unloaded(path: Path) -> None:
    """Refuse a directory that an unload has not filled to its end: a server would answer without a part of the data."""
    if os.path.lexists(path / UNLOADED_NAME):
        raise EngineRefused(
            f"{path} holds only a part of a cluster's data: repeat the interrupted `tablestone cluster unload`."
        )


def remove_unfinished_copies(path: Path) -> None:
    """Remove them from a data directory, and tell the operator.

    The caller holds the lock of the server, which a command holds while it writes a copy.
    """
    for name in (REENCRYPTED_NAME, RESTORED_NAME):
        copy = path / name
        if not os.path.lexists(copy):
            continue
        try:
            shutil.rmtree(copy)
        except OSError as error:
            reason = error.strerror or error
            log.warning("Remove %s, which a killed command left: it holds data. %s.", copy, reason)
        else:
            log.warning("Removed %s, an unfinished copy that a killed command left.", copy)
