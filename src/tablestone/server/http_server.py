"""uvicorn on the event loop of this process: accepts or receives connections, and stops without delay.

Connections come from a listening socket or from the supervisor. TLS connections count before their handshake.
`TrustedProxies` reads the headers in which a proxy describes its client.
"""

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final, Protocol, cast

from uvicorn.config import Config
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.server import Server

from tablestone import limits
from tablestone.configuration import Configuration
from tablestone.server.admission import MEBIBYTE, Admission, Limit, TlsHandshake
from tablestone.server.asgi import Message, Receive, Send
from tablestone.server.connection_handover import CONNECTIONS_PER_MESSAGE_MAX, WorkerEnd
from tablestone.server.http_connection import HttpConnection
from tablestone.server.tls_certificate import ServedCertificate

logger = logging.getLogger(__name__)

BACKLOG: Final = 1024
"""Connections that the kernel queues until they are accepted."""
KEEP_ALIVE_SECONDS: Final = 120
"""Seconds until an idle connection is closed: more than in the SDKs' pools, so that the client closes first."""
HANDOVER_END_SECONDS_MAX: Final = 1.0
"""Seconds that a stopping worker waits until the supervisor confirms that no more connections come."""
TICK_SECONDS: Final = 1.0
"""How often uvicorn writes the Date header of the answers again."""
TICKS_BETWEEN_DATES: Final = 10
"""uvicorn counts ticks of 0.1 s, and writes the date at every tenth."""
ACCEPT_PAUSE_SECONDS: Final = 0.1
"""Seconds without accepting, after an accept failed."""
LOOK_SECONDS_MIN: Final = 0.001
LOOK_SECONDS_MAX: Final = 0.05
"""How often a stop looks whether the last request is answered: soon at first, then less often."""


class Answering(Protocol):
    """An ASGI application. `refuse` answers beyond a limit; if it `waits`, each request needs a task of its own."""

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
    configuration: Configuration, application: Answering, admission: Admission
) -> Config:
    """The loaded configuration of uvicorn. The bench uses it too, so that it measures the real server."""
    served: Any = application
    if configuration.trusted_proxies:
        served = TrustedProxies(served, _as_seen(configuration.trusted_proxies))
    connection: Any = partial(
        HttpConnection, waits=application.waits, admission=admission, refuse=application.refuse
    )
    config = Config(
        served,
        http=connection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        log_config=None,
        log_level=logging.ERROR,
    )
    config.load()
    return config


def _as_seen(addresses: Sequence[str]) -> list[str]:
    """The addresses, and those of IPv4 again in the form that a socket for both families shows."""
    networks = [ipaddress.ip_network(address) for address in addresses]
    mapped = [
        f"::ffff:{network.network_address}/{96 + network.prefixlen}"
        for network in networks
        if network.version == 4
    ]
    return [*addresses, *mapped]


class TrustedProxies(ProxyHeadersMiddleware):
    """Gives a request the scheme and the client that a trusted proxy names."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        scope["headers"] = [
            (name, forwarded_scheme(value) if name == b"x-forwarded-proto" else value)
            for name, value in scope["headers"]
        ]
        await super().__call__(scope, receive, send)


def forwarded_scheme(value: bytes) -> bytes:
    """`https` if every proxy on the way says so, `http` if one of them says `http`; empty for anything else."""
    said = {each.strip().lower() for each in value.split(b",")}
    if not said <= {b"http", b"https"}:
        return b""
    return b"https" if said == {b"https"} else b"http"


class HttpServer(Server):
    """uvicorn without signals. `stop` acts at once and ends with the last answer: uvicorn itself looks every 0.1 s."""

    def __init__(
        self,
        configuration: Configuration,
        application: Answering,
        source: socket.socket | WorkerEnd,
        on_ready: Callable[[], None],
        certificate: ServedCertificate | None = None,
        admission: Admission | None = None,
    ) -> None:
        """`admission` has the limits of this process, if the configuration's do not hold."""
        self.admission = admission or admission_of(configuration)
        super().__init__(uvicorn_config(configuration, application, self.admission))
        self._source = source
        self._tls = None if certificate is None else certificate.context
        self._on_ready = on_ready
        self._accepted = 0
        self._being_opened: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self._exit_asked = asyncio.Event()

    def accepted(self) -> int:
        """The number of connections that the supervisor has given to this process."""
        return self._accepted

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - uvicorn's own
        source, loop = self._source, asyncio.get_running_loop()
        if isinstance(source, WorkerEnd):
            await super().startup([])
            loop.add_reader(source.fileno(), self._take_connections, source)
        elif self._tls is None:
            await super().startup([source])
        else:  # a server of the event loop reports a TLS connection only after its handshake
            await super().startup([])
            loop.add_reader(source.fileno(), self._accept, source)
        if not self._is_stopping:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - uvicorn's own
        """Take no more connections, and return when the requests under way are answered."""
        if not self.servers:
            asyncio.get_running_loop().remove_reader(self._source.fileno())
        self.admission.is_stopping = True
        for server in self.servers:
            server.close()
        if isinstance(self._source, socket.socket):
            self._source.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        pause = LOOK_SECONDS_MIN
        while self.server_state.connections or self.server_state.tasks:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LOOK_SECONDS_MAX)
        for server in self.servers:
            await server.wait_closed()

    async def main_loop(self) -> None:
        """Write the date of the answers every second until it is time to exit."""
        while not await self.on_tick(counter=TICKS_BETWEEN_DATES):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._exit_asked.wait(), TICK_SECONDS)

    def stop(self) -> None:
        """Tell the supervisor to give new connections to other workers, and end when no more arrive."""
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
        self._exit_asked.set()

    def _take_connections(self, source: WorkerEnd) -> None:
        connections = source.receive()
        if connections is None and self._is_stopping:
            asyncio.get_running_loop().remove_reader(source.fileno())
            self._exit()
            return
        if connections is None:
            logger.error("The supervisor has ended; this process ends with it.")
            # The supervisor was killed. No process is left that could stop this one, and its lock keeps the next
            # server out. All acknowledged writes are on disk.
            os._exit(1)
        for _ in range(source.lost):
            self.admission.count_refused(Limit.OPEN_FILES, "")
        self._accepted += len(connections)
        for connection in connections:
            self._begin_to_open(connection, source.tell_ended)

    def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(CONNECTIONS_PER_MESSAGE_MAX):  # then others have their turn
            try:
                connection, _address = listener.accept()
            except (BlockingIOError, ConnectionError):
                return
            except OSError:
                self.admission.count_refused(Limit.OPEN_FILES, "")
                loop.remove_reader(listener.fileno())
                loop.call_later(ACCEPT_PAUSE_SECONDS, self._accept_again, listener)
                return
            connection.setblocking(False)
            self._begin_to_open(connection, lambda: None)

    def _accept_again(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:  # else it is closed
            asyncio.get_running_loop().add_reader(listener.fileno(), self._accept, listener)

    def _begin_to_open(self, connection: socket.socket, on_lost: Callable[[], None]) -> None:
        opening = asyncio.ensure_future(self._open(connection, on_lost))
        self._being_opened.add(opening)
        opening.add_done_callback(self._being_opened.discard)

    async def _open(self, connection: socket.socket, on_lost: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        connections = cast("set[Any]", self.server_state.connections)
        create = partial(
            cast("Callable[..., asyncio.Protocol]", self.config.http_protocol_class),
            config=self.config,
            server_state=self.server_state,
            app_state={},
            on_lost=on_lost,
        )
        try:
            if self._tls is None:
                await loop.connect_accepted_socket(create, connection)
                return
            handshake = TlsHandshake(connection, connections, loop)
            self.admission.connections.make(connections, loop)
            try:
                await loop.connect_accepted_socket(
                    partial(create, on_made=handshake.end),
                    connection,
                    ssl=self._tls,
                    ssl_handshake_timeout=limits.REQUEST_HEAD_SECONDS_MAX,
                )
            finally:
                handshake.end()
        except OSError:  # the client has closed it already, or the TLS handshake failed
            connection.close()
            on_lost()
