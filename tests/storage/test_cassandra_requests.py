"""The requests that a connection sends to a cluster: time-outs, and what answers say about nodes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

import cassandra
from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, NoHostAvailable
from cassandra.connection import ConnectionShutdown
from cassandra.protocol import ServerError

from tablestone.engines.cassandra.cluster_url import parse_address
from tablestone.engines.cassandra.connection import Connection
from tablestone.engines.cassandra.session import REQUEST_SECONDS_MAX, Nodes, _cluster
from tablestone.engines.figures import Distribution

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_SECONDS = 30.0
WRITE_SECONDS = 2.0
"""`write_request_timeout` of a node, by default."""


class Answering:
    """A session of a node that answers at once, with rows or an error."""

    coordinator_host = "the node"

    def __init__(self, outcome: Exception | None) -> None:
        self._outcome = outcome

    def execute_async(self, _request: object, _parameters: object) -> Answering:
        return self

    def add_callbacks(
        self, succeed: Callable[[None], None], fail: Callable[[Exception], None]
    ) -> None:
        if self._outcome is None:
            succeed(None)
        else:
            fail(self._outcome)


def connection_to(session: Any, nodes: Nodes) -> Connection:
    connection = object.__new__(Connection)
    connection.is_open = True
    connection.failures = 0
    connection.request_seconds = Distribution((1.0,))
    connection._seconds = lambda: 0.0
    connection._nodes = nodes
    connection._arrivals = None
    connection.session = session
    return connection


def test_the_driver_ends_a_request_whose_time_is_over() -> None:
    """Later than the node itself, whose write time-out says more."""
    nodes = Nodes(lambda: 0.0, None)
    cluster = _cluster(parse_address("cassandra://127.0.0.1/tablestone"), nodes)
    try:
        profile = cluster.profile_manager.profiles[EXEC_PROFILE_DEFAULT]
        assert profile.request_timeout == REQUEST_SECONDS_MAX > WRITE_SECONDS
        assert profile.load_balancing_policy is nodes
    finally:
        cluster.shutdown()


@pytest.mark.parametrize(
    ("serial", "level"), [(True, ConsistencyLevel.SERIAL), (False, ConsistencyLevel.QUORUM)]
)
def test_the_driver_cuts_no_answer_into_pages(*, serial: bool, level: int) -> None:
    """Paging would return the first 5,000 rows only; the engine pages by itself, with LIMIT."""
    session = SimpleNamespace(prepare=lambda text: SimpleNamespace(text=text))
    statement = connection_to(session, Nodes(lambda: 0.0, None)).prepare("SELECT", serial=serial)
    assert statement.fetch_size is None
    assert statement.consistency_level == level


@pytest.mark.parametrize("host", ["a node", None])
def test_a_node_that_was_late_is_avoided(host: str | None) -> None:
    nodes = Nodes(lambda: 0.0, None)
    connection = connection_to(Answering(cassandra.OperationTimedOut({}, host)), nodes)

    async def send() -> None:
        with pytest.raises(cassandra.OperationTimedOut):
            await asyncio.wait_for(connection._send((("SELECT", ()),)), PATIENCE_SECONDS)

    asyncio.run(send())
    assert list(nodes._avoided) == [host] * (host is not None)


@pytest.mark.parametrize(
    ("outcome", "is_heard"),
    [
        (None, True),
        (cassandra.Unavailable("too few nodes"), True),
        (cassandra.ReadTimeout("of the node"), True),
        (ServerError(0, "overloaded", None), True),
        (cassandra.OperationTimedOut(), False),
        (cassandra.OperationTimedOut({}, "another node"), False),
        (ConnectionShutdown("closed"), False),
        (NoHostAvailable("none", {}), False),
    ],
    ids=str,
)
def test_an_answer_ends_the_time_of_a_node_that_was_late(
    outcome: Exception | None, *, is_heard: bool
) -> None:
    nodes = Nodes(lambda: 0.0, None)
    connection = connection_to(Answering(outcome), nodes)
    nodes.avoid("the node")

    async def send() -> None:
        future = connection._send((("SELECT", ()),))
        await asyncio.wait([future], timeout=PATIENCE_SECONDS)
        assert future.exception() is outcome

    asyncio.run(send())
    assert ("the node" not in nodes._avoided) == is_heard
    assert connection.failures == (outcome is not None)
