"""Leases: the generation of an engine that does not learn of the commits of other processes.

A row that was read in one lease may be used until the lease ends. The next lease begins when the generation is first
read after that, so that the processes of a cluster do not all read their rows again at the same moment. A lease can be
renewed before its end: the rows in use are read in the background, and the next lease counts from before these reads.
The reasons are in docs/decisions/0008-leases.md.
"""

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from tablestone.clock import elapsed_seconds

Renewal = Callable[[int, Callable[[bool], None]], None]
"""Begins to read rows for the lease of this number. Calls the function once: with False if the reads failed."""

MomentOf = Callable[[bytes], Awaitable[int]]
"""Reads the moment of a partition, a number that changes with each commit to it. The number includes every commit that
was acknowledged before the call. While it is the same, so are the rows."""

EARLIEST: Final = 0.5
"""A lease is renewed after this part of it at the earliest. Earlier renewals would read rows more often."""
LATEST: Final = 0.85
"""A lease is renewed after this part of it at the latest."""
SPARE: Final = 3.0
"""A renewal begins this many times its usual duration before the lease ends."""
FORGET: Final = 0.75
"""A slow renewal counts for the next one with this part of its duration, then with this part of the rest."""

_numbers = count(1)
"""The numbers of all leases of this process. No two objects give the same number, so one is never taken for another."""


@dataclass(eq=False, slots=True)
class _Lease:
    """One lease. `unread` is the number of renewals that still read rows for it."""

    began: float
    ends: float
    number: int = field(default_factory=_numbers.__next__)
    unread: int = 0
    failed: bool = False


class Leases:
    """The leases of one process. `elapsed` is a clock that goes on while the process or the machine is suspended.

    An engine that can tell the moments of partitions for less than it costs to read their rows gives `moment_of`.
    """

    def __init__(
        self,
        seconds: float,
        elapsed: Callable[[], float] = elapsed_seconds,
        moment_of: MomentOf | None = None,
    ) -> None:
        self.seconds = seconds
        self.moment_of = moment_of
        self._elapsed = elapsed
        self._present = _Lease(float("-inf"), float("-inf"))
        self._next: _Lease | None = None
        self._due = float("-inf")
        """When the present lease is to be renewed, or ends."""
        self._renewals: list[Renewal] = []
        self._usual_seconds = 0.0
        """How long a renewal takes: about as long as the longest recent one."""

    @property
    def generation(self) -> int:
        """The number of the present lease: rows that were read in an earlier one may not be used any more.

        Reading it late in a lease begins the renewal.
        """
        now = self._elapsed()
        if now >= self._due:
            self._look(now)
        return self._present.number

    def renew_with(self, number: int, renewal: Renewal) -> None:
        """Call `renewal` when the lease of this number is renewed, if it is the present lease and that is to come."""
        if number == self._present.number:
            self._renewals.append(renewal)

    def _look(self, now: float) -> None:
        if now >= self._present.ends:
            following, self._next = self._next, None
            if following is None or now >= following.ends:
                following = self._lease(now)
            # The rows of a lease that is being read are there sooner than those of a new one.
            self._begin(following, now)
        elif self._renewals:
            self._due = self._present.ends
            renewals, self._renewals = self._renewals, []
            lease = self._next = self._lease(now)
            lease.unread = len(renewals)
            for renewal in renewals:
                renewal(lease.number, functools.partial(self._renewed, lease))

    def _lease(self, now: float) -> _Lease:
        """A lease that begins now: every row that is read for it is read after this."""
        return _Lease(now, now + self.seconds)

    def _begin(self, lease: _Lease, now: float) -> None:
        """Make this lease, which may have begun earlier, the present one."""
        self._present = lease
        self._renewals = []
        due = min(lease.ends - SPARE * self._usual_seconds, lease.began + LATEST * self.seconds)
        self._due = max(due, lease.began + EARLIEST * self.seconds, now)

    def _renewed(self, lease: _Lease, is_read: bool) -> None:  # noqa: FBT001 - the only argument of a `Renewal`'s call
        """One renewal has read its rows, or failed. With the last one, the lease becomes the present one."""
        lease.unread -= 1
        lease.failed = lease.failed or not is_read
        if lease.unread:
            return
        now = self._elapsed()
        self._usual_seconds = max(now - lease.began, FORGET * self._usual_seconds)
        if self._next is lease:
            self._next = None
            if now < lease.ends and not lease.failed:
                self._begin(lease, now)
