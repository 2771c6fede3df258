"""How a connection ends: nothing that follows the last answer is carried out, and no client keeps it for ever."""

import asyncio
import gc
import socket
from functools import partial
from typing import Any

import pytest
import uvloop

from stress.fuzz.connection_runs import Echo, FakeTransport, spoken
from tablestone import limits
from tablestone.server.admission import MEBIBYTE, Admission, Rounds
from tablestone.server.exchange import Exchange, Serving
from tablestone.server.http_connection import HttpConnection, pieces_of
from tablestone.wire.messages import RawRequest, RawResponse

GET = b"GET /a HTTP/1.1\r\nHost: h\r\n"
WHOLE = GET + b"\r\n"
LAST = GET + b"Connection: close\r\n\r\n"
POST = b"POST /b HTTP/1.1\r\nHost: h\r\n"


class Late(Echo):
    """Answers after the client has said everything."""

    async def answer(
        self, request: RawRequest, exchange: Exchange, *_limit: Any
    ) -> RawResponse | None:
        for _ in range(9):
            await asyncio.sleep(0)
        return await super().answer(request, exchange)


class Early(Echo):
    """Answers without reading the body, as where it is too large, and ends the connection."""

    async def answer(self, request: RawRequest, *_: Any) -> RawResponse | None:
        self.paths.append(request.raw_path)
        return RawResponse(413, [(b"connection", b"close")], b"too large")


class Wrong(Echo):
    """Has a bug."""

    async def answer(self, request: RawRequest, *_: Any) -> RawResponse | None:
        self.paths.append(request.raw_path)
        return RawResponse(200, [(b"x-count", 5)], b"")  # type: ignore[list-item]


ENDS: list[tuple[str, type[Echo], bytes, list[bytes], list[bytes]]] = [
    # Answers, and paths of the requests that are carried out.
    ("RFC 9112 9.6", Echo, LAST + WHOLE, [b"200"], [b"/a"]),
    ("9.6, in HTTP/1.0", Echo, LAST.replace(b"1.1", b"1.0") + WHOLE, [b"200"], [b"/a"]),
    ("9.6, answered late", Late, LAST + WHOLE, [b"200"], [b"/a"]),
    ("one answer", Early, POST + b"Content-Length: 9\r\n\r\n123" + WHOLE, [b"413"], [b"/b"]),
    (
        "one answer, and too much beside the body",
        Early,
        POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nx: " + b"y" * 300_000,
        [b"413"],
        [b"/b"],
    ),
    ("a bug", Wrong, WHOLE + WHOLE, [b"500"], [b"/a"]),
    ("RFC 9112 3.2.1", Echo, b"GET http://h.x HTTP/1.1\r\nHost: h\r\n\r\n", [b"200"], [b"/"]),
]


def test_the_body_of_a_refused_request_is_not_that_of_the_one_before() -> None:
    """RTSP is refused when its turn comes; the parser reads on."""

    async def main() -> bytes:
        loop = asyncio.get_running_loop()
        serving = Serving(Late(), Admission(9, 9, MEBIBYTE))
        connection = HttpConnection(serving, loop)
        transport = FakeTransport(connection)
        connection.connection_made(transport)
        connection.data_received(POST + b"Content-Length: 1\r\n\r\nbPOST /c RTSP/1.0\r\n")
        connection.data_received(b"Content-Length: 3\r\n\r\nabc")
        for _ in range(99):
            await asyncio.sleep(0)
        return transport.sent

    answers = asyncio.run(main()).split(b"HTTP/1.1 ")
    assert [answer[:3] for answer in answers] == [b"", b"200", b"400"]
    assert answers[1].endswith(b"\r\n\r\nb")


@pytest.mark.parametrize(
    ("line_is_open", "pieces"),
    [
        (False, [b"a\nb\n", b"c"]),
        (False, [b"a\n"]),
        (False, [b"a"]),
        (True, [b"a\n", b"b\nc\n", b"d"]),
        (True, [b"a"]),
        (False, [b"a\n\n", b"GET / RTSP/1.0\r\n", b"b\nc\n", b"d"]),
        (False, [b" ICE/1 RTSP/1 ICE/\n", b"\n", b"x ICE/"]),
        (True, [b"RTSP/\n", b"a\n", b" RTSP/\n", b" ICE/\n"]),
        (False, [b"\n" * 65_530, b" ICE/\n", b"\n" * 200_000]),
        (False, [b" ICE/1" * 40_000]),
        (False, []),
    ],
)
def test_only_lines_that_may_be_of_another_protocol_are_cut_out(
    line_is_open: bool,  # noqa: FBT001 - a column
    pieces: list[bytes],
) -> None:
    """Each piece is a call of the parser, so a body of line feeds must not become as many pieces."""
    assert pieces_of(b"".join(pieces), line_is_open=line_is_open) == pieces


def test_a_request_line_that_drips_is_not_read_again_for_each_byte() -> None:
    """Its end is all that is kept of it."""

    async def main() -> int:
        connection = HttpConnection(
            Serving(Late(), Admission(9, 9, MEBIBYTE)), asyncio.get_running_loop()
        )
        connection.connection_made(FakeTransport(connection))
        connection.data_received(b"GET" + b" " * 200_000)
        return len(connection._request_line or b"")

    assert asyncio.run(main()) < 100


@pytest.mark.parametrize(
    ("application", "sent", "statuses", "paths"),
    [row[1:] for row in ENDS],
    ids=[row[0] for row in ENDS],
)
def test_what_is_answered_and_carried_out(
    application: type[Echo], sent: bytes, statuses: list[bytes], paths: list[bytes]
) -> None:
    answered, reached = asyncio.run(spoken([sent], application()))
    found = [part[:3] for part in answered.split(b"HTTP/1.1 ")[1:]]
    assert (found, reached) == (statuses, paths)


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 9\r\n\r\n1",
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"Content-Length: 0\r\n\r\n" + POST + b"Content-Length: 9\r\n\r\n1",
    ],
    ids=["half of a body", "no body", "one more"],
)
def test_what_came_whole_is_answered_if_the_client_then_closes_its_side(rest: bytes) -> None:
    async def main() -> tuple[bytes, list[bytes]]:
        application = Late()
        serving = Serving(application, Admission(9, 9, MEBIBYTE))
        connection = HttpConnection(serving, asyncio.get_running_loop())
        transport = FakeTransport(connection)
        connection.connection_made(transport)
        connection.data_received(WHOLE + POST + rest)
        assert connection.eof_received()
        for _ in range(99):
            await asyncio.sleep(0)
        assert transport.is_closing()
        return transport.sent, application.paths

    answered, paths = asyncio.run(main())
    assert answered.startswith(b"HTTP/1.1 200 ")
    assert paths == ([b"/a", b"/b"] if POST in rest else [b"/a"])


def test_http_1_0_gets_no_100_continue() -> None:
    sent = POST.replace(b"1.1", b"1.0") + b"Expect: 100-continue\r\nContent-Length: 1\r\n\r\n1"
    answered, _ = asyncio.run(spoken([sent]))
    assert answered.startswith(b"HTTP/1.1 200 ")


async def _open(connection_holder: list[HttpConnection], admission: Admission) -> FakeTransport:
    connection = HttpConnection(Serving(Echo(), admission), asyncio.get_running_loop())
    connection_holder.append(connection)
    transport = FakeTransport(connection)
    connection.connection_made(transport)
    return transport


def test_a_connection_that_is_made_during_a_stop_ends() -> None:
    async def main() -> bool:
        admission = Admission(9, 9, MEBIBYTE)
        admission.is_stopping = True
        return (await _open([], admission)).is_closing()

    assert asyncio.run(main())


def test_a_connection_that_has_ended_leaves_no_cycle() -> None:
    async def main() -> bool:
        before = sum(type(each) is HttpConnection for each in gc.get_objects())
        holder: list[HttpConnection] = []
        transport = await _open(holder, Admission(9, 9, MEBIBYTE))
        holder[0].data_received(WHOLE + WHOLE)
        for _ in range(9):
            await asyncio.sleep(0)
        transport.close()
        await asyncio.sleep(0)
        holder.clear()
        del transport
        await asyncio.sleep(0)
        return sum(type(each) is HttpConnection for each in gc.get_objects()) == before

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(main())
    finally:
        gc.enable()


def test_a_request_that_fails_in_its_turn_leaves_the_others_theirs() -> None:
    served: list[int] = []

    def fail() -> bool:
        raise ZeroDivisionError

    async def main() -> bool:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        rounds = Rounds()
        rounds.wait("a", fail, loop)
        rounds.wait("b", lambda: bool(served.append(1)), loop)  # type: ignore[func-returns-value]
        for _ in range(5):
            await asyncio.sleep(0)
        return rounds.is_busy

    assert asyncio.run(main()) is False
    assert served == [1]


@pytest.mark.parametrize("last", [LAST, b"G", b"garbage\r\n\r\n"], ids=["close", "head", "no HTTP"])
def test_a_client_that_does_not_read_the_last_answer_is_cut_off(
    last: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if what is unsent is less than what pauses the writing."""
    monkeypatch.setattr(limits, "ANSWER_READ_SECONDS_MAX", 0.2)
    monkeypatch.setattr(limits, "REQUEST_HEAD_SECONDS_MAX", 0.2)

    class Large(Echo):
        async def answer(self, *_: Any) -> RawResponse | None:
            return RawResponse(200, [], b"x" * 20_000)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        serving = Serving(Large(), Admission(9, 9, MEBIBYTE))
        create: Any = partial(HttpConnection, serving, loop)
        server = await loop.create_server(create, "127.0.0.1", 0)
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            await loop.sock_connect(client, server.sockets[0].getsockname())
            unsent = 0
            while not unsent:
                await loop.sock_sendall(client, WHOLE)
                await asyncio.sleep(0.005)
                (connection,) = serving.connections
                unsent = connection.transport.get_write_buffer_size()
            await loop.sock_sendall(client, last)
            async with asyncio.timeout(5):
                while serving.connections:  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.05)
        server.close()

    uvloop.run(main())
