"""The planted read at consistency ONE: a server with the bug sends ONE to a node, and a server without it SERIAL.

A node stands behind the driver's connection: it keeps the bytes of each request and answers without rows.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

from cassandra.cqltypes import BytesType
from cassandra.protocol import ProtocolHandler

from cassandra import ConsistencyLevel
from histories.planted_server import plant
from tablestone.clock import system_clock
from tablestone.engines.cassandra import native_protocol
from tablestone.engines.cassandra.connection import Connection
from tablestone.engines.cassandra.direct_requests import DirectRequests
from tablestone.engines.cassandra.engine import CassandraEngine
from tablestone.engines.cassandra.requests_under_way import RequestsUnderWay
from tablestone.engines.cassandra.serving_loop import ServingLoop
from tablestone.engines.contract import Key
from tablestone.engines.figures import Distribution

KEY = Key(b"partition", b"row")
METADATA_ID = b"metadata"
NO_ROWS = bytes.fromhex("00000002 00000004 00000001 00000000")
"""An answer of rows without metadata, with one column and no row (section 4.2.5.2 of the protocol)."""


class Node:
    """A node with its connection, its pool and its session, and the bytes that were sent to it."""

    host = "the node"
    is_shutdown = False
    client_protocol_handler = ProtocolHandler

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._pools = {self: self}
        self.sent: list[bytes] = []

    def prepare(self, text: str) -> Any:
        columns = [SimpleNamespace(type=BytesType)] * text.count("?")
        return SimpleNamespace(
            query_id=next(self._numbers).to_bytes(16, "big"),
            result_metadata_id=METADATA_ID,
            routing_key_indexes=[0],
            column_metadata=columns,
            result_metadata=[("tables", "rows", "value", BytesType)],
        )

    def holder(self, *_partition: object) -> Node:
        return self

    def heard(self, host: object) -> None:
        """It is never late."""

    def borrow_connection(self, _timeout: float) -> tuple[Node, int]:
        return self, 1

    def return_connection(self, _connection: Node) -> None:
        """The stream is used again."""

    def send_msg(
        self, message: Any, stream: int, *, cb: Any, encoder: Any, decoder: Any, **_: Any
    ) -> None:
        self.sent.append(encoder(message, stream, native_protocol.VERSION))
        cb(decoder(5, {}, stream, 0, native_protocol.RESULT, NO_ROWS, None, None))


def connection_to(node: Node) -> Connection:
    """A connection of the engine whose session is the node's."""
    connection = object.__new__(Connection)
    connection._seconds, connection._chance = time.monotonic, random.random
    connection.is_open = True
    connection.serving = ServingLoop()
    connection._under_way = RequestsUnderWay(
        connection.serving, time.monotonic, Distribution((1.0,)), print
    )
    connection.session = node
    connection._direct = DirectRequests(node, node, "tables")
    return connection


@pytest.mark.parametrize(
    ("bug", "level"),
    [("", ConsistencyLevel.SERIAL), ("read at consistency ONE", ConsistencyLevel.ONE)],
)
def test_a_point_read_is_sent_with_its_consistency(
    bug: str, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 4.1.6 of the protocol: the consistency follows the ids of the statement and of its metadata."""
    monkeypatch.setenv("PLANTED_BUG", bug)
    node = Node()
    engine = CassandraEngine(
        connection_to(node), system_clock, time.monotonic, random.random, writer=1
    )
    plant(engine)

    async def read() -> bytes | None:
        with engine.connection.serving.here():
            return await engine.get(KEY)

    assert asyncio.run(read()) is None
    (sent,) = node.sent
    ids = (engine._reads._statements.get.query_id, METADATA_ID)
    assert sent[native_protocol.HEADER.size :].startswith(
        b"".join(map(native_protocol.short_bytes, ids)) + level.to_bytes(2, "big")
    )
