"""One worker process: its event loop, uvicorn on it, the application, and the way it stops.

The main thread runs the event loop, and on it HTTP, the application and the engine's reads. A single process accepts
connections from the listening socket; one of several receives them from the supervisor.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import ipaddress
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from typing import Any, Final, Protocol, cast

import uvloop
from uvicorn.config import Config

from tablestone.configuration import Configuration, WorkerSlot
from tablestone.engines.contract import EngineRefused
from tablestone.server.admission import MEBIBYTE, Admission
from tablestone.server.asgi import Message, Receive, Send
from tablestone.server.connection_handover import WorkerEnd
from tablestone.server.http_connection import HttpConnection
from tablestone.server.http_server import HttpServer, TrustedProxies
from tablestone.server.tls_certificate import ServedCertificate
from tablestone.telemetry.access_log import AccessLogRefused


class Hangup:
    """Made before the server serves. From then on SIGHUP ends the process no more."""

    def __init__(self) -> None:
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # as nohup leaves it
        self._needs_terminal = not ignored and _has_terminal()
        signal.signal(signal.SIGHUP, lambda *_: None)

    def ends_server(self) -> bool:
        """Whether the SIGHUP that has come tells that the terminal has gone."""
        return self._needs_terminal and not _has_terminal()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def end_by_interrupt() -> None:
    """End this process now, as SIGINT ends a program that does not handle it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


@contextlib.contextmanager
def stop_signal_held() -> Iterator[None]:
    """Hold SIGTERM back during a fork: a new process still has the supervisor's handler and would ignore the signal."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


logger = logging.getLogger(__name__)

BACKLOG: Final = 1024
"""Connections that the kernel queues until they are accepted."""
KEEP_ALIVE_SECONDS: Final = 120
"""Seconds until an idle connection is closed: more than in the SDKs' pools, so that the client closes first."""
MIDDLE_COLLECTIONS_PER_FULL: Final = 50
"""Collections of younger objects before one of all objects. One of all takes 80 ms with 4,000 connections: at Python's
10 it came every six seconds under load, and one read in a hundred waited for it."""
STOP_SECONDS_MAX: Final = 10
"""Seconds that requests under way may take after a signal; without a limit, a body that never comes would block the
stop."""


class StartRefused(Exception):
    """The server cannot start; the text is one sentence for the person who started it."""


class Application(Protocol):
    """The ASGI application: `startup` runs before the first request, `shutdown` after the last.

    `refuse` answers a request that arrives when there are too many connections. After `startup`, `waits` says whether
    every request needs a task of its own (`Capabilities.waits`).
    """

    @property
    def waits(self) -> bool: ...
    async def startup(self) -> None: ...
    async def shutdown(self) -> None: ...
    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None: ...
    async def refuse(self, scope: Message, receive: Receive, send: Send) -> None: ...

    def reopen_logs(self) -> None: ...
    def count_connections(
        self, connections: Sized, accepted: Callable[[], int], refused: Mapping[str, int]
    ) -> None: ...


CreateApplication = Callable[[Configuration, WorkerSlot], Application]
OpenCertificate = Callable[[], ServedCertificate | None]
"""Called once the application has started, because a self-signed certificate is in the data directory."""


class Worker:
    """One process that serves."""

    def __init__(
        self,
        configuration: Configuration,
        slot: WorkerSlot,
        create: CreateApplication,
        open_certificate: OpenCertificate,
        hangup: Hangup | None = None,
    ) -> None:
        self._configuration = configuration
        self._slot = slot
        self._create = create
        self._open_certificate = open_certificate
        self._hangup = hangup

    def run(self, source: socket.socket | WorkerEnd, on_ready: Callable[[], None]) -> None:
        """Serve what comes from `source` until SIGTERM, or SIGINT if this is the only process."""
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, MIDDLE_COLLECTIONS_PER_FULL)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(source, on_ready))

    async def _serve(self, source: socket.socket | WorkerEnd, on_ready: Callable[[], None]) -> None:
        stop_asked = asyncio.Event()
        application = self._create(self._configuration, self._slot)
        self._take_signals(stop_asked, application, is_alone=isinstance(source, socket.socket))
        try:
            await application.startup()
        except (EngineRefused, AccessLogRefused) as refused:
            raise StartRefused(str(refused)) from None
        watching: asyncio.Task[None] | None = None
        try:
            certificate = self._open_certificate()
            if certificate is not None:
                leads = self._slot.worker == 0
                watching = asyncio.create_task(certificate.watch(leads=leads))
            admission = admission_of(self._configuration)
            config = uvicorn_config(self._configuration, application, certificate, admission)
            server = HttpServer(config, source, on_ready, admission)
            application.count_connections(
                server.server_state.connections, server.accepted, admission.refused
            )
            await serve_until(stop_asked, server)
        finally:
            if watching is not None:
                watching.cancel()
            await application.shutdown()

    def _take_signals(
        self, stop_asked: asyncio.Event, application: Application, *, is_alone: bool
    ) -> None:
        loop = asyncio.get_running_loop()

        def interrupt() -> None:
            stop_asked.set()
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second one ends the process at once

        def hang_up() -> None:
            if self._hangup is not None and self._hangup.ends_server():
                stop_asked.set()
            else:
                application.reopen_logs()

        loop.add_signal_handler(signal.SIGTERM, stop_asked.set)
        loop.add_signal_handler(signal.SIGHUP, hang_up)
        if is_alone:
            loop.add_signal_handler(signal.SIGINT, interrupt)


async def serve_until(stop_asked: asyncio.Event, server: HttpServer) -> None:
    """Serve until the event is set, and then for as long as requests are under way, up to `STOP_SECONDS_MAX`."""
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
        # Closing the loop cuts these requests off, and each would log a traceback.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)


class Answering(Protocol):
    """The part of an `Application` that answers requests."""

    @property
    def waits(self) -> bool: ...
    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None: ...
    async def refuse(self, scope: Message, receive: Receive, send: Send) -> None: ...


def admission_of(configuration: Configuration) -> Admission:
    """The limits of one process: its share of those of the server."""
    most = configuration.admission
    workers = configuration.workers
    return Admission(
        -(-most.connections_max // workers),
        -(-most.requests_max // workers),
        -(-most.buffered_mebibytes_max * MEBIBYTE // workers),
    )


def uvicorn_config(
    configuration: Configuration,
    application: Answering,
    certificate: ServedCertificate | None,
    admission: Admission | None = None,
) -> Config:
    """The loaded configuration of uvicorn. The bench uses it too, so that it measures the real server.

    `admission` has the limits of this process, if they are not those of the configuration.
    """
    proxies = configuration.trusted_proxies
    trusted = TrustedProxies(cast("Any", application), _as_seen(proxies)) if proxies else None
    if admission is None:
        admission = admission_of(configuration)
    connection = functools.partial(
        HttpConnection,
        waits=application.waits,
        admission=admission,
        refuse=cast("Any", application.refuse),
    )
    config = Config(
        cast("Any", application if trusted is None else trusted),
        http=cast("Any", connection),
        ws="none",
        lifespan="off",
        interface="asgi3",
        backlog=BACKLOG,
        limit_concurrency=admission.connections_max,
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
    """The addresses, and those of IPv4 a second time in the form that a socket for both families shows."""
    networks = [ipaddress.ip_network(address) for address in addresses]
    mapped = [
        f"::ffff:{network.network_address}/{96 + network.prefixlen}"
        for network in networks
        if network.version == 4
    ]
    return [*addresses, *mapped]
