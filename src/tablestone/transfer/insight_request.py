"""The report of insight, asked of the admin address of a running server.

The admin address asks for no key, so none is sent. Knows the address and the page; does not know what is in the report.
"""

from __future__ import annotations

import http.client
from typing import Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from tablestone.telemetry.insight_report import InsightReport
from tablestone.transfer.refusals import TransferFailed, TransferRefused

ANSWER_SECONDS_MAX: Final = 30
"""Seconds to wait for the admin address."""
PAGE: Final = "/insight"


class Answered(NamedTuple):
    """The report, and the JSON text that it was read from."""

    report: InsightReport
    text: bytes


def ask_for_insight(admin: str, table: str | None = None, account: str | None = None) -> Answered:
    """The report of `[HOST:]PORT` or of a URL; `TransferFailed` says why there is none."""
    host, port = _address(admin)
    asked = {"table": table, "account": account}
    query = urlencode({name: value for name, value in asked.items() if value is not None})
    shown = f"The admin address {host}:{port}"
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_SECONDS_MAX)
    try:
        connection.request("GET", f"{PAGE}?{query}" if query else PAGE)
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise TransferFailed(
            f"{shown} does not answer ({why}): is the server running with --admin {admin}?"
        ) from None
    finally:
        connection.close()
    if answer.status == http.client.NOT_FOUND and text.startswith(b"Insight is off"):
        raise TransferFailed(text.decode("utf-8").strip())
    try:
        if answer.status != http.client.OK:
            raise ValueError(answer.status)  # noqa: TRY301 - one sentence for all that is no report
        return Answered(InsightReport.from_json(text), text)
    except ValueError:
        raise TransferFailed(
            f"{shown} answers, but not with insight: it is no admin address of a Tablestone server that has it."
        ) from None


def _address(admin: str) -> tuple[str, int]:
    """The host and the port of `[HOST:]PORT`, or of a URL."""
    text = admin if "://" in admin else f"//{admin if ':' in admin else f'127.0.0.1:{admin}'}"
    try:
        parts = urlsplit(text)
        if parts.hostname and parts.port and parts.scheme in ("", "http"):
            return parts.hostname, parts.port
    except ValueError:
        pass
    raise TransferRefused(
        f"--admin must be PORT or HOST:PORT, such as 10003 or 127.0.0.1:10003, not {admin!r}."
    )
