"""The bytes of a head, and those beside a body (trailer fields, chunk extensions): a limit for each request.

The limit is that of one request, never of a connection: a client sends any number of heads on one.
"""

import asyncio
import contextlib
from typing import Any

import pytest

from tablestone import limits
from wire.test_http_connection import GET, answer, read_answer, talk_to


async def names_application(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await answer(send, b",".join(name for name, _ in scope["headers"]))


IN_CHUNKS = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n/one\r\n0\r\n"


def test_a_field_after_the_body_is_no_header() -> None:
    """It could name another method, a condition or HTTPS, past every check of a proxy (RFC 9110 6.5.1)."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(IN_CHUNKS + b"If-Match: *\r\nX-Forwarded-Proto: https\r\n\r\n" + GET)
        assert await read_answer(reader) == b"host,transfer-encoding"
        assert await read_answer(reader) == b"host"

    talk_to(names_application, talk)


@pytest.mark.parametrize("piece", [b"x" * 65_536, b"X-Field: 1\r\n" * 5_000])
@pytest.mark.parametrize("start", [IN_CHUNKS, IN_CHUNKS[: -len(b"0\r\n")] + b"4;name="])
def test_fields_after_the_body_without_end_are_refused(start: bytes, piece: bytes) -> None:
    """So are the extensions of a chunk: neither counts as body, and the parser keeps a field until its end."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        sent = 0
        with contextlib.suppress(
            ConnectionError
        ):  # the answer 431 is lost if the client still sends
            while sent < most and not reader.at_eof():
                writer.write(piece)
                await writer.drain()
                sent += len(piece)
                await asyncio.sleep(0)
            assert (await reader.read()).startswith(b"HTTP/1.1 431 ")
        assert sent < most

    most = 200 * limits.REQUEST_HEAD_BYTES_MAX
    talk_to(names_application, talk)


SPENT = b"x" * 3_000
"""Makes a hundred requests longer than a head may be."""
KINDS = {
    "a read": b"GET / HTTP/1.1\r\nHost: h\r\nX-Spent: %b\r\n\r\n" % SPENT,
    "a read with a body": b"GET / HTTP/1.1\r\nHost: h\r\nX-Spent: %b\r\nContent-Length: 4\r\n\r\n/one"
    % SPENT,
    "HEAD": b"HEAD / HTTP/1.1\r\nHost: h\r\nX-Spent: %b\r\n\r\n" % SPENT,
    "OPTIONS": b"OPTIONS / HTTP/1.1\r\nHost: h\r\nX-Spent: %b\r\n\r\n" % SPENT,
    "a write": b"POST / HTTP/1.1\r\nHost: h\r\nX-Spent: %b\r\nContent-Length: 4\r\n\r\n/one"
    % SPENT,
    "a write without a body": b"POST / HTTP/1.1\r\nHost: h\r\nX-Spent: %b\r\nContent-Length: 0\r\n\r\n"
    % SPENT,
    "trailer fields": IN_CHUNKS + b"X-Spent: %b\r\n\r\n" % SPENT,
    "a chunk extension": IN_CHUNKS[:-3] + b"1;spent=%b\r\ne\r\n0\r\n\r\n" % SPENT,
    "another protocol": b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nX-Spent: %b\r\n\r\n"
    % SPENT,
    "an empty line before it": b"\r\n" * 1_500 + b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
}


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("pieces", [1, 2, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_requests_of_a_megabyte_on_one_connection(kind: str, pieces: int, *, waits: bool) -> None:
    """Reads are answered while their head is parsed, everything else later; a head arrives whole or in pieces."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "POST" or waits:
            while (await receive()).get("more_body"):
                pass
        await answer(send, b"" if scope["method"] == "HEAD" else b"answered")

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = -(-len(KINDS[kind]) // pieces)
        for _ in range(4 * limits.REQUEST_HEAD_BYTES_MAX // len(KINDS[kind])):
            for start in range(0, len(KINDS[kind]), size):
                writer.write(KINDS[kind][start : start + size])
                await asyncio.sleep(0)
            assert await read_answer(reader) == (b"" if kind == "HEAD" else b"answered")

    talk_to(application, talk, waits=waits)


def test_a_head_in_pieces_after_a_long_body_has_the_whole_limit() -> None:
    """The body's last piece brings the beginning of the next head, and the body does not count for it."""
    body = b"x" * (limits.REQUEST_HEAD_BYTES_MAX - 100)
    head = GET[:-2] + b"X-Long: %b\r\n\r\n" % (b"x" * 60_000)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(3):
            writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body))
            await asyncio.sleep(0.01)
            writer.write(body + head[:50])
            await asyncio.sleep(0.01)
            for start in range(50, len(head), 20_000):
                writer.write(head[start : start + 20_000])
                await asyncio.sleep(0.01)
            assert await read_answer(reader) == b"host,content-length"
            assert await read_answer(reader) == b"host,x-long"

    talk_to(names_application, talk)


@pytest.mark.parametrize("earlier", [0, 300])
@pytest.mark.parametrize("size", [65_536, 262_144])
def test_a_head_that_is_too_long_is_refused_in_words(earlier: int, size: int) -> None:
    """However its bytes arrive, and however many requests the connection has served."""
    head = GET[:-2] + b"X-Long: %b" % (b"x" * (limits.REQUEST_HEAD_BYTES_MAX + 1024))

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(earlier):
            writer.write(GET)
            assert await read_answer(reader) == b"host"
        for start in range(0, len(head), size):
            writer.write(head[start : start + size])
            await asyncio.sleep(0.01)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 431 ")
        assert b"more than 262144 bytes" in await reader.read()

    talk_to(names_application, talk)
