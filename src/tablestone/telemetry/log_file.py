"""A file that gets the messages of the log. A file that was moved away is made again; a full disk ends nothing.

Knows no form of a message and no other place of the log.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

TOLD_SECONDS: Final = 60.0
"""Seconds between two errors that the file cannot be written, at least."""


class LogFile(WatchedFileHandler):
    """Appends to `path`; `OSError` if it cannot be opened at first. `seconds` never steps back."""

    def __init__(self, path: Path, seconds: Callable[[], float]) -> None:
        super().__init__(path, encoding="utf-8")
        self._seconds = seconds
        self._tells_at = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message. A message that cannot be written is lost."""
        try:
            super().emit(record)
        except OSError as error:  # the file was moved away, and no new one can be made
            self._tell(error)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        """Called by `emit` for an error of the write itself."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self._tell(error)
        else:
            super().handleError(record)

    def _tell(self, error: OSError) -> None:
        now = self._seconds()
        if now >= self._tells_at:
            self._tells_at = now + TOLD_SECONDS
            logger.error("Messages are missing in %s: %s.", self.baseFilename, error.strerror)
