"""Bytes for a socket: HTTP, nearly HTTP, and two requests to a careless reader, each with the answers allowed.

The source of a case is a section of RFC 9112, or of RFC 9110 where it says so. `@PUT@` is the head of a signed write
without framing and without the final empty line; `@GET@` the same of an unsigned read; `@HIDDEN@` is a complete signed
write of another row, which must never be carried out; `@CHUNKED@` is the header of a chunked body.
"""

from typing import Final, NamedTuple

CHUNKED: Final = b"Transfer-Encoding: chunked\r\n"
BODY: Final = b'{"n":1}'
"""The body of a good `@PUT@`: 7 bytes."""
CHUNKS: Final = b"7\r\n" + BODY + b"\r\n0\r\n\r\n"

DONE: Final = 204
"""The answer to `@PUT@`."""
READ: Final = 401
"""The answer to `@GET@`: unsigned, but understood. Before `VERSION` it is 404, as for an unknown account."""
VERSION: Final = b"x-ms-version: 2020-12-06\r\n"
REFUSED: Final = ((400,), ())
"""A refusal, or a connection closed without an answer."""


class SocketCase(NamedTuple):
    """Bytes, and the sequences of statuses allowed; an empty one is a closed connection."""

    name: str
    source: str
    content: bytes
    answers: tuple[tuple[int, ...], ...] = REFUSED
    is_shut: bool = True
    """Whether the client shuts down its sending side after the last byte. If not, the server must end the connection.
    """
    pieces: int = 1
    """How many pieces the bytes are sent in."""


def _put(
    name: str, source: str, framing: bytes, body: bytes, *answers: tuple[int, ...]
) -> SocketCase:
    content = b"@PUT@" + framing + b"\r\n" + body
    return SocketCase(name, source, content, answers or REFUSED)


def _get(name: str, source: str, headers: bytes, *answers: tuple[int, ...]) -> SocketCase:
    return SocketCase(name, source, b"@GET@" + headers + b"\r\n", answers or REFUSED)


def _line(name: str, line: bytes, *answers: tuple[int, ...], source: str = "3") -> SocketCase:
    content = line + b"\r\nHost: h\r\n" + VERSION + b"\r\n"
    return SocketCase(name, source, content, answers or REFUSED)


LENGTHS: Final = (
    _put("the right length", "6.2", b"Content-Length: 7\r\n", BODY, (DONE,)),
    _put(
        "two lengths that differ",
        "6.3",
        b"Content-Length: 7\r\nContent-Length: 0\r\n",
        BODY + b"@HIDDEN@",
    ),
    _put(
        "two lengths that are the same",
        "6.3",
        b"Content-Length: 7\r\nContent-Length: 7\r\n",
        BODY,
        (400,),
        (),
        (DONE,),
    ),
    _put("a list of lengths", "6.3", b"Content-Length: 7, 0\r\n", BODY + b"@HIDDEN@"),
    *(
        _put(f"a length written {written!r}", "6.2", b"Content-Length: %b\r\n" % written, BODY)
        for written in (b"+7", b"0x7", b"7 0", b"-7", b"7.0", b"7a", b"", b"9" * 40, b"\xb2")
    ),
    _put(
        "a length, and its name again with a blank",
        "5.1",
        b"Content-Length: 7\r\nContent-Length : 0\r\n",
        BODY,
    ),
    _put("a length with a NUL", "9110 5.5", b"Content-Length: 7\0\r\n", BODY),
    _put(
        "a length of zero, and a body that is a request",
        "6.3",
        b"Content-Length: 0\r\n",
        b"x@HIDDEN@",
        (400,),
        (400, 400),
    ),
)

TWO_FRAMINGS: Final = (
    _put("a length and chunks", "6.1", b"Content-Length: 7\r\n" + CHUNKED, CHUNKS),
    _put("chunks and a length", "6.1", CHUNKED + b"Content-Length: 7\r\n", CHUNKS),
    _put(
        "a length of the whole, and chunks that end before",
        "6.1",
        b"Content-Length: 5\r\n" + CHUNKED,
        b"0\r\n\r\n@HIDDEN@",
    ),
    _put(
        "chunks of HTTP/1.0 with a length",
        "6.1",
        CHUNKED + b"Content-Length: 5\r\n",
        b"0\r\n\r\n@HIDDEN@",
    ),
    *(
        _put(
            f"a transfer coding written {written!r}",
            "6.1",
            b"Transfer-Encoding: %b\r\n" % written,
            CHUNKS,
            (400,),
            (),
            (501,),
        )
        for written in (
            *(
                b"chunked, identity",
                b"chunked, chunked",
                b"xchunked",
                b"chunked x",
                b"\x0bchunked",
                b"identity",
            ),
            *(b"gzip", b'"chunked"', b"chunked;a", b"", b"chunked\0"),
            *(b"gzip, chunked", b"identity, chunked"),
        )
    ),
    _put(
        "a transfer coding with a length, written badly",
        "6.1",
        b"Transfer-Encoding: xchunked\r\nContent-Length: 7\r\n",
        BODY,
    ),
    _put(
        "a blank before the colon",
        "5.1",
        b"Transfer-Encoding : chunked\r\nContent-Length: 7\r\n",
        BODY,
    ),
    _put(
        "a header that is only like it",
        "5.1",
        b"Transfer_Encoding: chunked\r\nContent-Length: 7\r\n",
        BODY,
        (DONE,),
    ),
    _put("two transfer codings", "6.1", CHUNKED + b"Transfer-Encoding: identity\r\n", CHUNKS),
    _put("chunks, twice", "6.1", CHUNKED + CHUNKED, CHUNKS),
    _put("a coding before chunks", "6.1", b"Transfer-Encoding: gzip\r\n" + CHUNKED, CHUNKS),
    SocketCase(
        "chunks of HTTP/1.0",
        "6.1",
        b"POST /devstoreaccount1/S HTTP/1.0\r\nHost: h\r\n@CHUNKED@\r\n" + CHUNKS,
    ),
)

CHUNK_GRAMMAR: Final = (
    _put("chunks", "7.1", CHUNKED, CHUNKS, (DONE,)),
    _put(
        "capitals and zeros in a size",
        "7.1",
        CHUNKED,
        b"007\r\n" + BODY + b"\r\n00\r\n\r\n",
        (DONE,),
    ),
    _put("an extension", "7.1.1", CHUNKED, b"7;a=b\r\n" + BODY + b"\r\n0;c\r\n\r\n", (DONE,)),
    _put("a trailer", "7.1.2", CHUNKED, b"7\r\n" + BODY + b"\r\n0\r\nX-After: 1\r\n\r\n", (DONE,)),
    _put(
        "a length in a trailer",
        "7.1.2",
        CHUNKED,
        b"7\r\n" + BODY + b"\r\n0\r\nContent-Length: 9\r\n\r\n",
        (DONE,),
        (400,),
        (),
    ),
    *(
        _put(f"a size written {size!r}", "7.1", CHUNKED, size + b"\r\n" + BODY + b"\r\n0\r\n\r\n")
        for size in (b"0x7", b"+7", b"-7", b"7 7", b" 7", b"", b"G", b"F" * 17, b"7\0", b"7\n")
    ),
    _put("a chunk longer than its size", "7.1", CHUNKED, b"6\r\n" + BODY + b"\r\n0\r\n\r\n"),
    _put("no line end after a chunk", "7.1", CHUNKED, b"7\r\n" + BODY + b"0\r\n\r\n"),
    _put("a bare line feed after a size", "7.1", CHUNKED, b"7\n" + BODY + b"\r\n0\r\n\r\n@HIDDEN@"),
    _put(
        "a bare line feed after a chunk", "7.1", CHUNKED, b"7\r\n" + BODY + b"\n0\r\n\r\n@HIDDEN@"
    ),
    _put("a bare line feed in an extension", "7.1.1", CHUNKED, b"7;a\n" + BODY + b"\r\n0\r\n\r\n"),
    _put("a bare carriage return after a size", "7.1", CHUNKED, b"7\r" + BODY + b"\r\n0\r\n\r\n"),
    _put("chunks that never end", "7.1", CHUNKED, b"7\r\n" + BODY + b"\r\n"),
    _put("a chunk that never comes", "7.1", CHUNKED, b"7\r\n"),
)

HEADERS: Final = (
    _get("a read", "3", b"", (READ,)),
    _get("a NUL in a value", "9110 5.5", b"X-A: a\0b\r\n"),
    _get("a NUL in a name", "5.1", b"X\0A: b\r\n"),
    _get("a NUL for a name", "5.1", b"\0: b\r\n"),
    _get("a carriage return in a value", "2.2", b"X-A: a\rX-B: b\r\n"),
    _get("a bare line feed after a value", "2.2", b"X-A: a\nX-B: b\r\n", (400,), (), (READ,)),
    _get("a value on two lines", "5.2", b"X-A: a\r\n b\r\n"),
    _get(
        "a value on two lines, the second of which is a length",
        "5.2",
        b"X-A: a\r\n Content-Length: 9\r\n",
    ),
    _get("no colon", "5", b"X-A\r\n"),
    _get("no name", "5", b": a\r\n"),
    _get("a blank in a name", "5.1", b"X A: b\r\n"),
    _get("a blank before a name", "2.2", b" X-A: b\r\n"),
    _get("a name beyond ASCII", "5.1", b"X-\xc3\xbc: b\r\n"),
    _get("a value beyond ASCII", "9110 5.5", b"X-A: \xc3\xbc\xff\r\n", (READ,)),
    _get("a control character in a value", "9110 5.5", b"X-A: \x01\r\n", (READ,), (400,), ()),
    _get("a delete character in a value", "9110 5.5", b"X-A: \x7f\r\n", (READ,), (400,), ()),
    _get("another Host", "3.2", b"Host: other\r\n"),
    _get("an empty value", "5", b"X-A:\r\nX-B: \t \r\n", (READ,)),
    _get("an expectation that nobody knows", "9110 10.1.1", b"Expect: tea\r\n", (READ,), (417,)),
    _get("trailers announced", "9110 6.6.2", b"Trailer: X\r\nTE: trailers\r\n", (READ,)),
    _get("an upgrade to HTTP/2", "9110 7.8", b"Connection: Upgrade\r\nUpgrade: h2c\r\n", (READ,)),
    _get(
        "an upgrade to a web socket",
        "9110 7.8",
        b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
        (READ,),
    ),
)

LINES: Final = (
    _line("blanks between the words", b"GET  /devstoreaccount1/S  HTTP/1.1", (READ,), (400,)),
    _line("a tab between the words", b"GET\t/devstoreaccount1/S\tHTTP/1.1"),
    _line("a blank at the end", b"GET /devstoreaccount1/S HTTP/1.1 "),
    _line("a blank in the target", b"GET /devstoreaccount1/S x HTTP/1.1"),
    _line("a NUL in the target", b"GET /devstoreaccount1/S\0 HTTP/1.1"),
    _line("a line feed in the target", b"GET /a\nX: b HTTP/1.1"),
    _line(
        "a byte beyond ASCII in the target",
        b"GET /devstoreaccount1/S\xc3\xbc() HTTP/1.1",
        (READ,),
        (400,),
        (),
        source="3.2",
    ),
    _line("no target", b"GET HTTP/1.1", source="3.2"),
    _line("a target without a slash", b"GET S HTTP/1.1", source="3.2"),
    _line("a method of small letters", b"get /devstoreaccount1/S HTTP/1.1", source="3.1"),
    _line("a method that nobody knows", b"BREW /devstoreaccount1/S HTTP/1.1", source="3.1"),
    _line("a method with a NUL", b"GE\0T /devstoreaccount1/S HTTP/1.1", source="3.1"),
    _line("a long method", b"G" * 100_000 + b" / HTTP/1.1", (400,), (), (431,), source="3.1"),
    _line(
        "a target with a host",
        b"GET http://x/devstoreaccount1/S() HTTP/1.1",
        (READ,),
        source="3.2.2",
    ),
    _line("a target that is an asterisk", b"OPTIONS * HTTP/1.1", (400,), (404,), source="3.2.4"),
    _line(
        "a target that is a host",
        b"CONNECT h:80 HTTP/1.1",
        (400,),
        (),
        (404,),
        (405,),
        source="3.2.3",
    ),
    _line("a target with a host that is none", b"GET http://[/ HTTP/1.1", source="3.2.2"),
    _line(
        "a target with a port that is none", b"GET http://h:99999999999/ HTTP/1.1", source="3.2.2"
    ),
    *(
        _line(
            f"the version {version!r}",
            b"GET /devstoreaccount1/S() " + version,
            (400,),
            (),
            (505,),
            source="2.3",
        )
        for version in (
            b"HTTP/2.0",
            b"HTTP/0.9",
            b"HTTP/1.9",
            b"http/1.1",
            b"HTTP/1",
            b"HTTP/1.1.1",
            b"HTTP/11",
            b"HTP/1.1",
            b"RTSP/1.0",
            b"RTSP/1.1",
            b"",
        )
    ),
    _line("another protocol that is like HTTP", b"SOURCE /devstoreaccount1/S ICE/1.0", (400,)),
    _get(
        "another protocol in a header", "3", b"X-A: GET / RTSP/1.0\r\nX-B: a ICE/1.0\r\n", (READ,)
    ),
    SocketCase(
        "HTTP/1.0 without a Host",
        "2.3",
        b"GET /devstoreaccount1/S() HTTP/1.0\r\n" + VERSION + b"\r\n",
        ((400,), (READ,)),
    ),
    SocketCase("no Host", "3.2", b"GET /devstoreaccount1/S() HTTP/1.1\r\n\r\n", ((400,),)),
    SocketCase("a Host that is none", "3.2", b"GET / HTTP/1.1\r\nHost: a b/c\r\n\r\n", ((400,),)),
    SocketCase("an empty line before", "2.2", b"\r\n@GET@\r\n", ((READ,),)),
    SocketCase("empty lines before", "2.2", b"\r\n" * 50 + b"@GET@\r\n", ((READ,), (400,), ())),
    SocketCase(
        "bare line feeds",
        "2.2",
        b"GET /devstoreaccount1/S() HTTP/1.1\nHost: h\nx-ms-version: 2020-12-06\n\n",
        ((400,), (), (READ,)),
    ),
    SocketCase("carriage returns alone", "2.2", b"GET /devstoreaccount1/S() HTTP/1.1\rHost: h\r\r"),
    SocketCase(
        "the preface of HTTP/2",
        "RFC 9113 3.4",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ((400,), (), (505,)),
    ),
    SocketCase("a TLS greeting", "3", bytes.fromhex("16030100a5010000a10303") + b"\0" * 160),
    SocketCase(
        "an answer in the place of a request", "3", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    ),
    SocketCase("nothing", "9.5", b"", ((),)),
)

SEVERAL: Final = (
    SocketCase("three reads at once", "9.3.2", b"@GET@\r\n" * 3, ((READ,) * 3,)),
    SocketCase(
        "a write and a read at once",
        "9.3.2",
        b"@PUT@Content-Length: 7\r\n\r\n" + BODY + b"@GET@\r\n",
        ((DONE, READ),),
    ),
    SocketCase(
        "what is no HTTP between two reads",
        "9.3.2",
        b"@GET@\r\n\0\0\r\n@GET@\r\n",
        ((READ, 400), (400,), (READ,), ()),
    ),
    SocketCase(
        "another protocol, and its body, after a write",
        "2.3",
        b"@PUT@Content-Length: 7\r\n\r\n"
        + BODY
        + b"POST /s RTSP/1.0\r\nContent-Length: 3\r\n\r\nabc@HIDDEN@",
        ((DONE, 400), (DONE,)),
    ),
    SocketCase(
        "a write whose body ends like another protocol",
        "2.3",
        b"@PUT@Content-Length: 15\r\n\r\nGET / RTSP/1.0 @GET@\r\n",
        ((400, READ), (DONE, READ)),
    ),
    SocketCase(
        "a write after a tunnel",
        "9110 9.3.6",
        b"CONNECT /devstoreaccount1/S HTTP/1.1\r\nHost: h\r\n\r\n@HIDDEN@",
        ((400,),),
    ),
    SocketCase(
        "a read after the last one", "9.6", b"@GET@Connection: close\r\n\r\n@GET@\r\n", ((READ,),)
    ),
    SocketCase(
        "a write hidden in the body of a read",
        "9110 9.3.1",
        b"@GET@Content-Length: @LENGTH@\r\n\r\n@HIDDEN@",
        ((READ,), (400,)),
    ),
    SocketCase(
        "a write hidden in a body that nobody wants",
        "9110 9.3",
        b"POST /nobody/Tables HTTP/1.1\r\nHost: h\r\nContent-Length: @LENGTH@\r\n\r\n@HIDDEN@",
        ((404,), (400,)),
    ),
    SocketCase(
        "a write hidden in the body of an upgrade",
        "9110 7.8",
        b"@GET@Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: @LENGTH@\r\n\r\n@HIDDEN@",
        ((READ,), (400,)),
    ),
    SocketCase(
        "a write hidden in a chunk",
        "7.1",
        b"POST /nobody/Tables HTTP/1.1\r\nHost: h\r\n@CHUNKED@\r\n@HEX@\r\n@HIDDEN@\r\n0\r\n\r\n",
        ((404,), (400,)),
    ),
    SocketCase(
        "a write that expects to be asked for its body",
        "9110 10.1.1",
        b"@PUT@Expect: 100-continue\r\nContent-Length: 7\r\n\r\n" + BODY,
        ((100, DONE), (DONE,)),
    ),
)

SLOW: Final = (
    SocketCase("a read, byte by byte", "9.5", b"@GET@\r\n", ((READ,),), pieces=10_000),
    SocketCase(
        "a write, byte by byte",
        "9.5",
        b"@PUT@Content-Length: 7\r\n\r\n" + BODY,
        ((DONE,),),
        pieces=10_000,
    ),
    SocketCase("half a head", "9.5", b"@GET@X-A: ", ((), (400,))),
    SocketCase("half a body", "8", b"@PUT@Content-Length: 7\r\n\r\n{", REFUSED),
    SocketCase("half a head, and nothing more", "9.5", b"@GET@X-A: ", ((), (408,)), is_shut=False),
    SocketCase(
        "half a body, and nothing more",
        "9.5",
        b"@PUT@Content-Length: 7\r\n\r\n{",
        ((500,), (408,), ()),
        is_shut=False,
    ),
    SocketCase(
        "half a chunk, and nothing more",
        "9.5",
        b"@PUT@@CHUNKED@\r\n7\r\n{",
        ((500,), (408,), ()),
        is_shut=False,
    ),
    SocketCase("nothing, and nothing more", "9.5", b"", ((),), is_shut=False),
)

CASES: Final = LENGTHS + TWO_FRAMINGS + CHUNK_GRAMMAR + HEADERS + LINES + SEVERAL + SLOW
