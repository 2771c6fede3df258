"""What is below the floor: the loop and the parser of the server with a constant answer of 1 KiB, and uvicorn with it.

Started as `python -m bench.raw_floor WORKERS` or `python -m bench.raw_floor WORKERS uvicorn`. The first has no limits,
no turns and no time-outs: nothing that reads HTTP with this parser on this loop can be faster.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import socket
import sys
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import httptools
import uvloop

from bench.floor import BODY
from tablestone.configuration import DEVELOPMENT_ACCOUNT
from tablestone.server.start import base_address

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ANSWER = (
    b"HTTP/1.1 200 OK\r\ndate: %b\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n%b"
    % (formatdate(usegmt=True).encode(), len(BODY), BODY)
)


class RawConnection(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._transport.write(ANSWER)


async def constant(
    _scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(BODY))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})


async def serve_raw(listener: socket.socket) -> None:
    server = await asyncio.get_running_loop().create_server(RawConnection, sock=listener)
    await server.serve_forever()


def serve(listener: socket.socket) -> None:
    if sys.argv[2:] != ["uvicorn"]:
        uvloop.run(serve_raw(listener))
        return
    import uvicorn  # noqa: PLC0415 - of the extra `bench`

    options: dict[str, Any] = {"http": "httptools", "lifespan": "off", "access_log": False}
    config = uvicorn.Config(constant, log_level="error", ws="none", **options)
    uvicorn.Server(config).run([listener])


def main() -> None:
    """Serve in as many processes as asked until SIGTERM."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    workers = [
        multiprocessing.Process(target=serve, args=[listener]) for _ in range(int(sys.argv[1]))
    ]
    for worker in workers:
        worker.start()
    print(f"{base_address(listener)}/{DEVELOPMENT_ACCOUNT.name}", flush=True)
    signal.sigwait([signal.SIGTERM])
    for worker in workers:
        worker.kill()


if __name__ == "__main__":
    main()
