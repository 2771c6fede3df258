"""A wall clock that a test sets: a file, shared with the servers, says how far it is ahead of the real one.

Each process of the server maps the file (`stepped_server.py`), so a step reaches all of them at once.
"""

import mmap
import struct
import sys
import time
from pathlib import Path
from typing import Final

NAME: Final = "CLOCK_FILE"
"""The environment variable with the path of the file."""
STEPPED: Final = (sys.executable, str(Path(__file__).with_name("stepped_server.py")))
"""The command of a server with such a clock."""
_AHEAD: Final = struct.Struct("=q")


class WallClock:
    """A clock that is some seconds ahead of the real one, or behind it if they are negative; a test may change that."""

    def __init__(self, file: Path) -> None:
        if not file.exists():
            file.write_bytes(_AHEAD.pack(0))
        self.environment = {NAME: str(file)}
        with file.open("r+b") as opened:
            self._shared = mmap.mmap(opened.fileno(), _AHEAD.size)
        self._time_ns = time.time_ns  # the real one, because a server replaces it

    @property
    def ahead_ns(self) -> int:
        ahead: int = _AHEAD.unpack_from(self._shared)[0]
        return ahead

    def set(self, seconds_ahead: float) -> None:
        """Step the clock."""
        _AHEAD.pack_into(self._shared, 0, round(seconds_ahead * 1e9))

    def now_ns(self) -> int:
        """Nanoseconds since 1970, like `time.time_ns`."""
        return self._time_ns() + self.ahead_ns

    def now(self) -> float:
        """Seconds since 1970, like `time.time`."""
        return self.now_ns() / 1e9
