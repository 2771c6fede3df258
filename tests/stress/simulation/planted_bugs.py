"""Bugs for the servers of a simulation: it must find each of them, or it shows nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tablestone.engines.cassandra.kind import LEASE_SECONDS
from tablestone.engines.leases import Leases

if TYPE_CHECKING:
    from stress.simulation.simulated_server import SimulatedServer  # needs the driver

SLOW: Final = 0.1


def blind_retry(server: SimulatedServer) -> None:
    """Send an unanswered write again, as if it had not been applied."""

    async def never_applied(*_arguments: object) -> bool:
        return False

    server.engine._commits._outcomes.was_applied = never_applied  # type: ignore[assignment,method-assign]


def read_at_one(server: SimulatedServer) -> None:
    """Ask one replica for a point read."""
    server.engine._reads._statements.get.asks_one = True
    server.engine._reads._statements.get.is_serial = False


def long_lease(server: SimulatedServer) -> None:
    """Cache rows for longer than other servers wait before they change them."""
    server.engine.leases = Leases(
        LEASE_SECONDS, lambda: SLOW * server.elapsed(), server.engine._commits._outcomes.mark_of
    )


def blind_renewal(server: SimulatedServer) -> None:
    """Renew a lease as if no partition ever changed."""

    async def always_the_same(_partition: bytes) -> int:
        return 1

    server.engine.leases.last_change_of = always_the_same


def late_listing(server: SimulatedServer) -> None:
    """Write to a partition before it is in the directory."""
    directory = server.engine.directory
    enlist = directory.enlist

    async def later(partition: bytes, listed: int) -> int:
        epoch = max(directory.epoch_now(), -listed + 1)
        server.start(enlist(partition, listed))
        return epoch

    directory.enlist = later  # type: ignore[method-assign]


BUGS: Final[dict[str, Callable[[SimulatedServer], None]]] = {
    "blind retry": blind_retry,
    "read at consistency ONE": read_at_one,
    "a lease that is too long": long_lease,
    "a lease that is renewed blindly": blind_renewal,
    "a partition that is listed late": late_listing,
}
