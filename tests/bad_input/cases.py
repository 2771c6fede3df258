"""Requests that no client should send, as data: the bytes, the answer, and where the rule stands.

"issue" is the list of bad input the project was asked to withstand; "wire" and "auth" are sections
of the protocol; "RFC 9110" and "RFC 9112" are HTTP itself. A case without a code is broken as HTTP:
any plain 4xx will do. Where the protocol leaves the code open, all that it allows are named.
"""

from __future__ import annotations

from dataclasses import dataclass, field

JSON = "application/json"
TABLE = "BadInput"
ENTITY = f"/{TABLE}(PartitionKey='p',RowKey='kept')"
INSERT = b'{"PartitionKey":"p","RowKey":"new","n":1}'
PLAIN_4XX = tuple(range(400, 500))

Header = tuple[str, str]


@dataclass(frozen=True)
class BadRequest:
    name: str
    source: str
    codes: tuple[str, ...] = ("InvalidInput",)
    statuses: tuple[int, ...] = (400,)
    method: str = "POST"
    path: str = f"/{TABLE}"
    body: bytes = b""
    content_type: str = JSON
    content_length: str | None = field(default=None)
    """What stands in Content-Length; None: the truth."""
    more_headers: tuple[Header, ...] = ()
    """Sent after the signed ones, so that one of those can be there twice."""
    torn: bool = False
    """The client stops sending after the body; the server may answer, or only hang up."""


def plain(name: str, source: str, **fields: object) -> BadRequest:
    """Broken as HTTP: no code, any 4xx."""
    return BadRequest(name, source, codes=(), statuses=PLAIN_4XX, **fields)  # type: ignore[arg-type]


def entity(members: bytes) -> bytes:
    return b'{"PartitionKey":"p","RowKey":"new",' + members + b"}"


FRAMING = (
    plain("torn body", "issue; RFC 9112 8", body=INSERT[:20], content_length="41", torn=True),
    plain("torn body, none of it", "issue; RFC 9112 8", content_length="41", torn=True),
    plain(
        "torn body of chunks",
        "issue; RFC 9112 8",
        body=b"29\r\n" + INSERT[:20],
        content_length="",
        more_headers=(("Transfer-Encoding", "chunked"),),
        torn=True,
    ),
    plain(
        "torn between two chunks, the JSON being whole",
        "issue; RFC 9112 8",
        body=b"29\r\n" + INSERT + b"\r\n",
        content_length="",
        more_headers=(("Transfer-Encoding", "chunked"),),
        torn=True,
    ),
    plain(
        "a chunk whose size is no number",
        "issue; RFC 9112 7.1",
        body=b"many\r\n" + INSERT + b"\r\n0\r\n\r\n",
        content_length="",
        more_headers=(("Transfer-Encoding", "chunked"),),
        torn=True,
    ),
    BadRequest(
        "Content-Length too long: the next request's first line is swallowed",
        "issue; wire 5.5",
        body=INSERT + b"GET / HTTP/1.1\r\n\r\n",
        content_length=str(len(INSERT) + 18),
    ),
    BadRequest("Content-Length too short", "issue; wire 5.5", body=INSERT, content_length="30"),
    BadRequest("Content-Length of nothing", "issue; wire 5.5", body=INSERT, content_length="0"),
    plain("Content-Length no number", "issue; RFC 9112 6.3", body=INSERT, content_length="many"),
    plain("Content-Length negative", "issue; RFC 9112 6.3", body=INSERT, content_length="-1"),
    plain(
        "Content-Length beyond 64 bits",
        "issue; RFC 9112 6.3",
        body=INSERT,
        content_length="99999999999999999999999",
    ),
    plain(
        "two Content-Lengths that differ",
        "issue; RFC 9112 6.3",
        body=INSERT,
        more_headers=(("Content-Length", "5"),),
    ),
    BadRequest(
        "a body one byte over 4 MiB",
        "wire 9",
        codes=("RequestBodyTooLarge",),
        statuses=(413,),
        body=entity(b'"s":"' + b"x" * (4 * 1024 * 1024 - 41 + 1) + b'"'),
    ),
)

ENCODING = (
    BadRequest("invalid UTF-8 in a value", "issue; wire 5.5", body=entity(b'"s":"\xff\xfe"')),
    BadRequest("UTF-8 cut within a character", "issue; wire 5.5", body=entity(b'"s":"\xe2\x82"')),
    BadRequest("overlong UTF-8", "issue; wire 5.5", body=entity(b'"s":"\xc0\xaf"')),
    BadRequest("a surrogate as UTF-8", "issue; wire 5.5", body=entity(b'"s":"\xed\xa0\x80"')),
    BadRequest("a body in UTF-16", "issue; wire 5.5", body=INSERT.decode().encode("utf-16")),
    BadRequest("a lone high surrogate", "issue; wire 5.5", body=entity(b'"s":"\\ud800"')),
    BadRequest("a lone low surrogate", "issue; wire 5.5", body=entity(b'"s":"\\udc00"')),
    BadRequest(
        "surrogates in wrong order", "issue; wire 5.5", body=entity(b'"s":"\\udc00\\ud800"')
    ),
    BadRequest("a lone surrogate in a name", "issue; wire 5.5", body=entity(b'"a\\ud800":1')),
    BadRequest(
        "a lone surrogate in a key",
        "issue; wire 5.5",
        body=b'{"PartitionKey":"p","RowKey":"\\ud800"}',
    ),
    BadRequest(
        "invalid UTF-8 in the URL's key",
        "issue; wire 1.2, 1.3",
        method="PUT",
        path=f"/{TABLE}(PartitionKey='p',RowKey='%FF')",
        body=b"{}",
    ),
    BadRequest(
        "a surrogate as UTF-8 in the URL's key",
        "issue; wire 1.2, 1.3",
        method="PUT",
        path=f"/{TABLE}(PartitionKey='p',RowKey='%ED%A0%80')",
        body=b"{}",
    ),
    BadRequest(
        "invalid UTF-8 in a filter",
        "issue; wire 6.5",
        method="GET",
        path=f"/{TABLE}()?$filter=s%20eq%20'%FF'",
        content_type="",
    ),
)

SYNTAX = (
    BadRequest("a body that is empty", "wire 5.5"),
    BadRequest("JSON cut short", "wire 5.5", body=INSERT[:-1]),
    BadRequest("JSON with more behind it", "wire 5.5", body=INSERT + b"{}"),
    BadRequest("a list where an entity belongs", "wire 5.5", body=b"[" + INSERT + b"]"),
    BadRequest("a text where an entity belongs", "wire 5.5", body=b'"entity"'),
    BadRequest("null where an entity belongs", "wire 5.5", body=b"null"),
    BadRequest("a bare NaN", "wire 5.3, 5.5", body=entity(b'"d":NaN')),
    BadRequest("a double that overflows", "wire 5.3", body=entity(b'"d":1e400')),
    BadRequest("100,000 digits", "wire 5.3", body=entity(b'"d":' + b"9" * 100_000)),
    BadRequest("a list as a value", "wire 5.4", body=entity(b'"l":[1]')),
    BadRequest("an object as a value", "wire 5.4", body=entity(b'"o":{"a":1}')),
    BadRequest(
        "lists 100,000 deep",
        "issue; wire 5.5",
        body=entity(b'"l":' + b"[" * 100_000 + b"]" * 100_000),
    ),
    BadRequest(
        "objects 100,000 deep",
        "issue; wire 5.5",
        body=entity(b'"o":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    ),
    BadRequest("lists 100,000 deep, never closed", "issue; wire 5.5", body=b"[" * 100_000),
    BadRequest(
        "a point whose coordinates are 100,000 deep",
        "issue; the GeographyPoint extension",
        body=entity(
            b'"g@odata.type":"Edm.GeographyPoint","g":{"type":"Point","coordinates":'
            + b"[" * 100_000
            + b"]" * 100_000
            + b"}"
        ),
    ),
)

DUPLICATES = tuple(
    BadRequest(
        f"the same member twice: {name}",
        "issue; wire 5.5",
        codes=("DuplicatePropertiesSpecified",),
        body=body,
    )
    for name, body in (
        ("a property", entity(b'"a":1,"a":2')),
        ("a property with the same value", entity(b'"a":1,"a":1')),
        ("a property, once in escapes", entity(b'"a":1,"\\u0061":2')),
        ("a property, once null", entity(b'"a":1,"a":null')),
        ("an annotation", entity(b'"a@odata.type":"Edm.Int64","a@odata.type":"Edm.Guid","a":"1"')),
        ("the RowKey", entity(b'"RowKey":"other"')),
        ("the PartitionKey", entity(b'"PartitionKey":"p"')),
    )
)

PART = (
    b"Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    b"POST /devstoreaccount1/BadInput HTTP/1.1\r\nContent-Type: application/json\r\n\r\n" + INSERT
)
CHANGE_SET = b"Content-Type: multipart/mixed; boundary=c\r\n\r\n"
WHOLE = b"--b\r\n" + CHANGE_SET + b"--c\r\n" + PART + b"\r\n--c--\r\n--b--\r\n"

BATCHES = tuple(
    BadRequest(
        f"a batch with {name}",
        source,
        path="/$batch",
        content_type=content_type,
        body=body,
    )
    for name, source, content_type, body in (
        ("no boundary named", "issue; wire 7.3", "multipart/mixed", WHOLE),
        ("an empty boundary", "issue; wire 7.3", "multipart/mixed; boundary=", WHOLE),
        ("another boundary than named", "issue; wire 7.3", "multipart/mixed; boundary=x", WHOLE),
        ("no body", "wire 7.3", "multipart/mixed; boundary=b", b""),
        ("nothing but its end", "wire 7.3", "multipart/mixed; boundary=b", b"--b--\r\n"),
        (
            "no boundary named for its change set",
            "issue; wire 7.3",
            "multipart/mixed; boundary=b",
            WHOLE.replace(b"; boundary=c", b""),
        ),
        (
            "another boundary in its change set than named",
            "issue; wire 7.3",
            "multipart/mixed; boundary=b",
            WHOLE.replace(b"boundary=c", b"boundary=x"),
        ),
        (
            "an empty change set",
            "wire 7.3",
            "multipart/mixed; boundary=b",
            b"--b\r\n" + CHANGE_SET + b"--c--\r\n--b--\r\n",
        ),
        (
            "two change sets",
            "wire 7.3",
            "multipart/mixed; boundary=b",
            WHOLE.replace(b"--b--\r\n", b"") + WHOLE.replace(b'"new"', b'"new2"'),
        ),
        (
            "its last boundary missing",
            "issue; wire 7.3",
            "multipart/mixed; boundary=b",
            WHOLE.replace(b"--b--\r\n", b""),
        ),
        (
            "its change set torn",
            "issue; wire 7.3",
            "multipart/mixed; boundary=b",
            WHOLE[: WHOLE.index(b"--c--")],
        ),
        (
            "its last boundaries missing, the JSON torn",
            "issue; wire 7.3",
            "multipart/mixed; boundary=b",
            WHOLE[: WHOLE.index(b"--c--") - 4],
        ),
        (
            "a part that is no request",
            "wire 7.3",
            "multipart/mixed; boundary=b",
            WHOLE.replace(b"POST /devstoreaccount1/BadInput HTTP/1.1", b"hello"),
        ),
    )
)


def filtered(text: str) -> str:
    return f"/{TABLE}()?$filter=" + text.replace(" ", "%20")


URLS = (
    BadRequest(
        "a filter in 10,000 parentheses",
        "issue; wire 6.1",
        method="GET",
        path=filtered("(" * 10_000 + "n eq 1" + ")" * 10_000),
        content_type="",
    ),
    BadRequest(
        "a filter in 10,000 parentheses that never close",
        "issue; wire 6.5",
        method="GET",
        path=filtered("(" * 10_000 + "n eq 1"),
        content_type="",
    ),
    BadRequest(
        "a filter that says not 10,000 times",
        "issue; wire 6.1",
        method="GET",
        path=filtered("not " * 10_000 + "n eq 1"),
        content_type="",
    ),
    BadRequest(
        "a filter of 10,000 opening quotes",
        "wire 6.5",
        method="GET",
        path=filtered("s eq '" + "''" * 5_000),
        content_type="",
    ),
    plain(
        "a URL of 1 MB",
        "issue; wire 6.6",
        method="GET",
        path=filtered("s eq '" + "x" * 1_000_000 + "'"),
        content_type="",
    ),
    plain(
        "a path of 1 MB",
        "issue; wire 6.6",
        method="PUT",
        path=f"/{TABLE}(PartitionKey='p',RowKey='{'x' * 1_000_000}')",
        body=b"{}",
    ),
)

ANOTHER_DATE = "Mon, 06 May 2024 07:08:09 GMT"
HEADERS = (
    BadRequest(
        "two of Authorization, the second of another account",
        "issue; auth 1.1, 5.2",
        codes=("InvalidAuthenticationInfo", "AuthenticationFailed"),
        statuses=(400, 403),
        body=INSERT,
        more_headers=(("Authorization", "SharedKey other:AAAA"),),
    ),
    BadRequest(
        "two of x-ms-date",
        "issue; auth 1.4",
        codes=("AuthenticationFailed", "InvalidHeaderValue"),
        statuses=(400, 403),
        body=INSERT,
        more_headers=(("x-ms-date", ANOTHER_DATE),),
    ),
    BadRequest(
        "two of x-ms-version",
        "issue; wire 10.2",
        codes=("InvalidHeaderValue",),
        body=INSERT,
        more_headers=(("x-ms-version", "2020-12-06"),),
    ),
    BadRequest(
        "two of If-Match",
        "issue; wire 4",
        method="PUT",
        path=ENTITY,
        body=b'{"n":2}',
        more_headers=(("If-Match", "*"), ("If-Match", "W/\"datetime'2012-06-15T22%3A51%3A44Z'\"")),
    ),
    BadRequest(
        "two of If-Match, both of them any",
        "issue; wire 4",
        method="DELETE",
        path=ENTITY,
        content_type="",
        more_headers=(("If-Match", "*"), ("If-Match", "*")),
    ),
    BadRequest(
        "two of X-HTTP-Method",
        "issue; wire 3.10",
        codes=("XMethodIncorrectCount",),
        path=ENTITY,
        body=b'{"n":2}',
        more_headers=(("X-HTTP-Method", "MERGE"), ("X-HTTP-Method", "DELETE")),
    ),
    BadRequest(
        "two of X-HTTP-Method, the same",
        "issue; wire 3.10",
        codes=("XMethodIncorrectCount",),
        path=ENTITY,
        body=b'{"n":2}',
        more_headers=(("X-HTTP-Method", "MERGE"), ("X-HTTP-Method", "MERGE")),
    ),
    BadRequest(
        "two of Content-Type",
        "issue; auth 1.2",
        codes=("InvalidHeaderValue", "AuthenticationFailed", "MediaTypeNotSupported"),
        statuses=(400, 403, 415),
        body=INSERT,
        more_headers=(("Content-Type", "application/atom+xml"),),
    ),
    plain(
        "two of Host",
        "issue; RFC 9112 3.2",
        body=INSERT,
        more_headers=(("Host", "elsewhere"),),
    ),
    plain(
        "a header of 1 MB",
        "issue; wire 9",
        body=INSERT,
        more_headers=(("x-ms-client-request-id", "x" * 1_000_000),),
    ),
    plain(
        "10,000 headers",
        "issue; wire 9",
        body=INSERT,
        more_headers=tuple((f"x-number-{number}", "x") for number in range(10_000)),
    ),
    plain(
        "a header with a control character",
        "RFC 9110 5.5",
        body=INSERT,
        more_headers=(("x-ms-client-request-id", "a\x00b"),),
    ),
    plain(
        "a header name with a blank",
        "RFC 9112 5.1",
        body=INSERT,
        more_headers=(("x-ms client", "a"),),
    ),
)

CASES = FRAMING + ENCODING + SYNTAX + DUPLICATES + BATCHES + URLS + HEADERS

NOT_HTTP = (
    ("noise", b"\x00\x01\x02\x03\xff\xfe\r\n\r\n"),
    ("a TLS greeting", bytes.fromhex("16030100a5010000a10303") + b"\x00" * 160),
    ("a line of 1 MB", b"x" * 1_000_000 + b"\r\n\r\n"),
    ("a request line without a version", b"GET /\r\n\r\n"),
    ("another protocol's version", b"GET / RTSP/1.0\r\n\r\n"),
    ("a version of the future", b"GET / HTTP/9.9\r\nHost: x\r\n\r\n"),
)
"""Bytes that are no HTTP request at all: a plain 4xx or 505, or the server hangs up (RFC 9112 2.2)."""
