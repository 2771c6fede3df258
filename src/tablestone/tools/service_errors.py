"""The errors of a request as the tools know them: an answer that is no success, and no answer at all.

Knows the JSON of the service's errors and the index with which a transaction names its failed operation. Knows no
requests, and not what is tried again.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from azure.core.exceptions import HttpResponseError
    from azure.core.rest import HttpResponse

_XML_CODE: Final = re.compile(rb"<(?:\w+:)?code>([^<]+)<", re.IGNORECASE)
_XML_MESSAGE: Final = re.compile(rb"<(?:\w+:)?message[^>]*>([^<]+)<", re.IGNORECASE)
_INDEXED: Final = re.compile(r"(\d{1,3}):")


class ServiceError(Exception):
    """An answer that is no success. `index` is the operation of a transaction, where the service tells which."""

    def __init__(
        self,
        status: int,
        code: str,
        text: str,
        *,
        index: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__((code or f"HTTP status {status}") + (f": {text}" if text else ""))
        self.status = status
        self.code = code
        self.text = text
        self.index = index
        self.retry_after = retry_after


class Unreachable(Exception):
    """No answer, or not a whole one: the connection failed. A write may have been done."""

    told = "cannot be reached"
    """The words between the name of the service and the reason."""


class Unanswered(Unreachable):
    """The service was reached, and gave no whole answer."""

    told = "gives no whole answer"


def read_json(content: bytes) -> dict[str, Any]:
    """The JSON object of an answer; `Unanswered` if the answer was cut off or is of another kind."""
    try:
        read = orjson.loads(content)
    except ValueError:
        raise Unanswered("what came is not the JSON of a table service") from None
    if not isinstance(read, dict):
        raise Unanswered("what came is JSON of another kind")
    return read


def service_error(response: HttpResponse, content: bytes) -> ServiceError:
    """The error that an answer with a status of 300 or more tells."""
    after = response.headers.get("Retry-After", "")
    code, text = _error_members(content)
    return ServiceError(
        response.status_code,
        response.headers.get("x-ms-error-code") or code,
        text,
        retry_after=float(after) if after.isdecimal() else None,
    )


def part_error(status: int, content: bytes) -> ServiceError:
    """The error of the one part that a failed transaction is answered with; its text begins with the index."""
    start = content.find(b"{")
    code, text = _error_members(content[start : content.rfind(b"}") + 1] if start >= 0 else b"")
    indexed = _INDEXED.match(text)
    if indexed is None:
        return ServiceError(status, code, text)
    return ServiceError(status, code, text[indexed.end() :], index=int(indexed[1]))


def _error_members(content: bytes) -> tuple[str, str]:
    try:
        error = orjson.loads(content)["odata.error"]
        text = error["message"]["value"]
        return str(error["code"]), str(text).partition("\nRequestId:")[0]
    except (ValueError, KeyError, TypeError):
        return _xml_members(content)


def _xml_members(content: bytes) -> tuple[str, str]:
    """The same of an error in XML, which services answer where they did not get as far as the form that was asked."""
    code, text = (pattern.search(content) for pattern in (_XML_CODE, _XML_MESSAGE))
    found = [
        html.unescape(each[1].decode("utf-8", "replace")) if each else "" for each in (code, text)
    ]
    return found[0], found[1].partition("\nRequestId:")[0]


def code_of(error: HttpResponseError) -> str:
    """The service's code in an error of the SDK; empty where it has none."""
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or "")


def first_line(error: Exception) -> str:
    """The first line of an error's text: the SDK and requests append details."""
    return str(error).partition("\n")[0]
