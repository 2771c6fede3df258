"""Flushes files and directories to the disk (fsync)."""

from __future__ import annotations

import os
from pathlib import Path


def flush_directory(path: Path) -> None:
    """Flush a directory: a new file is only durable once the directory that names it is."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def flush_file(path: Path) -> None:
    """Flush a file to disk."""
    file = os.open(path, os.O_RDWR)
    try:
        os.fsync(file)
    finally:
        os.close(file)
