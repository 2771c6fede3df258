"""Flushes files and directories to the disk: the only module that calls fsync, but for what SQLite does itself."""

import os
from pathlib import Path
from typing import IO, Any


def flush(file: IO[Any]) -> None:
    """Flush an open file, and what Python still holds of it."""
    file.flush()
    os.fsync(file.fileno())


def flush_directory(path: Path) -> None:
    """Flush a directory: a new file is only durable once the directory that names it is."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def flush_file(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file)
