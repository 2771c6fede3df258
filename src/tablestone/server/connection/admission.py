"""The limits of one process: connections, requests under way and bytes in memory, and the share of each address.

A client address has a share of each, so that one client cannot lock the others out, with or without credentials. An
IPv6 client usually has a network of its own, so its first 64 bits count as its address. Counts what is refused. Knows
no HTTP.
"""

from __future__ import annotations

import enum
import ipaddress
import logging
from asyncio import AbstractEventLoop, Task
from collections.abc import Callable
from typing import Final

from tablestone.clock import monotonic_seconds
from tablestone.server.connection.connection_limit import ConnectionLimit, Idle
from tablestone.server.connection.fair_shares import ALL, FairShares
from tablestone.server.connection.rounds import Rounds

logger = logging.getLogger(__name__)

WARNING_SECONDS: Final = 60.0
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
