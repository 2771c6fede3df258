"""Formats log lines as text or JSON, limits warnings, and writes a log file that another program may move away."""

import logging
import mmap
import sys
import textwrap
from collections.abc import Callable
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any, Final

import orjson

from tablestone.clock import monotonic_seconds

TEXT: Final = "text"
JSON: Final = "json"
LOG_FORMATS: Final = (TEXT, JSON)


def formatter_of(log_format: str) -> logging.Formatter:
    return JsonFormatter() if log_format == JSON else LineFormatter()


class LineFormatter(logging.Formatter):
    """Writes each message on one line, whatever a client put into it, and indents tracebacks. Times are in UTC."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s [%(process)d] %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802, ARG002 - logging's own
        return utc_text(record.created)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        return on_one_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's own name
        return textwrap.indent(super().formatException(ei), "    ")


class JsonFormatter(logging.Formatter):
    """Writes each message as one JSON object, with the traceback as a member."""

    def format(self, record: logging.LogRecord) -> str:
        members: dict[str, object] = {
            "time": utc_text(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": as_unicode(record.getMessage()),
        }
        if record.exc_info:
            members["traceback"] = as_unicode(self.formatException(record.exc_info))
        return orjson.dumps(members).decode("utf-8")


def utc_text(seconds: float) -> str:
    """A time, in seconds since 1970, as in RFC 3339: with milliseconds, and Z for UTC."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def on_one_line(text: str) -> str:
    """The text with unprintable characters, such as line feeds, escaped."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def as_unicode(text: str) -> str:
    """The text with lone surrogates escaped, which UTF-8 cannot encode."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


logger = logging.getLogger(__name__)

WARNING_SECONDS: Final = 60.0


class OnceAMinute:
    """Limits a warning to one a minute, with `is_shared` for all later forks together. `seconds` never steps back."""

    def __init__(
        self, seconds: Callable[[], float] = monotonic_seconds, *, is_shared: bool = False
    ) -> None:
        self._seconds = seconds
        self._next_at = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("d") if is_shared else [0.0]

    def is_due(self) -> bool:
        now = self._seconds()
        if now < self._next_at[0]:
            return False
        self._next_at[0] = now + WARNING_SECONDS
        return True


class LogFile(WatchedFileHandler):
    """Appends to `path`. `seconds` never steps back. Raises `OSError` if the file cannot be opened."""

    def __init__(self, path: Path, seconds: Callable[[], float]) -> None:
        super().__init__(path, encoding="utf-8")
        self._warnings = OnceAMinute(seconds)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError as error:  # the file was moved away and cannot be created again
            self._warn(error)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        """For a failed write: `emit` calls this."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self._warn(error)
        else:
            super().handleError(record)

    def _warn(self, error: OSError) -> None:
        if self._warnings.is_due():
            logger.error("Messages are missing in %s: %s.", self.baseFilename, error.strerror)
