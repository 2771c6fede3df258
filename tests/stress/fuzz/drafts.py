"""Drafts of requests: text that can be kept, changed and read, and is turned into signed bytes.

A draft has a method and a target below the account, header lines, an empty line and the body. The header `sign` says
how to sign: `key`, `lite`, `none`, `bad`, or the query string of a shared access signature. Each draft becomes one HTTP
request with the right length; `socket_cases` has the others.
"""

import re
from dataclasses import dataclass
from email.utils import formatdate
from typing import Final
from urllib.parse import parse_qsl

from sas_signing import query_of, signed
from signing import VERSION, shared_key, shared_key_lite

_NOT_IN_A_TARGET: Final = re.compile(rb"[\x00-\x20\x7f-\xff#]")
_NOT_IN_A_NAME: Final = re.compile(rb"[^!#$%&'*+.^_`|~0-9A-Za-z-]")
_NOT_IN_A_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_FRAMING: Final = frozenset(
    (
        b"content-length",
        b"transfer-encoding",
        b"connection",
        b"upgrade",
        b"expect",
        b"host",
        b"sign",
    )
)
"""Headers that are added here, or that would turn one request into several or none."""
HEADERS_MAX: Final = 60


@dataclass(frozen=True)
class Request:
    """A request before it is signed. Header names are lower-case."""

    method: bytes
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    sign: str


def read(draft: bytes) -> Request:
    """Parse a draft; what is not HTTP gets encoded or left out."""
    head, _, body = draft.partition(b"\n\n")
    first, *lines = head.split(b"\n")
    method, _, target = first.partition(b" ")
    target = _NOT_IN_A_TARGET.sub(lambda found: b"%%%02X" % found[0][0], target)
    pairs = [line.partition(b":") for line in lines[:HEADERS_MAX]]
    given = [
        (_NOT_IN_A_NAME.sub(b"", name).lower(), _NOT_IN_A_VALUE.sub(b"", value).strip())
        for name, _, value in pairs
    ]
    sign = next((value for name, value in given if name == b"sign"), b"key")
    headers = tuple((name, value) for name, value in given if name and name not in _FRAMING)
    method = re.sub(rb"[^A-Z]", b"", method[:20]) or b"GET"
    return Request(
        b"GET" if method == b"CONNECT" else method,
        target[:60_000],
        headers,
        body,
        sign.decode("latin-1"),
    )


def written(request: Request, account: str, key: str, host: str, date: str | None = None) -> bytes:
    """The request as signed bytes. `date` is an HTTP date, by default the present."""
    date = date or formatdate(usegmt=True)
    target = f"/{account}{request.target.decode('ascii')}"
    target, headers = _authorized(request, target, account, key, date)
    names = {name for name, _ in request.headers}
    headers += [(b"host", host.encode()), (b"x-ms-date", date.encode())]
    if b"x-ms-version" not in names:
        headers.append((b"x-ms-version", VERSION.encode()))
    headers += [pair for pair in request.headers if pair[0] not in (b"x-ms-date", b"authorization")]
    if request.body or request.method not in (b"GET", b"HEAD", b"DELETE", b"OPTIONS"):
        headers.append((b"content-length", b"%d" % len(request.body)))
    lines = [b"%b %b HTTP/1.1" % (request.method, target.encode())]
    lines += [b"%b: %b" % header for header in headers]
    return b"\r\n".join([*lines, b"", b""]) + request.body


def _authorized(
    request: Request, target: str, account: str, key: str, date: str
) -> tuple[str, list[tuple[bytes, bytes]]]:
    """The target, which may carry a signature now, and the header of a request that is signed in it."""
    if request.sign.startswith("?"):
        parameters = dict(parse_qsl(request.sign[1:], keep_blank_values=True))
        try:
            signature = query_of(signed(account, key, parameters))
        except KeyError:
            signature = query_of({**parameters, "sig": "x"})
        return f"{target}{'&' if '?' in target else '?'}{signature}", []
    if request.sign == "none":
        return target, []
    found = {name.decode(): value.decode("latin-1") for name, value in reversed(request.headers)}
    if request.sign == "lite":
        authorization = shared_key_lite(account, key, target=target, date=date)
    else:
        authorization = shared_key(
            account,
            key,
            method=request.method.decode(),
            target=target,
            date=date if request.sign == "key" else "",
            content_type=found.get("content-type", ""),
            content_md5=found.get("content-md5", ""),
        )
    return target, [(b"authorization", authorization.encode("latin-1"))]
