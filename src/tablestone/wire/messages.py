"""The messages of HTTP as plain values: a request as it arrived, and a response as it will be sent.

The path stays exactly as it was on the wire, percent-encoded, because every signature is computed over it (wire A.1).
Header names are lower-case bytes.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tablestone.model.errors import StorageError
from tablestone.model.operations import ChangeCursor

Headers = Mapping[bytes, bytes]
NO_CONTENT_TYPE: Final = "Content-Type header value missing."

# Headers that the server reads and that must not occur twice. Of any other header the last value counts.
_SINGLE_HEADERS = frozenset(
    (
        b"authorization",
        b"content-length",
        b"content-type",
        b"content-md5",
        b"date",
        b"host",
        b"prefer",
        b"x-ms-date",
        b"x-ms-version",
        b"x-http-method",
        b"dataserviceversion",
        b"maxdataserviceversion",
    )
)
# Headers that are lists: if one occurs twice, the values are joined to a longer list. Two ETags then give the error for
# more than one (wire 4), as if both were in one header.
_LIST_HEADERS = frozenset((b"accept", b"if-match", b"if-none-match"))


@dataclass(slots=True)
class RawRequest:
    """A request without its body. `raw_path` and `query_string` are the parts before and after the first `?`.

    `scheme` and `client` (an IP address) are those of the connection, or those that a trusted proxy reports (auth 6).
    `duplicated` is the error for a header that must not occur twice and does (see `single_headers`).
    """

    method: str
    raw_path: bytes
    query_string: bytes
    headers: Headers
    scheme: str = "http"
    client: str = ""
    duplicated: StorageError | None = None

    def text(self, name: bytes) -> str | None:
        """The value of a header as text; None if it was not sent."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")


class Wait(NamedTuple):
    """How long a request waits for changes, and where its answer so far ends."""

    seconds: int
    cursor: ChangeCursor
    has_more: bool
    """Whether more changes follow, though the answer has no line so far."""
    caller: Hashable
    """Equal for two requests if what decides whether they may read is the same for both."""


@dataclass(slots=True)
class RawResponse:
    """A response: its status, its headers in order, its body, and its reason phrase if that is not HTTP's own."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""
    reason: str | None = None
    wait: Wait | None = None
    """The answer may wait: it is empty, and the request asks for changes that are still to come."""


def single_headers(pairs: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Headers by name. Raises if a header that must be unique occurs twice: only one of the two can be signed."""
    found = dict(pairs)
    if len(found) != len(pairs):
        _require_single(pairs)
        for listed in _LIST_HEADERS.intersection(found):
            found[listed] = b",".join([value for name, value in pairs if name == listed])
    return found


def _require_single(pairs: Sequence[tuple[bytes, bytes]]) -> None:
    seen: set[bytes] = set()
    for name, _ in pairs:
        if name in seen and name in _SINGLE_HEADERS:
            code = "XMethodIncorrectCount" if name == b"x-http-method" else "InvalidHeaderValue"
            raise StorageError(code, early=True)
        seen.add(name)


@dataclass(slots=True)
class Answer:
    """The answer to one operation, without the headers that every response has.

    `early` marks an error of parsing or binding: its answer lacks two headers (wire 2.2).
    """

    status: int
    body: bytes = b""
    content_type: bytes | None = None
    etag: str | None = None
    location: str | None = None
    preference_applied: bytes | None = None
    is_insert: bool = False
    is_of_odata_2: bool = False
    early: bool = False
    extra: list[tuple[bytes, bytes]] | None = None
