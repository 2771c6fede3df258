"""The two forms of the server's log, text and JSON: every message is one line, whatever a client put into it."""

from __future__ import annotations

import logging
import textwrap
from datetime import UTC, datetime
from typing import Any, Final

import orjson

TEXT: Final = "text"
JSON: Final = "json"
LOG_FORMATS: Final = (TEXT, JSON)


def formatter_of(log_format: str) -> logging.Formatter:
    """The formatter of one of `LOG_FORMATS`."""
    return JsonFormatter() if log_format == JSON else LineFormatter()


class LineFormatter(logging.Formatter):
    """Every message is one line, and every line of a traceback is indented, whatever text of a client's is in them.

    Times are in UTC, as in the access log, and end in Z.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s [%(process)d] %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802, ARG002 - logging's own
        return utc_text(record.created)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        return on_one_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's own name
        return textwrap.indent(super().formatException(ei), "    ")


class JsonFormatter(logging.Formatter):
    """One JSON object a message; a traceback is one of its members."""

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
    """A moment, in seconds since 1970, as RFC 3339 writes it: milliseconds, and Z for UTC."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def on_one_line(text: str) -> str:
    """A text with whatever cannot be seen in it, line feeds too, as escapes."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def as_unicode(text: str) -> str:
    """A text without halves of surrogate pairs, which UTF-8 cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
