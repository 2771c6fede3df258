"""The driver's connections to the nodes, served by the server's own event loop while that runs.

The driver reads and writes its sockets on a thread of its own. In a server, each request then wakes that thread, and
each answer wakes the event loop; the two threads take the interpreter from each other. Here the sockets of a session
move to the event loop for as long as a server runs on it (`served_here`): no thread is woken any more. Before and
afterwards, and for the connection that watches the cluster, the driver's thread serves them.

Knows sockets, and no statement. The driver is imported here, with its libev reactor, which its wheels have.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from threading import get_ident
from typing import Any, Final

import cassandra.io.libevwrapper as libev
from cassandra.connection import ConnectionException, ConnectionShutdown, CrcMismatchException
from cassandra.io import libevreactor
from cassandra.io.libevreactor import LibevConnection
from cassandra.segment import SegmentCodec

from tablestone.engines.cassandra.segments import Damaged, Received, segments
from tablestone.engines.cassandra.serving_loop import ServingLoop

READ_BYTES: Final = 256 << 10
"""How much is read from a socket at once. The driver's own 4 KiB are 256 calls for a page of 1,000 entities."""
HANDED_OVER_SECONDS: Final = 0.001
"""How often the event loop looks whether the driver's thread has let go of a socket."""
LOOKS_MAX: Final = 1000
"""How often it looks for that when a server ends in the middle of a move: for about a second."""
_WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class FastSegments(SegmentCodec):  # type: ignore[misc]
    """Segments without compression. The driver computes the checksums of their headers bit by bit."""

    def encode(self, buffer: Any, msg: bytes) -> None:
        buffer.write(segments(msg))


SEGMENTS: Final = FastSegments()


class NodeSocket(LibevConnection):  # type: ignore[misc]
    """A connection of the driver to a node. `served_by` makes the class for a session."""

    in_buffer_size = READ_BYTES
    out_buffer_size = READ_BYTES
    serving = ServingLoop()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.is_closed: bool = False
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop that serves the socket, or is about to."""
        self._is_moved = False
        self._is_flushing = False
        self._outgoing: deque[bytes] = deque()
        self._received = Received()
        super().__init__(*arguments, **named)

    @classmethod
    def served_by(cls, serving: ServingLoop) -> type[NodeSocket]:
        """The class of the connections of one session."""
        return type("NodeSocket", (cls,), {"serving": serving})

    def _enable_checksumming(self) -> None:
        super()._enable_checksumming()
        self._segment_codec = SEGMENTS  # a session has no compression

    def push(self, data: bytes) -> None:
        """Send, from whichever thread. Only requests of the event loop's own thread let it serve the socket."""
        loop = self.serving.loop
        if (
            loop is not None
            and get_ident() == self.serving.thread
            and not self.is_control_connection
            and self.connected_event.is_set()
        ):
            self._send(loop, data)
            return
        with self.lock:  # the socket does not move before the data is where it will be sent from
            loop = self._loop
            if loop is None:
                super().push(data)
                return
            self._outgoing.append(data)
        try:
            loop.call_soon_threadsafe(self._flush, loop)
        except RuntimeError as closed:
            raise ConnectionShutdown("The event loop is closed.") from closed

    def handle_read(self, watcher: Any, revents: Any, errno: Any = None) -> None:
        """On the driver's thread: not any more once the socket is on its way to the event loop."""
        if self._loop is None:
            super().handle_read(watcher, revents, errno)

    def close(self) -> None:
        """Close, from whichever thread. Requests under way end with an error."""
        with self.lock:
            if self.is_closed:
                return
            self.is_closed = True
            loop = self._loop
        if loop is None:  # as the driver does; its own method would look for the loop too late
            libevreactor._global_loop.connection_destroyed(self)  # noqa: SLF001
            self._socket.close()
        elif get_ident() == self.serving.thread:
            self._release()
        else:
            try:
                loop.call_soon_threadsafe(self._release)
            except RuntimeError:  # the loop is closed
                self._release()
        if not self.is_defunct:
            self.error_all_requests(ConnectionShutdown(f"Connection to {self.endpoint} was closed"))

    # On the event loop's thread, from here on.

    def give_back(self) -> None:
        """Let the driver's thread serve the socket again."""
        self.serving.sockets.discard(self)
        loop = self._loop
        if loop is None:
            return
        for _ in range(LOOKS_MAX):
            if self.is_closed or not self._is_watched_by_driver():
                break
            time.sleep(HANDED_OVER_SECONDS)
        else:
            # The thread would let go of it later, and then nothing would serve it.
            self.defunct(ConnectionException("A connection was lost between two threads."))
        with self.lock:
            if not self.is_closed:  # otherwise the loop is about to release it
                self._return_to_driver(loop)

    def _return_to_driver(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._is_moved, self._is_flushing = None, False, False
        loop.remove_reader(self._socket.fileno())
        loop.remove_writer(self._socket.fileno())
        driver = libevreactor._global_loop  # noqa: SLF001 - as `LibevConnection.__init__` does
        with driver._lock:  # noqa: SLF001
            watchers, descriptor = driver._loop, self._socket.fileno()  # noqa: SLF001
            self._read_watcher = libev.IO(descriptor, libev.EV_READ, watchers, self.handle_read)
            self._write_watcher = libev.IO(descriptor, libev.EV_WRITE, watchers, self.handle_write)
        self._write_watcher_is_active = False
        self.deque.extend(self._outgoing)
        self._outgoing.clear()
        self._io_buffer.io_buffer.write(self._received.unread)
        self._io_buffer.cql_frame_buffer.write(self._received.part)
        self._received = Received()
        driver.connection_created(self)
        driver.maybe_start()

    def _send(self, loop: asyncio.AbstractEventLoop, data: bytes) -> None:
        """Send what one turn of the loop has to send in one call."""
        if self._loop is None:
            with self.lock:
                if self.is_closed:
                    return
                self._loop = loop
            self.serving.sockets.add(self)
            # Its name is misleading: the driver's thread stops watching the socket.
            libevreactor._global_loop.connection_destroyed(self)  # noqa: SLF001
            self._arrive(loop)
        self._outgoing.append(data)
        if self._is_moved and not self._is_flushing:
            self._is_flushing = True
            loop.call_soon(self._flush, loop)

    def _arrive(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve the socket from the moment on at which the driver's thread has let go of it."""
        if self.is_closed or self._is_moved or self._loop is not loop:
            return
        if self._is_watched_by_driver():
            loop.call_later(HANDED_OVER_SECONDS, self._arrive, loop)
            return
        self._is_moved = True
        self._outgoing.extendleft(reversed(self.deque))
        self.deque.clear()
        # The driver refuses to send on a socket that its thread has found full.
        self._socket_writable = True
        buffers = self._io_buffer
        self._received = Received(buffers.io_buffer.getvalue(), buffers.cql_frame_buffer.getvalue())
        buffers.set_checksumming_buffer()  # empties both
        self._current_frame = None
        loop.add_reader(self._socket.fileno(), self._readable)
        self._flush(loop)

    def _is_watched_by_driver(self) -> bool:
        if self._read_watcher is None and self._write_watcher is None:
            return False
        # It ends when it watches nothing any more, perhaps before it has seen that it is to let go.
        libevreactor._global_loop.maybe_start()  # noqa: SLF001
        return True

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not loop or not self._is_moved or self.is_closed:
            return
        self._is_flushing = False
        outgoing = self._outgoing
        # One by one: another thread may add more in between.
        data = b"".join([outgoing.popleft() for _ in range(len(outgoing))])
        if not data:
            return
        try:
            sent = self._socket.send(data)
        except _WOULD_BLOCK:
            sent = 0
        except OSError as error:
            self.defunct(error)
            return
        if sent < len(data):
            outgoing.appendleft(data[sent:])
            self._is_flushing = True
            loop.add_writer(self._socket.fileno(), self._writable, loop)

    def _writable(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_writer(self._socket.fileno())
        self._flush(loop)

    def _readable(self) -> None:
        try:
            while data := self._socket.recv(READ_BYTES):
                for envelope, body in self._received.take(data):
                    self.process_msg(envelope, body)
                if len(data) < READ_BYTES and self.ssl_context is None:
                    return
        except _WOULD_BLOCK:
            return
        except OSError as error:
            self.defunct(error)
            return
        except Damaged as damaged:
            self.defunct(CrcMismatchException(str(damaged), self.endpoint))
            return
        self.close()

    def _release(self) -> None:
        loop = self._loop
        self.serving.sockets.discard(self)
        if loop is not None and not loop.is_closed() and self._socket.fileno() >= 0:
            loop.remove_reader(self._socket.fileno())
            loop.remove_writer(self._socket.fileno())
        self._socket.close()
