"""How 16 connections that arrive at once spread over two processes: three ways to accept. Prints the larger share.

    python bench/connection_spread.py [--trials 200]

    reuseport   each process has a listening socket of its own on the port
    shared      both accept from one listening socket, as uvloop does it
    handed      a third process accepts and hands each to the process with fewer, as `tablestone serve` does

docs/decisions/0004-workers.md says which way was chosen from these figures.
"""

import argparse
import asyncio
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, cast

import uvloop

from tablestone.server.connection_handover import WorkerEnd
from tablestone.server.supervisor import Supervisor

CONNECTIONS: Final = 16


class Tells(asyncio.Protocol):
    """Tells each connection which process has it."""

    def __init__(self, on_lost: Callable[[], None] = lambda: None) -> None:
        self._on_lost = on_lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(b"%08d" % os.getpid())

    def connection_lost(self, _error: Exception | None) -> None:
        self._on_lost()


def serve(listener: socket.socket) -> None:
    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(Tells, sock=listener)
        await server.serve_forever()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def serve_handed(_number: int, end: WorkerEnd) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()

        def take() -> None:
            connections = end.receive()
            if connections is None:
                os._exit(0)
            opening.update(
                loop.create_task(
                    loop.connect_accepted_socket(lambda: Tells(end.tell_ended), connection)
                )
                for connection in connections
            )

        opening = set[asyncio.Task[object]]()
        loop.add_reader(end.fileno(), take)
        end.tell_ready()
        await asyncio.Event().wait()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def listening(port: int = 0) -> socket.socket:
    listener = socket.create_server(("127.0.0.1", port), reuse_port=True, backlog=1024)
    listener.setblocking(False)
    return listener


def with_two(start: Callable[[int], None], port: int, trials: int) -> list[int]:
    children = []
    for number in range(2):
        child = os.fork()
        if child == 0:
            start(number)
        children.append(child)
    shares = [fuller(port) for _ in range(trials)]
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return shares


def fuller(port: int) -> int:
    opened = [socket.socket() for _ in range(CONNECTIONS)]
    for each in opened:
        each.setblocking(False)
        each.connect_ex(("127.0.0.1", port))
    found = Counter[bytes]()
    for each in opened:
        each.setblocking(True)
        found[each.recv(8)] += 1
    for each in opened:
        each.close()
    time.sleep(0.002)  # until that is noticed
    return max(found.values())


def main() -> None:
    parser = argparse.ArgumentParser(description="How connections spread, by who accepts them.")
    parser.add_argument("--trials", type=int, default=200)
    trials = parser.parse_args().trials
    listener = listening()
    port = listener.getsockname()[1]
    tell("shared", with_two(lambda _number: serve(listener), port, trials))
    second = listening(port)
    both = (listener, second)
    tell("reuseport", with_two(lambda number: serve(both[number]), port, trials))
    second.close()
    supervised = os.fork()
    if supervised == 0:
        Supervisor(listener, 2, serve_handed).run(lambda: None)
        os._exit(0)
    listener.close()
    tell("handed", [fuller(port) for _ in range(trials)])
    os.kill(supervised, signal.SIGKILL)
    os.waitpid(supervised, 0)


def tell(kind: str, shares: list[int]) -> None:
    ordered = sorted(shares)
    print(
        f"{kind:10} of {CONNECTIONS}: median {ordered[len(ordered) // 2]},"
        f" 9 in 10 trials up to {ordered[len(ordered) * 9 // 10]}, at most {ordered[-1]}"
    )


if __name__ == "__main__":
    main()
