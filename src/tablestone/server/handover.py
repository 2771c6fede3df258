"""The channel between the supervisor and one worker: accepted connections one way, how the worker is the other way.

A message to a worker is one byte with sockets attached (SCM_RIGHTS). A worker says once that it is ready, or in one
sentence why it is not, and once that it stops: then the supervisor ends its side, and what came before that is all.
That a worker has ended, the channel itself tells, as it tells the worker that the supervisor has.
How many connections of a worker have ended stands in memory that both see. Nothing here waits.
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
"""What may be heard at once of a worker that stops."""
_COUNTER_BYTES: Final = 8


class EndedCounters:
    """For each worker how many of the connections it was given have ended. Made before the fork."""

    def __init__(self, workers: int) -> None:
        self._shared = memoryview(mmap.mmap(-1, workers * _COUNTER_BYTES)).cast("Q")

    def add_one(self, worker: int) -> None:
        self._shared[worker] += 1

    def of(self, worker: int) -> int:
        return self._shared[worker]

    def clear(self, worker: int) -> None:
        self._shared[worker] = 0


class SupervisorEnd:
    """The supervisor's end of a worker's channel."""

    def __init__(self, channel: socket.socket) -> None:
        channel.setblocking(False)
        self._channel = channel

    def fileno(self) -> int:
        return self._channel.fileno()

    def hand_over(self, connections: list[socket.socket]) -> bool:
        """Give these connections to the worker; False if it has ended or does not take what it was given."""
        try:
            socket.send_fds(self._channel, [b"c"], [each.fileno() for each in connections])
        except OSError:
            return False
        return True

    def end_handover(self) -> None:
        """Tell the worker that it has got all it will get."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)

    def receive(self) -> bytes | None:
        """What the worker says of itself; None when it has ended."""
        try:
            return self._channel.recv(SENTENCE_BYTES_MAX) or None
        except BlockingIOError:
            return b""
        except ConnectionError:
            return None

    def close(self) -> None:
        self._channel.close()


class WorkerEnd:
    """A worker's end of its channel."""

    def __init__(self, channel: socket.socket, counters: EndedCounters, worker: int) -> None:
        self._channel = channel
        self._counters = counters
        self._worker = worker

    def fileno(self) -> int:
        return self._channel.fileno()

    def tell_ready(self) -> None:
        self._channel.sendall(READY)

    def tell_stopping(self) -> None:
        """No more connections, please: those under way still come, then `receive` gives None."""
        self._channel.sendall(STOPPING)

    def tell_refused(self, sentence: str) -> None:
        self._channel.sendall(sentence.encode())

    def tell_ended(self) -> None:
        """A connection that was received has ended."""
        self._counters.add_one(self._worker)

    def receive(self) -> list[socket.socket] | None:
        """Connections to serve, of one message; None when no more come: asked for, or the supervisor has ended."""
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
        return [_received(descriptor) for descriptor in descriptors]


def _received(descriptor: int) -> socket.socket:
    connection = socket.socket(fileno=descriptor)
    connection.setblocking(False)
    return connection


def channel() -> tuple[socket.socket, socket.socket]:
    """Two connected ends: the supervisor's, the worker's."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
