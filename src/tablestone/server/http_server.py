"""The HTTP server of one process: accepts or receives connections, and stops without delay.

Connections come from a listening socket or from the supervisor. TLS connections count before their handshake.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable
from email.utils import formatdate
from functools import partial
from typing import Any, Final

from tablestone import limits
from tablestone.configuration import Configuration
from tablestone.server.admission import MEBIBYTE, Admission, Limit, TlsHandshake
from tablestone.server.connection_handover import CONNECTIONS_PER_MESSAGE_MAX, WorkerEnd
from tablestone.server.exchange import Answering, Serving
from tablestone.server.http_connection import HttpConnection
from tablestone.server.tls_certificate import ServedCertificate
from tablestone.server.trusted_proxies import TrustedProxies

logger = logging.getLogger(__name__)

BACKLOG: Final = 1024
"""Connections that the kernel queues until they are accepted."""
HANDOVER_END_SECONDS_MAX: Final = 1.0
"""Seconds that a stopping worker waits until the supervisor confirms that no more connections come."""
TICK_SECONDS: Final = 1.0
"""How often the date of the answers is set."""
ACCEPT_PAUSE_SECONDS: Final = 0.1
"""Seconds without accepting, after an accept failed."""
LOOK_SECONDS_MIN: Final = 0.001
LOOK_SECONDS_MAX: Final = 0.05
"""How often a stop looks whether the last request is answered: soon at first, then less often."""


def admission_of(configuration: Configuration) -> Admission:
    """The limits of one process: its share of those of the server."""
    most = configuration.admission
    workers = configuration.workers
    return Admission(
        -(-most.connections_max // workers),
        -(-most.requests_max // workers),
        -(-most.buffered_mebibytes_max * MEBIBYTE // workers),
    )


class HttpServer:
    """Serves an application with connections from `source`. `stop` acts at once and ends with the last answer."""

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
        trusted = configuration.trusted_proxies
        proxies = TrustedProxies(trusted) if trusted else None
        self._serving = Serving(application, self.admission, proxies)
        self.connections = self._serving.connections
        self._source = source
        self.set_date = self._serving.set_date
        self._tls = None if certificate is None else certificate.context
        self._on_ready = on_ready
        self._accepted = 0
        self._listening: asyncio.Server | None = None
        self._being_opened: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self._exit_asked = asyncio.Event()

    def accepted(self) -> int:
        """The number of connections that the supervisor has given to this process."""
        return self._accepted

    async def serve(self) -> None:
        """Serve until `stop` is called and the requests under way are answered."""
        self.set_date(formatdate(usegmt=True))
        await self._begin()
        while not self._exit_asked.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._exit_asked.wait(), TICK_SECONDS)
            self.set_date(formatdate(usegmt=True))
        await self._end()

    async def _begin(self) -> None:
        source, loop = self._source, asyncio.get_running_loop()
        if isinstance(source, WorkerEnd):
            loop.add_reader(source.fileno(), self._take_connections, source)
        elif self._tls is None:
            create: Any = partial(HttpConnection, self._serving, loop)
            self._listening = await loop.create_server(create, sock=source, backlog=BACKLOG)
        else:  # a server of the event loop reports a TLS connection only after its handshake
            loop.add_reader(source.fileno(), self._accept, source)
        if not self._is_stopping:
            self._on_ready()

    async def _end(self) -> None:
        """Take no more connections, and return when the requests under way are answered."""
        self.admission.is_stopping = True
        if self._listening is None:
            asyncio.get_running_loop().remove_reader(self._source.fileno())
        else:
            self._listening.close()
        if isinstance(self._source, socket.socket):
            self._source.close()
        for connection in list(self.connections):
            connection.shutdown()
        pause = LOOK_SECONDS_MIN
        while self.connections or self._serving.tasks:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LOOK_SECONDS_MAX)
        if self._listening is not None:
            await self._listening.wait_closed()

    def stop(self) -> None:
        """Tell the supervisor to give new connections to other workers, and end when no more arrive."""
        self._is_stopping = True
        if not isinstance(self._source, WorkerEnd):
            self._exit_asked.set()
            return
        asyncio.get_running_loop().call_later(HANDOVER_END_SECONDS_MAX, self._exit_asked.set)
        try:
            self._source.tell_stopping()
        except OSError:
            self._exit_asked.set()

    def _take_connections(self, source: WorkerEnd) -> None:
        connections = source.receive()
        if connections is None and self._is_stopping:
            asyncio.get_running_loop().remove_reader(source.fileno())
            self._exit_asked.set()
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
        create: Any = partial(HttpConnection, self._serving, loop, on_lost=on_lost)
        try:
            if self._tls is None:
                await loop.connect_accepted_socket(create, connection)
                return
            handshake = TlsHandshake(connection, self.connections, loop)
            self.admission.connections.make(self.connections, loop)
            try:
                await loop.connect_accepted_socket(
                    lambda: create(on_made=handshake.end),
                    connection,
                    ssl=self._tls,
                    ssl_handshake_timeout=limits.REQUEST_HEAD_SECONDS_MAX,
                )
            finally:
                handshake.end()
        except OSError:  # the client has closed it already, or the TLS handshake failed
            connection.close()
            on_lost()
