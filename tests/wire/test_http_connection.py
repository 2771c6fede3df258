"""One connection of the HTTP server, over a real socket in this process: its time-outs, and the bytes that it sends.

The applications here are a few lines each; their answers do not matter.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from tablestone import limits
from wire.served_bytes import ServedApplication, listen

IDLE_SECONDS = 1
DATE = "Thu, 05 Jan 2017 03:25:45 GMT"
GET = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def talk_to(application: ServedApplication, talk: Talk, *, waits: bool = False) -> None:
    """One client's conversation with a server of this application, which is called inside a task if it `waits`."""

    async def main() -> None:
        server = await listen(
            application, DATE, IDLE_SECONDS, refuse=refuse_application, waits=waits
        )
        address = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(*address, limit=1_000_000)
        try:
            async with asyncio.timeout(20):
                await talk(reader, writer)
        finally:  # else the loop waits forever for a transport that still writes
            writer.transport.abort()
            server.close()

    uvloop.run(main())


async def answer(send: Any, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": 200, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.partition(b"content-length: ")[2].partition(b"\r")[0]
    return await reader.readexactly(int(length))


async def path_application(scope: Any, _receive: Any, send: Any) -> None:
    await answer(send, scope["raw_path"])


async def slow_application(scope: Any, _receive: Any, send: Any) -> None:
    await asyncio.sleep(1.5 * IDLE_SECONDS)
    await answer(send, scope["raw_path"])


async def refuse_application(_scope: Any, _receive: Any, send: Any) -> None:
    await answer(send, b"refused", (b"connection", b"close"))


@pytest.mark.parametrize("before_query", [1, 60_000, limits.URL_LENGTH_MAX])
def test_the_longest_target_is_read_and_a_longer_one_refused(before_query: int) -> None:
    """The parser's own bound (limits.URL_LENGTH_MAX), however much of it is the path."""
    query = limits.URL_LENGTH_MAX - before_query
    target = b"/" + b"a" * (before_query - 1) + (b"?" + b"q" * (query - 1) if query else b"")
    assert len(target) == limits.URL_LENGTH_MAX

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET %b HTTP/1.1\r\nHost: h\r\n\r\n" % target)
        assert await read_answer(reader) == target.partition(b"?")[0]
        writer.write(b"GET %bx HTTP/1.1\r\nHost: h\r\n\r\n" % target)
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")

    talk_to(path_application, talk)


def test_an_upgrade_whose_transfer_coding_is_none_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The parser checks it only when it reads the head without the upgrade (RFC 9112 6.1)."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b"GET /a HTTP/1.1\r\nHost: h\r\n%bTransfer-Encoding: identity\r\n\r\n" % UPGRADE
        writer.write(head)
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")

    with caplog.at_level(logging.ERROR, "asyncio"):
        talk_to(path_application, talk)
    assert caplog.text == ""


@pytest.mark.parametrize("version", ["2.0", "0.9"])
def test_another_version_of_http_is_refused(version: str) -> None:
    """The parser would accept these two (RFC 9112 2.3)."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GET.replace(b"1.1", version.encode()) + GET)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.count(b"HTTP/1.1 ") == 1

    talk_to(path_application, talk)


@pytest.mark.parametrize(
    ("version", "hosts", "status"),
    [
        *(
            (b"1.1", b"", 400),
            (b"1.1", b"Host: h\r\nHost: h\r\n", 400),
            (b"1.1", b"Host:\r\n", 200),
        ),
        *((b"1.0", b"", 200), (b"1.0", b"Host: h\r\nHost: i\r\n", 400)),
    ],
)
def test_a_request_names_one_host(version: bytes, hosts: bytes, status: int) -> None:
    """Only one of HTTP/1.0 may name none (RFC 9112 3.2)."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /a HTTP/%b\r\n%b\r\n" % (version, hosts))
        assert (await reader.readline()).split()[1] == b"%d" % status

    talk_to(path_application, talk)


def test_a_request_line_without_a_version_is_refused() -> None:
    """With a header below it: HTTP/0.9 has none."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /a\nHost: h\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")

    talk_to(path_application, talk)


def test_a_header_that_is_folded_over_two_lines_is_refused() -> None:
    """As PHP's azure-storage-table wrote it up to 1.1.5 (docs/protocol/clients.md); RFC 9112 5.2 allows this."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"POST /$batch HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n"
            b'Content-Type: multipart/mixed; \r\n boundary="batch_a"\r\n\r\n'
        )
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")

    talk_to(path_application, talk)


@pytest.mark.parametrize("method", [b"WHATEVER", b"get"])
def test_a_method_that_the_parser_does_not_know_is_refused(method: bytes) -> None:
    """The parser knows the registered methods, in capitals; the service has InvalidHttpVerb (wire 3.10)."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(method + b" /Tables HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")

    talk_to(path_application, talk)


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEA\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n3\r\n/on\r\n1\r\ne\r\n0\r\n\r\n"


@pytest.mark.parametrize("pieces", [1, 40, 10_000])
@pytest.mark.parametrize(
    ("requests", "answers"),
    [
        (b"POST / HTTP/1.1\r\nHost: h\r\n%bContent-Length: 4\r\n\r\n/one" % UPGRADE, [b"/one"]),
        (b"POST / HTTP/1.1\r\nHost: h\r\n%b%b" % (UPGRADE, CHUNKED), [b"/one"]),
        (b"GET /one HTTP/1.1\r\nHost: h\r\n%b\r\n" % UPGRADE, [b"/one"]),
        (
            b"POST / HTTP/1.1\r\n%bHost: h\r\nContent-Length: 4\r\n\r\n/one" % UPGRADE
            + GET
            + b"GET /c HTTP/1.1\r\nHost: h\r\n%b\r\n" % UPGRADE
            + b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n/d",
            [b"/one", b"/a", b"/c", b"/d"],
        ),
        (
            b"GET /one HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            [b"/one"],
        ),
        (
            b"POST / HTTP/1.1\r\nHost: h\r\nConnection: close, upgrade\r\nUpgrade: h2c\r\n"
            b"Content-Length: 4\r\n\r\n/one",
            [b"/one", b""],
        ),
    ],
)
def test_a_request_for_another_protocol_is_answered_as_it_is(
    requests: bytes, answers: list[bytes], pieces: int
) -> None:
    """RFC 9110 7.8: a server may ignore Upgrade. Java's HttpClient sends it with the first request of a connection."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        assert b"upgrade" not in dict(scope["headers"])
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        await answer(send, body or scope["raw_path"])

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = max(1, len(requests) // pieces)
        for start in range(0, len(requests), size):
            writer.write(requests[start : start + size])
            await asyncio.sleep(0)
        for expected in answers:
            found = await (read_answer(reader) if expected else reader.read())
            assert found == expected

    talk_to(application, talk)


@pytest.mark.parametrize(
    "request_bytes",
    [
        GET,
        b"GET /a HTTP/1.1\r\nHost: h\r\n%b\r\n" % UPGRADE,
        b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n/one",
    ],
)
@pytest.mark.parametrize("after", [b"", b"this is not HTTP\r\n\r\n"])
def test_very_many_requests_before_the_first_answer(request_bytes: bytes, after: bytes) -> None:
    """They arrive together; none is handled inside the call for another, and one beyond the limit is refused."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(request_bytes * (30 * limits.PIPELINED_REQUESTS_MAX) + after)
        answered = [await read_answer(reader) for _ in range(limits.PIPELINED_REQUESTS_MAX + 1)]
        # A read that is done before the next request is looked at does not count.
        while (last := await read_answer(reader)) == b"/a":
            answered.append(last)
        assert set(answered) == {b"/a"}
        assert len(answered) <= limits.PIPELINED_REQUESTS_MAX + 2
        assert last == b"refused"
        assert await reader.read() == b""

    talk_to(path_application, talk)


def test_a_broken_body_of_a_request_for_another_protocol_is_refused() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"POST / HTTP/1.1\r\nHost: h\r\n%bTransfer-Encoding: chunked\r\n\r\nx\r\n" % UPGRADE
        )
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")

    talk_to(slow_application, talk)


def test_an_idle_connection_ends_after_its_time_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each request starts the whole time again, and the shorter time for an unfinished head does not apply."""
    monkeypatch.setattr(limits, "REQUEST_HEAD_SECONDS_MAX", 0.3 * IDLE_SECONDS)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        for pause in (0, 0.6, 0.6, 0.6):
            await asyncio.sleep(pause * IDLE_SECONDS)
            writer.write(GET)
            assert await read_answer(reader) == b"/a"
        answered = loop.time()
        assert await reader.read() == b""
        assert 0.9 * IDLE_SECONDS < loop.time() - answered < 3 * IDLE_SECONDS

    talk_to(path_application, talk)


@pytest.mark.slow
def test_a_connection_is_not_idle_while_it_is_being_answered() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            writer.write(GET)
            assert await read_answer(reader) == b"/a"
        assert await reader.read() == b""

    talk_to(slow_application, talk)


@pytest.mark.parametrize(
    "headers", [[(b"a", b"b")], [(b"connection", b"close")], [(b"a", b"x" * 100_000)]]
)
@pytest.mark.parametrize("body", [b"", b"body", b"x" * 1_000_000])
def test_an_answer_is_whole(headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    async def application(_scope: Any, _receive: Any, send: Any) -> None:
        await answer(send, body, *headers)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(1 if headers[0][0] == b"connection" else 3):
            writer.write(GET)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\ndate: Thu, 05 Jan 2017 03:25:45 GMT\r\n")
            assert b"\r\n%b: %b\r\n" % headers[0] in head
            assert head.count(b"content-length: %d\r\n" % len(body)) == 1
            assert await reader.readexactly(len(body)) == body

    talk_to(application, talk)


def test_a_body_of_another_length_than_was_announced_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def application(_scope: Any, _receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"5")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"four"})

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GET)
        assert (await reader.read()).endswith(b"\r\n\r\nfour")

    with caplog.at_level(logging.ERROR, "tablestone"):
        talk_to(application, talk)
    assert "The body is shorter than its content-length." in caplog.text


def test_requests_that_come_at_once_are_answered_in_their_order() -> None:
    """Even if one of them takes long. The test of very many requests shows when more are refused."""
    many = limits.PIPELINED_REQUESTS_MAX

    async def application(scope: Any, _receive: Any, send: Any) -> None:
        if scope["raw_path"] == b"/0":
            await asyncio.sleep(0.2)
        await answer(send, scope["raw_path"])

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for first in (0, many):
            paths = [b"/%d" % number for number in range(first, first + many)]
            writer.write(b"".join(GET.replace(b"/a", path) for path in paths))
            assert [await read_answer(reader) for _ in paths] == paths

    talk_to(application, talk)


def test_a_peer_that_is_gone_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """Even if it asked for more than it has received, and several requests wait for each other."""

    async def application(_scope: Any, _receive: Any, send: Any) -> None:
        await asyncio.sleep(0)
        await answer(send, b"x" * 300_000)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GET * 50)
        await reader.readexactly(100)
        await asyncio.sleep(0.2)
        writer.transport.abort()
        await asyncio.sleep(0.3)

    with caplog.at_level(logging.ERROR, "tablestone"):
        talk_to(application, talk)
    assert caplog.text == ""
