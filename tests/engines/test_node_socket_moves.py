"""The driver's sockets as a server begins or ends: nothing is lost or sent twice, and no socket is forgotten."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")
pytest.importorskip("cassandra.io.libevwrapper", reason="a driver without libev")

from cassandra.connection import ConnectionShutdown
from cassandra.io import libevreactor
from cassandra.io.libevreactor import LibevConnection

from engines.stand_in_node import FEW_OPTIONS, PATIENCE_SECONDS, Asked, Node, connect, is_whole
from tablestone.engines.cassandra import node_sockets
from tablestone.engines.cassandra.node_sockets import NodeSocket
from tablestone.engines.cassandra.serving_loop import ServingLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def node() -> Iterator[Node]:
    NodeSocket.initialize_reactor()
    node = Node()
    yield node
    node.close()


def let_go_late(
    opened: NodeSocket,
    monkeypatch: pytest.MonkeyPatch,
    before_the_second_look: Callable[[], None] = lambda: None,
) -> None:
    """Let the driver's thread keep a socket at the first look for the end of a move."""
    looks = itertools.count(1)
    watched = opened._is_watched_by_driver

    def is_watched() -> bool:
        number = next(looks)
        if number == 2:
            before_the_second_look()
        return number == 1 or watched()

    monkeypatch.setattr(opened, "_is_watched_by_driver", is_watched)


async def has_a_part(opened: NodeSocket) -> None:
    """Wait until the connection has received the beginning of an answer."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not opened._received.unread:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.001)


def on_another_thread(act: Callable[[], object]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join(PATIENCE_SECONDS)


def is_served_by_driver(opened: NodeSocket) -> bool:
    return opened in libevreactor._global_loop._live_conns


def test_the_part_of_an_answer_is_given_back_once(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later server that ended in the middle of a move gave it back again."""
    serving = ServingLoop()
    opened = connect(node, serving)

    async def serve_until_an_answer_is_there_in_part() -> Asked:
        with serving.here():
            assert is_whole((await Asked(opened).arrived()).answer)
            node.goes_on.clear()
            asked = Asked(opened)
            await has_a_part(opened)
            return asked

    async def serve() -> Asked:
        with serving.here():
            return Asked(opened)

    asked = asyncio.run(serve_until_an_answer_is_there_in_part())
    node.goes_on.set()
    assert is_whole(asked.wait().answer)
    let_go_late(opened, monkeypatch)
    assert is_whole(asyncio.run(serve()).wait().answer)
    opened.close()


def test_a_second_look_for_the_end_of_a_move_loses_nothing(node: Node) -> None:
    """A server that ends in the middle of a move, and one that begins on the same loop, leave two looks."""
    serving = ServingLoop()
    opened = connect(node, serving)

    async def serve() -> None:
        with serving.here():
            assert is_whole((await Asked(opened).arrived()).answer)
            node.goes_on.clear()
            asked = Asked(opened)
            await has_a_part(opened)
            opened._arrive(asyncio.get_running_loop())
            node.goes_on.set()
            assert is_whole((await asked.arrived()).answer)

    asyncio.run(serve())
    opened.close()


def test_nothing_is_sent_while_the_driver_may_still_send(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn that an earlier server on the same loop had asked for came in the middle of a move."""
    serving = ServingLoop()
    opened = connect(node, serving)
    let_go_late(opened, monkeypatch)

    async def serve() -> None:
        with serving.here():
            asked = Asked(opened)
            opened._flush(asyncio.get_running_loop())
            assert opened._outgoing
            assert is_whole((await asked.arrived()).answer)

    asyncio.run(serve())
    opened.close()


def test_a_socket_that_was_full_when_it_moved_takes_more(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver refuses to send on a full socket until its own thread has emptied it."""
    serving = ServingLoop()
    opened = connect(node, serving)
    let_go_late(opened, monkeypatch)

    async def serve() -> None:
        with serving.here():
            asked = Asked(opened)
            opened._socket_writable = False
            assert is_whole((await asked.arrived()).answer)
            assert is_whole((await Asked(opened).arrived()).answer)

    asyncio.run(serve())
    opened.close()


def test_a_request_of_another_thread_is_not_lost_as_the_socket_moves(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = ServingLoop()
    opened = connect(node, serving)
    pushes, is_moved = threading.Event(), threading.Event()
    push = LibevConnection.push

    def push_late(self: Any, data: bytes) -> None:
        """The thread has seen that the driver serves the socket, and comes no further for a while."""
        pushes.set()
        is_moved.wait(0.5)
        push(self, data)

    monkeypatch.setattr(LibevConnection, "push", push_late)

    async def serve() -> None:
        other = asyncio.create_task(asyncio.to_thread(Asked, opened))
        await asyncio.to_thread(pushes.wait, PATIENCE_SECONDS)
        with serving.here():
            assert is_whole((await Asked(opened).arrived()).answer)
            is_moved.set()
            assert is_whole((await (await other).arrived()).answer)

    asyncio.run(asyncio.wait_for(serve(), PATIENCE_SECONDS))
    opened.close()


def test_no_request_of_any_thread_is_lost_while_servers_come_and_go(node: Node) -> None:
    node.options = FEW_OPTIONS
    serving = ServingLoop()
    opened = connect(node, serving)
    is_over = threading.Event()
    asked: list[Asked] = []

    def ask() -> None:
        while not is_over.wait(0.0005):
            asked.append(Asked(opened))

    async def serve() -> None:
        for number in range(40):
            with serving.here():
                asked.extend(Asked(opened) for _ in range(3))
                await asyncio.sleep(number % 4 * 0.001)
            await asyncio.sleep(number % 3 * 0.001)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        asyncio.run(serve())
    finally:
        is_over.set()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert all(each.wait().answer.cql_versions for each in asked)
    opened.close()


def test_a_connection_that_closes_as_a_server_ends_is_not_given_back(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's thread would watch a socket that is closed, or another one with its number."""
    serving = ServingLoop()
    opened = connect(node, serving)
    let_go_late(opened, monkeypatch, lambda: on_another_thread(opened.close))

    async def serve() -> Asked:
        with serving.here():
            return Asked(opened)

    assert isinstance(asyncio.run(serve()).wait().answer, ConnectionShutdown)
    assert not is_served_by_driver(opened)
    assert opened._socket.fileno() < 0


def test_a_connection_ends_that_the_driver_does_not_let_go(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread would stop watching the socket after it has been given back."""
    serving = ServingLoop()
    opened = connect(node, serving)
    monkeypatch.setattr(node_sockets, "LOOKS_MAX", 3)
    monkeypatch.setattr(opened, "_is_watched_by_driver", lambda: True)

    async def serve() -> Asked:
        with serving.here():
            return Asked(opened)

    assert isinstance(asyncio.run(serve()).wait().answer, ConnectionShutdown)
    assert not is_served_by_driver(opened)
    assert opened._socket.fileno() < 0


@pytest.mark.parametrize("by", ["the driver", "the event loop"])
def test_a_connection_that_was_closed_is_closed_for_whoever_served_it(node: Node, by: str) -> None:
    serving = ServingLoop()
    opened = connect(node, serving)

    async def serve() -> None:
        with serving.here():
            await Asked(opened).arrived()
            on_another_thread(opened.close)  # the loop has no turn before it ends

    if by == "the driver":
        opened.close()
    else:
        asyncio.run(serve())
    assert not is_served_by_driver(opened)
    assert not serving.sockets
    assert opened._socket.fileno() < 0


def test_an_error_of_one_socket_does_not_keep_the_others() -> None:
    serving = ServingLoop()
    given_back: list[int] = []

    class Moved:
        def __init__(self, number: int) -> None:
            self.number = number

        def give_back(self) -> None:
            given_back.append(self.number)
            raise OSError(f"the socket {self.number} is gone")

    async def serve() -> None:
        with serving.here():
            serving.sockets.update(Moved(number) for number in range(3))

    with pytest.raises(OSError, match="is gone"):
        asyncio.run(serve())
    assert sorted(given_back) == [0, 1, 2]
    assert serving.loop is None
