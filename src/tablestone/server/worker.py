"""One process that serves: its event loop, uvicorn on it, the application, and how it is told to stop.

The main thread runs the one loop, and on it HTTP, the application and its engine's reads. Connections come from a
listening socket of this process's own, or, one of several, from the supervisor. Knows nothing of other processes but
the channel it is given, and nothing of the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Generator, MutableMapping, Sequence
from typing import Any, Final, Protocol, cast

import uvloop
from uvicorn.config import Config
from uvicorn.server import Server

from tablestone.engines.contract import EngineRefused
from tablestone.server.configuration import Configuration, Place
from tablestone.server.forwarded import TrustedProxies
from tablestone.server.handover import WorkerEnd
from tablestone.server.http import HttpConnection
from tablestone.server.room import Room
from tablestone.server.tls import ServedCertificate

logger = logging.getLogger(__name__)

BACKLOG: Final = 1024
"""Connections the kernel keeps for us until they are accepted."""
CONNECTIONS_MAX: Final = 8192
"""Connections served at a time by all processes together. For one more an idle one ends; where none is idle, requests
are answered that the server is busy."""
KEEP_ALIVE_SECONDS: Final = 120
"""How long an idle connection is kept; longer than the SDKs' pools keep theirs, so that they close first."""
HANDOVER_END_SECONDS_MAX: Final = 1.0
"""How long a worker that stops waits for the supervisor to give it no more connections."""
STOP_SECONDS_MAX: Final = 10
"""How long requests in flight may take after a signal; one whose body never comes would hold the stop for ever."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class StartRefused(Exception):
    """The server cannot start; the text is one sentence for the person who started it."""


class Application(Protocol):
    """The ASGI application and its life: `startup` before the first request, `shutdown` after the last.

    `refuse` is called in its place for a request that comes when there are too many.
    """

    async def startup(self) -> None: ...
    async def shutdown(self) -> None: ...
    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None: ...
    async def refuse(self, scope: Message, receive: Receive, send: Send) -> None: ...


CreateApplication = Callable[[Configuration, Place], Application]
OpenCertificate = Callable[[], ServedCertificate | None]
"""Asked once the application has started: a certificate of our own stands in the data directory."""


class Worker:
    """What one process runs."""

    def __init__(
        self,
        configuration: Configuration,
        place: Place,
        create: CreateApplication,
        open_certificate: OpenCertificate,
    ) -> None:
        self._configuration = configuration
        self._place = place
        self._create = create
        self._open_certificate = open_certificate

    def run(self, source: socket.socket | WorkerEnd, on_ready: Callable[[], None]) -> None:
        """Serve what comes from `source` until SIGTERM, or SIGINT if this is the only process."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(source, on_ready))

    async def _serve(self, source: socket.socket | WorkerEnd, on_ready: Callable[[], None]) -> None:
        stop_asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stop_asked.set)
        if self._place.workers == 1:
            loop.add_signal_handler(signal.SIGINT, stop_asked.set)
        try:
            application = self._create(self._configuration, self._place)
            await application.startup()
        except EngineRefused as refused:
            raise StartRefused(str(refused)) from None
        watching: asyncio.Task[None] | None = None
        try:
            certificate = self._open_certificate()
            if certificate is not None:
                leads = self._place.worker == 0
                watching = asyncio.create_task(certificate.watch(leads=leads))
            config = uvicorn_config(self._configuration, application, certificate)
            await _serve_until(stop_asked, _HttpServer(config, source, on_ready))
        finally:
            if watching is not None:
                watching.cancel()
            await application.shutdown()


async def _serve_until(stop_asked: asyncio.Event, server: _HttpServer) -> None:
    serving = asyncio.ensure_future(server.run_until_stopped())
    stopping = asyncio.ensure_future(stop_asked.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        stopping.cancel()
        serving.result()
        raise RuntimeError("The HTTP server ended by itself.")
    server.stop()
    await asyncio.wait({serving}, timeout=STOP_SECONDS_MAX)
    if not serving.done():
        logger.warning("Stopped with requests unfinished after %d s.", STOP_SECONDS_MAX)
        # They are cut off when the loop is closed, and would each tell of it in a traceback.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)


def uvicorn_config(
    configuration: Configuration, application: Application, certificate: ServedCertificate | None
) -> Config:
    """How uvicorn runs an application here, loaded. The bench takes it too, so that it measures what is served."""
    proxies = configuration.trusted_proxies
    served = TrustedProxies(cast("Any", application), _as_seen(proxies)) if proxies else application
    connections_max = -(-CONNECTIONS_MAX // configuration.workers)
    connection = functools.partial(
        HttpConnection, room=Room(connections_max), refuse=cast("Any", application.refuse)
    )
    config = Config(
        cast("Any", served),
        http=cast("Any", connection),
        ws="none",
        lifespan="off",
        interface="asgi3",
        backlog=BACKLOG,
        limit_concurrency=connections_max,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        log_config=None,
        log_level=logging.ERROR,
    )
    config.load()
    config.ssl = None if certificate is None else certificate.context
    return config


def _as_seen(addresses: Sequence[str]) -> list[str]:
    """Those of IPv4 also as a socket for both families shows them."""
    networks = [ipaddress.ip_network(address) for address in addresses]
    mapped = [
        f"::ffff:{network.network_address}/{96 + network.prefixlen}"
        for network in networks
        if network.version == 4
    ]
    return [*addresses, *mapped]


class _HttpServer(Server):
    """uvicorn in this process; it is told when to stop, and takes no signals."""

    def __init__(
        self, config: Config, source: socket.socket | WorkerEnd, on_ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._source = source
        self._on_ready = on_ready
        self._being_opened: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if isinstance(self._source, WorkerEnd):
            asyncio.get_running_loop().add_reader(self._source.fileno(), self._take_connections)
        if not self._is_stopping:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if isinstance(self._source, WorkerEnd):
            asyncio.get_running_loop().remove_reader(self._source.fileno())
        await super().shutdown(sockets)

    async def run_until_stopped(self) -> None:
        await self.serve([self._source] if isinstance(self._source, socket.socket) else [])

    def stop(self) -> None:
        """End once no more connections come: the supervisor gives them to others from when it hears of this."""
        self._is_stopping = True
        if not isinstance(self._source, WorkerEnd):
            self._exit()
            return
        asyncio.get_running_loop().call_later(HANDOVER_END_SECONDS_MAX, self._exit)
        try:
            self._source.tell_stopping()
        except OSError:
            self._exit()

    def _exit(self) -> None:
        self.should_exit = True

    def _take_connections(self) -> None:
        assert isinstance(self._source, WorkerEnd)
        connections = self._source.receive()
        if connections is None and self._is_stopping:
            asyncio.get_running_loop().remove_reader(self._source.fileno())
            self._exit()
            return
        if connections is None:
            logger.error("The supervisor has ended; this process ends with it.")
            # The supervisor was killed: nobody is left who could stop this process, and its lock keeps the next
            # server out. What was acknowledged is on disk.
            os._exit(1)
        for connection in connections:
            opening = asyncio.ensure_future(self._open(self._source, connection))
            self._being_opened.add(opening)
            opening.add_done_callback(self._being_opened.discard)

    async def _open(self, source: WorkerEnd, connection: socket.socket) -> None:
        def protocol() -> asyncio.Protocol:
            create = cast("Callable[..., asyncio.Protocol]", self.config.http_protocol_class)
            return create(
                config=self.config,
                server_state=self.server_state,
                app_state={},
                on_lost=source.tell_ended,
            )

        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                protocol, connection, ssl=self.config.ssl
            )
        except OSError:  # gone already, or no TLS was to be had with it
            connection.close()
            source.tell_ended()
