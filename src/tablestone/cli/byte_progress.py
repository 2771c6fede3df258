"""The progress of a command that goes through a file: one line that changes on a terminal, else a line now and then.

Everything goes to standard error. Knows bytes and a clock; does not know what is done with the bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, TextIO

from tablestone.clock import monotonic_seconds
from tablestone.tools.progress import shown_bytes

LINE_SECONDS: Final = 5.0
UPDATE_SECONDS: Final = 0.1


class ByteProgress:
    """The progress of one command. `title` says what is done, as `backup`."""

    def __init__(
        self,
        title: str,
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = monotonic_seconds,
    ) -> None:
        self._title = title
        self._quiet = quiet
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._told = clock()
        self._is_terminal = self._stream.isatty()
        self._has_line = False

    def __call__(self, done: int, whole: int) -> None:
        """So many bytes of so many are done."""
        now = self._clock()
        pause = UPDATE_SECONDS if self._is_terminal else LINE_SECONDS
        if self._quiet or now - self._told < pause:
            return
        self._told = now
        line = f"{self._title}: {shown_bytes(done)} of {shown_bytes(whole)}"
        if self._is_terminal:
            self._stream.write(f"\r\x1b[K{line}")
            self._has_line = True
        else:
            self._stream.write(f"{line}\n")
        self._stream.flush()

    def close(self) -> None:
        """Remove the line from the terminal."""
        if self._has_line:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._has_line = False
