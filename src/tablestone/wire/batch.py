"""The multipart envelope of an entity group transaction: taking requests out, putting answers in (wire 7, 12.2).

Reads what the SDKs of all ages send (CRLF or LF, absolute and relative URLs, missing lengths and newlines); writes to
the letter what the strictest of them can read. Does not decode the requests inside: they take the same way as others.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from http import HTTPStatus
from itertools import pairwise
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from tablestone.errors import StorageError
from tablestone.wire.encode import Answer
from tablestone.wire.messages import Headers, RawRequest, single_headers

_BOUNDARY = re.compile(
    rb'(?:^|[;\s])boundary\s*=\s*(?:"([^"\r\n]{1,200})"|([^\s;"]{1,200}))', re.IGNORECASE
)
_REQUEST_LINE = re.compile(rb"([A-Za-z]+) +(\S+) +HTTP/1\.[01] *")
_HEADERS_END = re.compile(rb"\r?\n[ \t]*\r?\n")
_LINE_END = re.compile(rb"\r?\n")
_NEWLINE: Final = ord("\n")


class BatchPart(NamedTuple):
    """One request inside a batch, its body, and the Content-ID it wants echoed (the one of its inner headers)."""

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
    headers, content = _mime_headers(parts[0])
    kind = headers.get(b"content-type", b"").strip()
    if kind.lower().startswith(b"multipart/mixed"):
        operations = _split(content, _boundary(kind))
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


def _split(body: bytes, boundary: bytes) -> list[bytes]:
    """What stands between the boundary lines, which must open and close; what is before and after is ignored."""
    # A pattern that starts with the boundary's own text is searched for thirty times quicker than one that
    # starts with a line end, so that the line's start is looked at here.
    pattern = re.compile(rb"--" + re.escape(boundary) + rb"(--)?[ \t]*(?=\r?\n|$)")
    lines = [
        match
        for match in pattern.finditer(body)
        if match.start() == 0 or body[match.start() - 1] == _NEWLINE
    ]
    if len(lines) < 2 or lines[-1][1] is None or any(line[1] is not None for line in lines[:-1]):
        raise _malformed()
    return [_content(body[line.end() : after.start()]) for line, after in pairwise(lines)]


def _content(part: bytes) -> bytes:
    """A part without the line ends that belong to the boundary lines after it and before it."""
    part = part[:-1].removesuffix(b"\r")
    return _LINE_END.sub(b"", part, count=1)


def _mime_headers(part: bytes) -> tuple[Headers, bytes]:
    """The headers of a part and what follows its blank line."""
    match = _HEADERS_END.search(part)
    if match is None:
        raise _malformed()
    return _parse_headers(part[: match.start()]), part[match.end() :]


@functools.lru_cache(maxsize=256)
def _parse_headers(block: bytes) -> Headers:
    """The headers of a block; cached, since a batch repeats the same for every operation."""
    pairs = []
    for line in _LINE_END.split(block):
        if line.strip():
            name, colon, value = line.partition(b":")
            if not colon:
                raise _malformed()
            pairs.append((name.strip().lower(), value.strip()))
    return MappingProxyType(single_headers(pairs))


def _operation(part: bytes, outer: RawRequest) -> BatchPart:
    """The HTTP request that a part holds. Its URL's host is not looked at: the outer request was signed for ours."""
    mime, content = _mime_headers(part)
    if not mime.get(b"content-type", b"").lower().startswith(b"application/http"):
        raise _malformed()
    request_line, _, rest = content.lstrip().partition(b"\n")
    match = _REQUEST_LINE.fullmatch(request_line.rstrip(b"\r"))
    if match is None:
        raise _malformed()
    if rest.startswith((b"\r\n", b"\n")):
        block, body = b"", rest
    else:
        end = _HEADERS_END.search(rest)
        block, body = (rest, b"") if end is None else (rest[: end.start()], rest[end.end() :])
    target = match[2]
    if not target.startswith(b"/"):
        target = _path_of_absolute(target)
    path, _, query = target.partition(b"?")
    method = match[1].decode("ascii").upper()
    request = RawRequest(method, path, query, _parse_headers(block), outer.scheme, outer.client)
    return BatchPart(request, body.strip(b"\r\n"))


def _path_of_absolute(target: bytes) -> bytes:
    try:
        split = urlsplit(target)
    except ValueError as error:
        raise _malformed() from error
    if split.scheme not in (b"http", b"https") or not split.path.startswith(b"/"):
        raise _malformed()
    return split.path + (b"?" + split.query if split.query else b"")


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
    lines: list[bytes] = []
    if change_set:
        lines.append(
            b"--" + outer + b"\r\nContent-Type: multipart/mixed; boundary=" + inner + b"\r\n\r\n"
        )
    for answer, content_id in parts:
        lines.append(
            b"--"
            + inner
            + b"\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
        )
        lines.append(_part(answer, content_id))
    if change_set:
        lines.append(b"--" + inner + b"--\r\n")
    lines.append(b"--" + outer + b"--\r\n")
    return b"multipart/mixed; boundary=" + outer, b"".join(lines)


def _part(answer: Answer, content_id: bytes | None) -> bytes:
    """One answer with its headers in the recorded order, which depends on whether it succeeded with a body."""
    data_version = (b"DataServiceVersion", _data_service_version(answer))
    content_type = [] if answer.content_type is None else [(b"Content-Type", answer.content_type)]
    identity = [] if content_id is None else [(b"Content-ID", content_id)]
    applied = (
        []
        if answer.preference_applied is None
        else [(b"Preference-Applied", answer.preference_applied)]
    )
    common = [(b"X-Content-Type-Options", b"nosniff")]
    if not answer.early:
        common.append((b"Cache-Control", b"no-cache"))
    location = [] if answer.location is None else [(b"Location", answer.location.encode("latin-1"))]
    if location and answer.status == 204:
        location.append((b"DataServiceId", location[0][1]))
    etag = [] if answer.etag is None else [(b"ETag", answer.etag.encode("ascii"))]
    if answer.status < 300 and answer.body:
        headers = [data_version, *content_type, *identity, *common, *applied, *location, *etag]
    else:
        headers = [*identity, *common, *applied, data_version, *content_type, *location, *etag]
    headers.extend(answer.extra or ())
    status_line = f"HTTP/1.1 {answer.status} {_PHRASES[answer.status]}\r\n".encode("ascii")
    block = b"".join([name + b": " + value + b"\r\n" for name, value in headers])
    return status_line + block + b"\r\n" + answer.body + b"\r\n"


def _data_service_version(answer: Answer) -> bytes:
    """3.0 where the answer speaks of content, be it that there is none; else 1.0 (wire 7.2)."""
    speaks_of_content = answer.content_type is not None or answer.preference_applied is not None
    return b"3.0;" if speaks_of_content or answer.is_insert else b"1.0;"
