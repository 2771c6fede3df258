"""The requests that a connection to a cluster sends in the driver's way: time-outs, and what answers say of nodes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionShutdown
from cassandra.protocol import ServerError

import cassandra
from tablestone.engines.cassandra import requests_under_way
from tablestone.engines.cassandra.connection import Connection
from tablestone.engines.cassandra.serving_loop import ServingLoop
from tablestone.engines.cassandra.session import REQUEST_SECONDS_MAX, Nodes
from tablestone.engines.figures import Distribution

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_SECONDS = 30.0


class Silent:
    """A session of a node that never answers. It notes whether a request was told of its time-out."""

    coordinator_host = None

    def __init__(self) -> None:
        self.is_told = False

    def execute_async(self, _request: object, _parameters: object, timeout: object) -> Silent:
        assert timeout is None, "the driver would wake its thread for each request"
        return self

    def add_callbacks(
        self, _answered: object, failed: Callable[..., None], _with: Any, errback_args: Any
    ) -> None:
        self._failed: Callable[[Exception], None] = lambda error: failed(error, *errback_args)

    def _on_timeout(self) -> None:
        self.is_told = True
        self._failed(cassandra.Unavailable("late"))


class Indirect:
    """Direct requests that send nothing."""

    def send(self, *_: object) -> None:
        return None


def test_a_request_that_a_server_sends_has_a_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests_under_way, "LOOK_SECONDS", 0.001)
    now = 0.0
    connection = object.__new__(Connection)
    connection.is_open = True
    connection.serving = ServingLoop()
    connection.failures = 0
    connection._nodes = Nodes(lambda: now, None)
    connection._under_way = requests_under_way.RequestsUnderWay(
        connection.serving, lambda: now, Distribution((1.0,)), connection._note_failure
    )
    monkeypatch.setattr(connection, "_direct", Indirect(), raising=False)
    connection.session = silent = Silent()

    async def send() -> None:
        nonlocal now
        with connection.serving.here():
            future = connection._send((("SELECT", ()),))
            now = REQUEST_SECONDS_MAX - 1
            await asyncio.sleep(0.02)
            assert not silent.is_told
            now = REQUEST_SECONDS_MAX + 1
            with pytest.raises(cassandra.Unavailable):
                await asyncio.wait_for(future, PATIENCE_SECONDS)
        assert connection.failures == 1
        of_loop = connection._under_way._of_loop
        assert of_loop is not None
        assert not of_loop._deadlines

    asyncio.run(send())


class Answering:
    """A session of a node whose answer, rows or an error, is there at once."""

    coordinator_host = "the node"
    _col_names = None

    def __init__(self, outcome: Exception | None) -> None:
        self._outcome = outcome

    def execute_async(self, _request: object, _parameters: object) -> Answering:
        return self

    def add_callbacks(
        self,
        answered: Callable[..., None],
        failed: Callable[..., None],
        *both: Any,
        errback_args: Any,
    ) -> None:
        if self._outcome is None:
            answered([], *both[0])
        else:
            failed(self._outcome, *errback_args)


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
def test_an_answer_in_the_driver_s_way_ends_the_time_of_a_node_that_was_late(
    outcome: Exception | None, *, is_heard: bool
) -> None:
    connection = object.__new__(Connection)
    connection.is_open = True
    connection.serving = ServingLoop()
    connection.failures = 0
    connection._nodes = nodes = Nodes(lambda: 0.0, None)
    connection._under_way = requests_under_way.RequestsUnderWay(
        connection.serving, lambda: 0.0, Distribution((1.0,)), connection._note_failure
    )
    connection.session = Answering(outcome)
    nodes.avoid("the node")

    async def send() -> None:
        future = connection._send((("SELECT", ()),))
        await asyncio.wait([future], timeout=PATIENCE_SECONDS)
        assert future.exception() is outcome

    asyncio.run(send())
    assert ("the node" not in nodes._avoided) == is_heard
    assert connection.failures == (outcome is not None)
