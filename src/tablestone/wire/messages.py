"""A request as it arrived and a response as it will leave: plain values between the server and the wire.

The path is kept exactly as it was on the wire, still percent-encoded, because every signature is computed over it
(wire A.1). Header names are lower-case bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tablestone.errors import StorageError

Headers = Mapping[bytes, bytes]

# Headers that mean something to us and must not come twice; all others may, and the last one stands.
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
# Headers that are lists: one that comes twice is a longer list. For an ETag there is then the error of more than one
# (wire 4), as if both had come in one line.
_LIST_HEADERS = frozenset((b"accept", b"if-match", b"if-none-match"))


@dataclass(slots=True)
class RawRequest:
    """A request without its body. `raw_path` and `query_string` are the two sides of the first `?` on the wire.

    `scheme` and `client`, an IP address, tell how it came and from where; a trusted proxy may have said so (auth 6).
    `duplicated` is what is wrong with its headers: one came twice that must not (see `single_headers`).
    """

    method: str
    raw_path: bytes
    query_string: bytes
    headers: Headers
    scheme: str = "http"
    client: str = ""
    duplicated: StorageError | None = None

    def text(self, name: bytes) -> str | None:
        """A header as text, None if it was not sent."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")


@dataclass(slots=True)
class RawResponse:
    """Status, headers in order, body."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""


def single_headers(pairs: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Headers by name. Raises for one that came twice and must not: which of the two was signed, or meant?"""
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
