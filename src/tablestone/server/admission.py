"""The limits of one process: connections, requests under way and bytes in memory, and the share of each client address.

A client address has a share of each limit, so that one client cannot lock the others out, with or without credentials.
An IPv6 client usually has a network of its own, so its first 64 bits count as its address. While more requests arrive
than one turn of the event loop can serve, addresses have their turns round robin. Above the limit of connections the
one that is idle for longest ends: it has no request under way, so closing it loses nothing. A TLS connection counts
from the moment that it is accepted.
"""

from __future__ import annotations

import contextlib
import enum
import heapq
import ipaddress
import logging
import socket
from asyncio import AbstractEventLoop, Task
from collections import deque
from collections.abc import Callable, Collection
from operator import itemgetter
from typing import Any, Final, Protocol

from tablestone import limits
from tablestone.clock import monotonic_seconds
from tablestone.model.errors import RETRY_AFTER, StorageError

logger = logging.getLogger(__name__)

IDLE_SECONDS_MIN: Final = 1.0
"""A connection that was opened or answered more recently than this is not idle: its next request may be on the way."""
SHARE: Final = 8
"""Each pass over the connections notes one in eight of them as the next to close."""
PAUSE_SECONDS: Final = 0.1
"""Seconds until the next pass, after a pass that found no idle connection."""
WARNING_SECONDS: Final = 60.0
"""Seconds between two warnings in the log, at least."""


class Idle(Protocol):
    """A connection, as the limit sees it."""

    @property
    def idle_since(self) -> float | None:
        """Time of its last answer, in seconds of a monotonic clock; None while a request is under way."""

    def end_idle(self) -> None:
        """Close it now."""


class ConnectionLimit:
    """Keeps the connections of one process, or of one client of it, below `connections_max`."""

    def __init__(self, connections_max: int, *, of_one_client: bool = False) -> None:
        self._whose = "a client may have here" if of_one_client else "this process serves"
        self._connections_max = connections_max
        self._noted: list[tuple[float, Idle]] = []
        """The connections that were idle for longest at the last pass, the longest last."""
        self._next_look_at = 0.0
        self._next_warning_at = 0.0
        self._tries_again = False

    def make(self, connections: Collection[Idle], loop: AbstractEventLoop) -> None:
        """Close idle connections until one more fits below the limit.

        If too few are idle, it tries again later, until enough connections have ended.
        """
        while len(connections) >= self._connections_max:
            longest = self._longest_idle(connections, loop.time())
            if longest is None:
                if not self._tries_again:
                    self._tries_again = True
                    loop.call_later(IDLE_SECONDS_MIN, self._try_again, connections, loop)
                return
            longest.end_idle()

    def _try_again(self, connections: Collection[Idle], loop: AbstractEventLoop) -> None:
        self._tries_again = False
        self.make(connections, loop)

    def _longest_idle(self, connections: Collection[Idle], now: float) -> Idle | None:
        longest = self._next_noted()
        if longest is None and now >= self._next_look_at:
            self._look_through(connections, now)
            longest = self._next_noted()
        return longest

    def _next_noted(self) -> Idle | None:
        while self._noted:
            since, noted = self._noted.pop()
            if noted.idle_since == since:
                return noted
        return None

    def _look_through(self, connections: Collection[Idle], now: float) -> None:
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
        if now >= self._next_warning_at:
            self._next_warning_at = now + WARNING_SECONDS
            logger.warning(
                "There are %d connections, as many as %s: a new connection closes an idle one; if "
                "none is idle, requests are refused.",
                len(connections),
                self._whose,
            )


ALL: Final = 100
"""The percentage with which an address may take every place: places are then not shared by address."""


class FairShares:
    """`places` in all, of which one address may take `percent` at most, and never more than are free.

    With `percent` 100, any address may take any place. `is_tight` is false while no request for one place could be
    refused, so that a caller need not ask.
    """

    def __init__(self, places: int, percent: int) -> None:
        self._places = places
        self._is_shared = percent < ALL
        self._each = max(1, places * percent // ALL)
        self._tight_from = min(self._each, places // 2) if self._is_shared else places
        self._taken: dict[str, int] = {}
        self.taken = 0
        """Places of all addresses together."""
        self.is_tight = self._tight_from <= 0

    def has_room(self, address: str, number: int = 1) -> bool:
        """Whether the address may have so many more places."""
        free = self._places - self.taken
        most = min(self._each, free) if self._is_shared else self._places
        return number <= free and self._taken.get(address, 0) + number <= most

    def take(self, address: str, number: int = 1) -> bool:
        """Give the address so many places, or none; True if it got them."""
        if not self.has_room(address, number):
            return False
        self.add(address, number)
        return True

    def add(self, address: str, number: int = 1) -> None:
        """Count places that the address has already, even beyond its share."""
        self._taken[address] = self._taken.get(address, 0) + number
        self.taken += number
        self.is_tight = self.taken >= self._tight_from

    def give_back(self, address: str, number: int = 1) -> None:
        """Free so many places of the address."""
        left = self._taken[address] - number
        if left:
            self._taken[address] = left
        else:
            del self._taken[address]
        self.taken -= number
        self.is_tight = self.taken >= self._tight_from


LATE_SECONDS: Final = 0.002
"""Age of a turn of the loop at which requests begin to wait. The loop rounds the start of a turn down by up to 1 ms."""
TASK_SECONDS: Final = limits.TURN_SECONDS / 16
"""The time that the start of a task counts for: most of its work is done in a later turn."""

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
        while self._waiting:
            address, queue = next(iter(self._waiting.items()))
            begin = queue.popleft()
            del self._waiting[address]
            if queue:
                self._waiting[address] = queue  # behind the others
            if begin():
                ends -= TASK_SECONDS
            if self._seconds() > ends:
                break
        self.is_busy = bool(self._waiting)
        if self.is_busy:
            loop.call_soon(self._serve, loop)


"""Seconds between two warnings about one limit in the log, at least."""
MEBIBYTE: Final = 1024 * 1024
ADDRESS_BITS_OF_IPV6: Final = 64


class Limit(enum.StrEnum):
    """The limits by which requests are refused, as metrics name them."""

    CONNECTIONS = "connections"
    CONNECTIONS_OF_ADDRESS = "connections_of_address"
    REQUESTS = "requests"
    BUFFERS = "buffers"
    PIPELINED = "pipelined"
    SLOW_READER = "slow_reader"
    """The connection is closed: there is no answer that the client would read."""
    OPEN_FILES = "open_files"
    """The connection is closed before it is opened: there is no descriptor for it."""


REASONS: Final[dict[Limit, str]] = {
    Limit.CONNECTIONS: "too many connections, none of which is idle",
    Limit.CONNECTIONS_OF_ADDRESS: "too many connections of one client, none of which is idle",
    Limit.REQUESTS: "too many requests under way",
    Limit.BUFFERS: "too many bytes of requests and answers in memory",
    Limit.PIPELINED: "too many requests on one connection before their answers",
    Limit.SLOW_READER: "the answer is read too slowly",
    Limit.OPEN_FILES: "this process may open no more files",
}


class Neighbours:
    """The connections of one address. `is_full` says whether another one would be above the address's limit.

    Above `connections_max`, requests are refused; `open_max` is the limit even of connections that ask nothing.
    """

    def __init__(self, connections_max: int | None, open_max: int) -> None:
        self.connections: set[Idle] = set()
        self.is_full = False
        self._most = connections_max
        self._open_max = open_max
        self._limit: ConnectionLimit | None = None

    def add(self, connection: Idle, loop: AbstractEventLoop) -> bool:
        """Count the connection; above the limit, the one that is idle for longest ends.

        False if none is idle and there are too many even so, which cost descriptors: this one has to end.
        """
        self.connections.add(connection)
        if self._most is None or len(self.connections) < self._most:
            return True
        if self._limit is None:
            self._limit = ConnectionLimit(self._most, of_one_client=True)
        self._limit.make(self.connections, loop)
        self.is_full = len(self.connections) >= self._most
        return len(self.connections) <= self._open_max

    def remove(self, connection: Idle) -> None:
        """Count the connection no more."""
        self.connections.discard(connection)
        self.is_full = self._most is not None and len(self.connections) >= self._most


class Admission:
    """The limits of one process. An address may take `percent` of each of them, all of it with 100.

    `is_proxy` says whether an address is a trusted proxy's, whose connections are those of many clients.
    """

    def __init__(
        self,
        connections_max: int,
        requests_max: int,
        buffered_bytes_max: int,
        percent: int,
        is_proxy: Callable[[str], bool] = lambda _: False,
        seconds: Callable[[], float] = monotonic_seconds,
    ) -> None:
        self.connections_max = connections_max
        self.connections = ConnectionLimit(connections_max)
        self.requests = FairShares(requests_max, percent)
        self.buffers = FairShares(buffered_bytes_max, percent)
        self.rounds = Rounds(seconds)
        self.refused: dict[str, int] = {limit.value: 0 for limit in Limit}
        """Requests that were refused, by the name of the limit; each is shown before it refuses one."""
        self.is_proxy = is_proxy
        self._of_address_max = max(2, connections_max * percent // ALL) if percent < ALL else None
        self._open_max = ((self._of_address_max or 0) + connections_max) // 2
        """Connections that one address may have open for a moment. Those between this and the limit are for others."""
        self._neighbours: dict[str, Neighbours] = {}
        self._seconds = seconds
        self._next_warning_at: dict[Limit, float] = {}

    def connect(self, address: str, connection: Idle, loop: AbstractEventLoop) -> Neighbours:
        """Count a connection of this address."""
        found = self._neighbours.get(address)
        if found is None:
            most = None if self.is_proxy(address) else self._of_address_max
            self._neighbours[address] = found = Neighbours(most, self._open_max)
        if not found.add(connection, loop):
            self.count_refused(Limit.CONNECTIONS_OF_ADDRESS, address)
            connection.end_idle()
        return found

    def disconnect(self, address: str, connection: Idle) -> None:
        """Count the connection no more."""
        found = self._neighbours.get(address)
        if found is not None:
            found.remove(connection)
            if not found.connections:
                del self._neighbours[address]

    def end_task(self, tasks: set[Task[None]], address: str, task: Task[None]) -> None:
        """Free the place of a request, when the task that carried it out has ended."""
        tasks.discard(task)
        self.requests.give_back(address)

    def count_refused(self, limit: Limit, address: str) -> None:
        """Count a request that is refused; the log names the limit once a minute."""
        name = limit.value  # a plain text, which a report can hold
        self.refused[name] = self.refused.get(name, 0) + 1
        now = self._seconds()
        if now >= self._next_warning_at.get(limit, 0.0):
            self._next_warning_at[limit] = now + WARNING_SECONDS
            logger.warning("A request of %s is refused: %s.", address or "a client", REASONS[limit])


def address_of(host: str) -> str:
    """The address by which a client is counted: of IPv6 its network, of IPv4 on a socket for both the plain form."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, ADDRESS_BITS_OF_IPV6), strict=False))


class HeldBytes:
    """The counted bytes of one connection. `address` is the client's; behind a proxy each request may change it."""

    __slots__ = ("_admission", "_arrived", "_unsent", "address")

    def __init__(self, admission: Admission, address: str) -> None:
        self.address = address
        self._admission = admission
        self._arrived: tuple[str, int] | None = None
        self._unsent: tuple[str, int] | None = None

    def has_room(self, number: int) -> bool:
        """Count bytes that have arrived; False if there is no room for them."""
        if self._arrived is None:
            address, before = self.address, 0
        else:
            address, before = self._arrived
        if not self._admission.buffers.take(address, number):
            self._admission.count_refused(Limit.BUFFERS, address)
            return False
        self._arrived = address, before + number
        return True

    def require_room(self, number: int) -> None:
        """Count bytes of a body. Raises `ServerBusy` if there is no room for them."""
        if number and not self.has_room(number):
            reason = REASONS[Limit.BUFFERS]
            raise StorageError("ServerBusy", reason=reason, headers=RETRY_AFTER)

    def forget_arrived(self) -> None:
        """Count what has arrived no more: it is answered."""
        if self._arrived is not None:
            arrived, self._arrived = self._arrived, None
            self._admission.buffers.give_back(*arrived)

    def note_unsent(self, number: int) -> None:
        """Count the bytes of an answer that waits for its reader, whether there is room or not."""
        self.forget_unsent()
        if number:
            self._unsent = self.address, number
            self._admission.buffers.add(*self._unsent)

    def forget_unsent(self) -> None:
        """Count no such answer any more."""
        if self._unsent is not None:
            unsent, self._unsent = self._unsent, None
            self._admission.buffers.give_back(*unsent)


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
        if self._loop.time() - self._accepted_at < IDLE_SECONDS_MIN:
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
