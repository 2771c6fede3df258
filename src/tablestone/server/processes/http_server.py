"""uvicorn's server on the event loop of this process: `stop` ends it without delay, and it catches no signals.

Connections come from a listening socket or from the supervisor. Knows neither the application nor why it stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Generator
from typing import Final, cast

from uvicorn.config import Config
from uvicorn.server import Server

from tablestone.server.processes.handover import WorkerEnd

logger = logging.getLogger(__name__)

HANDOVER_END_SECONDS_MAX: Final = 1.0
"""Seconds that a stopping worker waits for the supervisor to confirm that it gives it no more connections."""
TICK_SECONDS: Final = 1.0
"""How often uvicorn writes the Date header of the answers again."""
TICKS_BETWEEN_DATES: Final = 10
"""uvicorn counts ticks of 0.1 s, and writes the date at every tenth."""
LOOK_SECONDS_MIN: Final = 0.001
LOOK_SECONDS_MAX: Final = 0.05
"""How often a stop looks whether the last request is answered: soon at first, then less often."""


class HttpServer(Server):
    """uvicorn in this process; `stop` ends it, and it catches no signals.

    uvicorn's own server looks every 0.1 s whether to stop, and a stop waits for 0.1 s at least once more. Here a stop
    begins at once, and ends when the last request is answered.
    """

    def __init__(
        self, config: Config, source: socket.socket | WorkerEnd, on_ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._source = source
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
        if isinstance(self._source, WorkerEnd):
            asyncio.get_running_loop().add_reader(self._source.fileno(), self._take_connections)
        if not self._is_stopping:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, and return when the requests under way are answered."""
        if isinstance(self._source, WorkerEnd):
            asyncio.get_running_loop().remove_reader(self._source.fileno())
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
        await self.serve([self._source] if isinstance(self._source, socket.socket) else [])

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
        self._accepted += len(connections)
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
        except OSError:  # the client has closed it already, or the TLS handshake failed
            connection.close()
            source.tell_ended()
