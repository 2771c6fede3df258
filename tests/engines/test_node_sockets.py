"""The driver's sockets on the event loop of a server: which thread serves them, and that nothing is lost on the way.

The node is a stand-in that takes envelopes of the native protocol (version 5) and answers each in the same way.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")
pytest.importorskip("cassandra.io.libevwrapper", reason="a driver without libev")

from cassandra.connection import ConnectionShutdown, CrcMismatchException, DefaultEndPoint
from cassandra.protocol import OptionsMessage, QueryMessage

from cassandra import ConsistencyLevel
from tablestone.engines.cassandra.node_sockets import NodeSocket
from tablestone.engines.cassandra.segments import Envelope, Received, segments
from tablestone.engines.cassandra.serving_loop import ServingLoop

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_SECONDS = 60.0
HEADER = struct.Struct(">BBhBI")
STARTUP, READY, SUPPORTED = 1, 2, 6
LONG = "x" * (4 << 20)
ANSWER_STRINGS = 40


def _string(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


OPTIONS = (
    struct.pack(">H", 3)
    + (_string("COMPRESSION") + struct.pack(">H", 0))
    + (_string("CQL_VERSION") + struct.pack(">H", 1) + _string("3.4.7"))
    + (_string("LONG") + struct.pack(">H", ANSWER_STRINGS) + ANSWER_STRINGS * _string(60_000 * "y"))
)
"""The options of a node: 2.4 MB, which no single read takes."""


class Node:
    """Answers on one connection after the other until it is closed."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._taken: list[socket.socket] = []
        self.damages = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def hang_up(self) -> None:
        for taken in self._taken:
            with suppress(OSError):
                taken.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.hang_up()
        self._listener.close()
        self._thread.join(PATIENCE_SECONDS)

    def _damaged(self, answer: bytes) -> bytes:
        if not self.damages:
            return answer
        return answer[:1000] + bytes([answer[1000] ^ 1]) + answer[1001:]

    def _serve(self) -> None:
        taken, _ = self._listener.accept()
        self._taken.append(taken)
        received: Received | None = None  # segments begin after the answer to STARTUP
        with suppress(OSError), taken:
            while data := taken.recv(1 << 20):
                envelopes = (
                    received.take(data)
                    if received
                    else [(Envelope(*HEADER.unpack_from(data)[:4]), b"")]
                )
                for envelope, _ in list(envelopes):
                    kind, body = (
                        (READY, b"") if envelope.opcode == STARTUP else (SUPPORTED, OPTIONS)
                    )
                    answer = HEADER.pack(0x85, 0, envelope.stream, kind, len(body)) + body
                    taken.sendall(answer if received is None else self._damaged(segments(answer)))
                    if envelope.opcode == STARTUP:
                        received = Received()


@pytest.fixture
def node() -> Iterator[Node]:
    NodeSocket.initialize_reactor()
    node = Node()
    yield node
    node.close()


class Asked:
    """A request and its answer, with the thread that brought it."""

    def __init__(self, to: NodeSocket, message: Any = None) -> None:
        self._is_answered = threading.Event()
        self.answer: Any = None
        self.thread = 0
        with to.lock:
            to.in_flight += 1
            number = to.get_request_id()
        to.send_msg(message or OptionsMessage(), number, self._take)

    def wait(self) -> Asked:
        assert self._is_answered.wait(PATIENCE_SECONDS), "no answer came"
        return self

    async def arrived(self) -> Asked:
        return await asyncio.to_thread(self.wait)

    def _take(self, answer: Any) -> None:
        self.answer, self.thread = answer, threading.get_ident()
        self._is_answered.set()


def connect(node: Node, serving: ServingLoop) -> NodeSocket:
    opened: NodeSocket = NodeSocket.served_by(serving).factory(
        DefaultEndPoint("127.0.0.1", node.port),
        PATIENCE_SECONDS,
        protocol_version=5,
        compression=False,
    )
    return opened


def is_whole(answer: Any) -> bool:
    return len(answer.options["LONG"]) == ANSWER_STRINGS


def test_the_loop_of_a_server_serves_a_socket_while_the_server_runs(node: Node) -> None:
    serving = ServingLoop()
    opened = connect(node, serving)
    me = threading.get_ident()
    before = Asked(opened).wait()
    assert is_whole(before.answer)
    assert before.thread != me

    async def serve() -> None:
        with serving.here():
            asked = [
                Asked(opened, long_query()) for _ in range(5)
            ]  # more than a socket takes at once
            for each in asked:
                assert is_whole((await each.arrived()).answer)
            assert [each.thread for each in asked] == [me] * 5
            others = await asyncio.to_thread(Asked, opened)  # as the driver's heartbeat does
            assert is_whole((await others.arrived()).answer)
            assert others.thread == me

    asyncio.run(serve())
    after = Asked(opened).wait()
    assert is_whole(after.answer)
    assert after.thread != me
    asyncio.run(serve())  # and on the loop of the next one
    opened.close()


def test_a_server_may_end_in_the_middle_of_a_move(node: Node) -> None:
    serving = ServingLoop()
    opened = connect(node, serving)

    async def serve() -> Asked:
        with serving.here():
            return Asked(opened, long_query())

    assert is_whole(asyncio.run(serve()).wait().answer)
    opened.close()


@pytest.mark.parametrize("side", ["the node", "this side"])
def test_a_closed_connection_is_an_error_for_all_that_wait(node: Node, side: str) -> None:
    serving = ServingLoop()
    opened = connect(node, serving)

    async def serve() -> None:
        with serving.here():
            await Asked(opened).arrived()
            if side == "this side":
                asked = Asked(opened)
                opened.close()
            else:
                node.hang_up()
                try:
                    asked = Asked(opened)
                except ConnectionShutdown:  # that it is closed has been seen already
                    return
            assert isinstance((await asked.arrived()).answer, ConnectionShutdown)
        assert opened.is_closed
        assert not serving.sockets

    asyncio.run(serve())


def test_an_answer_that_was_damaged_on_its_way_ends_the_connection(node: Node) -> None:
    serving = ServingLoop()
    opened = connect(node, serving)

    async def serve() -> None:
        with serving.here():
            assert is_whole((await Asked(opened).arrived()).answer)
            node.damages = True
            assert isinstance((await Asked(opened).arrived()).answer, ConnectionShutdown)
        assert isinstance(opened.last_error, CrcMismatchException)

    asyncio.run(serve())


def long_query() -> QueryMessage:
    return QueryMessage(LONG, ConsistencyLevel.ONE)
