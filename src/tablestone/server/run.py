"""Start, run and stop: the listening socket, uvicorn, the loop, the signals, and nothing of the service.

Who owns what: the main thread runs the one event loop, and on it HTTP, the application and its engine's reads. The
listening socket is made here and handed on, so that several worker processes could share it, each with its own loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import resource
import signal
import socket
from collections.abc import Awaitable, Callable, Generator, MutableMapping, Sequence
from typing import Any, Final, Protocol, cast

import uvloop
from uvicorn.config import Config
from uvicorn.server import Server

from tablestone.clock import system_clock
from tablestone.engines.contract import EngineRefused
from tablestone.server.app import create_application
from tablestone.server.configuration import CertificateFiles, Configuration, SelfSigned
from tablestone.server.http import HttpConnection
from tablestone.server.tls import CertificateRefused, ServedCertificate

logger = logging.getLogger(__name__)

BACKLOG: Final = 1024
"""Connections the kernel keeps for us until they are accepted."""
CONNECTIONS_MAX: Final = 8192
"""Connections served at a time; the next ones wait in the backlog."""
KEEP_ALIVE_SECONDS: Final = 120
"""How long an idle connection is kept; longer than the SDKs' pools keep theirs, so that they close first."""
STOP_SECONDS_MAX: Final = 10
"""How long requests in flight may take after a signal; one whose body never comes would hold the stop for ever."""

Message = MutableMapping[str, Any]
OnReady = Callable[[str], None]
"""Told the base address, `http://HOST:PORT` or https, once connections are answered."""


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
    """Serve until SIGINT or SIGTERM. `StartRefused` if the port, the data or the certificate cannot be had."""
    if isinstance(configuration.tls, CertificateFiles):
        open_certificate(configuration.tls)  # what is wrong with it is told before data is touched
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


def base_address(listener: socket.socket, scheme: str = "http") -> str:
    """Where a client on this machine finds the listener."""
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"{scheme}://{_authority(reachable, port)}"


def open_certificate(tls: CertificateFiles | SelfSigned) -> ServedCertificate:
    """The certificate to answer handshakes with; one of our own is made if it has to be. Raises `StartRefused`."""
    try:
        if isinstance(tls, CertificateFiles):
            return ServedCertificate(tls)
        from tablestone.server.self_signed import keeper  # noqa: PLC0415 - imports a library for it

        return ServedCertificate(tls.files, keeper(tls, system_clock))
    except CertificateRefused as refused:
        raise StartRefused(str(refused)) from None


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
    watching: asyncio.Task[None] | None = None
    try:
        certificate: ServedCertificate | None = None
        if configuration.tls is not None:
            # Only now: a certificate of our own stands in the data directory, which the engine has made its own.
            certificate = open_certificate(configuration.tls)
            watching = asyncio.create_task(certificate.watch())
        address = base_address(listener, "https" if certificate else "http")
        server = _HttpServer(
            configuration, application, listener, certificate, lambda: on_ready(address)
        )
        await _serve_until(stop_asked, server)
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
    """uvicorn in this process, on a socket that already listens; it is told when to stop, and takes no signals."""

    def __init__(
        self,
        configuration: Configuration,
        application: Application,
        listener: socket.socket,
        certificate: ServedCertificate | None,
        on_ready: Callable[[], None],
    ) -> None:
        super().__init__(
            Config(
                cast("Any", application),
                http=HttpConnection,
                ws="none",
                lifespan="off",
                interface="asgi3",
                backlog=BACKLOG,
                limit_concurrency=CONNECTIONS_MAX,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                access_log=False,
                server_header=False,
                proxy_headers=bool(configuration.trusted_proxies),
                forwarded_allow_ips=_as_seen(configuration.trusted_proxies),
                log_config=None,
                log_level=logging.ERROR,
            )
        )
        self.config.load()
        self.config.ssl = None if certificate is None else certificate.context
        self._listener = listener
        self._on_ready = on_ready

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def run_until_stopped(self) -> None:
        await self.serve([self._listener])

    def stop(self) -> None:
        self.should_exit = True
