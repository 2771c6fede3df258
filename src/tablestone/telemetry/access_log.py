"""The access log: one line for each request, as text or as JSON, to standard output or to a file.

One system call appends a whole line, so the lines of several processes never mix. If the disk is full, the server still
serves requests, and its log warns once a minute.
"""

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
"""Characters of a text that a client chose, because a pipe takes only 4,096 bytes in one piece."""
_MODE: Final = 0o640


class AccessLogRefused(Exception):
    """The file cannot be opened. The text is one sentence."""


@dataclass(frozen=True, slots=True)
class AccessLogTarget:
    """The file of the lines, and their format: one of `LOG_FORMATS`."""

    log_format: str
    path: Path | None = None
    """None: standard output."""


class AccessLog:
    """Writes the lines of one process. `seconds` never steps back. Raises `AccessLogRefused`."""

    def __init__(self, target: AccessLogTarget, seconds: Callable[[], float]) -> None:
        self._path = target.path
        self._line = json_line if target.log_format == JSON else text_line
        self._warnings = OnceAMinute(seconds)
        self._process = os.getpid()
        try:
            self._descriptor = self._open()
        except OSError as error:
            sentence = f"The access log {self._path} cannot be written: {error.strerror}."
            raise AccessLogRefused(sentence) from None

    def write(self, record: RequestRecord, details: RequestDetails) -> None:
        """Append the line of an answered request. Never raises."""
        line = self._line(record, details, self._process)
        try:
            written = os.write(self._descriptor, line)
            if written < len(line):  # the disk became full within the line
                os.write(self._descriptor, b"\n")
        except OSError as error:
            if self._warnings.is_due():
                logger.error("Lines of the access log are lost: %s.", error.strerror)  # noqa: TRY400 - the disk's

    def reopen(self) -> None:
        """Open the file again after another program has moved it. If that fails, the old file stays in use."""
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
        if self._path is not None:
            with suppress(OSError):
                os.close(self._descriptor)

    def _open(self) -> int:
        if self._path is None:
            return sys.stdout.fileno()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        # With O_NONBLOCK, opening a FIFO without a reader fails; without it, it would wait.
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
        "operation": record.asked or record.operation_name,
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
    """One JSON object. A text that is unknown is empty."""
    return orjson.dumps(_fields(record, details, process), option=orjson.OPT_APPEND_NEWLINE)


def text_line(record: RequestRecord, details: RequestDetails, process: int) -> bytes:
    """`name=value` pairs. A value with a blank is quoted, and an unknown one is `-`."""
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
