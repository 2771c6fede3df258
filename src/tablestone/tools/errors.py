"""The errors of the tools.

Imports nothing of the SDK, so that the command line can catch these errors without loading it. No message contains a
key, a signature or a connection string.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from azure.core.exceptions import HttpResponseError
    from azure.core.rest import HttpResponse


class TransferRefused(Exception):
    """The tool cannot begin: bad input or a wrong option. Nothing was written."""


class FieldRefused(TransferRefused):
    """Wrong input; `field` is the name of its field, with a colon and a number if several fields have the name.

    The script of the page puts the sentence beside the field.
    """

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


class TransferFailed(Exception):
    """The tool began and could not finish. The message says how to go on, if possible.

    If an answer of the service is the reason, it is the cause of this exception.
    """

    @property
    def code(self) -> str:
        """The code of the service's answer; empty if there is none."""
        return getattr(self.__cause__, "code", "")

    @property
    def status(self) -> int:
        """The status of the service's answer; 0 if there is none."""
        return getattr(self.__cause__, "status", 0)

    @property
    def is_denied(self) -> bool:
        """Whether the credentials are valid but do not allow the request."""
        return self.status == 403 and self.code.startswith("Authorization")


@contextmanager
def refusing_unreadable(path: str | Path) -> Iterator[None]:
    """Turn a failure to read a user's file, or to decode it, into `TransferRefused`."""
    try:
        yield
    except UnicodeDecodeError:
        raise TransferRefused(f"{path} is not UTF-8.") from None
    except OSError as error:
        raise TransferRefused(f"{path} cannot be read: {error.strerror}.") from None


_XML_CODE: Final = re.compile(rb"<(?:\w+:)?code>([^<]+)<", re.IGNORECASE)
_XML_MESSAGE: Final = re.compile(rb"<(?:\w+:)?message[^>]*>([^<]+)<", re.IGNORECASE)
_INDEXED: Final = re.compile(r"(\d{1,3}):")


@dataclass(eq=False)
class ServiceError(Exception):
    """An error answer. `index` is the failed operation of a transaction, if the service names it.

    `is_uncertain`: an earlier attempt got no answer, and may have done the work.
    """

    status: int
    code: str
    text: str
    _: KW_ONLY
    index: int | None = None
    retry_after: float | None = None
    is_uncertain: bool = False

    def __str__(self) -> str:
        return (self.code or f"HTTP status {self.status}") + (f": {self.text}" if self.text else "")


class Unreachable(Exception):
    """The connection failed: no answer, or only part of one. A write may have been done."""

    verb = "cannot be reached"
    """Messages put it between the name of the service and the reason."""


class UnknownHost(Unreachable):
    """The host name does not resolve: it may be mistyped."""


class Unanswered(Unreachable):
    """The service was reached, but its answer is not whole."""

    verb = "gives no whole answer"


def read_json(content: bytes) -> dict[str, Any]:
    """The JSON object of an answer; `Unanswered` if the answer is anything else."""
    try:
        read = orjson.loads(content)
    except ValueError:
        raise Unanswered("what came is not the JSON of a table service") from None
    if not isinstance(read, dict):
        raise Unanswered("what came is JSON of another kind")
    return read


def service_error(response: HttpResponse, content: bytes) -> ServiceError:
    """The error of an answer with a status of 300 or more."""
    after = response.headers.get("Retry-After", "")
    code, text = _error_members(content)
    return ServiceError(
        response.status_code,
        response.headers.get("x-ms-error-code") or code,
        text,
        retry_after=float(after) if after.isdecimal() else None,
    )


def part_error(status: int, content: bytes) -> ServiceError:
    """The error of a failed transaction: its one part has a message that begins with the index of the operation."""
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
    """The code and text of an XML error: services send one if they fail before they read Accept."""
    code, text = (pattern.search(content) for pattern in (_XML_CODE, _XML_MESSAGE))
    found = [
        html.unescape(each[1].decode("utf-8", "replace")) if each else "" for each in (code, text)
    ]
    return found[0], found[1].partition("\nRequestId:")[0]


def code_of(error: HttpResponseError) -> str:
    """The service's code in an error of the SDK; empty if it has none."""
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or "")


def first_line(error: Exception) -> str:
    """The first line of an error's text: the SDK and requests append details."""
    return str(error).partition("\n")[0]
