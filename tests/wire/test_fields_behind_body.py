"""Trailer fields and extensions of chunks: they are no headers, they are no body, and there cannot be many of them."""

from __future__ import annotations

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


def test_a_field_behind_the_body_is_no_header() -> None:
    """It could name another method, a condition or HTTPS, behind every check of a proxy (RFC 9110 6.5.1)."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(IN_CHUNKS + b"If-Match: *\r\nX-Forwarded-Proto: https\r\n\r\n" + GET)
        assert await read_answer(reader) == b"host,transfer-encoding"
        assert await read_answer(reader) == b"host"

    talk_to(names_application, talk)


@pytest.mark.parametrize("piece", [b"x" * 65_536, b"X-Field: 1\r\n" * 5_000])
@pytest.mark.parametrize("start", [IN_CHUNKS, IN_CHUNKS[: -len(b"0\r\n")] + b"4;name="])
def test_fields_behind_the_body_without_end_are_refused(start: bytes, piece: bytes) -> None:
    """So are the extensions of a chunk: neither counts as the body, and the parser keeps a field until its end."""

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
