"""The limits of one process: connections, requests under way, and bytes that wait in memory for a client.

Above the limit of connections, the one that is idle for longest is closed: it has no request under way, so nothing is
lost. A TLS connection counts from when it is accepted. While more requests arrive than one turn of the event loop can
serve, client addresses take turns (round robin).
"""

import contextlib
import enum
import heapq
import logging
import socket
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Collection
from operator import itemgetter
from typing import Any, Final, Protocol

from tablestone import limits
from tablestone.clock import monotonic_seconds
from tablestone.telemetry.logs import OnceAMinute

logger = logging.getLogger(__name__)

IDLE_SECONDS_MIN: Final = 1.0
"""A connection that was opened or answered more recently is not idle: its next request may be on the way."""
SHARE: Final = 8
"""Each pass over the connections notes one in eight of them as the next to close."""
TLS_CLOSE_SECONDS_MAX: Final = 2.0
"""Seconds that a stop waits for a TLS client to close its side. Idle clients never do; the loop would wait for 30 s."""
PAUSE_SECONDS: Final = 0.1
"""Seconds until the next pass, after a pass that found no idle connection."""


class Idle(Protocol):
    """A connection, as the limit sees it."""

    @property
    def idle_since(self) -> float | None:
        """Time of its last answer, in seconds of a monotonic clock; None while a request is under way."""

    def end_idle(self) -> None:
        """Close it now."""


class ConnectionLimit:
    """Keeps the connections of one process below `connections_max`."""

    def __init__(self, connections_max: int) -> None:
        self._connections_max = connections_max
        self._noted: list[tuple[float, Idle]] = []
        """The connections that were idle for longest at the last pass, the longest one last."""
        self._next_look_at = 0.0
        self._warnings = OnceAMinute()
        self._tries_again = False

    def make(self, connections: Collection[Idle], loop: AbstractEventLoop) -> None:
        """Close idle connections until one more fits below the limit. If too few are idle, try again later."""
        while len(connections) >= self._connections_max:
            idle = self._longest_idle(connections, loop.time())
            if idle is None:
                if not self._tries_again:
                    self._tries_again = True
                    loop.call_later(IDLE_SECONDS_MIN, self._try_again, connections, loop)
                return
            idle.end_idle()

    def _try_again(self, connections: Collection[Idle], loop: AbstractEventLoop) -> None:
        self._tries_again = False
        self.make(connections, loop)

    def _longest_idle(self, connections: Collection[Idle], now: float) -> Idle | None:
        while self._noted or self._look_through(connections, now):
            since, noted = self._noted.pop()
            if noted.idle_since == since:
                return noted
        return None

    def _look_through(self, connections: Collection[Idle], now: float) -> bool:
        """Note the connections that are idle for longest; False if there are none, or if it is too early to look."""
        if now < self._next_look_at:
            return False
        latest = now - IDLE_SECONDS_MIN
        idle = [
            (since, each)
            for each in connections
            if (since := each.idle_since) is not None and since <= latest
        ]
        noted = max(1, len(connections) // SHARE)
        self._noted = heapq.nsmallest(noted, idle, key=itemgetter(0))[::-1]
        if not self._noted:
            self._next_look_at = now + PAUSE_SECONDS
        if self._warnings.is_due():
            logger.warning(
                "There are %d connections, as many as this process serves: a new connection closes an idle one; if "
                "none is idle, requests are refused.",
                len(connections),
            )
        return bool(self._noted)


LATE_SECONDS: Final = 0.002
"""Age of a turn of the loop at which requests begin to wait. The loop rounds the start of a turn down by up to 1 ms."""
TASK_SECONDS: Final = limits.TURN_SECONDS / 16
"""What the start of a task counts for: most of its work is done in a later turn."""

Begin = Callable[[], bool]
"""Begins a request; True if the rest of it is a task."""


class Rounds:
    """The waiting requests of one process, by address."""

    def __init__(self, seconds: Callable[[], float] = monotonic_seconds) -> None:
        self._seconds = seconds
        self._waiting: dict[str, deque[Begin]] = {}
        """The addresses in the order of their turns."""
        self.is_busy = False
        """Whether requests wait."""

    def is_late(self, loop: AbstractEventLoop) -> bool:
        """Whether another request has to wait. A loop whose clock never stands still is never late."""
        return self.is_busy or self._seconds() - loop.time() > LATE_SECONDS

    def wait(self, address: str, begin: Begin, loop: AbstractEventLoop) -> None:
        """Call `begin` in one of the next turns of the loop."""
        queue = self._waiting.get(address)
        if queue is None:
            self._waiting[address] = queue = deque()
        queue.append(begin)
        if not self.is_busy:
            self.is_busy = True
            loop.call_soon(self._serve, loop)

    def _serve(self, loop: AbstractEventLoop) -> None:
        """Begin one request of each address in turn until the time of this turn is over."""
        ends = self._seconds() + limits.TURN_SECONDS
        try:
            while self._waiting:
                address, queue = next(iter(self._waiting.items()))
                begin = queue.popleft()
                del self._waiting[address]
                if queue:
                    self._waiting[address] = queue  # after the others
                if begin():
                    ends -= TASK_SECONDS
                if self._seconds() > ends:
                    break
        finally:  # also if one fails
            self.is_busy = bool(self._waiting)
            if self.is_busy:
                loop.call_soon(self._serve, loop)


MEBIBYTE: Final = 1024 * 1024
WAITS_MAX: Final = 256
"""Requests of one process that may wait for changes at a time; one more is answered `ServerBusy`."""


class Limit(enum.Enum):
    """The limits that refuse requests, each with its reason. Metrics have their names in lower case."""

    CONNECTIONS = "too many connections, none of which is idle"
    REQUESTS = "too many requests under way"
    BUFFERS = "too many bytes of requests and answers in memory"
    WAITING = "too many requests that wait for changes"
    PIPELINED = "too many requests on one connection before their answers"
    SLOW_READER = "the answer is read too slowly"
    """The connection is closed: there is no answer that the client would read."""
    OPEN_FILES = "this process may open no more files"
    """The connection is closed before it is opened: there is no descriptor for it."""


class Admission:
    """The limits of one process, and what it has taken on."""

    def __init__(self, connections_max: int, requests_max: int, held_bytes_max: int) -> None:
        self.connections_max = connections_max
        self.connections = ConnectionLimit(connections_max)
        self.requests_max = requests_max
        self.requests = 0
        """Requests under way: those that are tasks, or wait to begin."""
        self.waits_max = WAITS_MAX
        self.waiting = 0
        """The requests among them that wait for changes: these have a limit of their own."""
        self.is_stopping = False
        """Whether the process stops: no request waits for changes any more."""
        # Tests change these; in a compiled module, a constant would be compiled in.
        self.head_seconds: float = limits.REQUEST_HEAD_SECONDS_MAX
        self.answer_read_seconds: float = limits.ANSWER_READ_SECONDS_MAX
        self.tls_close_seconds = TLS_CLOSE_SECONDS_MAX
        self.held_bytes_max = held_bytes_max
        self.held_bytes = 0
        """Bytes of requests that have not arrived whole, and of answers that are not read yet."""
        self.rounds = Rounds()
        self.refused: dict[str, int] = {limit.name.lower(): 0 for limit in Limit}
        """Requests that were refused, by the name of the limit; each is shown before it refuses one."""
        self._warnings = {limit: OnceAMinute() for limit in Limit}

    def limit_reached(self, connections: int) -> Limit | None:
        """The limit that one more request would exceed, with so many open connections."""
        if connections >= self.connections_max:
            return Limit.CONNECTIONS
        if self.held_bytes >= self.held_bytes_max:
            return Limit.BUFFERS
        return Limit.REQUESTS if self.requests - self.waiting >= self.requests_max else None

    def count_refused(self, limit: Limit, address: str) -> None:
        """Count a request that is refused; the log names the limit once a minute."""
        self.refused[limit.name.lower()] += 1
        if self._warnings[limit].is_due():
            logger.warning("A request of %s is refused: %s.", address or "a client", limit.value)


EARLIER_SECONDS: Final = 24 * 60 * 60.0
"""An unfinished handshake counts as idle for a day longer, so it ends before any idle connection."""


class TlsHandshake:
    """The handshake of a connection, counted in `connections` until `end` is called."""

    def __init__(
        self, connection: socket.socket, connections: set[Any], loop: AbstractEventLoop
    ) -> None:
        self._connection = connection
        self._connections = connections
        self._loop = loop
        self._accepted_at = loop.time()
        connections.add(self)

    def end(self) -> None:
        """Stop counting it: the handshake is complete or has failed."""
        self._connections.discard(self)

    @property
    def idle_since(self) -> float | None:
        """Earlier than that of any idle connection; None while the handshake is young."""
        if self._loop.time() - self._accepted_at < IDLE_SECONDS_MIN:
            return None
        return self._accepted_at - EARLIER_SECONDS

    def end_idle(self) -> None:
        """Shut the connection down. The handshake then fails, and its opener closes the socket."""
        self.end()
        with contextlib.suppress(OSError):  # the client has ended it
            self._connection.shutdown(socket.SHUT_RDWR)

    shutdown = end_idle
    """Called when the server stops."""
