"""The multipart envelope of a batch: reads the requests out of one, and writes the answers into another (wire 7, 12.2).

Reads what old and new clients send (wire 7.1 says how a delimiter differs from a value). Writes exactly the form that
the strictest client can read. Does not decode the requests inside: they are decoded like all other requests.
"""

import functools
import re
from collections.abc import Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, NamedTuple

from tablestone import limits
from tablestone.model.errors import StorageError
from tablestone.wire.messages import NO_CONTENT_TYPE, Answer, Headers, RawRequest, single_headers

_BOUNDARY = re.compile(
    rb'(?:^|[;\s])boundary\s*=\s*(?:"([^"\r\n]{1,200})"|([^\s;"]{1,200}))', re.IGNORECASE
)
# The host of an absolute URL is ignored: the signature of the outer request already covers the account.
_ORIGIN = re.compile(rb"(?:https?://[^/?#]*)?", re.IGNORECASE)
_DELIMITER_END = re.compile(rb"(--)?[ \t]*(?:\r?\n|\Z)")
_LINE_ENDS = re.compile(rb"(?:\r?\n){0,2}")
# A search is much faster if the pattern begins with one fixed byte; `strip` removes a \r before it.
_HEADERS_END = re.compile(rb"\n[ \t]*\r?\n")
_MIME_HEADERS_END = re.compile(rb"\n[ \t]*\r?\n\s*")
_LINE_END = re.compile(rb"\r?\n")
_NO_PART_OF_A_VALUE = re.compile(rb"[\r\0]")
_HTTP_VERSIONS: Final = (b"HTTP/1.1", b"HTTP/1.0")
_LENGTH_DIGITS_MAX: Final = 10


class BatchPart(NamedTuple):
    """A request in a batch, and its body."""

    request: RawRequest
    body: bytes
    head: int
    """Counts the heads of the batch: parts in a row with the same head have the same number."""

    @property
    def content_id(self) -> bytes | None:
        """The Content-ID of the inner HTTP headers. The answer repeats no other, as recorded (wire 7.2)."""
        return self.request.headers.get(b"content-id")


class BatchRequest(NamedTuple):
    """A change set of writes, or one query; neither if the body never uses the boundary of its header (wire 7.1)."""

    parts: Sequence[BatchPart]
    is_change_set: bool
    ends_unreadable: bool
    """Whether a part follows whose request line or headers cannot be read (wire 7.3)."""


def _malformed() -> StorageError:
    return StorageError("InvalidInput")


def parse_batch(content_type: bytes | None, body: bytes, outer: RawRequest) -> BatchRequest:
    """The requests in a batch; raises `InvalidInput` for a malformed envelope, or a second part after the first."""
    if not content_type:
        raise StorageError("InvalidInput", NO_CONTENT_TYPE)
    mark = b"--" + _boundary(content_type)
    opening = _next_delimiter(body, mark, 0)
    is_whole = outer.headers.get(b"content-length") == b"%d" % len(body)
    if opening is None and is_whole and mark not in body and not mark.startswith(body.strip()):
        return BatchRequest((), is_change_set=False, ends_unreadable=False)
    if opening is None or opening.closes:
        raise _malformed()
    after = _next_delimiter(body, mark, opening.end)
    end = len(body) if after is None else after.start
    headers, at = _mime_headers(body, opening.end, end)
    kind = headers.get(b"content-type", b"").strip()
    if kind.lower().startswith(b"multipart/mixed"):
        inner = b"--" + _boundary(kind)
        return _read_change_set(body, at, inner, outer, mark, after)
    if after is None:
        raise _malformed()
    part, after, _ = _read_part(body, mark, opening.end, after, outer)
    if not after.closes:
        raise _malformed()
    if part is None:
        return BatchRequest((), is_change_set=False, ends_unreadable=True)
    is_change_set = part.request.method != "GET"
    return BatchRequest([part], is_change_set, ends_unreadable=False)


def _boundary(content_type: bytes) -> bytes:
    match = _BOUNDARY.search(content_type)
    if match is None or not content_type.strip().lower().startswith(b"multipart/mixed"):
        raise _malformed()
    return match[1] or match[2]


class _Delimiter(NamedTuple):
    """`--` and a boundary at the end of a line."""

    start: int
    end: int
    """The start of the next line."""
    closes: bool
    """Whether it is the last one of its envelope."""


def _next_delimiter(body: bytes, mark: bytes, at: int) -> _Delimiter | None:
    """The next delimiter, anywhere in a line: some clients send it directly after the JSON (wire 7.1)."""
    at = body.find(mark, at)
    while at >= 0:
        end = at + len(mark)
        if body.startswith(b"\r\n", end):  # the usual case, without a pattern
            return _Delimiter(at, end + 2, closes=False)
        line_end = _DELIMITER_END.match(body, end)
        if line_end is not None:
            return _Delimiter(at, line_end.end(), line_end[1] is not None)
        at = body.find(mark, at + 1)
    return None


def _delimiter_at(body: bytes, mark: bytes, at: int) -> _Delimiter | None:
    """The delimiter at this position or after one or two line ends there, if there is one."""
    line_ends = _LINE_ENDS.match(body, at)
    start = at if line_ends is None else line_ends.end()
    if not body.startswith(mark, start):
        return None
    line_end = _DELIMITER_END.match(body, start + len(mark))
    return line_end and _Delimiter(start, line_end.end(), line_end[1] is not None)


_PARTS_READ: Final = limits.CHANGE_SET_OPERATIONS_MAX + 1
"""One more than allowed is enough for the error, and a body can hold thousands."""


def _read_change_set(
    body: bytes, at: int, inner: bytes, outer: RawRequest, mark: bytes, closing: _Delimiter | None
) -> BatchRequest:
    """The parts from this position to the closing delimiter, which must exist; at most `_PARTS_READ`.

    `closing` is the next delimiter of the outer envelope, whose mark is `mark`.
    """
    parts: list[BatchPart] = []
    part: BatchPart | None = None
    head = b""  # all before the body of the last part: most parts of a batch have the same
    ends_unreadable = False
    here = _next_delimiter(body, inner, at)
    _require_before(here, closing)
    while here is not None and not here.closes:
        after = _next_delimiter(body, inner, here.end)
        if after is None:
            raise _malformed()
        if ends_unreadable:
            here = after
            continue
        if part is not None and head and body.startswith(head, here.end):
            content = body[here.end + len(head) : after.start].strip(b"\r\n")
            part, follows = BatchPart(part.request, content, part.head), after
        else:
            part, follows, head_end = _read_part(body, inner, here.end, after, outer)
            head = body[here.end : head_end]
            if part is not None and parts:
                before = parts[-1]
                is_new = part.request is not before.request
                part = part._replace(head=before.head + 1 if is_new else before.head)
        # A Content-Length reaches beyond `after`, so that is part of a value and not a delimiter.
        if closing is not None and after.start <= closing.start < follows.start:
            closing = _next_delimiter(body, mark, follows.start)
        _require_before(follows, closing)
        here = follows
        if part is None:
            ends_unreadable = True
        else:
            parts.append(part)
            if len(parts) == _PARTS_READ:
                return BatchRequest(parts, is_change_set=True, ends_unreadable=False)
    # Nothing may follow. The end of the outer envelope may be missing or lack its dashes (wire 7.1).
    if closing is not None and not closing.closes and body[closing.end :].strip():
        raise _malformed()
    return BatchRequest(parts, is_change_set=True, ends_unreadable=ends_unreadable)


def _require_before(here: _Delimiter | None, closing: _Delimiter | None) -> None:
    """Raise unless a delimiter of the change set is there, and comes before that of the envelope."""
    if here is None or (closing is not None and closing.start < here.start):
        raise _malformed()


def _mime_headers(body: bytes, start: int, stop: int) -> tuple[Headers, int]:
    """The headers of a part, and the position after the blank line that ends them."""
    match = _MIME_HEADERS_END.search(body, start, stop)
    if match is None:
        raise _malformed()
    headers = _short_or_long_headers(body[start : match.start()])
    if headers is None:
        raise _malformed()
    return headers, match.end()


def _read_part(
    body: bytes, mark: bytes, start: int, after: _Delimiter, outer: RawRequest
) -> tuple[BatchPart | None, _Delimiter, int]:
    """The HTTP request of a part (None if it cannot be read), the delimiter that ends it, and the end of its head.

    The delimiter is `after`, unless a Content-Length leads to a later one: then `after` is inside a value (wire 7.1).
    Later parts cannot share a head with a Content-Length, so the end of such a head is given as `start`.
    """
    if not body[start : after.start].strip():
        return None, after, start
    mime, at = _mime_headers(body, start, after.start)
    if not mime.get(b"content-type", b"").lower().startswith(b"application/http"):
        raise _malformed()
    head_end = _HEADERS_END.search(body, at, after.start)
    if head_end is None:
        head, content = body[at : after.start], after.start
    else:
        head, content = body[at : head_end.start()], head_end.end()
    parse = _parse_short_head if len(head) <= _SHORT else _parse_head
    request = parse(head, outer.scheme, outer.client)
    if request is None:
        return None, after, start
    declared = request.headers.get(b"content-length")
    if declared is not None:
        if not declared.isdigit() or len(declared) > _LENGTH_DIGITS_MAX:
            return None, after, start
        end = content + int(declared)
        if head_end is not None and end > after.start:
            after = _delimiter_at(body, mark, end) or after
    part = BatchPart(request, body[content : after.start].strip(b"\r\n"), 0)
    return part, after, start if head_end is None or declared is not None else content


def _parse_head(head: bytes, scheme: str, client: str) -> RawRequest | None:
    """The request of a part, without its body; None if it cannot be read.

    The target lies between the first and the last blank of the line, because some clients encode nothing (wire 7.1). A
    `#` stays in the path and is refused there, as in a single request (wire 1.3).
    """
    line, _, rest = head.partition(b"\n")
    method, _, target_and_version = line.rstrip().partition(b" ")
    target, _, version = target_and_version.rpartition(b" ")
    target = target.strip(b" ")
    if not method.isalpha() or version not in _HTTP_VERSIONS:
        return None
    origin = _ORIGIN.match(target)
    start = 0 if origin is None else origin.end()
    if start and target[start : start + 1] in (b"", b"?"):  # a host without a path
        target = target[:start] + b"/" + target[start:]
    if target[start : start + 1] != b"/":
        return None
    if len(target) - start > limits.URL_LENGTH_MAX:  # as for the URL of a single request
        raise _malformed()
    path, _, query = target[start:].partition(b"?")
    headers = _short_or_long_headers(rest)
    if headers is None:
        return None
    return RawRequest(method.decode("ascii").upper(), path, query, headers, scheme, client)


def _parse_headers(block: bytes) -> Headers | None:
    """The headers of a block; None if a line is not a header, or if a header that must be unique occurs twice.

    None also for a value with a CR or NUL: the answer repeats Content-ID, and a CR could end a line there.
    """
    pairs = []
    for line in _LINE_END.split(block):
        if line.strip():
            name, colon, value = line.partition(b":")
            value = value.strip()
            if not colon or _NO_PART_OF_A_VALUE.search(value):
                return None
            pairs.append((name.strip().lower(), value))
    try:
        return MappingProxyType(single_headers(pairs))
    except StorageError:
        return None


def _short_or_long_headers(block: bytes) -> Headers | None:
    return _parse_short_headers(block) if len(block) <= _SHORT else _parse_headers(block)


_SHORT: Final = 2048
"""Bytes of the longest head that is cached, so that the cache stays small."""
# The operations of a batch have the same headers, and its inserts have the same head.
_parse_short_head = functools.lru_cache(maxsize=256)(_parse_head)
_parse_short_headers = functools.lru_cache(maxsize=256)(_parse_headers)


_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}
_PHRASES[412] = "Precondition Failed"


def format_batch_answer(
    parts: Sequence[bytes], guids: tuple[str, str], *, change_set: bool
) -> tuple[bytes, bytes]:
    """Content-Type and body of the outer answer (202). `guids` name its boundaries, new for each answer (wire 7.2)."""
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
    for part in parts:
        pieces.append(mime)
        pieces.append(part)
    if change_set:
        pieces.append(b"--%b--\r\n" % inner)
    pieces.append(b"--%b--\r\n" % outer)
    return b"multipart/mixed; boundary=" + outer, b"".join(pieces)


def format_unreadable_part(error: bytes) -> bytes:
    """The error for a part with unreadable headers, as recorded. Its form is fixed: no Accept could be read."""
    return (
        b"HTTP/1.1 400 Bad Request\r\nDataServiceVersion: 1.0;\r\n"
        b"Content-Type: application/xml;charset=utf-8\r\n\r\n%b\r\n" % error
    )


def format_part(answer: Answer, content_id: bytes | None) -> bytes:
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
    """The headers that all answers of a kind share, before and after a Content-ID, in the recorded order (wire 7.2)."""
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
    """3.0 if the answer's headers are about content in JSON, even without a body; else 1.0, as recorded (wire 7.2)."""
    if answer.content_type is not None and not answer.content_type.startswith(b"application/json"):
        return b"2.0;" if answer.is_of_odata_2 else b"1.0;"
    speaks_of_content = answer.content_type is not None or answer.preference_applied is not None
    return b"3.0;" if speaks_of_content or answer.is_insert else b"1.0;"
