"""A TLS connection before its handshake is complete: it counts as a connection from the moment that it is accepted.

Among idle connections, those without a handshake end first: no client has lost anything with them. Knows neither TLS
nor HTTP.
"""

from __future__ import annotations

import contextlib
import socket
from asyncio import AbstractEventLoop
from typing import Any, Final

from tablestone.server.connection import connection_limit
from tablestone.server.connection.admission import Admission, address_of

EARLIER_SECONDS: Final = 24 * 60 * 60.0
"""An unfinished handshake counts as idle for so much longer: no connection is idle for a day."""


class TlsHandshake:
    """The handshake of a connection, counted in `connections` and in `admission` until `end` is called."""

    def __init__(
        self,
        connection: socket.socket,
        connections: set[Any],
        admission: Admission,
        loop: AbstractEventLoop,
    ) -> None:
        self._connection = connection
        self._connections = connections
        self._admission = admission
        self._loop = loop
        self._address = _address(connection)
        self._accepted_at = loop.time()

    def begin(self) -> None:
        """Count the connection; at a limit, the one that is idle for longest ends."""
        self._connections.add(self)
        self._admission.connect(self._address, self, self._loop)
        self._admission.connections.make(self._connections, self._loop)

    def end(self) -> None:
        """Count it no more: the handshake is complete or has failed."""
        self._connections.discard(self)
        self._admission.disconnect(self._address, self)

    @property
    def idle_since(self) -> float | None:
        """Earlier than any idle connection; None while the handshake is too young to be called unfinished."""
        if self._loop.time() - self._accepted_at < connection_limit.IDLE_SECONDS_MIN:
            return None
        return self._accepted_at - EARLIER_SECONDS

    def end_idle(self) -> None:
        """End the connection. The handshake then fails, and its opener closes the socket."""
        self.end()
        with contextlib.suppress(OSError):  # the client has ended it
            self._connection.shutdown(socket.SHUT_RDWR)

    def shutdown(self) -> None:
        """End the connection, because the server stops."""
        self.end_idle()


def _address(connection: socket.socket) -> str:
    try:
        return address_of(connection.getpeername()[0])
    except OSError:  # the client has ended it
        return ""
