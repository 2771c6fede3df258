"""A stand-in for a Cassandra node, and requests to it over a connection that an event loop may serve.

The node takes envelopes of the native protocol (version 5) and answers each in the same way.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cassandra.connection import DefaultEndPoint
from cassandra.protocol import OptionsMessage, QueryMessage

from cassandra import ConsistencyLevel
from tablestone.engines.cassandra.node_sockets import NodeSocket
from tablestone.engines.cassandra.segments import Envelope, Received, segments

if TYPE_CHECKING:
    from tablestone.engines.cassandra.serving_loop import ServingLoop

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
FEW_OPTIONS = (
    struct.pack(">H", 2)
    + (_string("COMPRESSION") + struct.pack(">H", 0))
    + (_string("CQL_VERSION") + struct.pack(">H", 1) + _string("3.4.7"))
)
FIRST_BYTES = 1000


class Node:
    """Answers on one connection after the other until it is closed."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._taken: list[socket.socket] = []
        self.damages = False
        self.options = OPTIONS
        self.goes_on = threading.Event()
        """While it is not set, the node sends only the first bytes of an answer."""
        self.goes_on.set()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def hang_up(self) -> None:
        for taken in self._taken:
            with suppress(OSError):
                taken.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.hang_up()
        self.goes_on.set()
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
                        (READY, b"") if envelope.opcode == STARTUP else (SUPPORTED, self.options)
                    )
                    answer = HEADER.pack(0x85, 0, envelope.stream, kind, len(body)) + body
                    if received is not None:
                        answer = self._damaged(segments(answer))
                    taken.sendall(answer[:FIRST_BYTES])
                    self.goes_on.wait(PATIENCE_SECONDS)
                    taken.sendall(answer[FIRST_BYTES:])
                    if envelope.opcode == STARTUP:
                        received = Received()


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


def long_query() -> QueryMessage:
    return QueryMessage(LONG, ConsistencyLevel.ONE)
