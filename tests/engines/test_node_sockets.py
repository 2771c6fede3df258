"""The driver's sockets on the event loop of a server: which thread serves them, and how connections end."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")
pytest.importorskip("cassandra.io.libevwrapper", reason="a driver without libev")

from cassandra.connection import ConnectionShutdown, CrcMismatchException

from engines.stand_in_node import Asked, Node, connect, is_whole, long_query
from tablestone.engines.cassandra.node_sockets import NodeSocket
from tablestone.engines.cassandra.serving_loop import ServingLoop

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def node() -> Iterator[Node]:
    NodeSocket.initialize_reactor()
    node = Node()
    yield node
    node.close()


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
