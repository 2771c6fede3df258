"""The lock of the one server of a data directory: taken by a server, and by a command that needs to be alone.

The kernel releases it when the last process that inherited it has ended. Knows no content of the directory.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from tablestone.engines.contract import EngineRefused

LOCK_NAME: Final = "lock"


def take_server_lock(path: Path) -> int:
    """The open file of the lock; `EngineRefused` if a server has it. Closing the file releases the lock."""
    lock = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise EngineRefused(
            f"The data directory {path} is in use by another Tablestone server."
        ) from None
    return lock
