"""How often this disk can make an append durable, which limits every acknowledged write."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = b"\0" * 4096


def flushes_per_second(directory: Path, seconds: float = 1.0) -> float:
    """Append 4 KiB and fdatasync, again and again, for some seconds."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "flush-rate"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        flushes = 0
        start = time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds:
            os.write(descriptor, BLOCK)
            os.fdatasync(descriptor)
            flushes += 1
    finally:
        os.close(descriptor)
        path.unlink()
    return flushes / elapsed
