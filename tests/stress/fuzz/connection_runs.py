"""Gives bytes to one connection in this process, without a socket, in any pieces: quick enough for every place to cut.

The application answers each request with what it has read. Where the bytes are cut must change nothing, no `/hidden`
request may be reached in a case, and nothing may be written after the end or be counted for ever.
"""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random
from typing import Any, Final

from stress.fuzz.mutation import mutated
from stress.fuzz.socket_cases import CASES, CHUNKED, SocketCase
from stress.fuzz.socket_runs import WORDS, answers_in
from tablestone.limits import PIPELINED_REQUESTS_MAX
from tablestone.server.admission import MEBIBYTE, Admission
from tablestone.server.exchange import Exchange, Serving
from tablestone.server.http_connection import HttpConnection
from tablestone.wire.messages import RawRequest, RawResponse

TURNS_MAX: Final = 100
"""Turns of the loop in which everything ends that ends without the client."""
BROKEN: Final = b"Invalid HTTP request received."
ASKED: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_HIDDEN: Final = b"PUT /hidden HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n1"
_MEANT: Final = (
    (b"@PUT@", b"PUT /r HTTP/1.1\r\nHost: h\r\n"),
    (b"@GET@", b"GET /s HTTP/1.1\r\nHost: h\r\n"),
    (b"@LENGTH@", b"%d" % len(_HIDDEN)),
    (b"@HEX@", b"%x" % len(_HIDDEN)),
    (b"@HIDDEN@", _HIDDEN),
    (b"@CHUNKED@", CHUNKED),
)


class FakeTransport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self, connection: HttpConnection) -> None:
        super().__init__({"peername": ("127.0.0.1", 40_000)})
        self.sent = b""
        self.is_paused = self._is_closing = False
        self._connection = connection

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self._is_closing, "written after the end"
        self.sent += bytes(data)

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)
            del self._connection  # as the loop's transports do

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


class Echo:
    """Answers with what it has read of the request; 400 where the service does, in the cases."""

    waits = False

    def __init__(self) -> None:
        self.paths: list[bytes] = []

    async def answer(
        self, request: RawRequest, exchange: Exchange, *_limit: Any
    ) -> RawResponse | None:
        self.paths.append(request.raw_path)
        body = b""
        while True:
            piece = await exchange.next_piece()
            if piece is None:
                return None
            body += piece
            if not exchange.has_more:
                break
        target = b"%b %b?%b" % (request.method.encode(), request.raw_path, request.query_string)
        host = request.headers.get(b"host", b" ")
        is_refused = request.duplicated is not None or b" " in host
        is_refused |= request.method == "PUT" and not body
        return RawResponse(400 if is_refused else 200, [(b"x-target", target)], body)

    refuse = answer


async def spoken(pieces: Sequence[bytes], echo: Echo | None = None) -> tuple[bytes, list[bytes]]:
    """All that a connection answers to these pieces before it ends, and the paths of the requests that it reached."""
    loop, echo = asyncio.get_running_loop(), echo or Echo()
    serving = Serving(echo, Admission(9, 1_000, MEBIBYTE))
    connection = HttpConnection(serving, loop)
    transport = FakeTransport(connection)
    connection.connection_made(transport)
    for piece in pieces:
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
            if not transport.is_paused:
                break
        if transport.is_closing():
            break
        connection.data_received(piece)
    await _settled(serving)
    if not transport.is_closing() and not connection.eof_received():
        transport.close()
    await _settled(serving)
    transport.close()
    await _settled(serving)
    admission = serving.admission
    assert (admission.held_bytes, admission.requests, serving.connections) == (0, 0, set())
    return transport.sent, echo.paths


async def _settled(serving: Serving) -> None:
    for turn in range(TURNS_MAX):
        if turn > 2 and not (serving.tasks or serving.admission.rounds.is_busy):
            return
        await asyncio.sleep(0)


def content_of(case: SocketCase) -> bytes:
    content = case.content
    for word, meant in _MEANT:
        content = content.replace(word, meant)
    return content


async def _problems(
    content: bytes, cuts: Sequence[int], *, may_differ: bool = False
) -> Iterator[str]:
    """What differs from the answers to the whole content if it is cut at these places.

    `may_differ`: if it is a difference of time.
    """
    whole = await spoken([content])
    pieces = [content[start:end] for start, end in pairwise((0, *sorted(cuts), len(content)))]
    found = await spoken(pieces)
    if found == whole or (may_differ and differ_by_time(found, whole)):
        return iter(())
    return iter([f"{found} to {pieces}, {whole} to the whole"])


def differ_by_time(found: tuple[bytes, list[bytes]], whole: tuple[bytes, list[bytes]]) -> bool:
    """Whether these answers to the same bytes differ only by how fast they came.

    Time decides which of too many requests is refused. If the last bytes are not HTTP, time also decides whether the
    request before them is reached, and whether its client is asked for the body.
    """
    if len(whole[1]) > PIPELINED_REQUESTS_MAX:
        return True
    (sent, paths), (more_sent, more) = sorted((found, whole), key=lambda each: len(each[1]))
    unasked, as_well = sent.replace(ASKED, b""), more_sent.replace(ASKED, b"")
    return unasked == as_well and unasked.endswith(BROKEN) and paths in (more, more[:-1])


async def _problems_of_case(case: SocketCase) -> list[str]:
    """The problems of a case, in one piece and cut at each place."""
    content = content_of(case)
    whole, paths = await spoken([content])
    statuses = tuple(answer.status for answer in answers_in(whole))
    allowed = {tuple(_ECHOED.get(status, status) for status in each) for each in case.answers}
    found = [f"answered {statuses}, not one of {allowed}"] if statuses not in allowed else []
    if b"/hidden" in paths:
        found.append("the hidden write was reached")
    for cut in range(1, min(len(content), CUTS_MAX)):
        found += await _problems(content, [cut])
    return [f"{case.name}: {each}" for each in found]


_ECHOED: Final = {204: 200, 401: 200, 404: 200}
"""What the application here answers instead of the service."""
CUTS_MAX: Final = 1_000


def of_case(case: SocketCase) -> list[str]:
    with asyncio.Runner() as runner:
        return runner.run(_problems_of_case(case))


def run(inputs: int, seed: int) -> Iterator[str]:
    """All cases, and so many changes of them in random pieces; returns the problems."""
    for case in CASES:
        yield from of_case(case)
    random, contents = Random(seed), [content_of(case) for case in CASES]
    with asyncio.Runner() as runner:
        for _ in range(inputs):
            content = mutated(random, random.choice(contents), contents, WORDS)
            cuts = [random.randrange(len(content) + 1) for _ in range(random.choice((1, 2, 5)))]
            try:
                yield from runner.run(_problems(content, cuts, may_differ=True))
            except Exception as error:  # noqa: BLE001 - any is a finding
                yield f"{error!r} after {content!r}, cut at {cuts}"
