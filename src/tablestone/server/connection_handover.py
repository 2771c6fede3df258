"""The channel between the supervisor and one worker: accepted connections one way, the worker's state the other way.

A message to a worker is one byte, the number of the sockets attached to it (SCM_RIGHTS). A worker sends that it is
ready, or a sentence that says why it cannot start, and later that it stops. Then the supervisor closes its sending
side, so the worker knows when it has its last connection. The channel closes when either process ends. Both share the
memory that counts ended connections. Nothing here waits.
"""

from __future__ import annotations

import contextlib
import mmap
import socket
from typing import Final

CONNECTIONS_PER_MESSAGE_MAX: Final = 64
"""Sockets handed over at once; the kernel takes at most 253."""
SENTENCE_BYTES_MAX: Final = 65536
READY: Final = b"+"
STOPPING: Final = b"-"
STOPS: Final = frozenset((STOPPING, READY + STOPPING))
"""Messages of a worker that stops, as they may arrive in one read."""
_COUNTER_BYTES: Final = 8


def ended_counters(workers: int) -> memoryview[int]:
    """The number of ended connections of each worker, in memory that later forks share."""
    return memoryview(mmap.mmap(-1, workers * _COUNTER_BYTES)).cast("Q")


class SupervisorEnd:
    def __init__(self, channel: socket.socket) -> None:
        channel.setblocking(False)
        self._channel = channel

    def fileno(self) -> int:
        return self._channel.fileno()

    def hand_over(self, connections: list[socket.socket]) -> bool:
        """Give these connections to the worker; False if it has ended or its channel is full."""
        try:
            number = bytes([len(connections)])
            socket.send_fds(self._channel, [number], [each.fileno() for each in connections])
        except OSError:
            return False
        return True

    def end_handover(self) -> None:
        """Tell the worker that it gets no more connections."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)

    def receive(self) -> bytes | None:
        """The worker's messages about its state; empty if there are none, None when it has ended."""
        try:
            return self._channel.recv(SENTENCE_BYTES_MAX) or None
        except BlockingIOError:
            return b""
        except ConnectionError:
            return None

    def close(self) -> None:
        self._channel.close()


class WorkerEnd:
    def __init__(self, channel: socket.socket, counters: memoryview[int], worker: int) -> None:
        self._channel = channel
        self._counters = counters
        self._worker = worker
        self.lost = 0
        """Connections of the last message that were lost, because this process may open no more files."""

    def fileno(self) -> int:
        return self._channel.fileno()

    def tell_ready(self) -> None:
        self._channel.sendall(READY)

    def tell_stopping(self) -> None:
        """Ask for no more connections: those under way still arrive, then `receive` returns None."""
        self._channel.sendall(STOPPING)

    def tell_refused(self, sentence: str) -> None:
        self._channel.sendall(sentence.encode())

    def tell_ended(self) -> None:
        """Count the end of a connection that was received."""
        self._counters[self._worker] += 1

    def receive(self) -> list[socket.socket] | None:
        """The connections of one message; None when no more come: on request, or because the supervisor has ended."""
        self.lost = 0
        try:
            message, descriptors, _flags, _address = socket.recv_fds(
                self._channel, 1, CONNECTIONS_PER_MESSAGE_MAX, socket.MSG_DONTWAIT
            )
        except BlockingIOError:
            return []
        except ConnectionError:
            return None
        if not message:
            return None
        self.lost = message[0] - len(descriptors)
        for _ in range(self.lost):
            self.tell_ended()
        connections = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        for connection in connections:
            connection.setblocking(False)
        return connections


def channel() -> tuple[socket.socket, socket.socket]:
    """The supervisor's end and the worker's."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
