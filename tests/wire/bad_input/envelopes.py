"""Bad batches, URLs and headers, and bytes that are not HTTP at all.

Sources as in `bodies`.
"""

from wire.bad_input.bad_request import ENTITY, INSERT, TABLE, BadRequest, plain

PART = (
    b"Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    b"POST /devstoreaccount1/BadInput HTTP/1.1\r\nContent-Type: application/json\r\n\r\n" + INSERT
)
CHANGE_SET = b"Content-Type: multipart/mixed; boundary=c\r\n\r\n"
WHOLE = b"--b\r\n" + CHANGE_SET + b"--c\r\n" + PART + b"\r\n--c--\r\n--b--\r\n"

BATCHES = tuple(
    BadRequest(f"a batch with {name}", source, path="/$batch", content_type=content_type, body=body)
    for name, source, content_type, body in (
        ("no boundary named", "wire 7.3", "multipart/mixed", WHOLE),
        ("an empty boundary", "wire 7.3", "multipart/mixed; boundary=", WHOLE),
        ("no body", "wire 7.3", "multipart/mixed; boundary=b", b""),
        ("nothing but its end", "wire 7.3", "multipart/mixed; boundary=b", b"--b--\r\n"),
        (
            "no boundary named for its change set",
            "wire 7.3",
            "multipart/mixed; boundary=b",
            WHOLE.replace(b"; boundary=c", b""),
        ),
        (
            "another boundary in its change set than named",
            "wire 7.3",
            "multipart/mixed; boundary=b",
            WHOLE.replace(b"boundary=c", b"boundary=x"),
        ),
        (
            "two change sets",
            "wire 7.3",
            "multipart/mixed; boundary=b",
            WHOLE.replace(b"--b--\r\n", b"") + WHOLE.replace(b'"new"', b'"new2"'),
        ),
        (
            "its change set torn",
            "wire 7.3",
            "multipart/mixed; boundary=b",
            WHOLE[: WHOLE.index(b"--c--")],
        ),
        (
            "its last boundaries missing, the JSON torn",
            "wire 7.3",
            "multipart/mixed; boundary=b",
            WHOLE[: WHOLE.index(b"--c--") - 4],
        ),
        (
            "its change set closed after its end",
            "RFC 2046 5.1.2",
            "multipart/mixed; boundary=b",
            WHOLE.replace(b"--c--", b"--b--\r\n--c--"),
        ),
    )
)

ANOTHER_BOUNDARY = (
    BadRequest(
        "a batch with another boundary than named, which carries nothing out",
        "wire 7.1",
        codes=(),
        statuses=(202,),
        path="/$batch",
        content_type="multipart/mixed; boundary=x",
        body=WHOLE,
    ),
    BadRequest(
        "a batch with another boundary than named, in chunks",
        "wire 7.1, 7.3",
        path="/$batch",
        content_type="multipart/mixed; boundary=x",
        body=b"%x\r\n%b\r\n0\r\n\r\n" % (len(WHOLE), WHOLE),
        content_length="",
        more_headers=(("Transfer-Encoding", "chunked"),),
    ),
    BadRequest(
        "a batch with another boundary than named, torn",
        "wire 7.1",
        codes=(),
        path="/$batch",
        content_type="multipart/mixed; boundary=x",
        body=WHOLE,
        content_length=str(len(WHOLE) + 1),
        torn=True,
    ),
)

UNREADABLE = tuple(
    BadRequest(
        f"an operation with {name}",
        "wire 7.3",
        codes=(),
        statuses=(202,),
        path="/$batch",
        content_type="multipart/mixed; boundary=b",
        body=WHOLE.replace(b"POST /devstoreaccount1/BadInput HTTP/1.1\r\n", head),
    )
    for name, head in (
        ("a request line that is none", b"hello\r\n"),
        ("no request line", b""),
        ("no method", b"/devstoreaccount1/BadInput HTTP/1.1\r\n"),
        ("no target", b"POST HTTP/1.1\r\n"),
        ("another protocol's version", b"POST /devstoreaccount1/BadInput RTSP/1.0\r\n"),
        ("no path in its URL", b"POST http://somewhere HTTP/1.1\r\n"),
        ("a header without a colon", b"POST /devstoreaccount1/BadInput HTTP/1.1\r\nhello\r\n"),
        (
            "a length that is none",
            b"POST /devstoreaccount1/BadInput HTTP/1.1\r\nContent-Length: -1\r\n",
        ),
        (
            "a length of 10,000 digits",
            b"POST /devstoreaccount1/BadInput HTTP/1.1\r\nContent-Length: %b\r\n" % (b"9" * 10_000),
        ),
    )
)
"""The answer is a batch's, whose one part is the error, in a form of its own (`test_batch`)."""


def filtered(text: str) -> str:
    return f"/{TABLE}()?$filter=" + text.replace(" ", "%20")


URLS = (
    BadRequest(
        "a filter in 10,000 parentheses",
        "wire 6.1",
        method="GET",
        path=filtered("(" * 10_000 + "n eq 1" + ")" * 10_000),
        content_type="",
    ),
    BadRequest(
        "a filter in 10,000 parentheses that never close",
        "wire 6.5",
        method="GET",
        path=filtered("(" * 10_000 + "n eq 1"),
        content_type="",
    ),
    BadRequest(
        "a filter that says not 10,000 times",
        "wire 6.1",
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
        "wire 6.6",
        method="GET",
        path=filtered("s eq '" + "x" * 1_000_000 + "'"),
        content_type="",
    ),
    plain(
        "a path of 1 MB",
        "wire 6.6",
        method="PUT",
        path=f"/{TABLE}(PartitionKey='p',RowKey='{'x' * 1_000_000}')",
        body=b"{}",
    ),
)

ANOTHER_DATE = "Mon, 06 May 2024 07:08:09 GMT"
HEADERS = (
    BadRequest(
        "two of Authorization, the second of another account",
        "auth 1.1, 5.2",
        codes=("InvalidAuthenticationInfo", "AuthenticationFailed", "InvalidHeaderValue"),
        statuses=(400, 403),
        body=INSERT,
        more_headers=(("Authorization", "SharedKey other:AAAA"),),
    ),
    BadRequest(
        "two of x-ms-date",
        "auth 1.4",
        codes=("AuthenticationFailed", "InvalidHeaderValue"),
        statuses=(400, 403),
        body=INSERT,
        more_headers=(("x-ms-date", ANOTHER_DATE),),
    ),
    BadRequest(
        "two of x-ms-version",
        "wire 10.2",
        codes=("InvalidHeaderValue",),
        body=INSERT,
        more_headers=(("x-ms-version", "2020-12-06"),),
    ),
    BadRequest(
        "two of If-Match",
        "wire 4",
        method="PUT",
        path=ENTITY,
        body=b'{"n":2}',
        more_headers=(("If-Match", "*"), ("If-Match", "W/\"datetime'2012-06-15T22%3A51%3A44Z'\"")),
    ),
    BadRequest(
        "two of If-Match, both of them any",
        "wire 4",
        method="DELETE",
        path=ENTITY,
        content_type="",
        more_headers=(("If-Match", "*"), ("If-Match", "*")),
    ),
    BadRequest(
        "two of X-HTTP-Method",
        "wire 3.10",
        codes=("XMethodIncorrectCount",),
        path=ENTITY,
        body=b'{"n":2}',
        more_headers=(("X-HTTP-Method", "MERGE"), ("X-HTTP-Method", "DELETE")),
    ),
    BadRequest(
        "two of X-HTTP-Method, the same",
        "wire 3.10",
        codes=("XMethodIncorrectCount",),
        path=ENTITY,
        body=b'{"n":2}',
        more_headers=(("X-HTTP-Method", "MERGE"), ("X-HTTP-Method", "MERGE")),
    ),
    BadRequest(
        "two of Content-Type",
        "auth 1.2",
        codes=("InvalidHeaderValue", "AuthenticationFailed", "MediaTypeNotSupported"),
        statuses=(400, 403, 415),
        body=INSERT,
        more_headers=(("Content-Type", "application/atom+xml"),),
    ),
    plain("two of Host", "RFC 9112 3.2", body=INSERT, more_headers=(("Host", "elsewhere"),)),
    plain(
        "a header of 1 MB",
        "wire 9",
        body=INSERT,
        more_headers=(("x-ms-client-request-id", "x" * 1_000_000),),
    ),
    plain(
        "10,000 headers",
        "wire 9",
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

CASES = BATCHES + ANOTHER_BOUNDARY + UNREADABLE + URLS + HEADERS

NOT_HTTP = (
    ("noise", b"\x00\x01\x02\x03\xff\xfe\r\n\r\n"),
    ("a TLS greeting", bytes.fromhex("16030100a5010000a10303") + b"\x00" * 160),
    ("a line of 1 MB", b"x" * 1_000_000 + b"\r\n\r\n"),
    ("a request line without a version", b"GET /\r\n\r\n"),
    ("another protocol's version", b"GET / RTSP/1.0\r\n\r\n"),
    ("a version of the future", b"GET / HTTP/9.9\r\nHost: x\r\n\r\n"),
)
"""Bytes that are not an HTTP request: a plain 4xx or 505, or the server hangs up (RFC 9112 2.2)."""
