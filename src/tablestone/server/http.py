"""One HTTP connection: uvicorn's, with bounds on what a peer may make it wait for, which it has none of itself.

A head that is too long or too slow ends its connection, and a stop does not wait for TLS peers that say no goodbye;
nothing else is changed. Knows no ASGI application.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tablestone import limits

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


TLS_CLOSE_SECONDS_MAX: Final = 2.0
"""How long a stop waits for a TLS peer to say goodbye, which idle ones never do; the loop would wait for 30 s."""


class HttpConnection(HttpToolsProtocol):
    """A connection whose request heads are bounded in bytes and in time."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_is_open = False
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._head_is_open or self.transport.is_closing():
            return
        # Only a head that came in pieces gets here: most come whole, and cost nothing.
        self._head_bytes += len(data)
        if self._head_bytes > limits.REQUEST_HEAD_BYTES_MAX:
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(
                limits.REQUEST_HEAD_SECONDS_MAX, self.transport.close
            )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_is_open = True
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        super().shutdown()
        if self.scheme == "https":
            self.loop.call_later(TLS_CLOSE_SECONDS_MAX, self._end_tls)

    def _end_tls(self) -> None:
        if self.transport.is_closing() and self.transport.get_write_buffer_size() == 0:
            self.transport.abort()
        else:
            self.loop.call_later(TLS_CLOSE_SECONDS_MAX, self._end_tls)

    def _end_head(self) -> None:
        self._head_is_open = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
