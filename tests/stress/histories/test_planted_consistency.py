"""The planted read at consistency ONE: a server with the bug sends ONE to a node, and a server without it SERIAL.

A stand-in for the driver's session records each statement and answers without rows.
"""

from __future__ import annotations

import asyncio
import random
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")


from cassandra import ConsistencyLevel

from stress.histories.planted_server import plant
from tablestone.clock import system_clock
from tablestone.engines.cassandra.connection import Connection
from tablestone.engines.cassandra.engine import CassandraEngine
from tablestone.engines.cassandra.session import Answer, Nodes
from tablestone.engines.contract import Key
from tablestone.engines.figures import Distribution

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = Key(b"partition", b"row")


class Session:
    """A session of the driver that records what is sent and answers without rows."""

    coordinator_host = "the node"

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def prepare(self, text: str) -> Any:
        return SimpleNamespace(text=text)

    def execute_async(self, statement: Any, _parameters: object) -> Session:
        self.sent.append(statement)
        return self

    def add_callbacks(self, succeed: Callable[[Answer], None], _fail: object) -> None:
        succeed(Answer())


def connection_to(session: Session) -> Connection:
    """A connection of the engine that uses this session."""
    connection = object.__new__(Connection)
    connection._seconds, connection.chance = time.monotonic, random.random
    connection._nodes = Nodes(time.monotonic, None)
    connection.request_seconds = Distribution((1.0,))
    connection._arrivals = None
    connection.is_open = True
    connection.session = session
    return connection


@pytest.mark.parametrize(
    ("bug", "level"),
    [("", ConsistencyLevel.SERIAL), ("read at consistency ONE", ConsistencyLevel.ONE)],
)
def test_a_point_read_is_sent_with_its_consistency(
    bug: str, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_BUG", bug)
    session = Session()
    engine = CassandraEngine(connection_to(session), system_clock, time.monotonic, writer=1)
    plant(engine)
    assert asyncio.run(engine.get(KEY)) is None
    (sent,) = session.sent
    assert sent.consistency_level == level
