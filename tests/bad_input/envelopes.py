"""Bad batches, URLs and headers, and bytes that are no HTTP at all. Data only.

Sources as in `bodies`.
"""

from __future__ import annotations

from bad_input.bad_request import ENTITY, INSERT, TABLE, BadRequest, plain

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
        codes=("InvalidAuthenticationInfo", "AuthenticationFailed", "InvalidHeaderValue"),
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

CASES = BATCHES + URLS + HEADERS

NOT_HTTP = (
    ("noise", b"\x00\x01\x02\x03\xff\xfe\r\n\r\n"),
    ("a TLS greeting", bytes.fromhex("16030100a5010000a10303") + b"\x00" * 160),
    ("a line of 1 MB", b"x" * 1_000_000 + b"\r\n\r\n"),
    ("a request line without a version", b"GET /\r\n\r\n"),
    ("another protocol's version", b"GET / RTSP/1.0\r\n\r\n"),
    ("a version of the future", b"GET / HTTP/9.9\r\nHost: x\r\n\r\n"),
)
"""Bytes that are no HTTP request at all: a plain 4xx or 505, or the server hangs up (RFC 9112 2.2)."""
