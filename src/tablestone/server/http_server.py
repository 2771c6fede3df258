"""uvicorn's server on the event loop of this process: accepts or receives connections, and stops without delay.

Connections come from a listening socket or from the supervisor. Those of TLS count before their handshake.
`TrustedProxies` reads the headers in which a proxy describes its client.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Generator
from functools import partial
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Final, cast

from uvicorn.config import Config
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.server import Server

from tablestone import limits
from tablestone.server.admission import Admission, Limit, TlsHandshake
from tablestone.server.connection_handover import CONNECTIONS_PER_MESSAGE_MAX, WorkerEnd

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

_PROTOCOL: Final = b"x-forwarded-proto"


class TrustedProxies(ProxyHeadersMiddleware):
    """Gives a request the scheme and the client that a trusted proxy names."""

    async def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        if scope["type"] == "http":
            scope["headers"] = [
                (name, forwarded_scheme(value)) if name == _PROTOCOL else (name, value)
                for name, value in scope["headers"]
            ]
        await super().__call__(scope, receive, send)


def forwarded_scheme(value: bytes) -> bytes:
    """`https` if every proxy on the way says so, `http` if one of them says `http`; empty for anything else."""
    said = {each.strip().lower() for each in value.split(b",")}
    if not said <= {b"http", b"https"}:
        return b""
    return b"https" if said == {b"https"} else b"http"


logger = logging.getLogger(__name__)

HANDOVER_END_SECONDS_MAX: Final = 1.0
"""Seconds that a stopping worker waits for the supervisor to confirm that it gives it no more connections."""
TICK_SECONDS: Final = 1.0
"""How often uvicorn writes the Date header of the answers again."""
TICKS_BETWEEN_DATES: Final = 10
"""uvicorn counts ticks of 0.1 s, and writes the date at every tenth."""
ACCEPT_PAUSE_SECONDS: Final = 0.1
"""Seconds without accepting, after an accept failed."""
LOOK_SECONDS_MIN: Final = 0.001
LOOK_SECONDS_MAX: Final = 0.05
"""How often a stop looks whether the last request is answered: soon at first, then less often."""


class HttpServer(Server):
    """uvicorn in this process; `stop` ends it, and it catches no signals. `admission` counts connections too.

    uvicorn's own server looks every 0.1 s whether to stop, and a stop waits for 0.1 s at least once more. Here a stop
    begins at once, and ends when the last request is answered.
    """

    def __init__(
        self,
        config: Config,
        source: socket.socket | WorkerEnd,
        on_ready: Callable[[], None],
        admission: Admission,
    ) -> None:
        super().__init__(config)
        self._source = source
        self._admission = admission
        has_tls = config.ssl is not None
        self._listener = source if has_tls and isinstance(source, socket.socket) else None
        """Accepted from here: a server of the event loop tells of a connection of TLS only after the handshake."""
        self._on_ready = on_ready
        self._accepted = 0
        self._being_opened: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self._exit_asked = asyncio.Event()

    def accepted(self) -> int:
        """The connections that the supervisor has given to this process."""
        return self._accepted

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        if isinstance(self._source, WorkerEnd):
            loop.add_reader(self._source.fileno(), self._take_connections)
        elif self._listener is not None:
            loop.add_reader(self._listener.fileno(), self._accept, self._listener)
        if not self._is_stopping:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, and return when the requests under way are answered."""
        if isinstance(self._source, WorkerEnd):
            asyncio.get_running_loop().remove_reader(self._source.fileno())
        elif self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
            self._listener.close()
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()
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

    async def run_until_stopped(self) -> None:
        if isinstance(self._source, WorkerEnd) or self._listener is not None:
            await self.serve([])
        else:
            await self.serve([self._source])

    def stop(self) -> None:
        """End once no more connections arrive; the supervisor then gives new ones to other workers."""
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

    def _take_connections(self) -> None:
        assert isinstance(self._source, WorkerEnd)
        connections = self._source.receive()
        if connections is None and self._is_stopping:
            asyncio.get_running_loop().remove_reader(self._source.fileno())
            self._exit()
            return
        if connections is None:
            logger.error("The supervisor has ended; this process ends with it.")
            # The supervisor was killed. No process is left that could stop this one, and its lock keeps the next
            # server out. All acknowledged writes are on disk.
            os._exit(1)
        for _ in range(self._source.lost):
            self._admission.count_refused(Limit.OPEN_FILES, "")
        self._accepted += len(connections)
        for connection in connections:
            self._begin_to_open(connection, self._source.tell_ended)

    def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(CONNECTIONS_PER_MESSAGE_MAX):  # then others have their turn
            try:
                connection, _address = listener.accept()
            except (BlockingIOError, ConnectionError):
                return
            except OSError:
                self._admission.count_refused(Limit.OPEN_FILES, "")
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
        create = partial(
            cast("Callable[..., asyncio.Protocol]", self.config.http_protocol_class),
            config=self.config,
            server_state=self.server_state,
            app_state={},
            on_lost=on_lost,
        )
        try:
            if self.config.ssl is None:
                await asyncio.get_running_loop().connect_accepted_socket(create, connection)
            else:
                await self._shake_hands(connection, create, self.config.ssl)
        except OSError:  # the client has closed it already, or the TLS handshake failed
            connection.close()
            on_lost()

    async def _shake_hands(
        self, connection: socket.socket, create: Callable[..., asyncio.Protocol], tls: SSLContext
    ) -> None:
        loop = asyncio.get_running_loop()
        connections = cast("set[Any]", self.server_state.connections)
        handshake = TlsHandshake(connection, connections, loop)
        self._admission.connections.make(connections, loop)
        try:
            await loop.connect_accepted_socket(
                partial(create, on_made=handshake.end),
                connection,
                ssl=tls,
                ssl_handshake_timeout=limits.REQUEST_HEAD_SECONDS_MAX,
            )
        finally:
            handshake.end()
