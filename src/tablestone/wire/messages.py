"""HTTP messages as plain values: a request as it arrived, and a response as it will be sent.

The path stays exactly as it was on the wire, percent-encoded, because every signature covers it (wire A.1). Header
names are lower-case bytes.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tablestone.model.errors import StorageError
from tablestone.model.operations import ChangeCursor

Headers = Mapping[bytes, bytes]
NO_CONTENT_TYPE: Final = "Content-Type header value missing."

# Headers that the server reads and that must not occur twice. Of any other header, the last value counts.
_SINGLE_HEADERS = frozenset(
    (
        *(b"authorization", b"content-length", b"content-type", b"content-md5", b"date", b"host"),
        *(b"prefer", b"x-ms-date", b"x-ms-version", b"x-http-method"),
        *(b"dataserviceversion", b"maxdataserviceversion"),
    )
)
# Lists: if one of these occurs twice, the values are joined. Two ETags then give the error for more than one (wire 4),
# as if both were in one header.
_LIST_HEADERS = frozenset((b"accept", b"if-match", b"if-none-match"))


@dataclass(slots=True)
class RawRequest:
    """A request without its body. The first `?` separates `raw_path` and `query_string`."""

    method: str
    raw_path: bytes
    query_string: bytes
    headers: Headers
    scheme: str = "http"
    client: str = ""
    """An IP address. This and `scheme` are those of the connection, or what a trusted proxy reports (auth 6)."""
    duplicated: StorageError | None = None
    """The error of `single_headers`, which is due only after other checks."""
    is_local: bool = False
    """Whether the connection comes from the server's own address: from its machine, as one from a loopback address."""

    def text(self, name: bytes) -> str | None:
        """The value of a header as text; None if it was not sent."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")


def raw_request(
    method: str,
    raw_path: bytes,
    query_string: bytes,
    fields: Sequence[tuple[bytes, bytes]],
    scheme: str,
    client: str,
    is_local: bool = False,  # noqa: FBT001, FBT002 - as the others
) -> RawRequest:
    """A request whose headers are `fields`, in their order."""
    duplicated: StorageError | None = None
    try:
        headers = single_headers(fields)
    except StorageError as error:
        headers, duplicated = dict(fields), error
    return RawRequest(method, raw_path, query_string, headers, scheme, client, duplicated, is_local)


class Wait(NamedTuple):
    """How long a request waits for changes, and where its answer so far ends."""

    seconds: int
    cursor: ChangeCursor
    has_more: bool
    """Whether more changes follow, although the answer has no lines so far."""
    caller: Hashable
    """Equal for two requests that have the same permission to read."""


@dataclass(slots=True)
class RawResponse:
    """A response, with its headers in order."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""
    reason: str | None = None
    """The reason phrase; None: HTTP's own."""
    wait: Wait | None = None
    """Set if the body is empty and the request asked to wait for changes."""

    def sized_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers and the length of the body. A status without a body has one only if `headers` has it."""
        if self.status in _LENGTHLESS:
            return self.headers
        return [*self.headers, (b"content-length", b"%d" % len(self.body))]


_LENGTHLESS: Final = frozenset((204, 304))


def single_headers(pairs: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Headers by name. Raises if a header that must be unique occurs twice, because only one of the two is signed."""
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
            raise StorageError(code)
        seen.add(name)


@dataclass(slots=True)
class Answer:
    """The answer to one operation, without the headers of every response. `early` is that of `StorageError`."""

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
