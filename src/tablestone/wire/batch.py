"""The multipart envelope of an entity group transaction: taking requests out, putting answers in (wire 7, 12.2).

Reads what the SDKs of all ages send (CRLF or LF, absolute and relative URLs, missing lengths and newlines); writes to
the letter what the strictest of them can read. Does not decode the requests inside: they take the same way as others.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from itertools import islice, pairwise
from types import MappingProxyType
from typing import Final, NamedTuple

from tablestone import limits
from tablestone.errors import StorageError
from tablestone.wire.encode import Answer
from tablestone.wire.messages import Headers, RawRequest, single_headers

_BOUNDARY = re.compile(
    rb'(?:^|[;\s])boundary\s*=\s*(?:"([^"\r\n]{1,200})"|([^\s;"]{1,200}))', re.IGNORECASE
)
# The host of an absolute URL is not looked at: the outer request was signed for ours. A `#` belongs to the path, as in
# a request of its own: there it is out of range (wire 1.3).
_REQUEST_LINE = re.compile(
    rb"([A-Za-z]+) +(?:(?i:https?)://[^/?#\s]*)?(/[^?\s]*)(?:\?(\S*))? +HTTP/1\.[01] *\r?(?:\n|\Z)"
)
_BOUNDARY_LINE_END = re.compile(rb"(--)?[ \t]*(?:\r?\n|\Z)")
# Patterns that begin with one certain byte are searched for much quicker: a \r before it is left to `strip`.
_HEADERS_END = re.compile(rb"\n[ \t]*\r?\n")
_MIME_HEADERS_END = re.compile(rb"\n[ \t]*\r?\n\s*")
_LINE_END = re.compile(rb"\r?\n")
_NEWLINE: Final = ord("\n")


class BatchPart(NamedTuple):
    """One request inside a batch and its body. Parts with the same head share one request object."""

    request: RawRequest
    body: bytes

    @property
    def content_id(self) -> bytes | None:
        """Only the Content-ID among the inner HTTP headers is echoed, as recorded (wire 7.2)."""
        return self.request.headers.get(b"content-id")


class BatchRequest(NamedTuple):
    """The parts of a batch: a change set of writes, or one lone query."""

    parts: Sequence[BatchPart]
    is_change_set: bool


def _malformed() -> StorageError:
    return StorageError("InvalidInput", early=True)


def parse_batch(content_type: bytes | None, body: bytes, outer: RawRequest) -> BatchRequest:
    """Take a batch apart; raises `InvalidInput` for a malformed envelope or a mixture of queries and changes."""
    parts = _split(body, _boundary(content_type))
    if len(parts) != 1:
        raise _malformed()
    headers, content_start = _mime_headers(parts[0])
    kind = headers.get(b"content-type", b"").strip()
    if kind.lower().startswith(b"multipart/mixed"):
        operations = _split(parts[0][content_start:], _boundary(kind))
        return BatchRequest([_operation(part, outer) for part in operations], is_change_set=True)
    lone = _operation(parts[0], outer)
    return BatchRequest([lone], is_change_set=lone.request.method != "GET")


def _boundary(content_type: bytes | None) -> bytes:
    if content_type is None or not content_type.strip().lower().startswith(b"multipart/mixed"):
        raise _malformed()
    match = _BOUNDARY.search(content_type)
    if match is None:
        raise _malformed()
    return match[1] or match[2]


class _BoundaryLine(NamedTuple):
    """A line that holds a boundary: where it begins, where what follows it begins, whether it is the last."""

    start: int
    end: int
    closes: bool


_PARTS_READ: Final = limits.CHANGE_SET_OPERATIONS_MAX + 1
"""One more than may be there is enough to refuse them all, and tens of thousands fit into a body."""


def _split(body: bytes, boundary: bytes) -> list[bytes]:
    """What stands between the boundary lines, which must open and close; what is before and after is ignored.

    Of more parts than `_PARTS_READ` the first are given, and nothing behind them is looked at.
    """
    lines = list(islice(_boundary_lines(body, b"--" + boundary), _PARTS_READ + 1))
    has_end = len(lines) <= _PARTS_READ
    if len(lines) < 2 or lines[-1].closes < has_end or any(line.closes for line in lines[:-1]):
        raise _malformed()
    # The line end before a boundary belongs to the boundary.
    return [
        body[line.end : after.start].removesuffix(b"\n").removesuffix(b"\r")
        for line, after in pairwise(lines)
    ]


def _boundary_lines(body: bytes, delimiter: bytes) -> Iterator[_BoundaryLine]:
    at = body.find(delimiter)
    while at >= 0:
        end = at + 1
        if at == 0 or body[at - 1] == _NEWLINE:
            line_end = _BOUNDARY_LINE_END.match(body, at + len(delimiter))
            if line_end is not None:
                end = line_end.end()
                yield _BoundaryLine(at, end, line_end[1] is not None)
        at = body.find(delimiter, end)


def _mime_headers(part: bytes) -> tuple[Headers, int]:
    """The headers of a part and where what follows their blank line begins."""
    match = _MIME_HEADERS_END.search(part)
    if match is None:
        raise _malformed()
    return _short_or_long_headers(part[: match.start()]), match.end()


def _parse_headers(block: bytes) -> Headers:
    pairs = []
    for line in _LINE_END.split(block):
        if line.strip():
            name, colon, value = line.partition(b":")
            if not colon:
                raise _malformed()
            pairs.append((name.strip().lower(), value.strip()))
    return MappingProxyType(single_headers(pairs))


def _short_or_long_headers(block: bytes) -> Headers:
    return _parse_short_headers(block) if len(block) <= _SHORT else _parse_headers(block)


def _operation(part: bytes, outer: RawRequest) -> BatchPart:
    """The HTTP request that a part holds."""
    mime, at = _mime_headers(part)
    if not mime.get(b"content-type", b"").lower().startswith(b"application/http"):
        raise _malformed()
    end = _HEADERS_END.search(part, at)
    head, body = (part[at:], b"") if end is None else (part[at : end.start()], part[end.end() :])
    parse = _parse_short_head if len(head) <= _SHORT else _parse_head
    return BatchPart(parse(head, outer.scheme, outer.client), body.strip(b"\r\n"))


def _parse_head(head: bytes, scheme: str, client: str) -> RawRequest:
    line = _REQUEST_LINE.match(head)
    if line is None:
        raise _malformed()
    method, path, query = line.groups()
    target_end = line.end(2) if query is None else line.end(3)
    if target_end - line.start(2) > limits.URL_LENGTH_MAX:  # more than a URL of its own could hold
        raise _malformed()
    headers = _short_or_long_headers(head[line.end() :])
    return RawRequest(method.decode("ascii").upper(), path, query or b"", headers, scheme, client)


_SHORT: Final = 2048
"""Bytes of a head up to which what was read of it is kept, so that keeping many costs little."""
# A batch repeats the same headers for every operation, and inserts the same head.
_parse_short_head = functools.lru_cache(maxsize=256)(_parse_head)
_parse_short_headers = functools.lru_cache(maxsize=256)(_parse_headers)


_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}
_PHRASES[412] = "Precondition Failed"


def format_batch_answer(
    parts: Sequence[tuple[Answer, bytes | None]], guids: tuple[str, str], *, change_set: bool
) -> tuple[bytes, bytes]:
    """The Content-Type and body of the outer 202: every answer as a part, each with its Content-ID.

    `guids` name the two boundaries; they are fresh for every answer (wire 7.2).
    """
    outer = f"batchresponse_{guids[0]}".encode("ascii")
    inner = f"changesetresponse_{guids[1]}".encode("ascii") if change_set else outer
    mime = (
        b"--%b\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
        % inner
    )
    pieces: list[bytes] = []
    if change_set:
        pieces.append(
            b"--%b\r\nContent-Type: multipart/mixed; boundary=%b\r\n\r\n" % (outer, inner)
        )
    for answer, content_id in parts:
        pieces.append(mime)
        pieces.append(_part(answer, content_id))
    if change_set:
        pieces.append(b"--%b--\r\n" % inner)
    pieces.append(b"--%b--\r\n" % outer)
    return b"multipart/mixed; boundary=" + outer, b"".join(pieces)


def _part(answer: Answer, content_id: bytes | None) -> bytes:
    """One answer with its headers in the recorded order."""
    before, after = _headers_of_kind(
        answer.status,
        answer.content_type,
        answer.preference_applied,
        _data_service_version(answer),
        has_body=bool(answer.body),
        early=answer.early,
    )
    pieces = [before]
    if content_id is not None:
        pieces.append(b"Content-ID: %b\r\n" % content_id)
    pieces.append(after)
    if answer.location is not None:
        location = answer.location.encode("latin-1")
        pieces.append(b"Location: %b\r\n" % location)
        if answer.status == 204:
            pieces.append(b"DataServiceId: %b\r\n" % location)
    if answer.etag is not None:
        pieces.append(b"ETag: %b\r\n" % answer.etag.encode("ascii"))
    if answer.extra is not None:
        pieces.extend([b"%b: %b\r\n" % header for header in answer.extra])
    pieces.append(b"\r\n%b\r\n" % answer.body)
    return b"".join(pieces)


@functools.lru_cache(maxsize=256)
def _headers_of_kind(
    status: int,
    content_type: bytes | None,
    preference_applied: bytes | None,
    data_service_version: bytes,
    *,
    has_body: bool,
    early: bool,
) -> tuple[bytes, bytes]:
    """What all answers of a kind begin with, before and after a Content-ID; the order is as recorded (wire 7.2)."""
    speaks = b"DataServiceVersion: %b\r\n" % data_service_version
    if content_type is not None:
        speaks += b"Content-Type: %b\r\n" % content_type
    common = b"X-Content-Type-Options: nosniff\r\n"
    if not early:
        common += b"Cache-Control: no-cache\r\n"
    if preference_applied is not None:
        common += b"Preference-Applied: %b\r\n" % preference_applied
    status_line = f"HTTP/1.1 {status} {_PHRASES[status]}\r\n".encode("ascii")
    if status < 300 and has_body:
        return status_line + speaks, common
    return status_line, common + speaks


def _data_service_version(answer: Answer) -> bytes:
    """3.0 where the answer speaks of content in JSON, be it that there is none; else 1.0, as recorded (wire 7.2)."""
    if answer.content_type is not None and not answer.content_type.startswith(b"application/json"):
        return b"1.0;"
    speaks_of_content = answer.content_type is not None or answer.preference_applied is not None
    return b"3.0;" if speaks_of_content or answer.is_insert else b"1.0;"
