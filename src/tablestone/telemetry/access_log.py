"""The access log: one line a request, as text or as JSON, to standard output or to a file.

A line is written with one call of the kernel to a descriptor that appends, so lines of several processes never mix.
If the disk is full, the request is served all the same; the server's log warns of it, once a minute.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from tablestone.telemetry.logs import JSON, OnceAMinute, on_one_line, utc_text
from tablestone.telemetry.request_record import RequestDetails, RequestRecord

logger = logging.getLogger(__name__)

_TEXT_MAX: Final = 256
"""Characters of a text that a client chose, at most: a pipe takes 4,096 bytes whole."""
_MODE: Final = 0o640


class AccessLogRefused(Exception):
    """The file cannot be opened; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class AccessLogTarget:
    """Where the lines go, and as what: `text` or `json`. Without `path`, to standard output."""

    log_format: str
    path: Path | None = None


class AccessLog:
    """Writes the lines of one process. `AccessLogRefused` if the file cannot be opened at first.

    `seconds` never steps back.
    """

    def __init__(self, target: AccessLogTarget, seconds: Callable[[], float]) -> None:
        self._path = target.path
        self._line = json_line if target.log_format == JSON else text_line
        self._warnings = OnceAMinute(seconds)
        self._process = os.getpid()
        try:
            self._descriptor = self._open()
        except OSError as error:
            raise AccessLogRefused(
                f"The access log {self._path} cannot be written: {error.strerror}."
            ) from None

    def write(self, record: RequestRecord, details: RequestDetails) -> None:
        """Append the line of a request that was answered. Never raises."""
        line = self._line(record, details, self._process)
        try:
            written = os.write(self._descriptor, line)
            if written < len(line):  # the disk is full, and a part fitted
                os.write(self._descriptor, b"\n")
        except OSError as error:
            if self._warnings.is_due():
                logger.error("Lines of the access log are lost: %s.", error.strerror)  # noqa: TRY400 - the disk's

    def reopen(self) -> None:
        """Open the file again, after a program has moved it away. The old file stays in use if that fails."""
        if self._path is None:
            return
        try:
            fresh = self._open()
        except OSError as error:
            logger.error("The access log %s cannot be reopened: %s.", self._path, error.strerror)  # noqa: TRY400 - an operator's mistake
            return
        before, self._descriptor = self._descriptor, fresh
        os.close(before)

    def close(self) -> None:
        """Close the file; nothing is written after this."""
        if self._path is not None:
            with suppress(OSError):
                os.close(self._descriptor)

    def _open(self) -> int:
        if self._path is None:
            return sys.stdout.fileno()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        # Without O_NONBLOCK, a FIFO without a reader would be waited for. With it, opening one fails.
        descriptor = os.open(self._path, flags | os.O_NONBLOCK, _MODE)
        os.set_blocking(descriptor, True)
        return descriptor


def _fields(
    record: RequestRecord, details: RequestDetails, process: int
) -> dict[str, str | int | float]:
    client_request_id = details.client_request_id or b""
    return {
        "time": utc_text(details.at_seconds),
        "process": process,
        "request": details.request_id,
        "client_request": client_request_id.decode("latin-1")[:_TEXT_MAX],
        "client": details.client[:_TEXT_MAX],
        "method": details.method,
        "account": record.account,
        "caller": details.caller,
        "operation": record.operation_name,
        "table": record.table[:_TEXT_MAX],
        "status": record.status,
        "error": record.error_code,
        "reason": record.reason[:_TEXT_MAX],
        "milliseconds": round(1000 * (record.ended - record.started), 3),
        "entities": record.entities,
        "bytes_in": record.bytes_in,
        "bytes_out": record.bytes_out,
        "plan": record.plan,
    }


def json_line(record: RequestRecord, details: RequestDetails, process: int) -> bytes:
    """One JSON object; a text that is not known is empty."""
    return orjson.dumps(_fields(record, details, process), option=orjson.OPT_APPEND_NEWLINE)


def text_line(record: RequestRecord, details: RequestDetails, process: int) -> bytes:
    """`name=value` with blanks between, values with blanks in quotation marks; `-` for what is not known."""
    fields = _fields(record, details, process)
    time = fields.pop("time")
    pairs = " ".join(f"{name}={_text(value)}" for name, value in fields.items())
    return f"{time} {pairs}\n".encode("utf-8", "backslashreplace")


def _text(value: str | float) -> str:
    if not isinstance(value, str):
        return str(value)
    if value == "":
        return "-"
    shown = on_one_line(value)
    if shown.isidentifier() or not _MARKS & set(shown):
        return shown
    return '"' + shown.replace("\\", "\\\\").replace('"', '\\"') + '"'


_MARKS: Final = frozenset(' "=\\')
