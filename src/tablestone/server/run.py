"""Start, run and stop: the listening socket, granian, the loop, the signals, and nothing of the service.

Who owns what: the main thread runs the one event loop, and on it the application and its engine; granian's own threads
speak HTTP and never run Python. The listening socket is made here and handed on as a file descriptor, so that several
worker processes could share it, each with its own loop, application and granian.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Protocol

import uvloop
from granian._granian import SocketHolder
from granian.constants import HTTPModes, Interfaces
from granian.log import LogLevels
from granian.server.embed import Server

from tablestone.engines.contract import EngineRefused
from tablestone.server.app import create_application
from tablestone.server.configuration import Configuration

logger = logging.getLogger(__name__)

BACKLOG: Final = 1024
"""Connections the kernel keeps for us until they are accepted."""
CONNECTIONS_MAX: Final = 8192
"""Connections served at a time; the next ones wait in the backlog."""
STOP_SECONDS_MAX: Final = 10
"""How long requests in flight may take after a signal; one whose body never comes would hold the stop for ever."""

Message = MutableMapping[str, Any]
OnReady = Callable[[str], None]
"""Told the base address, `http://HOST:PORT`, once connections are answered."""


class StartRefused(Exception):
    """The server cannot start; the text is one sentence for the person who started it."""


class Application(Protocol):
    """The ASGI application and its life: `startup` before the first request, `shutdown` after the last."""

    async def startup(self) -> None: ...
    async def shutdown(self) -> None: ...
    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None: ...


CreateApplication = Callable[[Configuration], Application]


def serve(
    configuration: Configuration,
    on_ready: OnReady,
    create: CreateApplication = create_application,
) -> None:
    """Serve until SIGINT or SIGTERM. `StartRefused` if the port or the data cannot be had."""
    with listen(configuration.host, configuration.port) as listener:
        _allow_many_connections()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(configuration, on_ready, create, listener))


def listen(host: str, port: int) -> socket.socket:
    """A listening socket that nobody else has: without SO_REUSEPORT, which lets two servers share a port unseen."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        both = family == socket.AF_INET6 and host == "::" and socket.has_dualstack_ipv6()
        listener = socket.create_server(
            address, family=family, backlog=BACKLOG, dualstack_ipv6=both
        )
    except OSError as error:
        raise StartRefused(
            f"Cannot listen on {_authority(host, port)}: {_reason(error)}."
        ) from None
    # What is accepted inherits this: an answer leaves when it is written, not when the last one was acknowledged.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setblocking(False)
    return listener


def base_address(listener: socket.socket) -> str:
    """Where a client on this machine finds the listener."""
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://{_authority(reachable, port)}"


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "the address is not known"
    return os.strerror(error.errno).lower() if error.errno else str(error)


def _allow_many_connections() -> None:
    """Raise the soft limit of open files, often 1,024, as far as this process may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CONNECTIONS_MAX
    if soft != resource.RLIM_INFINITY and soft < wanted:
        reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))


async def _serve(
    configuration: Configuration,
    on_ready: OnReady,
    create: CreateApplication,
    listener: socket.socket,
) -> None:
    stop_asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop_asked.set)
    try:
        application = create(configuration)
        await application.startup()
    except EngineRefused as refused:
        raise StartRefused(str(refused)) from None
    try:
        address = base_address(listener)
        await _serve_until(
            stop_asked, _HttpServer(application, listener, lambda: on_ready(address))
        )
    finally:
        await application.shutdown()


async def _serve_until(stop_asked: asyncio.Event, server: _HttpServer) -> None:
    serving = asyncio.ensure_future(server.serve())
    stopping = asyncio.ensure_future(stop_asked.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        stopping.cancel()
        serving.result()
        raise RuntimeError("The HTTP server ended by itself.")
    server.stop()  # type: ignore[no-untyped-call]
    await asyncio.wait({serving}, timeout=STOP_SECONDS_MAX)
    if not serving.done():
        logger.warning("Stopped with requests unfinished after %d s.", STOP_SECONDS_MAX)
        # They are cut off when the loop is closed, and would each tell of it in a traceback.
        logging.getLogger("_granian").setLevel(logging.CRITICAL)
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)


class _HttpServer(Server):
    """granian in this process, on a socket that already listens."""

    def __init__(
        self, application: Application, listener: socket.socket, on_ready: Callable[[], None]
    ) -> None:
        super().__init__(
            target=application,
            interface=Interfaces.ASGINL,
            http=HTTPModes.http1,
            websockets=False,
            backlog=BACKLOG,
            backpressure=CONNECTIONS_MAX,
            # It warns that embedding is experimental; what it logs as an error goes where our own log goes.
            log_level=LogLevels.error,
            log_dictconfig={"handlers": {}, "loggers": {"_granian": {"propagate": True}}},
        )
        self._listener = listener
        self._on_ready = on_ready

    def _init_shared_socket(self) -> None:
        holder: Any = SocketHolder
        self._shd = holder(self._listener.detach(), False, BACKLOG)

    def _spawn_workers(self, spawn_target: Any, target_loader: Any) -> None:
        super()._spawn_workers(spawn_target, target_loader)  # type: ignore[no-untyped-call]
        # The worker is a task that was made just now: it runs before this does.
        asyncio.get_running_loop().call_soon(self._on_ready)
