"""Flushes files and directories to the disk. Apart from SQLite itself, nothing else calls fsync."""

import os
from pathlib import Path
from typing import IO, Any


def flush(file: IO[Any]) -> None:
    """Flush an open file, Python's buffer included."""
    file.flush()
    os.fsync(file.fileno())


def flush_directory(path: Path) -> None:
    """Flush a directory: a new file is durable only once its directory is."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def flush_file(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file)
